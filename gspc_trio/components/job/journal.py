"""The journal of a job: its records, and the engine rebuilt from them (reliability: journal).

The journal of a job is its engine's history in three facts: the state at some time (:class:`Snapshot`), the
outcomes that were injected (:class:`Outcomes`), and what happened between them (:class:`Step`). An engine is
a pure function of that: the same steps give the same task ids and the same tokens. Failures and cancellations
are not in it, so that a job that is resumed tries again whatever has not finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.job.engine_wrapper import EngineWrapper
from gspc_trio.components.job.task_key import NO_KEY, Key, Noted, TaskKeys
from gspc_trio.core.ids import TaskId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import Task, TaskError, TaskState
from gspc_trio.workflow.calls import TransitionFailed
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.ports import PortMoved
from gspc_trio.workflow.search import Searching
from gspc_trio.workflow.tokens import Plain

Values: TypeAlias = tuple[tuple[bytes, ...], ...]
"""For each output of a task's code, the encoded values."""


class JournalMismatch(ValueError):
    """The journal cannot be that of this workflow; one line says why."""


class Snapshot(Struct, frozen=True):
    """The whole state of an engine, as its ``dump`` gives it; what was recorded before is not needed."""

    state: dict[str, Plain]


class Outcomes(Struct, frozen=True):
    """Results of tasks, in the order in which they are injected.

    Attributes:
        rows: the results.
        keys: what the tasks were, in the same order; empty if nobody has noted it.
    """

    rows: tuple[tuple[TaskId, Values], ...]
    keys: tuple[Key, ...] = ()


class Reusable(Struct, frozen=True):
    """Results of an earlier version of the workflow.

    Attributes:
        rows: for each the values.
        keys: what the tasks were, in the same order.
        taken: whether the workflow has taken them already; otherwise it will, should such tasks come.
    """

    rows: tuple[Values, ...]
    keys: tuple[Key, ...]
    taken: bool


class Step(Struct, frozen=True):
    """The engine took in ``injected`` more outcomes, then handed out ``pulled`` new tasks.

    ``exhausted`` says that it was then asked for one more and had none: inline transitions have fired. If it
    was interrupted at that, ``fired`` of them have.

    If it was interrupted since it looked at many tokens, it was ``searching`` there.

    Before all that, those tasks ``turned`` of which only so many may be in flight: one that had failed was
    made ready again, any other one failed or was cancelled, so that another one could begin.
    """

    injected: int
    pulled: int
    exhausted: bool
    fired: int = 0
    turned: tuple[TaskId, ...] = ()
    searching: Searching = ()


_UNENDED = (TaskState.READY, TaskState.SUBMITTED)

JournalRecord: TypeAlias = Snapshot | Outcomes | Step | Reusable | PortMoved


