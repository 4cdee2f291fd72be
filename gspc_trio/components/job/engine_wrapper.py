"""What a job needs from a workflow engine, and engines around another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol

from gspc_trio.components.job.scheduler.interface import Dependents, TasksKnown
from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.net import NetStatus
from gspc_trio.core.task import FailedThrough, Shape, Task, TaskError
from gspc_trio.records.columns import COLUMNS_MIN, columns_of
from gspc_trio.records.facts import FactColumns, TaskFlow

if TYPE_CHECKING:
    from gspc_trio.workflow.flow import Flow


class Engine(Protocol):
    """What a job needs from a workflow engine (GSPC19 2.6)."""

    @property
    def has_more(self) -> bool:
        """Whether ``next`` has just returned None though there is more to do: it is to be asked again."""
        ...

    def next(self) -> TaskId | None:
        """Return the id of a task that is ready and not yet extracted, or None."""
        ...

    def extract(self, task_id: TaskId) -> Task:
        """Return the task; it counts as extracted from now on."""
        ...

    def inject(self, task_id: TaskId, values: tuple[tuple[bytes, ...], ...]) -> None:
        """Put the result of an extracted task into the workflow."""
        ...

    def fail(self, task_id: TaskId, error: TaskError) -> tuple[FailedThrough, ...] | None:
        """The extracted task has failed for good and keeps what it took; return what fails through it."""
        ...

    def cancelled(self, task_id: TaskId) -> tuple[FailedThrough, ...] | None:
        """The extracted task was cancelled and keeps what it took; return those that fail through it."""
        ...

    def restore(self, task_id: TaskId) -> None:
        """Make a task that has failed ready again; IllegalEvent if it cannot be."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the workflow has ended although tasks may be under way (a termination transition fired)."""
        ...

    def explain_stuck(self) -> list[str]:
        """Return what keeps the workflow from going on, a line each; empty when it is finished."""
        ...

    def take_over(self, task_id: TaskId) -> Task | None:
        """Return a task, as extracted, if its result may come from an earlier job server; else None."""
        ...

    @property
    def named(self) -> Set[str]:
        """Names of the published data that the workflow takes."""
        ...

    def resolve(self, found: Mapping[str, object]) -> None:
        """Say what stands for published data, before anything runs: name -> value."""
        ...

    @property
    def dependents(self) -> Dependents | None:
        """What knows which tasks take the results of others; None: nobody does."""
        ...

    @property
    def discarded(self) -> list[TaskId]:
        """Extracted tasks that the workflow has dropped: to be cancelled, and taken off this list."""
        ...

    @property
    def failures(self) -> list[str]:
        """Firings and activities that have failed, a text each: to be told, and taken off this list."""
        ...

    def describe(self) -> NetStatus:
        """Return the net and how far it is; empty where there is none."""
        ...


class EngineWrapper:
    """Base of engines that note, check or add something to what another one does; the other does the rest.

    Args:
        wrapped: the other one.
    """

    def __init__(self, wrapped: Engine) -> None:
        self._wrapped = wrapped
        self.restore: Callable[[TaskId], None] = wrapped.restore
        self.explain_stuck: Callable[[], list[str]] = wrapped.explain_stuck
        self.describe: Callable[[], NetStatus] = wrapped.describe
        self.resolve: Callable[[Mapping[str, object]], None] = wrapped.resolve
        self.named: Set[str] = wrapped.named
        self.discarded: list[TaskId] = wrapped.discarded
        self.failures: list[str] = wrapped.failures

    @property
    def wrapped(self) -> Engine:
        """The other engine."""
        return self._wrapped

    @property
    def dependents(self) -> Dependents | None:
        """Nobody: what is sent before it is ready would pass it by."""
        return None

    @property
    def has_more(self) -> bool:
        """Whether to ask for tasks once more."""
        return self._wrapped.has_more

    @property
    def is_stopped(self) -> bool:
        """Whether a termination transition has ended the workflow."""
        return self._wrapped.is_stopped


