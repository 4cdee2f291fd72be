"""Engines around another one: what they do not do in their own way, the other one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Protocol

from gspc_trio.components.job.machine import Engine
from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.net import NetStatus
from gspc_trio.core.task import Task, TaskError
from gspc_trio.records.facts import TaskFlow
from gspc_trio.workflow.graph import FailedThrough

if TYPE_CHECKING:
    from gspc_trio.workflow.flow import Flow


class EngineWrapper:
    """Base of engines that note, check or add something to what another one does.

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

    notes_flow: bool

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
        knows.notes_flow = True
        self._write: Callable[[TaskFlow], None] | None = None

    def begin(self, job: JobId, clock: Callable[[], float], write: Callable[[TaskFlow], None]) -> None:
        """Write records from now on.

        Args:
            job: its id.
            clock: returns the time, seconds.
            write: takes a record.
        """
        self._job, self._clock, self._write = job, clock, write

    def extract(self, task_id: TaskId) -> Task:
        """Return the task; it counts as extracted from now on."""
        task = self._wrapped.extract(task_id)
        if self._write is not None:
            flow = self._knows.flow(task_id)
            needs = (len(task.shape.requirements), flow.inputs, flow.outputs)
            self._write(TaskFlow(self._clock(), self._job, task_id, task.name, flow.parents, *needs))
        return task