class JournaledEngine(EngineWrapper):
    """A workflow engine that notes its steps.

    Args:
        engine: does the work.
        on_pull: called when a task was handed out of which no step has told yet.
        keys: notes what the tasks are that are handed out.

    Attributes:
        injected: outcomes taken in since this object was made.
        is_whole: whether the steps tell everything. They do not after a transition has raised half way.
    """

    def __init__(
        self,
        engine: WorkflowEngine,
        on_pull: Callable[[], None] = lambda: None,
        keys: TaskKeys | None = None,
    ) -> None:
        super().__init__(engine)
        self.engine = engine
        self.keys: TaskKeys = keys or TaskKeys({})
        transitions = list(engine.net.all_transitions)
        self._staged = {one.name for one in transitions if one.stage is not None}
        self.extract: Callable[[TaskId], Task] = self._extract if self._staged else engine.extract
        self.injected: int = 0
        self._on_pull = on_pull
        self.is_whole: bool = True
        self._awaited: set[TaskId] = set()
        self._held_back: dict[TaskId, None] = {}
        self._released: deque[TaskId] = deque()
        self._newest = engine.last_task_id
        self._steps: list[Step | PortMoved] = []
        engine.ports.note = self._moved
        self._turned: list[TaskId] = []
        self._begin()
        self.fail: Callable[[TaskId, TaskError], None] = engine.fail
        self.cancelled: Callable[[TaskId], None] = engine.cancelled
        self.restore: Callable[[TaskId], None] = engine.restore
        if any(one.in_flight is not None for one in transitions):
            self.fail, self.cancelled, self.restore = self._fail, self._cancelled, self._restore

    def _begin(self) -> None:
        self._injected = self._pulled = 0
        self._turned = []
        self._searching: Searching = ()
        self._exhausted = False
        self._fired_before = self.engine.inline_fired

    def _close_step(self) -> None:
        fired = 0 if self._exhausted else self.engine.inline_fired - self._fired_before
        if self._injected or self._pulled or self._exhausted or fired or self._turned or self._searching:
            turned = tuple(self._turned)
            step = Step(self._injected, self._pulled, self._exhausted, fired, turned, self._searching)
            self._steps.append(step)
        self._begin()

    def next(self) -> TaskId | None:
        """Return the id of a task that is ready, each once, or None; see the engine."""
        task_id: TaskId | None
        while self._released:
            task_id = self._released.popleft()
            if self.engine.is_under_way(task_id):  # it was not dropped meanwhile
                return task_id
        try:
            task_id = self.engine.next()
            while task_id in self._awaited:
                assert task_id is not None
                self._held_back[task_id] = None
                self._awaited.discard(task_id)
                task_id = self.engine.next()
        except TransitionFailed:
            self.is_whole = False
            raise
        if task_id is None:
            self._exhausted = not self.engine.has_more
            self._searching = self.engine.searching() if self.engine.is_searching else ()
        elif task_id > self._newest:
            if self._exhausted:
                self._close_step()
            self._searching = ()
            self._newest = task_id
            self._fired_before = self.engine.inline_fired
            self._pulled += 1
            if self._pulled == 1:
                self._on_pull()
        return task_id

    @property
    def has_pulled(self) -> bool:
        """Whether tasks were handed out since the steps were taken."""
        return self._pulled > 0 or any(isinstance(step, PortMoved) or step.pulled for step in self._steps)

    def _moved(self, moved: PortMoved) -> None:
        """Tokens of a port are about to come, or to be taken off, from outside."""
        self._close_step()
        self._steps.append(moved)
        self._on_pull()

    def _extract(self, task_id: TaskId) -> Task:
        """Return a ready task; note the files that it has."""
        task = self.engine.extract(task_id)
        if task.name in self._staged:
            self.keys.note(task)
        return task

    def keys_of(self, rows: Sequence[tuple[TaskId, Values]]) -> list[Key | Noted]:
        """Return what tasks are that have finished; of one with files what was noted of it."""
        take, digest, engine = self.keys.take, self.keys.digest, self.engine
        keys: list[Key | Noted] = []
        for task_id, _ in rows:
            noted = take(task_id)
            if noted is not None:
                keys.append(noted)
            elif not engine.is_under_way(task_id):  # it was dropped when it had ended: nothing comes of it
                keys.append(NO_KEY)
            else:
                name, arguments = engine.given(task_id)
                found = digest(name, arguments)
                keys.append(NO_KEY if found is None else (name, found, ()))
        return keys

    def hold_back(self) -> None:
        """Hand out nothing that was under way before: another job server's workers may be at it still."""
        self._awaited.update(self.engine.under_way())

    def take_over(self, task_id: TaskId) -> Task | None:
        """Return a task that is held back, as extracted: its result has come. None if it is not held back."""
        if task_id not in self._held_back:
            return None
        del self._held_back[task_id]
        return self.extract(task_id) if self.engine.is_under_way(task_id) else None

    def release(self, still_out: Container[TaskId] = ()) -> None:
        """Hand out what is held back, but for those that may still come."""
        for task_id in [one for one in self._held_back if one not in still_out]:
            del self._held_back[task_id]
            self._released.append(task_id)
        self._awaited = {one for one in self._awaited if one in still_out}

    def inject(self, task_id: TaskId, values: Values) -> None:
        """Put the result of an extracted task into the workflow; see the engine."""
        if self._pulled or self._has_gone_on():
            self._close_step()
        self.engine.inject(task_id, values)
        self._injected += 1
        self.injected += 1

    def _fail(self, task_id: TaskId, error: TaskError) -> None:
        """The extracted task has failed; see the engine."""
        counts = self._is_out(task_id)
        self.engine.fail(task_id, error)
        if counts:
            self._note_turn(task_id)

    def _cancelled(self, task_id: TaskId) -> None:
        """The task was cancelled; see the engine."""
        counts = self._is_out(task_id)
        self.engine.cancelled(task_id)
        if counts:
            self._note_turn(task_id)

    def _restore(self, task_id: TaskId) -> None:
        """Make a task ready again; see the engine."""
        ended = self.engine.state(task_id) is not TaskState.SUBMITTED
        self.engine.restore(task_id)
        if ended and self.engine.is_limited(task_id):
            self._note_turn(task_id)

    def _is_out(self, task_id: TaskId) -> bool:
        """Return whether how a task ends counts, for it has not been dropped or cancelled with others."""
        engine = self.engine
        is_out = engine.is_under_way(task_id) and engine.state(task_id) in _UNENDED
        return is_out and engine.is_limited(task_id)

    def _note_turn(self, task_id: TaskId) -> None:
        if self._injected or self._pulled or self._has_gone_on():
            self._close_step()
        self._turned.append(task_id)

    def _has_gone_on(self) -> bool:
        """Return whether transitions have fired or were looked at, in this step or since it pulled a task."""
        fired = self.engine.inline_fired > self._fired_before
        return fired or self._exhausted or bool(self._searching)

    def take_steps(self) -> list[Step | PortMoved]:
        """Return the steps since the last call; what they lead to is the state of now."""
        self._close_step()
        steps, self._steps = self._steps, []
        return steps

    def snapshot(self) -> Snapshot:
        """Return the state of now; steps noted before are forgotten."""
        self.take_steps()
        return Snapshot(self.engine.dump())


