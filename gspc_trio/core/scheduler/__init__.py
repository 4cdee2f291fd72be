"""Which task runs where and when: extract, acquire, submit, finished, inject, release (GSPC19 2.5, 3.1-3.3).

One :class:`Scheduler` serves one job. It keeps a queue for each shape (SCH-3), asks the resource manager for
as many grants as it can use, runs tasks one after another on each grant, sends short ones ahead, and tries
again what was lost or failed as the policies allow (SCH-2).
"""

from gspc_trio.core.scheduler.interface import (
    CancelTasks,
    Claims,
    FailedUnsent,
    GivenUp,
    LookAheadPolicy,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Restored,
    RetryPolicy,
    RetryTask,
    Stop,
    Stopped,
    TaskDone,
    TasksReady,
    Watched,
    Withheld,
    WorkAheadPolicy,
)
from gspc_trio.core.scheduler.machine import Scheduler, Statistics

__all__ = [
    "CancelTasks",
    "Claims",
    "FailedUnsent",
    "GivenUp",
    "LookAheadPolicy",
    "Reclaim",
    "ResourcesLost",
    "ResourcesUp",
    "Restored",
    "RetryPolicy",
    "RetryTask",
    "Scheduler",
    "Statistics",
    "Stop",
    "Stopped",
    "TaskDone",
    "TasksReady",
    "Watched",
    "Withheld",
    "WorkAheadPolicy",
]
