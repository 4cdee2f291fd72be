"""The machine of a job: its workflow engine and its scheduler behind one ``handle``.

The engine says what is ready, the scheduler where it runs. This machine carries tasks from one to the other
and results back, applies the policy for failures, and knows when the job is over. Other events and actions
are the scheduler's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import ClassVar, TypeAlias, cast

from attrs import Factory, define, field
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.engine_wrapper import Ahead, Engine
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    EndedItems,
    EndedUnsent,
    HostEvacuated,
    HostRestricted,
    HostRests,
    OutsideEvent,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Restored,
    RetryTask,
    SchedulerAction,
    Stop,
    Stopped,
    TaskDone,
    TasksReady,
    Watched,
    Withheld,
)
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.job.scheduler.ties import has_failed_too
from gspc_trio.components.rm.messages import Grant, Lapsed, Recall, Refuse
from gspc_trio.components.worker.messages import Begun, Finished, Submit
from gspc_trio.core.demand import DemandWanted, GroupRefused
from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.machine import IllegalEvent, MachineBase, OnIllegal, Tick, handles
from gspc_trio.core.task import Outcome, Reason, Task, TaskError, TaskState
from gspc_trio.records.facts import JobChanged
from gspc_trio.workflow.calls import TransitionFailed

_FINISHED = TaskState.FINISHED

READY_MAX = 20_000
"""Tasks that are usually extracted ahead of being finished; the rest wait in the engine as tokens."""

TURN_S = 0.01
"""For so long the engine's inline transitions may fire before what else there is to do has its turn."""

TURNS_MAX = 100
"""And so often may the engine say that it has more."""

REPLACED_MIN = 500
"""Of extracted tasks that were sent, so many are replaced at a time while none comes back."""

FAILURES_KEPT_MAX = 100
"""Failures that are kept with their output; the others are only counted."""


class JobState(StrEnum):
    """Where a job is; the last three are final."""

    NEW = "new"
    """It has not begun."""
    RUNNING = "running"
    STOPPING = "stopping"
    """How it ends is decided: nothing more is started, what runs is cancelled, what is held is given back."""
    FINISHED = "finished"
    """Nothing was left to do, or a termination transition has fired."""
    FAILED = "failed"
    """A task failed for good, or the workflow is stuck."""
    STOPPED = "stopped"
    """Someone asked."""


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.NEW: frozenset({JobState.RUNNING, JobState.STOPPING}),
    JobState.RUNNING: frozenset({JobState.STOPPING}),
    JobState.STOPPING: frozenset({JobState.FINISHED, JobState.FAILED, JobState.STOPPED}),
    JobState.FINISHED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.STOPPED: frozenset(),
}
"""Where a job may go from where it is."""


class Begin(Struct, frozen=True):
    """The job starts."""


class Look(Struct, frozen=True):
    """The engine has something new."""


class Close(Struct, frozen=True):
    """No more tasks will be added: the job ends when what there is has ended."""


class Kept(Struct, frozen=True):
    """The first ``count`` of the outcomes that wait for it are durable: they may be injected."""

    count: int


class LookedUp(Struct, frozen=True):
    """The answer to LookUpTasks, or part of it.

    Attributes:
        found: results that a cache has.
        missed: tasks that have to run.
        known: results of an earlier version of the workflow, which the job's journal has.
    """

    found: tuple[Outcome, ...] = ()
    missed: tuple[TaskId, ...] = ()
    known: tuple[Outcome, ...] = ()


class TakenOver(Struct, frozen=True):
    """These tasks, which a journaled engine holds back, have finished under an earlier job server."""

    outcomes: tuple[Outcome, ...]


class LookUpTasks(Struct, frozen=True):
    """Look whether the journal, or a cache, has the results of these tasks; they wait for LookedUp."""

    tasks: tuple[Task, ...]


class JobEnded(Struct, frozen=True):
    """The job is over.

    Attributes:
        state: ``finished``, ``failed`` or ``stopped``.
        detail: why, a few lines for people, when it did not finish.
    """

    state: str
    detail: str = ""