class Replay:
    """Builds an engine from the records of a journal.

    Args:
        load: makes an engine of a dump.
    """

    def __init__(self, load: Callable[[dict[str, Plain]], WorkflowEngine]) -> None:
        self._load = load
        self._engine: WorkflowEngine | None = None
        self._outcomes: deque[tuple[TaskId, Values]] = deque()

    @property
    def engine(self) -> WorkflowEngine:
        """The engine as it was at the last step.

        Raises:
            JournalMismatch: there was no snapshot yet.
        """
        if self._engine is None:
            raise JournalMismatch("the journal has no beginning")
        return self._engine

    def apply(self, record: JournalRecord) -> None:
        """Take the next record.

        Raises:
            JournalMismatch: the workflow does not do again what it did.
        """
        if type(record) is Outcomes:
            self._outcomes.extend(record.rows)
        elif type(record) is Step:
            self._step(record)
        elif type(record) is PortMoved:
            self.engine.ports.move(record)
        elif type(record) is not Reusable:
            assert type(record) is Snapshot
            self._engine = self._load(record.state)
            self._outcomes.clear()
            self._engine.keep_going()  # a step that tells of a failure is one of a job that has gone on

    def finish(self) -> WorkflowEngine:
        """Take in what was durable but not injected, make ready again what was under way; return the engine.

        Raises:
            JournalMismatch: the workflow does not do again what it did.
        """
        engine = self.engine
        while self._outcomes:
            self._inject(*self._outcomes.popleft())
        engine.keep_going(False)
        engine.failures.clear()
        engine.restore_all()
        engine.ports.free_all()
        return engine

    def _step(self, step: Step) -> None:
        if step.injected > len(self._outcomes):
            raise JournalMismatch("the journal has a step without its outcomes")
        for task_id in step.turned:
            self._turn(task_id)
        for _ in range(step.injected):
            self._inject(*self._outcomes.popleft())
        if step.pulled or step.exhausted:
            self._pull(step)
        try:
            if not self.engine.fire(step.fired):
                raise _diverged(f"it had {step.fired} inline transitions to fire")
            if not self.engine.search(step.searching):
                raise _diverged("it had paused in a search")
        except TransitionFailed as error:
            raise _diverged(str(error)) from error

    def _inject(self, task_id: TaskId, values: Values) -> None:
        engine = self.engine
        try:
            if engine.state(task_id) is TaskState.READY:  # it was under way at the snapshot
                engine.extract(task_id)
            engine.inject(task_id, values)
        except (IllegalEvent, KeyError) as error:
            raise _diverged(f"it has no task {task_id} whose result could be taken in") from error

    def _turn(self, task_id: TaskId) -> None:
        engine = self.engine
        try:
            state = engine.state(task_id)
            if state in (TaskState.FAILED, TaskState.CANCELLED):
                engine.restore(task_id)
            else:
                if state is TaskState.READY:
                    engine.extract(task_id)
                engine.fail(task_id, TaskError("failed", "before the job was resumed"))
        except (IllegalEvent, KeyError) as error:
            raise _diverged(f"it has no task {task_id} that could fail") from error

    def _pull(self, step: Step) -> None:
        engine, wanted = self.engine, step.pulled
        while wanted or step.exhausted:
            before = engine.last_task_id
            try:
                task_id = engine.next()
            except TransitionFailed as error:
                raise _diverged(str(error)) from error
            if task_id is None:
                if engine.has_more:
                    continue
                break
            engine.extract(task_id)
            if task_id > before:
                if not wanted:
                    raise _diverged(f"task {task_id} was not ready then")
                wanted -= 1
        if wanted:
            raise _diverged(f"{wanted} tasks were ready then that are not now")


def _diverged(why: str) -> JournalMismatch:
    return JournalMismatch(
        f"the workflow does not do again what its journal says ({why}): its conditions and inline "
        "transitions must depend on their tokens alone"
    )


def replay(
    records: Sequence[JournalRecord], load: Callable[[dict[str, Plain]], WorkflowEngine]
) -> WorkflowEngine:
    """Return the engine that goes on where a journal ends.

    Args:
        records: the first is a snapshot.
        load: makes an engine of a dump.

    Raises:
        JournalMismatch: the workflow does not do again what it did.
    """
    again = Replay(load)
    for record in records:
        again.apply(record)
    return again.finish()
