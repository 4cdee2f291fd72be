"""Class queues and what is asked for them (SCH-3, GSPC19 3.3)."""

from __future__ import annotations

from math import ceil, log2
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.core.ids import JobId
from gspc_trio.core.task import Shape, Task
from gspc_trio.policies.retry import Retry
from gspc_trio.policies.work_ahead import WorkAhead


def rounded_estimate_s(seconds: float) -> float:
    """Return the next power of two (seconds), so that similar tasks share a queue.

    >>> rounded_estimate_s(3.0), rounded_estimate_s(0.5)
    (4.0, 0.5)
    """
    return float(2.0 ** ceil(log2(seconds)))


class LookAhead(Struct, frozen=True):
    """One queue for each shape; tell of it when the number has changed by half.

    Attributes:
        credit_max: bound of the grants asked for at once.
    """

    credit_max: int = 65_536

    def shape_of(self, task: Task) -> Shape:
        """Return the task's shape, with its estimate where the shape has none."""
        estimate_s = task.options.estimate_s
        if estimate_s is None or estimate_s <= 0 or task.shape.estimate_s is not None:
            return task.shape
        return replace(task.shape, estimate_s=rounded_estimate_s(estimate_s))

    def credit(self, waiting: int) -> int:
        """Return how many more grants ``waiting`` tasks can use: one each, within the bound."""
        return min(waiting, self.credit_max)

    def worth_telling(self, told: int, wanted: int) -> bool:
        """Return whether the number came from 0, went to 0, doubled or halved.

        A message for each task would cost more than a short task. What is told too low for a while is made
        good when the last of it has been granted; what is too high brings grants that are recalled when
        others want them.
        """
        if told == 0 or wanted == 0:
            return told != wanted
        return wanted >= 2 * told or 2 * wanted <= told


def look_ahead_scheduler(
    job: JobId,
    *,
    retry: Retry | None = None,
    work_ahead: WorkAhead | None = None,
    look_ahead: LookAhead | None = None,
    random: Random | None = None,
    failed_max: int | None = None,
) -> Scheduler:
    """Return the usual scheduler for a job: back-off, work ahead, a queue for each shape."""
    return Scheduler(
        job,
        retry=retry or Retry(),
        work_ahead=work_ahead or WorkAhead(),
        look_ahead=look_ahead or LookAhead(),
        random=random,
        failed_max=failed_max,
    )
