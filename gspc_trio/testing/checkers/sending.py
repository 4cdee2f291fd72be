"""Checker of a scheduler's submits: what is sent where, taken back, counted as begun, and asked for."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import islice

from attrs import define, field
from msgspec.structs import replace

from gspc_trio.components.job.machine import JobAction, JobEvent
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    HostRestricted,
    ResourcesLost,
    ResourcesUp,
    RetryTask,
    Stop,
    TaskDone,
    Withheld,
)
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.job.shell.settings import STAGE_INS_PLANNED
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall
from gspc_trio.components.worker.messages import Begun, Cancel, Finished, Submit, TakeBack
from gspc_trio.components.worker.verdict import REFUSED, had_begun
from gspc_trio.core.ids import NO_GRANT, GrantId, ResourceId, Seconds, TaskId, host_name
from gspc_trio.core.task import Outcome, Reason, Shape, Task, TaskState
from gspc_trio.policies.lookahead import LookAhead, WorkAhead
from gspc_trio.policies.retry import Retry
from gspc_trio.protocol.values import is_reference
from gspc_trio.records.facts import GrantChanged, TaskChanged
from gspc_trio.testing.checkers.base import Broken

ELSEWHERE_S = Retry().elsewhere_s

ROUNDING_S = 1e-6

STUCK_S = 5 * WorkAhead().patrol_s
"""For so long nothing waits behind a task while another resource is idle."""

OVERLAPPED = WorkAhead().overlapped
"""So many tasks may be at one worker at work at a time."""

DOUBTED = "lost on "
"""How a record begins that says that the host is in doubt; it goes on with its name and a comma."""


@define(eq=False)
class _Held:
    """A grant in hand: ``sent`` are the tasks under it, the one that runs first.

    ``at_rest``: it was recalled, or its worker has refused tasks or lost one: it may get no more.
    ``first`` runs since ``first_since_s``.
    """

    grant_id: GrantId
    resources: tuple[ResourceId, ...]
    shape: Shape
    sent: dict[TaskId, _Sent] = field(factory=dict)
    lost: bool = False
    at_rest: bool = False
    first: TaskId = 0
    first_since_s: Seconds = 0.0


@define(eq=False)
class _Sent:
    """An attempt at a worker; ``number`` is that of its submission in the job.

    ``settled``: it was asked back, or has begun though others are before it.
    ``tied``: it takes the result of this task, which has not finished.
    """

    attempt: int
    number: int
    unsent: bool = False
    settled: bool = False
    tied: TaskId = 0


@define(eq=False)
class _Task:
    """A task that was handed out.

    Attributes:
        shape: of the grants that it may run under.
        hard: whether it must have particular resources.
        given_back: attempts that came back and had not begun.
        avoids: hosts and resources where it failed.
        last: where it failed last.
        failed_s: when.
        counted: whether all its attempts were seen.
    """

    shape: Shape
    hard: bool
    given_back: int = 0
    avoids: set[str] = field(factory=set)
    last: ResourceId = ""
    failed_s: Seconds = 0.0
    cancelled: bool = False
    counted: bool = True
    ways: tuple[Shape, ...] = ()
    staged: bool = False


class Sending:
    """What one job's scheduler does with its grants and tasks: invariants 1, 2 and 6.

    A task that was never tried waits for no grant that is in hand and empty. A task that has failed goes
    elsewhere for a while if it can. What runs is not asked back; what was lost counts as begun if it was the
    first of its grant, and only then. What rests on a resource that is lost is cancelled elsewhere.
    """

    def __init__(self) -> None:
        self._known: dict[ResourceId, str] = {}
        self._above: dict[ResourceId, set[ResourceId]] = {}
        self._features: dict[str, set[str]] = {}
        self._known_since_s = 0.0
        self._grants: dict[GrantId, _Held] = {}
        self._tasks: dict[TaskId, _Task] = {}
        self._fresh: dict[Shape, dict[TaskId, None]] = {}
        self._varied: dict[TaskId, None] = {}
        self._wanted: dict[Shape, int] = {}
        self._seen = NO_GRANT
        self._submissions = 0
        self._is_stopping = False
        self._restricted: set[str] = set()
        self._proven: set[str] = set()
        self._queued: dict[TaskId, tuple[ResourceId, GrantId]] = {}
        self.has_queues: bool = False
        self.has_plan: bool = False

    def extracted(self, task: Task) -> None:
        """The engine has handed out a task."""
        shape = LookAhead().shape_of(task)
        staged = task.options.stage_in or task.options.stage_out
        self._tasks[task.task_id] = _Task(shape, shape.requirements[0].is_bound, staged=staged)
        if any(map(is_reference, task.arguments)):  # it prefers where its data is
            return
        if task.variants is not None:
            ways = tuple(LookAhead().shape_of(replace(task, shape=way.shape)) for way in task.variants.ways)
            self._tasks[task.task_id].ways = ways
            self._varied[task.task_id] = None
        else:
            self._fresh.setdefault(shape, {})[task.task_id] = None

    def saw(self, event: JobEvent, now: float, actions: Sequence[JobAction]) -> None:
        """The job's machine took an event.

        Raises:
            Broken: it makes of it what it must not.
        """
        parted: list[_Held] = []
        if type(event) is Grant:
            self._seen = max(self._seen, event.grant_id)
            self._grants[event.grant_id] = _Held(event.grant_id, event.resources, event.shape)
            self._wanted[event.shape] = max(0, self._wanted.get(event.shape, 0) - 1)
        elif type(event) is Finished:
            for outcome in event.outcomes:
                self._ended(outcome, event.resource_id, now)
        elif type(event) is ResourcesUp:
            self._known.update((one.resource_id, one.resource_class) for one in event.resources)
            for one in event.resources:
                self._above[one.resource_id] = {one.resource_id}.union(
                    *(self._above[up] for up in one.parents)
                )
                self._features.setdefault(host_name(one.resource_id), set()).update(one.features)
            self._known_since_s = now
        elif type(event) is HostRestricted:
            host = {host_name(event.resources[0].resource_id)}
            self._restricted = self._restricted | host if event.uses else self._restricted - host
        elif type(event) is ResourcesLost:
            parted = self._lost(set(event.resource_ids), now)
        elif type(event) is Lapsed:
            for held in [self._grants[one] for one in event.grant_ids if one in self._grants]:
                self._lose(held)
        elif type(event) is Withheld:
            for held in self._grants.values():
                if event.concerns(held.resources[0], held.grant_id):
                    for sent in held.sent.values():
                        sent.unsent = sent.number > event.after
        elif type(event) is Begun:
            for held in self._grants.values():
                if event.task_id in held.sent and held.sent[event.task_id].attempt == event.attempt:
                    held.sent[event.task_id].settled = True
                    if event.computes:  # it may have overtaken others
                        held.sent = {event.task_id: held.sent[event.task_id]} | held.sent
        elif type(event) is Recall:
            for held in [self._grants[one] for one in event.grant_ids if one in self._grants]:
                held.at_rest = True
        elif type(event) is Stop:
            self._is_stopping = True
        elif type(event) is RetryTask or type(event) is CancelTasks:
            for task_id in (event.task_id,) if isinstance(event, RetryTask) else event.task_ids:
                if task_id in self._tasks:
                    self._tasks[task_id].cancelled = type(event) is CancelTasks
                    self._tasks[task_id].avoids.clear()
                    self._tasks[task_id].last = ""
        before = {held.grant_id: tuple(held.sent.items()) for held in parted}
        for held in parted:
            self._lose(held)
        self._did(now, actions)
        told = {(one.resource_id, *pair) for one in actions if type(one) is Cancel for pair in one.attempts}
        for held in parted:
            for task_id, sent in before[held.grant_id]:
                if (held.resources[0], task_id, sent.attempt) not in told:
                    raise Broken(
                        f"task {task_id} goes on at {held.resources[0]}, and another resource of its grant "
                        f"{held.grant_id} is lost",
                        *held.resources,
                    )
        self._look_at_first(now)
        if not self._is_stopping:
            self._look_at_idle()
            self._look_at_stuck(now)

    # What it was told ---------------------------------------------------------------------------------------

    def _ended(self, outcome: Outcome, resource_id: ResourceId, now: float) -> None:
        task = self._tasks.get(outcome.task_id)
        for held in self._grants.values():
            sent = held.sent.get(outcome.task_id)
            if sent is None or sent.attempt != outcome.attempt or held.resources[0] != resource_id:
                continue
            del held.sent[outcome.task_id]
            if outcome.reason is Reason.FINISHED:
                for other in held.sent.values():
                    other.tied *= other.tied != outcome.task_id
                self._proven.add(host_name(resource_id))
            kind = outcome.error.kind if outcome.error is not None else ""
            held.at_rest = held.at_rest or kind == REFUSED or outcome.reason is Reason.LOST
            if task is None:
                continue
            if sent.tied:  # whatever is said of it: it waited for the task before it
                task.given_back += 1
            elif outcome.reason is Reason.RETURNED:
                task.given_back += not had_begun(outcome)
            elif outcome.reason in (Reason.FAILED, Reason.LOST):
                task.avoids |= {resource_id, host_name(resource_id)}
                task.last, task.failed_s = resource_id, now

    def _lost(self, gone: set[ResourceId], now: float) -> list[_Held]:
        """Resources are lost; return the grants that have others left, where something runs."""
        for name in gone:
            self._known.pop(name, None)
        self._known_since_s = now
        parted = []
        for held in self._grants.values():
            if held.lost or gone.isdisjoint(held.resources):
                continue
            held.lost = True
            if held.resources[0] in gone:
                self._lose(held)
            else:
                parted.append(held)
        return parted

    def _lose(self, held: _Held) -> None:
        """What was sent under a grant is lost: only the first has begun, if it was sent at all."""
        for position, (task_id, sent) in enumerate(held.sent.items()):
            task = self._tasks.get(task_id)
            has_begun = position == 0 and not sent.unsent and not sent.tied
            if task is not None and not has_begun and not task.cancelled:
                task.given_back += 1
        held.sent.clear()

    # What it does -------------------------------------------------------------------------------------------

    def _did(self, now: float, actions: Sequence[JobAction]) -> None:
        for action in actions:
            if type(action) is Submit:
                self._submit(action, now)
            elif type(action) is TakeBack:
                self._check_taken_back(action)
            elif type(action) is TaskDone:
                self._done(action)
            elif type(action) is TaskChanged and action.detail.startswith(DOUBTED):
                host = action.detail.removeprefix(DOUBTED).partition(",")[0]
                if host in self._proven:
                    raise Broken(f"host {host} is in doubt, and tasks have finished there", host)
            elif type(action) is Demand:
                self._wanted[action.shape] = action.credit
                if action.seen != self._seen:
                    raise Broken(f"a demand says that {action.seen} has come, and it was {self._seen}")
            elif type(action) is GrantChanged and not action.held:
                self._grants.pop(action.grant_id, None)

    def _submit(self, submit: Submit, now: float) -> None:
        held = self._grants.get(submit.grant_id)
        if held is None or held.lost or any(name not in self._known for name in submit.resources):
            raise Broken(
                f"{submit.job} uses grant {submit.grant_id}, which it has lost, in whole or in part",
                *submit.resources,
            )
        for submission in submit.submissions:
            task_id = submission.task_id
            self._submissions += 1
            tied = 0 if submission.after is None else submission.after[0]
            held.sent[task_id] = _Sent(submission.attempt, self._submissions, tied=tied)
            task = self._tasks.get(task_id)
            if task is None:
                continue
            self._fresh.get(task.shape, {}).pop(task_id, None)
            self._varied.pop(task_id, None)
            if task.ways and not self._is_a_way(held.shape, task):
                raise Broken(f"task {task_id} goes to {held.shape}, for which it has no variant")
            if task.cancelled:
                raise Broken(f"task {task_id} is submitted, and was cancelled", f"task {task_id}")
            self._check_place(held.shape if task.ways else task.shape, submit)
            if task.last == submit.resources[0] and self._may_go_elsewhere(task, now):
                raise Broken(f"task {task_id} goes to {task.last} again, where it has failed", task.last)

    def _is_a_way(self, shape: Shape, task: _Task) -> bool:
        """Whether a task has a variant for a grant; in queues of resources it may be of another shape."""
        if shape in task.ways:
            return True
        if not (self.has_queues or task.staged) or len(shape.requirements) > 1:  # staged: it may be put aside
            return False
        its_class = shape.requirements[0].resource_class
        classes = [[one.resource_class for one in way.requirements] for way in task.ways]
        return [its_class] in classes

    def _check_place(self, shape: Shape, submit: Submit) -> None:
        """A task never leaves the worker or node of a hard place, and has the features that it needs."""
        for name, need in zip(submit.resources, shape.requirements, strict=True):
            if need.hard and self._above[name].isdisjoint(need.preferences):
                raise Broken(f"a task that needs {shape} goes to {name}", name)
            if not self._features[host_name(name)].issuperset(need.features):
                raise Broken(f"a task that needs {shape} goes to {name}, whose host lacks some", name)

    def _may_go_elsewhere(self, task: _Task, now: float) -> bool:
        """Whether there has been another resource for a task ever since it failed, not long ago."""
        if (
            task.hard
            or task.ways  # its next variant may have a single resource
            or self._known_since_s >= task.failed_s
            or now >= task.failed_s + ELSEWHERE_S - ROUNDING_S
        ):
            return False
        wanted = task.shape.requirements[0].resource_class
        return any(
            name not in task.avoids and host_name(name) not in task.avoids
            for name, its_class in self._known.items()
            if its_class == wanted
        )

    def _check_taken_back(self, back: TakeBack) -> None:
        """What runs is not asked back."""
        for held in self._grants.values():
            if held.resources[0] == back.resource_id and held.sent:
                first = next(iter(held.sent))
                for task_id, _ in back.attempts:
                    if task_id == first:
                        raise Broken(
                            f"task {first} runs, and is asked back", f"task {first}", back.resource_id
                        )
                    if task_id in held.sent:
                        held.sent[task_id].settled = True

    def _done(self, done: TaskDone) -> None:
        task = self._tasks.get(done.task_id)
        if task is None:
            return
        self._fresh.get(task.shape, {}).pop(done.task_id, None)
        self._varied.pop(done.task_id, None)
        if done.state is TaskState.FINISHED and done.outcome.attempt and task.given_back != done.given_back:
            raise Broken(
                f"task {done.task_id} finished at attempt {done.outcome.attempt}; {done.given_back} are said "
                f"to have come back before they began, and it were {task.given_back}",
                f"task {done.task_id}",
            )

    def _look_at_first(self, now: float) -> None:
        """Note since when the first task of each grant is that."""
        for held in self._grants.values():
            first = next(iter(held.sent), 0)
            if first != held.first:
                held.first, held.first_since_s = first, now

    def _look_at_stuck(self, now: float) -> None:
        """Nothing waits behind a task that runs for long while another resource is idle."""
        idle = {held.shape: held for held in self._grants.values() if self._is_idle(held)}
        kept = 1 + STAGE_INS_PLANNED if self.has_plan else OVERLAPPED
        for held in self._grants.values():
            other = idle.get(held.shape)
            if other is None or held.lost or now <= held.first_since_s + STUCK_S:
                continue
            for task_id, sent in islice(held.sent.items(), kept, None):
                task = self._tasks.get(task_id)
                if (
                    task is None
                    or task.cancelled
                    or sent.settled
                    or sent.tied
                    or not task.avoids.isdisjoint(other.resources)
                    or self._is_slowed(task_id, other)
                ):
                    continue
                raise Broken(
                    f"task {task_id} waits behind a long one, and {other.resources[0]} is idle",
                    held.resources[0],
                )

    def _is_slowed(self, task_id: TaskId, held: _Held) -> bool:
        """Whether an anomaly of a grant's host may slow a task down."""
        return host_name(held.resources[0]) in self._restricted and self._tasks[task_id].staged

    def _is_idle(self, held: _Held) -> bool:
        """Whether a grant could get tasks, and has none."""
        usable = all(name in self._known for name in held.resources)
        return usable and not (held.sent or held.lost or held.at_rest)

    def _look_at_wishes(self) -> None:
        """A plan binds no task to a host; but tasks may wait for others than restricted ones."""
        if self._restricted:
            return
        bound = [it for it, credit in self._wanted.items() if credit and any(n.hard for n in it.requirements)]
        stated = (
            {way for task in self._tasks.values() for way in (task.shape, *task.ways)} if bound else set()
        )
        for shape in bound:
            if not any(need.hard for way in stated for need in way.requirements):
                raise Broken(f"no task is bound to a place, and a plan asks for {shape}")

    def _look_at_idle(self) -> None:
        """A task that was never tried waits for no grant that is in hand and empty, and one is asked for."""
        if self.has_plan:  # a task may wait for another host, and asks by the shape that names it
            count = sum(map(len, self._fresh.values()))
            if count and not any(self._wanted.values()):
                raise Broken(f"{count} tasks wait for their hosts, and nothing is asked for")
            self._look_at_wishes()
            return
        for held in self._grants.values() if not self.has_queues else ():
            waiting = self._fresh.get(held.shape, {}) if self._is_idle(held) else {}
            task_id = next((it for it in waiting if not self._is_slowed(it, held)), None)
            if task_id is not None:
                raise Broken(f"task {task_id} waits, and {held.resources[0]} is idle", *held.resources)
        for shape, waiting in self._fresh.items():
            are_aside = self._restricted and all(self._tasks[it].staged for it in waiting)
            if waiting and not (self._wanted.get(shape) or (are_aside and any(self._wanted.values()))):
                raise Broken(f"{len(waiting)} tasks wait for {shape}, and nothing is asked for")
        for task_id in self._varied:
            is_aside = self._restricted and self._tasks[task_id].staged and any(self._wanted.values())
            if not (is_aside or any(self._wanted.get(shape) for shape in self._tasks[task_id].ways)):
                raise Broken(f"task {task_id} waits, and nothing is asked for by which a variant could run")

    # Queues of resources ------------------------------------------------------------------------------------

    def waits(
        self,
        queues: Mapping[ResourceId, tuple[GrantId, Sequence[Task]]],
        scheduler: Scheduler,
        done: Container[TaskId],
    ) -> None:
        """After an event, tasks wait in these queues of resources.

        Args:
            queues: resource -> its grant, and the tasks that wait for it.
            scheduler: knows the tasks that have not ended.
            done: those that have ended by the event.

        Raises:
            Broken: a task is in two of them, or at a worker as well; one that may run nowhere else has moved
                from a resource that is still held; one is in none any more, and nobody knows it.
        """
        self.has_queues = True
        before, now = self._queued, dict[TaskId, tuple[ResourceId, GrantId]]()
        at_workers = {task_id: held for held in self._grants.values() for task_id in held.sent}
        for name, (grant_id, tasks) in queues.items():
            for task in tasks:
                task_id, words = task.task_id, f"task {task.task_id}"
                if task_id in now:
                    raise Broken(f"{words} is in two queues: of {now[task_id][0]} and of {name}", words)
                if task_id in at_workers:
                    where = at_workers[task_id].resources[0]
                    raise Broken(f"{words} waits for {name}, and was sent to {where}", words)
                now[task_id] = name, grant_id
                other, its_grant = before.get(task_id, (name, grant_id))
                wish = task.shape.requirements[0]
                if wish.hard and name not in wish.preferences:
                    raise Broken(f"{words} waits for {name}, where it may not run", words, name)
                is_held = other in queues and queues[other][0] == its_grant
                if wish.hard and other != name and is_held:
                    raise Broken(f"{words} may run on {other} only, and moves to {name}", words, name)
        for task_id in before.keys() - now.keys():
            if task_id not in at_workers and task_id not in done and scheduler.task(task_id) is None:
                raise Broken(f"task {task_id} was in a queue, and is nowhere any more", f"task {task_id}")
        self._queued = now
