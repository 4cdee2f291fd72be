"""The worker's machine under arbitrary events, beside a model of a compute process and of staging."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gspc_trio.components.worker.events import (
    Abort,
    Aborted,
    Assign,
    AttemptKey,
    Compute,
    Computed,
    ComputeKilled,
    ComputeLost,
    EndWork,
    ForgetCompute,
    Kill,
    Retract,
    Retracted,
    StagedIn,
    StagedOut,
    StageIn,
    StageOut,
    StagingFailed,
    WorkerIdle,
    WorkerStopped,
)
from gspc_trio.components.worker.machine import Worker
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.components.worker.phases import TRANSITIONS, AttemptPhase
from gspc_trio.components.worker.verdict import NOT_MADE
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from gspc_trio.records.facts import WorkerChanged
from tests.components.support import TransitionsSeen

R = "r1.core0"
OPTIONS = [
    TaskOptions(),
    TaskOptions(),
    TaskOptions(timeout_s=2.0),
    TaskOptions(stage_in=True),
    TaskOptions(stage_out=True),
    TaskOptions(stage_in=True, stage_out=True),
    TaskOptions(may_rerun=False),
    TaskOptions(may_rerun=False, stage_in=True, stage_out=True),
]


class WorkerModel(RuleBasedStateMachine):
    """What the worker hands over runs in a model, whose answers come back in any allowed order."""

    def __init__(self) -> None:
        super().__init__()
        self.worker = Worker(Resource(R, "core"))
        self.phases = TransitionsSeen(TRANSITIONS, AttemptPhase.ENDED)
        self.now = 0.0
        self.grants = 0
        self.tasks = 0
        self.order: list[int] = []
        self.options: dict[AttemptKey, TaskOptions] = {}
        self.open: dict[AttemptKey, Submission] = {}
        self.reported: dict[AttemptKey, Reason] = {}
        self.inside: list[Submission] = []
        self.staging: dict[AttemptKey, str] = {}
        self.staged_in: set[AttemptKey] = set()
        self.came: list[AttemptKey] = []  # into stage-in, and not in compute yet
        self.stage_ins_max = 1
        self.computed: list[int] = []
        self.early: set[int] = set()  # read from between
        self.answers: list[Any] = []
        self.kills = 0
        self.idle = True
        self.in_order_from = 0
        self.stopped = False
        self.last: AttemptKey | None = None  # that the process has finished

    # Actions of the worker are carried out in the model

    def give(self, event: Any) -> None:
        before = {key: self.worker.status(key) for key in self.options}
        actions = self.worker.handle(event, self.now)
        self.worker.check()
        self.phases.compare(before, {key: self.worker.status(key) for key in self.options})
        for action in actions:
            self.perform(action)

    def perform(self, action: Any) -> None:
        match action:
            case Finished(outcomes=outcomes):
                for outcome in outcomes:
                    self.note_end(outcome)
            case Compute(submissions=submissions):
                assert not self.kills, "handed over to a process that is being killed"
                for submission in submissions:
                    key = (submission.task_id, submission.attempt)
                    assert key in self.open
                    after = submission.after
                    there = after is None or after in self.open or after == self.last
                    assert there, "handed over without what it takes"
                    if submission.options.stage_in:
                        self.note_overtaken(submission)
                    self.inside.append(submission)
            case Retract():
                self.answer_retract()
            case Kill():
                self.kills += 1
                assert self.kills == 1
            case StageIn(submission=s):
                coming = [key for key in self.came if key in self.open]
                assert len(coming) < self.stage_ins_max, "more in stage-in than there may be"
                self.came.append((s.task_id, s.attempt))
                self.staging[s.task_id, s.attempt] = "in"
            case StageOut(submission=s):
                assert "out" not in self.staging.values()
                self.staging[s.task_id, s.attempt] = "out"
            case Abort(key=key):
                self.staging.pop(key, None)
                self.answers.append(Aborted(key))
            case WorkerIdle():
                self.idle = True
                assert [*self.open, *self.inside, *self.staging, *self.answers] == []
                assert not self.kills
            case WorkerStopped():
                assert not self.stopped
                assert self.idle
                self.stopped = True
            case WorkerChanged() | ForgetCompute():
                pass
            case _:
                raise AssertionError(action)

    def note_overtaken(self, submission: Submission) -> None:
        """It leaves stage-in: nothing that had its data, and a lower rank, was there."""
        key = (submission.task_id, submission.attempt)
        assert key in self.staged_in
        self.came.remove(key)
        there = [it for it in self.came if it in self.open and it in self.staged_in]
        aborted = [answer.key for answer in self.answers if type(answer) is Aborted]
        ranks = [self.open[it].rank for it in there if it not in aborted]
        assert submission.rank <= min(ranks, default=submission.rank), "one of a lower rank was there"

    def answer_retract(self) -> None:
        read = min(len(self.inside), 1 + self.tasks % 3)
        back = self.inside[read:]
        if self.tasks % 4 == 0:  # while it is drained the process reads one from between
            early = self.inside[-2:][0]
            back = [each for each in self.inside if each is not early]
            self.early.add(early.task_id)
        keys = tuple((s.task_id, s.attempt) for s in back)
        self.inside = [each for each in self.inside if each not in back]
        self.answers.append(Retracted(keys))

    def note_end(self, outcome: Outcome) -> None:
        key = (outcome.task_id, outcome.attempt)
        assert key not in self.reported, "reported twice"
        del self.open[key]
        self.reported[key] = outcome.reason
        if outcome.reason is not Reason.FINISHED:
            assert outcome.error is not None

    # Events

    @precondition(lambda self: not self.stopped)
    @rule(
        kinds=st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=4),
        fate=st.booleans(),
        gang=st.booleans(),
        tied=st.booleans(),
        stage_ins_max=st.sampled_from([1, 1, 3]),
    )
    def submit(
        self, kinds: list[TaskOptions], fate: bool, gang: bool, tied: bool, stage_ins_max: int
    ) -> None:
        if self.worker.closed:
            return
        if self.idle:
            self.grants += 1
            self.stage_ins_max = stage_ins_max
        submissions = []
        for options in kinds:
            self.tasks += 1
            size_bytes = self.tasks * 7 % 12 if options.stage_in else 0
            plain = options.may_rerun and not (options.stage_in or options.stage_out or gang)
            after = (self.tasks - 1, 1) if tied and plain and self.tasks > 1 else None
            rank = self.tasks * 5 % 3
            made = Submission(self.tasks, 1, 1, (), options, input_bytes=size_bytes, after=after, rank=rank)
            submissions.append(made)
            self.options[self.tasks, 1] = options
            self.open[self.tasks, 1] = submissions[-1]
        resources = (R, "r1.core1") if gang and self.idle else (R,)
        self.idle = False
        submit = Submit("j1", (1, self.grants), resources, tuple(submissions))
        self.give(Assign(submit, fate, 10, stage_ins_max))

    def told_late(self) -> bool:
        """Whether the next in compute was read from between, which the answer under way tells first."""
        return self.inside[0].task_id in self.early and any(type(a) is Retracted for a in self.answers)

    @precondition(lambda self: self.inside and not self.told_late())
    @rule(count=st.integers(1, 3), fails=st.booleans())
    def compute(self, count: int, fails: bool) -> None:
        outcomes = []
        for submission in self.inside[:count]:
            key = submission.task_id, submission.attempt
            last, self.last = self.last, None
            if submission.after is not None and submission.after != last:
                outcomes.append(NOT_MADE.outcome_of(submission))
                continue
            reason = Reason.FAILED if fails and submission is self.inside[0] else Reason.FINISHED
            error = TaskError("E", "no") if reason is Reason.FAILED else None
            outcomes.append(Outcome(*key, reason, error=error))
            self.last = None if error else key
            self.computed.append(submission.task_id)
        del self.inside[: len(outcomes)]
        self.give(Computed(tuple(outcomes)))

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        self.give(self.answers.pop(0))

    @precondition(lambda self: self.kills and not any(type(a) is Retracted for a in self.answers))
    @rule()
    def killed(self) -> None:
        self.kills, self.last = 0, None
        self.inside.clear()
        self.give(ComputeKilled())

    @precondition(lambda self: self.inside and not self.kills)
    @rule()
    def lose_compute(self) -> None:
        pending = [answer for answer in self.answers if type(answer) is Retracted]
        head = self.inside[0]
        begun = head.after is None or head.after == self.last
        self.inside.clear()
        self.last = None
        self.give(ComputeLost("gone"))
        for answer in pending:
            self.answers.remove(answer)
            self.give(answer)
        assert (head.task_id, head.attempt) in self.reported
        charged = self.reported[head.task_id, head.attempt] is Reason.LOST
        assert begun or not charged, "it had not begun, and counts as lost"

    @precondition(lambda self: self.staging)
    @rule(data=st.data(), works=st.booleans())
    def stage(self, data: st.DataObject, works: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.staging)))
        way = self.staging.pop(key)
        if not works:
            self.give(StagingFailed(key, TaskError("OSError", "no")))
        elif way == "in":
            self.staged_in.add(key)
            self.give(StagedIn(key))
        else:
            self.give(StagedOut(key))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), cancel=st.booleans())
    def stop_some(self, data: st.DataObject, cancel: bool) -> None:
        keys = tuple(data.draw(st.lists(st.sampled_from(sorted(self.open)), min_size=1, max_size=3)))
        self.give(Cancel("j1", R, keys) if cancel else TakeBack("j1", R, keys))

    @rule(dt=st.sampled_from([0.5, 3.0]))
    def tick(self, dt: float) -> None:
        self.now += dt
        self.give(Tick())

    @rule(reason=st.sampled_from([Reason.CANCELLED, Reason.LOST]))
    def end_work(self, reason: Reason) -> None:
        self.give(EndWork(reason, "over"))

    @rule()
    def close(self) -> None:
        if self.tasks > 12:
            self.give(EndWork(Reason.LOST, "removed", close=True))

    # What must hold

    @invariant()
    def each_submission_is_somewhere_or_reported(self) -> None:
        for key in self.options:
            assert (key in self.open) != (key in self.reported)
            assert (self.worker.status(key) is None) == (key in self.reported)

    @invariant()
    def compute_keeps_the_order(self) -> None:
        if self.stage_ins_max > 1:
            self.in_order_from = len(self.computed)
        computed = self.computed[self.in_order_from :]
        in_turn = [task_id for task_id in computed if task_id not in self.early]
        assert in_turn == sorted(in_turn)

    @invariant()
    def a_task_that_may_not_run_again_is_alone(self) -> None:
        inside = [(s.task_id, s.attempt) for s in self.inside]
        phases = [*self.staging, *inside[:1]]
        if any(not self.options[key].may_rerun for key in phases):
            assert len(phases) == 1
            assert len(inside) <= 1

    def teardown(self) -> None:
        """Everything comes to an end when the worker is closed and all that was asked is answered."""
        self.give(EndWork(Reason.LOST, "over", close=True))
        for _ in range(4 * self.tasks + 10):
            if self.answers:
                self.answer()
            elif self.kills:
                self.killed()
        assert self.stopped
        assert not self.open
        assert set(self.reported) == set(self.options)


WorkerModel.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestWorkerUnderArbitraryEvents = WorkerModel.TestCase
