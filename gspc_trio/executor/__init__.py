"""Calls of functions as tasks: ``concurrent.futures`` for people without trio, and a pool for those with.

    from gspc_trio import Executor

    with Executor() as executor:
        power = executor.submit(pow, 2, 10)
        print(executor.submit(lambda x: 2 * x, power).result())

A future may be an argument of a later ``submit``, also in a list, tuple, set or dict. The task then waits for
it without a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gspc_trio.workflow.failures import ExecutorBroken, RemoteTraceback, TaskFailed

if TYPE_CHECKING:  # loaded when they are wanted: some modules here need none of it
    from gspc_trio.executor.facade import Executor
    from gspc_trio.executor.futures import TaskFuture

__all__ = ["Executor", "ExecutorBroken", "RemoteTraceback", "TaskFailed", "TaskFuture"]


def __getattr__(name: str) -> object:
    if name == "Executor":
        from gspc_trio.executor.facade import Executor

        return Executor
    if name == "TaskFuture":
        from gspc_trio.executor.futures import TaskFuture

        return TaskFuture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
