"""Look-ahead: how many grants a job asks for (SCH-3, GSPC19 3.3), and how many tasks a worker gets ahead."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:  # lists of commands use this without tasks
    from gspc_trio.core.task import Shape, Task


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


class WorkAhead(Struct, frozen=True):
    """Send ahead by measured time.

    A round trip costs some tenths of a millisecond, a no-op task some microseconds: a worker that got one
    task at a time would idle for most of its time. One that got all of them would keep them from the others.
    About 2 ms of work is enough to hide the round trip and little enough to be fair.

    Tasks that stage data are another matter: while one computes, the data of the next comes and that of the
    last goes, however long that takes (WRK-2). One more waits behind these three, so that stage-in of the
    next begins when that of the last ends, and not a round trip later.

    Attributes:
        ahead_s: seconds of work sent ahead.
        tasks_max: bound of the number of tasks behind the running one.
        longest_s: tasks that take longer than this are not sent ahead: the round trip does not matter to
            them.
        overlapped: tasks that one worker has in any case if they stage data.
        patrol_s: how long one task may keep others waiting behind it.
        settle_s: how long after a grant more are expected.
        worth_s: least work of one worker of which part goes to an idle one.
        weight: of one measurement in the average.
    """

    ahead_s: float = 0.002
    tasks_max: int = 1024
    longest_s: float = 0.1
    overlapped: int = 4
    patrol_s: float = 0.1
    settle_s: float = 0.02
    worth_s: float = 0.0005
    weight: float = 0.125

    def depth(self, samples: int, average_s: float, staged: bool) -> tuple[int, int]:
        """Return (at_least, at_most) tasks for one grant, the running one among them.

        What was never measured goes alone; then the number at most doubles with each round, so that few early
        measurements do not decide much. Those that stage data overlap from the first one on.
        """
        if samples == 0 or self.takes_long(average_s):
            at_least = self.beside_long(staged)
            return (at_least, at_least)
        at_least = self.overlapped if staged else 2
        by_time = self.tasks_max
        if average_s * by_time > self.ahead_s:
            by_time = ceil(self.ahead_s / average_s)
        return (at_least, max(at_least, min(1 + by_time, 2 * samples)))

    def beside_long(self, staged: bool) -> int:
        """Return how many tasks a grant keeps while one that takes long runs: that, or all that overlap."""
        return self.overlapped if staged else 1

    def takes_long(self, average_s: float) -> bool:
        """Return whether a task takes so long that another worker had better have the next one."""
        return average_s > self.longest_s

    def learn(self, average_s: float, samples: int, mean_s: float, count: int) -> float:
        """Return the exponential average after ``count`` more measurements, each taken to be ``mean_s``."""
        if samples == 0:
            return mean_s
        return mean_s + (average_s - mean_s) * (1.0 - self.weight) ** count

    def worth_taking_back(self, work_s: float) -> bool:
        """Return whether the work is worth the messages that move it."""
        return work_s >= self.worth_s
