"""The engine of a job with data in a memory layer: its tasks say what they stage, lost data is made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gspc_trio.components.job.machine import Engine
from gspc_trio.components.job.shell.recovery import FIRST_TASK_ID
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Task, TaskError

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.data import JobData


class StagingEngine:
    """An engine whose tasks state the staging that their data needs, and that runs tasks again for lost data.

    Args:
        engine: whose tasks they are.
        data: of the job.
    """

    def __init__(self, engine: Engine, data: JobData) -> None:
        self._engine = engine
        self._data = data
        self._recovery = data.recovery

    def next(self) -> TaskId | None:
        """Return the id of a task that is ready and not yet extracted, or None."""
        again = self._recovery.next()
        return self._engine.next() if again is None else again

    def extract(self, task_id: TaskId) -> Task:
        """Return the task; it counts as extracted from now on."""
        if task_id >= FIRST_TASK_ID:
            return self._data.staged(self._recovery.extract())
        task = self._data.staged(self._engine.extract(task_id))
        self._recovery.extracted(task)
        return task

    def inject(self, task_id: TaskId, values: tuple[tuple[bytes, ...], ...]) -> None:
        """Put the result of an extracted task into the workflow; not of one that ran again."""
        if task_id >= FIRST_TASK_ID:
            self._recovery.done(task_id, True)
        else:
            self._recovery.ended(task_id)
            self._engine.inject(task_id, values)

    def fail(self, task_id: TaskId, error: TaskError) -> Any:
        """The extracted task has failed for good; return those that fail through it."""
        if task_id >= FIRST_TASK_ID:
            self._recovery.done(task_id, False)
            return ()
        self._recovery.ended(task_id)
        return self._engine.fail(task_id, error)

    def cancelled(self, task_id: TaskId) -> Any:
        """The extracted task was cancelled; return those that fail through it."""
        if task_id >= FIRST_TASK_ID:
            self._recovery.done(task_id, False)
            return ()
        self._recovery.ended(task_id)
        return self._engine.cancelled(task_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