class KnowsFlow(Protocol):
    """A workflow engine that says from which tasks others take what they take."""

    def note_flow(self) -> None:
        """Note from now on which tasks have made each token."""
        ...

    def flow(self, task_id: TaskId) -> Flow:
        """Return what a task under way takes, and from which others."""
        ...


class FlowEngine(EngineWrapper):
    """An engine whose tasks are recorded, with what they take, when they are extracted.

    Args:
        engine: whose tasks they are.
        knows: the workflow engine within it.
    """

    def __init__(self, engine: Engine, knows: KnowsFlow) -> None:
        super().__init__(engine)
        self.inject: Callable[[TaskId, tuple[tuple[bytes, ...], ...]], None] = engine.inject
        self.next: Callable[[], TaskId | None] = engine.next
        self.fail: Callable[[TaskId, TaskError], tuple[FailedThrough, ...] | None] = engine.fail
        self.cancelled: Callable[[TaskId], tuple[FailedThrough, ...] | None] = engine.cancelled
        self.take_over: Callable[[TaskId], Task | None] = engine.take_over
        self._knows = knows
        knows.note_flow()
        self.extract: Callable[[TaskId], Task] = engine.extract
        self._extract = engine.extract
        self._flow = knows.flow
        self._job: JobId | None = None
        # In columns, without the tasks: kept longer than they live, they would leave the caches of the CPU.
        self._times: list[float] = []
        self._ids: list[TaskId] = []
        self._names: list[str] = []
        self._shapes: list[Shape] = []
        self._flows: list[Flow] = []

    def begin(self, job: JobId, clock: Callable[[], float]) -> Callable[[], Sequence[TaskFlow | FactColumns]]:
        """Note what tasks take from now on; return what returns the records of it, those not returned yet.

        Args:
            job: its id.
            clock: returns the time, seconds.
        """
        self._job = job
        extract, flow = self._extract, self._flow
        note_time, note_id, note_name = self._times.append, self._ids.append, self._names.append
        note_shape, note_flow = self._shapes.append, self._flows.append

        def noting(task_id: TaskId) -> Task:
            task = extract(task_id)
            if task.items:  # its calls are told of when they have ended
                return task
            note_time(clock())
            note_id(task_id)
            note_name(task.name)
            note_shape(task.shape)
            note_flow(flow(task_id))
            return task

        self.extract = noting  # each task passes here: without a method and its attributes
        return self._take

    def _take(self) -> Sequence[TaskFlow | FactColumns]:
        assert self._job is not None
        times, ids, names = self._times.copy(), self._ids.copy(), self._names.copy()
        shapes, flows = self._shapes.copy(), self._flows.copy()
        for column in (self._times, self._ids, self._names, self._shapes, self._flows):
            column.clear()
        if len(ids) < COLUMNS_MIN:
            return [_flow_of(self._job, *one) for one in zip(times, ids, names, shapes, flows, strict=True)]
        each: dict[str, Sequence[object]] = {"at_s": times, "task_id": ids, "name": names}
        if shapes.count(shapes[0]) < len(shapes) or len(shapes[0].requirements) != 1:
            each["cores"] = [len(shape.requirements) for shape in shapes]
        first = flows[0]
        if flows.count(first) < len(flows) or first.parents or first.inputs or first.outputs:
            each["parents"] = [flow.parents for flow in flows]
            each["inputs"] = [flow.inputs for flow in flows]
            each["outputs"] = [flow.outputs for flow in flows]
        return columns_of(TaskFlow, {"job": self._job}, each)


def _flow_of(job: JobId, at_s: float, task_id: TaskId, name: str, shape: Shape, flow: Flow) -> TaskFlow:
    cores = len(shape.requirements)
    return TaskFlow(at_s, job, task_id, name, flow.parents, cores, flow.inputs, flow.outputs)


class Ahead(Protocol):
    """What knows of tasks before they are ready."""

    def news(self) -> TasksKnown | None:
        """Return those that were added since this was asked last, None if there are none."""
        ...
