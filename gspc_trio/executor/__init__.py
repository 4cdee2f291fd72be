"""Calls of functions as tasks: ``concurrent.futures`` for people without trio, and a pool for those with.

    from gspc_trio import Executor

    with Executor() as executor:
        power = executor.submit(pow, 2, 10)
        print(executor.submit(lambda x: 2 * x, power).result())

A future may be an argument of a later ``submit``, also in a list, tuple, set or dict. The task then waits for
it without a thread of its own.
"""

from gspc_trio.executor.facade import Executor
from gspc_trio.executor.futures import TaskFuture
from gspc_trio.workflow.failures import ExecutorBroken, RemoteTraceback, TaskFailed

__all__ = ["Executor", "ExecutorBroken", "RemoteTraceback", "TaskFailed", "TaskFuture"]
