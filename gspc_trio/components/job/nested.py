"""Nested tasks of a job: what tasks start that the job runs, and which of these wait and lend their cores.

What tasks start is a graph of its own, which a job beside the first one runs. The tasks of one attempt end
with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.rts.messages import Lend
from gspc_trio.core.ids import JobId, ResourceId, TaskId
from gspc_trio.core.machine import MachineBase, Tick, handles
from gspc_trio.core.nested import (
    LENT_MAX,
    CancelNested,
    ForgetNested,
    FromTaskProcess,
    NestedBroken,
    NestedDepth,
    NestedEnded,
    StartNested,
    TaskWaits,
    ToTaskProcess,
)
from gspc_trio.core.resources import lender_of
from gspc_trio.core.task import FailedThrough, LastAttempt, TaskError, TaskState
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.graph import Ref, TaskGraph

DEPTH_PRIORITY = 1_000
"""Of nested tasks the deepest come first, whatever else they state: those that others wait for."""

STARVED_S = 1.0
"""However a task waits: when none of its nested tasks has run for so long, it lends its core."""

# Events -----------------------------------------------------------------------------------------------------


class TaskSpeaks(Struct, frozen=True):
    """The process of a task has connected.

    Attributes:
        session: number of the connection.
        resource_id: where the task runs.
        nested: its id, if it is a nested task; 0: it is one of the first job.
    """

    session: int
    resource_id: ResourceId
    nested: TaskId = 0


class TaskSaid(Struct, frozen=True):
    """What it says."""

    session: int
    word: FromTaskProcess


class TaskSilent(Struct, frozen=True):
    """Its connection is over: the attempt has ended, or nobody knows what has become of it."""

    session: int


class NestedDone(Struct, frozen=True):
    """A nested task has ended; if it has failed, ``last`` tells of its last attempt."""

    done: TaskDone
    last: LastAttempt | None = None


class NestedOver(Struct, frozen=True):
    """Nested tasks cannot be run any more."""

    reason: str


NestedEvent: TypeAlias = TaskSpeaks | TaskSaid | TaskSilent | NestedDone | NestedOver | Tick

# Actions ----------------------------------------------------------------------------------------------------


class RunNested(Struct, frozen=True):
    """There are new tasks in the graph."""


class CancelNestedTasks(Struct, frozen=True):
    """Cancel these, which are at a worker or on their way."""

    task_ids: tuple[TaskId, ...]


class TellTask(Struct, frozen=True):
    """Say this to the process of a task."""

    session: int
    word: ToTaskProcess


NestedAction: TypeAlias = RunNested | CancelNestedTasks | TellTask | Lend


class _Session(Struct, eq=False):
    """The attempt of a task that starts others.

    Attributes:
        lender: the resource that it lends while it waits.
        depth: how deep it is nested.
        tasks: number -> id of what it has started and may still refer to.
        running: those that have not ended.
        waits: whether it says that it waits.
        starved: whether nothing of what it has started gets a core.
        since_s: when one of these was started, or ended, or was seen to run.
        broken: why nothing more is run for it, or "".
    """

    lender: ResourceId
    depth: int
    tasks: dict[int, TaskId] = field(default_factory=dict)
    running: dict[TaskId, int] = field(default_factory=dict)
    waits: bool = False
    starved: bool = False
    since_s: float = 0.0
    broken: str = ""

    @property
    def lends(self) -> bool:
        return self.waits or self.starved

    @property
    def starves_at(self) -> float | None:
        """When it lends its core, whether it says that it waits or not."""
        return self.since_s + STARVED_S if self.running and not self.lends else None


class NestedTasks(MachineBase[NestedEvent, NestedAction]):
    """What the tasks of a job have started, and which of them wait.

    Args:
        job: that lends the cores.
        graph: gets the tasks.
        runs: returns whether a worker computes a nested task now.
    """

    noun = "the nested tasks of a job"

    def __init__(
        self, job: JobId, graph: TaskGraph, runs: Callable[[TaskId], bool] = lambda _: False
    ) -> None:
        super().__init__()
        self._runs = runs
        self.job = job
        self._graph = graph
        self._sessions: dict[int, _Session] = {}
        self._owners: dict[TaskId, int] = {}  # session of each task that has not ended
        self._depths: dict[TaskId, int] = {}
        self._lent: dict[ResourceId, int] = {}
        self._over = ""

    @property
    def lent(self) -> list[Lend]:
        """What it lends now."""
        return [Lend(self.job, lender, count) for lender, count in self._lent.items()]

    def check(self) -> None:
        """Assert every invariant."""
        lent: dict[ResourceId, int] = {}
        for session in self._sessions.values():
            if session.lends:
                lent[session.lender] = lent.get(session.lender, 0) + 1
            assert set(session.running.values()) <= set(session.tasks) or session.broken
        assert lent == self._lent, (lent, self._lent)
        assert max(lent.values(), default=0) <= LENT_MAX
        owned = {task_id for one in self._sessions.values() for task_id in one.running}
        assert owned == set(self._owners) == set(self._depths), "a task without an owner"
        assert not self.actions, "an action was not returned"

    def deadline(self) -> float | None:
        """Return when a task may have waited in vain for those that it has started."""
        times = [one.starves_at for one in self._sessions.values()]
        return min((at_s for at_s in times if at_s is not None), default=None)

    @handles(Tick)
    def _tick(self, _: Tick) -> None:
        for number, session in self._sessions.items():
            if session.starves_at is None or session.starves_at > self.now:
                continue
            if any(map(self._runs, session.running)):
                session.since_s = self.now
            else:
                self._lend(number, session, session.waits, True)

    @handles(TaskSpeaks)
    def _speaks(self, event: TaskSpeaks) -> None:
        depth = self._depths.get(event.nested, 0)
        self._sessions[event.session] = _Session(lender_of(event.resource_id), depth)
        self.actions.append(TellTask(event.session, NestedDepth(depth)))
        if self._over:
            self._break(event.session, self._over)

    @handles(TaskSaid)
    def _said(self, event: TaskSaid) -> None:
        session, word = self._sessions.get(event.session), event.word
        if session is None:
            return
        if isinstance(word, StartNested):
            self._start(event.session, session, word)
        elif isinstance(word, CancelNested):
            if word.number in session.tasks:
                self._cancel([session.tasks[word.number]])
        elif isinstance(word, ForgetNested):
            for number in word.numbers:
                task_id = session.tasks.get(number)
                if task_id is not None and task_id not in session.running:
                    self._graph.forget(session.tasks.pop(number))
        elif isinstance(word, TaskWaits):
            self._lend(event.session, session, word.waits, session.starved)

    @handles(TaskSilent)
    def _silent(self, event: TaskSilent) -> None:
        session = self._sessions.get(event.session)
        if session is None:
            return
        self._end_all(session)
        self._lend(event.session, session, False, False)
        del self._sessions[event.session]

    def _start(self, number: int, session: _Session, word: StartNested) -> None:
        if session.broken:
            return
        if word.number in session.tasks:
            self._break(number, f"it has started two tasks with the number {word.number}")
            return
        depth = session.depth + 1
        priority = max(-DEPTH_PRIORITY // 2, min(word.options.priority, DEPTH_PRIORITY // 2))
        options = replace(word.options, priority=depth * DEPTH_PRIORITY + priority)
        arguments = [
            Ref(session.tasks.get(one, 0)) if isinstance(one, int) else one for one in word.arguments
        ]
        try:
            task_id = self._graph.add(word.name, word.code_id, arguments, word.shape, options, keep=True)
        except WorkflowError as error:
            ended = NestedEnded(word.number, error=self._error_of(arguments) or _refused(error))
            self.actions.append(TellTask(number, ended))
            return
        session.tasks[word.number] = task_id
        session.since_s = self.now
        session.running[task_id] = word.number
        self._owners[task_id], self._depths[task_id] = number, depth
        self.actions.append(RunNested())

    def _error_of(self, arguments: list[bytes | Ref]) -> TaskError | None:
        """Return why one of the tasks failed whose results are arguments."""
        for one in arguments:
            if isinstance(one, Ref) and one.task_id in self._graph:
                error = self._graph.error(one.task_id)
                if error is not None:
                    return error
        return None

    def _lend(self, number: int, session: _Session, waits: bool, starved: bool) -> None:
        """Note whether a task waits, and lend its core if it does."""
        before, lender = session.lends, session.lender
        lent = self._lent.get(lender, 0)
        if (waits or starved) and not before and (lent >= LENT_MAX or session.broken):
            self._break(
                number,
                f"{LENT_MAX} tasks wait for nested tasks on {lender} (LENT_MAX): start fewer tasks "
                "that wait, or have each do more itself",
            )
            return
        session.waits, session.starved = waits, starved
        if session.lends == before:
            return
        count = lent + (1 if session.lends else -1)
        self._lent.pop(lender, None)
        if count:
            self._lent[lender] = count
        self.actions.append(Lend(self.job, lender, count))

    @handles(NestedDone)
    def _done(self, event: NestedDone) -> None:
        done = event.done
        value = error = last = None
        if done.state is TaskState.FINISHED:
            value = done.outcome.values[0][0]
        elif done.state is not TaskState.CANCELLED:
            error = done.outcome.error or TaskError("failed", "it failed without saying why")
            last = event.last
        self._ended(done.task_id, value, error, last)

    def _ended(
        self,
        task_id: TaskId,
        value: bytes | None,
        error: TaskError | None,
        last: LastAttempt | None = None,
    ) -> None:
        number = self._owners.pop(task_id, None)
        self._depths.pop(task_id, None)
        if number is None:
            return
        session = self._sessions[number]
        ended = NestedEnded(session.running.pop(task_id), value, error, last)
        session.since_s = self.now
        self.actions.append(TellTask(number, ended))
        if session.starved and not session.running:
            self._lend(number, session, session.waits, False)

    @handles(NestedOver)
    def _ends(self, event: NestedOver) -> None:
        self._over = event.reason
        for number in self._sessions:
            self._break(number, event.reason)

    def _break(self, number: int, reason: str) -> None:
        """Run nothing more for a task."""
        session = self._sessions[number]
        if not session.broken:
            session.broken = reason
            self.actions.append(TellTask(number, NestedBroken(reason)))
            self._end_all(session)

    def _end_all(self, session: _Session) -> None:
        """Cancel and forget all that a task has started."""
        running = list(session.running)
        session.running.clear()
        for task_id in running:
            del self._owners[task_id], self._depths[task_id]
        if not self._over:
            self._cancel(running)
        for task_id in session.tasks.values():
            self._graph.forget(task_id)
        session.tasks.clear()

    def _cancel(self, task_ids: list[TaskId]) -> None:
        """Cancel tasks: those that no scheduler has seen in the graph alone."""
        graph, submitted = self._graph, []
        for task_id in task_ids:
            if task_id not in graph:
                continue
            state = graph.state(task_id)
            if state is TaskState.READY:
                through = graph.cancelled(task_id)
                self._ended(task_id, None, None)
                for failed in through:
                    self._fail_through(failed)
            elif state is TaskState.SUBMITTED:
                submitted.append(task_id)
        if submitted:
            self.actions.append(CancelNestedTasks(tuple(submitted)))

    def _fail_through(self, failed: FailedThrough) -> None:
        self._ended(failed.task_id, None, failed.error)


def _refused(error: WorkflowError) -> TaskError:
    return TaskError("refused", str(error))