class TaskFailure(Struct, frozen=True):
    """A task that failed for good, or a firing or an activity that did.

    Attributes:
        task_id: its id, counted from 1 in its job; 0: it is no task, and the error's message says all.
        name: of its transition or function.
        outcome: how its last attempt ended; the number of the attempt counts those that began.
        resource_id: where it ran, or "".
    """

    task_id: TaskId
    name: str
    outcome: Outcome
    resource_id: str


JobEvent: TypeAlias = OutsideEvent | Begin | Look | Close | Kept | LookedUp | TakenOver

JobAction: TypeAlias = SchedulerAction | JobChanged | LookUpTasks | JobEnded | EndedItems


@define(eq=False)
class JobMachine(MachineBase[JobEvent, JobAction]):
    """One job.

    TaskDone appears among the actions after the engine has taken the result in. Results of a journaled job
    wait for Kept, in the order in which TaskDone appeared. JobEnded is the last action.

    Attributes:
        job: its id.
        name: for people.
        engine: says what is ready.
        scheduler: says where it runs.
        keep_going: go on after a failure with what does not depend on it.
        open_ended: tasks may be added until Close (the executor's way).
        journaled: a result waits for Kept before the engine takes it in.
        cached: tasks are looked up in a cache before they go to the scheduler, but for those that opt out.
        recalled: they are looked up among results of an earlier version, those that opt out, too.
        finished_before: tasks that had finished when the job was resumed.
        clock: returns the time, seconds; None: time is not looked at.
        may_end: asked when the job is about to end, and whether well; if not, it goes on until Look.
        ready_max: tasks that are extracted ahead of being finished; the rest wait in the engine as tokens.
        ahead: says which tasks will be ready later, for those who plan; None: nobody asks.
        count_more: adds to numbers of tasks what makes items of them, where tasks are ranges; or None.
        failures: of the first tasks that failed.
        state, ended: where it is, and how it ended, when it has.
    """

    job: JobId
    name: str
    engine: Engine
    scheduler: Scheduler
    keep_going: bool = False
    open_ended: bool = False
    journaled: bool = False
    cached: bool = False
    recalled: bool = False
    finished_before: int = 0
    clock: Callable[[], float] | None = None
    may_end: Callable[[bool], bool] = lambda _: True
    ready_max: int = READY_MAX
    ahead: Ahead | None = None
    count_more: Callable[[dict[TaskState, int]], None] | None = None
    failures: list[TaskFailure] = field(factory=list)
    state: JobState = JobState.NEW
    ended: JobEnded | None = None
    _stop: JobEnded | None = None
    _begun: bool = False
    _stopping: bool = False
    _stopped: bool = False
    _more_since: float | None = None
    _room_min: int = 1
    _drained: bool = False
    _injects: bool = field(default=Factory(lambda self: not self.journaled, takes_self=True), init=False)
    _unkept: deque[TaskDone] = field(factory=deque)
    _looked_up: dict[TaskId, Task] = field(factory=dict)
    _dropped: set[TaskId] = field(factory=set)

    noun: ClassVar[str] = "a job"
    gathered: ClassVar[frozenset[type[object]]] = Scheduler.gathered

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    @handles(Finished, Begun, Grant)
    def _reported(self, event: Finished | Begun | Grant) -> None:
        self._take_told(type(event), self.scheduler.handle(event, self.now))

    def _take_run(self, events: Sequence[JobEvent], refuse: OnIllegal) -> None:
        both = cast(Sequence[OutsideEvent], events)
        self._take_told(type(events[0]), self.scheduler.handle_run(both, self.now, refuse))

    def _take_told(self, kind: type, told: Sequence[SchedulerAction]) -> None:
        """Take what follows from grants or reports.

        The engine need not be asked after grants, nor when a worker gets more to do while many tasks wait.
        """
        self.actions.extend(told)
        many = max(self.ready_max - REPLACED_MIN, self.ready_max // 2)
        is_fed = kind is Grant or (self.scheduler.unsent > many and any(type(one) is Submit for one in told))
        if is_fed:  # else who gets nothing may be the last to say something
            self._room_min = REPLACED_MIN

    @handles(
        Recall,
        Refuse,
        Lapsed,
        Reclaim,
        ResourcesUp,
        ResourcesLost,
        HostEvacuated,
        HostRests,
        HostRestricted,
        Withheld,
        Restored,
        Watched,
        DemandWanted,
        GroupRefused,
        Tick,
    )
    def _pass_on(self, event: OutsideEvent) -> None:
        self.actions.extend(self.scheduler.handle(event, self.now))

    @handles(CancelTasks)
    def _cancel(self, event: CancelTasks) -> None:
        if self._looked_up:
            self._run(event.task_ids)
        self.actions.extend(self.scheduler.handle(event, self.now))

    @handles(LookedUp)
    def _found(self, event: LookedUp) -> None:
        """Take results for tasks that still wait for them; the others run."""
        for outcome in event.known:
            task = self._looked_up.pop(outcome.task_id, None)
            if task is not None:
                self.finished_before += 1
                self.actions.append(TaskDone(task.task_id, _FINISHED, outcome, task.name))
        found = [
            TaskDone(outcome.task_id, _FINISHED, outcome, task.name)
            for outcome in event.found
            if (task := self._looked_up.pop(outcome.task_id, None)) is not None
        ]
        if found:
            self.actions.extend(found)
            self.actions.extend(self.scheduler.handle(EndedUnsent(tuple(found)), self.now))
        self._run(event.missed)

    def _run(self, task_ids: Iterable[TaskId]) -> None:
        """Hand those of these tasks to the scheduler that wait for a cache."""
        tasks = [task for each in task_ids if (task := self._looked_up.pop(each, None)) is not None]
        if tasks:
            self.actions.extend(self.scheduler.handle(TasksReady(tuple(tasks)), self.now))

    @handles(Begin)
    def _begin(self, _event: Begin) -> None:
        if self._begun:
            raise IllegalEvent("the job has begun already")
        self._begun = True
        if self._stop is None:
            self._move(JobState.RUNNING)
        self.actions.append(JobChanged(self.now, self.job, "running", self.name))

    @handles(Look)
    def _look(self, _event: Look) -> None:
        """Ask the engine anew, as after each event."""

    @handles(Close)
    def _close(self, _event: Close) -> None:
        self.open_ended = False

    @handles(Stop)
    def _stop_asked(self, event: Stop) -> None:
        self._end_as(JobEnded("stopped", event.reason))
        self._stop_scheduler(event)

    @handles(TakenOver)
    def _take_over(self, event: TakenOver) -> None:
        """Count tasks as done that an earlier job server had given out, unless they were given out again."""
        for outcome in event.outcomes if self.ended is None else ():  # the journal of an ended job is closed
            task = self.engine.take_over(outcome.task_id)
            if task is not None:
                self.finished_before += 1
                self.actions.append(TaskDone(outcome.task_id, TaskState.FINISHED, outcome, task.name))

    @handles(Kept)
    def _inject_kept(self, event: Kept) -> None:
        count = event.count
        if count > len(self._unkept):
            raise IllegalEvent(f"{count} outcomes were said to be durable; {len(self._unkept)} wait for it")
        for _ in range(count):
            done = self._unkept.popleft()
            self.engine.inject(done.task_id, done.outcome.values)

    def _stop_scheduler(self, event: Stop) -> None:
        """Have all tasks cancelled, also those that wait for a cache."""
        self._stopping = True
        self.actions.extend(self.scheduler.handle(event, self.now))
        self._run(tuple(self._looked_up))

    @handles(RetryTask)
    def _retry(self, event: RetryTask) -> None:
        """Hand a failed task out again; a wish that comes too late, or cannot be, is dropped."""
        if self._stop is not None or self.scheduler.state_of(event.task_id) is not TaskState.FAILED:
            return
        try:
            self.engine.restore(event.task_id)
            self.engine.extract(event.task_id)
        except IllegalEvent:
            return
        self.failures = [failure for failure in self.failures if failure.task_id != event.task_id]
        self.actions.extend(self.scheduler.handle(event, self.now))

    @property
    def stopped_for(self) -> str:
        """Why somebody stopped the job; "" if nobody did."""
        return self._stop.detail if self._stop is not None and self._stop.state == "stopped" else ""

    def explain(self, task_id: TaskId) -> str:
        """Return what the task waits for, where it runs, or that it is not there: one line for people."""
        task = self._looked_up.get(task_id)
        if task is not None:
            return f"task {task_id} ({task.name}) is looked up in the cache"
        return self.scheduler.explain(task_id)

    def deadline(self) -> float | None:
        """Return the scheduler's deadline; a time that has come when the engine has more to do."""
        has_more = self._more_since is not None and self._stop is None
        return self._more_since if has_more else self.scheduler.deadline()

    def check(self) -> None:
        """Assert the invariants of the scheduler, and that an ended job has nothing live."""
        self.scheduler.check()
        if self.ended is not None:
            assert self.scheduler.live == 0, "an ended job has live tasks"
            assert not self._unkept, "an ended job has results that are not durable"
            assert not self._looked_up, "an ended job has tasks that wait for a cache"
            assert self.state.value == self.ended.state, "state and end differ"

    def settle(self) -> None:
        """Take results into the engine and new tasks to the scheduler until neither has more."""
        actions, now, position = self.actions, self.now, 0
        room_min, self._room_min = self._room_min, 1
        self._drained = False
        while True:
            through: list[TaskDone] = []
            for action in islice(actions, position, None):
                if type(action) is not TaskDone:
                    continue
                self._drained = False
                if action.state is _FINISHED and self._injects:
                    self.engine.inject(action.task_id, action.outcome.values)
                elif not (through and has_failed_too(action, through)):
                    through += self._done(action)
            actions += through
            position = len(actions)
            if through:
                actions += self.scheduler.handle(EndedUnsent(tuple(through)), now)
                continue
            if self._drained:
                break
            ready = self._pull(room_min) if self._begun and self._stop is None else ()
            if ready and (self.cached or self.recalled):
                ready = self._look_up(ready)
            if self._stop is not None and not self._stopping:
                self._stop_scheduler(Stop(self._stop.detail or "the workflow has ended"))
            elif ready and (more := self.scheduler.handle(TasksReady(ready), now)):
                actions += more
            elif len(actions) == position:  # nothing was known, and those that are ready wait for room
                break
            if self._more_since is not None:  # others have their turn now
                break
        if self._stopping or not self.scheduler.live:
            self._maybe_end()

    def _look_up(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        """Have these tasks looked up; return those that are not."""
        others = () if self.recalled else tuple(task for task in tasks if task.options.cache is False)
        asked = tuple(task for task in tasks if task.options.cache is not False) if others else tasks
        if not asked:
            return tasks
        self._looked_up.update((task.task_id, task) for task in asked)
        self.actions.append(LookUpTasks(asked))
        return others

    def _done(self, done: TaskDone) -> list[TaskDone]:
        """Tell the engine how a task ended, or later if it waits for Kept; return what fails through it."""
        if done.state is _FINISHED:
            self._unkept.append(done)
            return []
        if done.task_id in self._dropped:
            self._dropped.remove(done.task_id)
            self.engine.cancelled(done.task_id)  # also if it has failed first: nobody wants to know
            return []
        if done.state is TaskState.CANCELLED:
            through = self.engine.cancelled(done.task_id)
        else:
            error = done.outcome.error or TaskError("unknown", "the task failed without saying why")
            through = self.engine.fail(done.task_id, error)
            if len(self.failures) < FAILURES_KEPT_MAX:
                shown = replace(done.outcome, attempt=done.tries)
                self.failures.append(TaskFailure(done.task_id, done.name, shown, done.resource_id))
            if self.engine.failures:
                self._note_failures()
            if not self.keep_going:
                self._end_as(JobEnded("failed", "a task failed"))
        return [
            TaskDone(
                failed.task_id,
                TaskState.FAILED,
                Outcome(failed.task_id, 0, Reason.FAILED, error=failed.error),
                failed.name,
            )
            for failed in through or ()
        ]

    def _pull(self, room_min: int) -> tuple[Task, ...]:
        """Take what is ready from the engine, or part of it if its transitions have fired for long.

        Nothing is taken while there is room for less than ``room_min`` tasks. The job ends when the
        workflow's own code raises or says so.
        """
        self._more_since, self._drained = None, False
        if self.ahead is not None and (news := self.ahead.news()) is not None:
            self.actions.extend(self.scheduler.handle(news, self.now))
        engine, room = self.engine, self.ready_max - self.scheduler.live
        if room <= 0:
            room = self.ready_max - self.scheduler.unsent
        room -= len(self._looked_up)
        if room < room_min:
            room = 0
        tasks: list[Task] = []
        try:
            turns = TURNS_MAX
            while len(tasks) < room:
                task_id = engine.next()
                if task_id is not None:
                    tasks.append(engine.extract(task_id))
                elif not engine.has_more:
                    self._drained = True
                    break
                elif turns == 0 or (self.clock is not None and self.clock() >= self.now + TURN_S):
                    self._more_since = self.now
                    break
                else:
                    turns -= 1
        except TransitionFailed as error:
            self._end_as(JobEnded("failed", str(error)))
        if engine.discarded:
            tasks = self._drop(engine, tasks)
        if engine.failures:
            self._note_failures()
        if engine.is_stopped and self.may_end(True):
            self._end_as(JobEnded("finished"))
        return tuple(tasks)

    def _note_failures(self) -> None:
        """Take down what has failed in the engine and is no task."""
        known = {failure.outcome.error for failure in self.failures if not failure.task_id}
        for message in self.engine.failures[:FAILURES_KEPT_MAX]:
            error = TaskError("failed", message)
            if error not in known and len(self.failures) < FAILURES_KEPT_MAX:
                self.failures.append(TaskFailure(0, "", Outcome(0, 0, Reason.FAILED, error=error), ""))
        self.engine.failures.clear()

    def _drop(self, engine: Engine, tasks: list[Task]) -> list[Task]:
        """Have tasks cancelled that the workflow has dropped; return the new ones that it has not."""
        gone = set(engine.discarded)
        engine.discarded.clear()
        left = [task for task in tasks if task.task_id not in gone]
        known = gone.difference(task.task_id for task in tasks)
        for task_id in gone - known:
            engine.cancelled(task_id)
        if known:
            self._dropped |= known
            self._cancel(CancelTasks(tuple(sorted(known))))
        return left

    def _maybe_end(self) -> None:
        actions = self.actions
        if self._stopping and not self._stopped:
            self._stopped = any(type(action) is Stopped for action in actions)
        if self.scheduler.live or self._unkept or self.ended is not None or not self._begun:
            return
        if self._looked_up:
            return
        if self._more_since is not None and self._stop is None:
            return
        if self._stop is None:
            if self.open_ended:
                return
            verdict = self._verdict()
            if not self.may_end(verdict.state == "finished"):
                return
            self._end_as(verdict)
            self._stopping = True
            last = self.scheduler.handle(Stop("the job is over"), self.now)
            self._stopped = any(type(action) is Stopped for action in last)
            actions += last
        if self._stopped:
            assert self._stop is not None
            if not self.may_end(self._stop.state == "finished"):
                return
            self.ended = self._stop
            self._move(JobState(self.ended.state))
            actions.append(JobChanged(self.now, self.job, self.ended.state, self.name, self.ended.detail))
            actions.append(self.ended)

    def _end_as(self, ended: JobEnded) -> None:
        """Decide how the job will have ended, unless that is decided already."""
        if self._stop is None:
            self._stop = ended
            self._move(JobState.STOPPING)

    def _move(self, state: JobState) -> None:
        assert state in TRANSITIONS[self.state], f"job {self.job} from {self.state} to {state}"
        self.state = state

    def _verdict(self) -> JobEnded:
        """How a job ends that has nothing more to run."""
        if self.failures:
            return JobEnded("failed", "some tasks failed")
        stuck = self.engine.explain_stuck()
        if stuck:
            return JobEnded("failed", "the workflow is stuck:\n" + "\n".join(f"  {line}" for line in stuck))
        return JobEnded("finished")

    def counts(self) -> Mapping[TaskState, int]:
        """Return the number of tasks in each state, each item of a range being one."""
        counts = dict(self.scheduler.status())
        counts[TaskState.FINISHED] = counts.get(TaskState.FINISHED, 0) + self.finished_before
        counts[TaskState.READY] = counts.get(TaskState.READY, 0) + len(self._looked_up)
        if self.count_more is not None:
            self.count_more(counts)
        return counts
