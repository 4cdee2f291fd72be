"""A RIF and its workers under arbitrary events: fences hold, everything is answered once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gspc_trio.components.rif.events import (
    AtWorker,
    Called,
    CheckGrant,
    DropJob,
    EndJob,
    ForgetJob,
    GrantChecked,
    ReplyError,
    ReplyToCall,
    StartWorker,
    Stop,
    Stopped,
    StopWorker,
)
from gspc_trio.components.rif.host import RifHost
from gspc_trio.components.rif.messages import AddResources, Hold, RemoveResources
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.worker.events import (
    Compute,
    Computed,
    ComputeKilled,
    ComputeLost,
    ForgetCompute,
    Kill,
    Retract,
    Retracted,
)
from gspc_trio.components.worker.messages import (
    Cancel,
    DefineCode,
    Finished,
    OpenJob,
    Submission,
    Submit,
    TakeBack,
)
from gspc_trio.core.ids import GrantId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, TaskOptions
from gspc_trio.records.facts import WorkerChanged

DAG = (
    Resource("r1.node", "node"),
    Resource("r1.socket0", "socket", ("r1.node",)),
    Resource("r1.socket1", "socket", ("r1.node",)),
    Resource("r1.core0", "core", ("r1.socket0",)),
    Resource("r1.core1", "core", ("r1.socket0",)),
    Resource("r1.core2", "core", ("r1.socket1",)),
    Resource("r1.gpu0", "gpu", ("r1.socket0", "r1.socket1")),
)
NAMES = [resource.resource_id for resource in DAG]
ABOVE = {
    "r1.node": set[str](),
    "r1.socket0": {"r1.node"},
    "r1.socket1": {"r1.node"},
    "r1.core0": {"r1.socket0", "r1.node"},
    "r1.core1": {"r1.socket0", "r1.node"},
    "r1.core2": {"r1.socket1", "r1.node"},
    "r1.gpu0": {"r1.socket0", "r1.socket1", "r1.node"},
}
JOBS = ("j1", "j2")
names = st.sampled_from(NAMES)
grants = st.integers(-3, 3)


def related(a: str, b: str) -> bool:
    return a == b or a in ABOVE[b] or b in ABOVE[a]


class RifModel(RuleBasedStateMachine):
    """Submits carry any grant; what is computed where is followed outside of the machines."""

    def __init__(self) -> None:
        super().__init__()
        self.host = RifHost("r1", "host", "memory:x")
        self.now = 0.0
        self.counter = 10
        self.tasks = 0
        self.calls = 0
        self.answered: Counter[int] = Counter()
        self.grant_of: dict[int, tuple[GrantId, tuple[str, ...]]] = {}
        self.open: set[int] = set()
        self.reported: Counter[int] = Counter()
        self.inside: dict[str, list[Submission]] = {}
        self.kills: list[str] = []
        self.newest: dict[str, GrantId] = {}
        self.revoked: dict[str, GrantId] = {}
        self.asked: Counter[tuple[GrantId, tuple[str, ...]]] = Counter()
        self.doubts: list[CheckGrant] = []
        self.there: set[str] = set()
        self.stopped = 0

    @initialize()
    def start(self) -> None:
        self.call(AddResources(DAG))
        for job in JOBS:
            self.give(OpenJob(job))
            self.give(DefineCode(job, 7, b""))

    # Actions

    def give(self, event: Any) -> None:
        actions = self.host.handle(event, self.now)
        self.host.check()
        for action in actions:
            self.perform(action)

    def perform(self, action: Any) -> None:
        match action:
            case Finished(outcomes=outcomes):
                for outcome in outcomes:
                    self.open.remove(outcome.task_id)
                    self.reported[outcome.task_id] += 1
            case Compute(resource_id=name, submissions=submissions):
                self.compute_begins(name, submissions)
            case Kill(resource_id=name):
                assert name not in self.kills
                self.kills.append(name)
            case Retract(resource_id=name):
                back = self.inside[name][1:]
                del self.inside[name][1:]
                self.give(AtWorker(name, Retracted(tuple((s.task_id, s.attempt) for s in back))))
            case ReplyToCall(call=call) | ReplyError(call=call):
                self.answered[call] += 1
            case Revoked(grant_id=grant_id, resources=resources):
                self.asked[grant_id, resources] -= 1
                for name in resources:
                    self.revoked[name] = max(grant_id, self.revoked.get(name, (0, 0)))
                    for submission in self.inside.get(name, ()):
                        assert self.grant_of[submission.task_id][0] > grant_id, "revoked, but still at work"
            case StartWorker(resource=resource):
                self.there.add(resource.resource_id)
                self.inside[resource.resource_id] = []
            case StopWorker(resource_id=name):
                self.there.remove(name)
                assert not self.inside.pop(name)
                assert name not in self.kills
            case CheckGrant():
                self.doubts.append(action)
            case DropJob(job=job):
                self.give(OpenJob(job))
                self.give(DefineCode(job, 7, b""))
            case Stopped():
                self.stopped += 1
            case OpenJob() | DefineCode() | ForgetJob() | ForgetCompute() | WorkerChanged():
                pass
            case _:
                raise AssertionError(action)

    def compute_begins(self, name: str, submissions: tuple[Submission, ...]) -> None:
        assert name not in self.kills
        self.inside[name].extend(submissions)
        for submission in submissions:
            assert submission.task_id in self.open, "computed after it was reported"
            grant_id, parts = self.grant_of[submission.task_id]
            for part in parts:
                for other, newest in self.newest.items():
                    assert not related(part, other) or newest <= grant_id, "computed under an old grant"
                assert self.revoked.get(part, (0, 0)) < grant_id, "computed under a revoked grant"
                self.newest[part] = grant_id

    def call(self, body: Any) -> None:
        self.calls += 1
        self.give(Called(self.calls, body))

    # Events

    @rule(job=st.sampled_from(JOBS), parts=st.lists(names, min_size=1, max_size=2, unique=True), age=grants,
          count=st.integers(1, 3), may_rerun=st.booleans())  # fmt: skip
    def submit(self, job: str, parts: list[str], age: int, count: int, may_rerun: bool) -> None:
        if any(related(a, b) for a in parts for b in parts if a != b):
            return
        self.counter += max(age, 0)
        grant_id = (1, self.counter + min(age, 0))
        submissions = []
        for _ in range(count):
            self.tasks += 1
            self.open.add(self.tasks)
            self.grant_of[self.tasks] = (grant_id, tuple(parts))
            submissions.append(Submission(self.tasks, 1, 7, (), TaskOptions(may_rerun=may_rerun)))
        self.give(Submit(job, grant_id, tuple(parts), tuple(submissions)))

    @rule(job=st.sampled_from(JOBS), name=names, age=grants)
    def hold(self, job: str, name: str, age: int) -> None:
        self.counter += max(age, 0)
        self.give(Hold(job, (1, self.counter + min(age, 0)), (name,)))

    @rule(parts=st.lists(names, min_size=1, max_size=2, unique=True), age=st.integers(0, 4))
    def revoke(self, parts: list[str], age: int) -> None:
        event = Revoke((1, self.counter - age), tuple(parts))
        self.asked[event.grant_id, event.resources] += 1
        self.give(event)

    @rule(job=st.sampled_from(JOBS))
    def end_and_open_job(self, job: str) -> None:
        self.give(EndJob(job, "its job is over"))
        self.give(OpenJob(job))
        self.give(DefineCode(job, 7, b""))

    @rule(parts=st.lists(names, min_size=1, max_size=3, unique=True))
    def remove(self, parts: list[str]) -> None:
        self.call(RemoveResources(tuple(parts)))

    @rule()
    def add_what_is_missing(self) -> None:
        self.call(AddResources(tuple(r for r in DAG if r.resource_id not in self.there)))

    @precondition(lambda self: self.open)
    @rule(job=st.sampled_from(JOBS), data=st.data(), cancel=st.booleans())
    def stop_one(self, job: str, data: st.DataObject, cancel: bool) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.open)))
        kind = Cancel if cancel else TakeBack
        self.give(kind(job, self.grant_of[task_id][1][0], ((task_id, 1),)))

    @precondition(lambda self: any(self.inside.values()))
    @rule(data=st.data(), lost=st.booleans())
    def compute(self, data: st.DataObject, lost: bool) -> None:
        name = data.draw(st.sampled_from([name for name, inside in self.inside.items() if inside]))
        if lost and name not in self.kills:
            self.inside[name].clear()
            self.give(AtWorker(name, ComputeLost("gone")))
        else:
            done = self.inside[name].pop(0)
            self.give(AtWorker(name, Computed((Outcome(done.task_id, done.attempt, Reason.FINISHED),))))

    @precondition(lambda self: self.doubts)
    @rule(data=st.data(), by=st.sampled_from((0, 0, 1, 3)))
    def doubt_is_answered(self, data: st.DataObject, by: int) -> None:
        doubt = self.doubts.pop(data.draw(st.integers(0, len(self.doubts) - 1)))
        newest = (1, doubt.grant_id[1] - by)
        if by and self.newest.get(doubt.resource_id) == doubt.grant_id:
            self.newest[doubt.resource_id] = newest
        self.give(GrantChecked(doubt, newest))

    @precondition(lambda self: self.kills)
    @rule()
    def killed(self) -> None:
        name = self.kills.pop(0)
        self.inside[name].clear()
        self.give(AtWorker(name, ComputeKilled()))

    # What must hold

    @invariant()
    def never_two_at_work_on_relatives(self) -> None:
        busy = {name: self.grant_of[inside[0].task_id][1] for name, inside in self.inside.items() if inside}
        for name, parts in busy.items():
            for other, others in busy.items():
                assert name == other or not any(related(a, b) for a in parts for b in others)

    @invariant()
    def each_submission_is_reported_at_most_once(self) -> None:
        assert all(count == 1 for count in self.reported.values())
        assert len(self.reported) + len(self.open) == self.tasks

    def teardown(self) -> None:
        """Everything comes to an end and every question has had its answer."""
        self.give(Stop("over"))
        while self.kills:
            self.killed()
        assert self.stopped == 1
        assert not self.open
        assert self.answered == Counter(range(1, self.calls + 1))
        assert not any(self.asked.values())


RifModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestRifUnderArbitraryEvents = RifModel.TestCase
