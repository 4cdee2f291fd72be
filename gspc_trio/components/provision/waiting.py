"""Groups of waiting tasks by rising walltime, from which those are taken that fit (SWF-4)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from attrs import frozen


@frozen
class Group:
    """Waiting tasks that are alike.

    Attributes:
        walltime_s: how long one takes at most, seconds.
        cores: that one needs.
        count: how many there are.

    Raises:
        ValueError: one of them is not above 0, or the time is not finite.
    """

    walltime_s: float
    cores: int
    count: int = 1

    def __attrs_post_init__(self) -> None:
        if not (0 < self.walltime_s < math.inf and self.cores > 0 and self.count > 0):
            raise ValueError(f"a group needs a time, cores and tasks above 0, not {self}")


@frozen
class Taken:
    """Tasks of one group.

    Attributes:
        group: number of the group, in the order in which the groups were given.
        count: how many of its tasks.
    """

    group: int
    count: int


class WaitingTasks:
    """Groups by rising walltime, of one walltime by rising width, with how many tasks of each still wait.

    A tree of the least sizes and widths finds the next group that fits; it skips those that do not, together.

    Args:
        groups: of tasks; their numbers are those in ``Taken``.
        chosen: numbers of those that wait here.
        parallelism: exponent of times in sizes.
    """

    def __init__(self, groups: Sequence[Group], chosen: Sequence[int], parallelism: float) -> None:
        self.order: list[int] = sorted(chosen, key=lambda one: (groups[one].walltime_s, groups[one].cores))
        ordered = [groups[one] for one in self.order]
        self.walltimes_s: list[float] = [group.walltime_s for group in ordered]
        self.cores: list[int] = [group.cores for group in ordered]
        self.sizes: list[float] = [group.cores * group.walltime_s**parallelism for group in ordered]
        self.counts: list[int] = [group.count for group in ordered]
        self.count: int = sum(self.counts)
        self._leaves = 1 << max(0, len(ordered) - 1).bit_length()
        self._least_sizes = self._tree(self.sizes)
        self._least_cores = self._tree(self.cores)

    @property
    def size(self) -> float:
        """Return the sum of the sizes of all that wait."""
        return math.fsum(size * count for size, count in zip(self.sizes, self.counts, strict=True))

    def up_to(self, time_s: float) -> int:
        """Return how many groups, in their order, have at most this walltime."""
        return bisect_right(self.walltimes_s, time_s)

    def longest(self, end: int, cores: int, size: float) -> int:
        """Return the last place before ``end`` whose tasks are so narrow and small, -1 if there is none."""
        if end <= 0:
            return -1
        sizes, widths, node = self._least_sizes, self._least_cores, end - 1 + self._leaves
        while True:
            if sizes[node] <= size and widths[node] <= cores:
                if node >= self._leaves:
                    return node - self._leaves
                node = 2 * node + 1
            else:
                while not node & 1:
                    node >>= 1
                if node == 1:
                    return -1
                node -= 1

    def shortest(self, begin: int, end: int, cores: int, size: float) -> int:
        """Return the first place of ``begin`` to ``end`` whose tasks are so narrow and small, else -1."""
        if begin >= end:
            return -1
        sizes, widths, node = self._least_sizes, self._least_cores, begin + self._leaves
        while True:
            if sizes[node] <= size and widths[node] <= cores:
                if node >= self._leaves:
                    place = node - self._leaves
                    return place if place < end else -1
                node = 2 * node
            else:
                while node & 1:
                    node >>= 1
                if not node:
                    return -1
                node += 1

    def take(self, place: int, room: float) -> Taken:
        """Take the tasks of the group at this place for which there is room, and return them."""
        count = int(min(self.counts[place], room / self.sizes[place]))
        self.count -= count
        self.counts[place] -= count
        if not self.counts[place]:
            node = place + self._leaves
            self._least_sizes[node] = self._least_cores[node] = math.inf
            while node > 1:
                node >>= 1
                for least in (self._least_sizes, self._least_cores):
                    least[node] = min(least[2 * node], least[2 * node + 1])
        return Taken(self.order[place], count)

    def _tree(self, values: Sequence[float]) -> list[float]:
        """Return the least values of all subtrees: node n has the children 2n and 2n + 1, the root is 1."""
        leaves = self._leaves
        least = [math.inf] * leaves + [*values] + [math.inf] * (leaves - len(values))
        for node in range(leaves - 1, 0, -1):
            least[node] = min(least[2 * node], least[2 * node + 1])
        return least
