"""Blocking facade: ``concurrent.futures`` for people without trio.

    from gspc_trio import Executor

    with Executor() as executor:
        power = executor.submit(pow, 2, 10)
        print(executor.submit(lambda x: 2 * x, power).result())

A future may be an argument of a later ``submit``, which then waits for it without a thread of its own; one
inside a list is not looked for.
"""

from gspc_trio.executor.facade import Executor
from gspc_trio.executor.futures import ExecutorBroken, RemoteTraceback, TaskFailed, TaskFuture

__all__ = ["Executor", "ExecutorBroken", "RemoteTraceback", "TaskFailed", "TaskFuture"]
