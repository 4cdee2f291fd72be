"""The settings by which blocks are chosen (SWF-4, SWF-5): defaults, units, and what is refused.

The names are those of Swift/Coasters, section 0.5; units come last.
"""

from __future__ import annotations

import math
from fractions import Fraction

from attrs import field, fields, frozen

TOLERANCE = 1e-9
"""Sums and quotients of floating-point numbers are compared with this relative tolerance."""


class BadBlockSettings(ValueError):
    """Settings cannot be used; the message is one line for people."""


def _whole(value: float) -> int:
    if not math.isfinite(value) or value != int(value):
        raise BadBlockSettings(f"nodes, cores and slots are whole numbers, not {value:g}")
    return int(value)


@frozen
class BlockSettings:
    """How the blocks of a site are chosen.

    Attributes:
        max_time_s: longest time that a block may be asked for, seconds.
        max_nodes: most nodes that a block may have.
        cores_per_node: cores of each node.
        slots: at most so many blocks are queued or run at a time.
        allocation_step: share of the free slots that is used at once, above 0 and up to 1.
        low_overallocation: a block is this many times as high as a very short task.
        high_overallocation: a block is this many times as high as a very long task.
        overallocation_decay: how fast the one goes over into the other with the task's time, per second.
        spread: 0 makes all new blocks of one size; with 1 the sizes go from 0 to twice the mean.
        exponential_spread: ratio of the sizes of a new block and the one before, above 1; 0: linear spread.
        parallelism: exponent of times in sizes: 0 asks for width, 1 packs tightly.
        node_granularity: nodes are asked for in multiples of this number.
        reserve_s: time at the end of a block in which no task is planned, seconds.
        idle_suspend_s: a block that is not needed and got no task for so long, although it had a free core,
            gets none any more, seconds.
        idle_end_s: a block in which nothing ran for so long ends anyway, seconds.
        time_unit_s: the batch system counts time in this unit, seconds.

    Raises:
        BadBlockSettings: a value has no meaning, or does not go with another.
    """

    max_time_s: float
    max_nodes: int = field(converter=_whole)
    cores_per_node: int = field(converter=_whole)
    slots: int = field(default=20, converter=_whole)
    allocation_step: float = 0.1
    low_overallocation: float = 10.0
    high_overallocation: float = 1.0
    overallocation_decay: float = 0.001
    spread: float = 0.9
    exponential_spread: float = 0.0
    parallelism: float = 0.01
    node_granularity: int = field(default=1, converter=_whole)
    reserve_s: float = 60.0
    idle_suspend_s: float = 30.0
    idle_end_s: float = 120.0
    time_unit_s: float = 1.0

    def __attrs_post_init__(self) -> None:
        for one in fields(BlockSettings):
            value = getattr(self, one.name)
            if not math.isfinite(value):
                raise BadBlockSettings(f"{one.name} is to be a number, not {value}")
            least = 1 if one.name in _WHOLE else 0
            if value < least or (value == 0 and one.name in _POSITIVE):
                wanted = "above 0" if one.name in _POSITIVE else f"{least} or more"
                raise BadBlockSettings(f"{one.name} is to be {wanted}, not {value:g}")
        for name in ("allocation_step", "spread", "parallelism"):
            if getattr(self, name) > 1:
                raise BadBlockSettings(f"{name} is to be at most 1, not {getattr(self, name):g}")
        if self.exponential_spread and self.exponential_spread <= 1:
            raise BadBlockSettings(
                "exponential_spread is the ratio of a block to the one before: above 1, or 0 for the linear "
                f"spread, not {self.exponential_spread:g}"
            )
        if self.node_granularity > self.max_nodes:
            raise BadBlockSettings(
                f"node_granularity {self.node_granularity} is more than max_nodes {self.max_nodes}"
            )
        if self.usable_s <= 0:
            raise BadBlockSettings(
                f"nothing is left of max_time_s {self.max_time_s:g} without reserve_s {self.reserve_s:g}"
                + (f" in units of {self.time_unit_s:g} s" if self.max_time_s > self.reserve_s else "")
            )

    @property
    def usable_s(self) -> float:
        """Return the longest time that a task may have: whole units of max_time_s, without the reserve."""
        units = math.floor(self.max_time_s / self.time_unit_s * (1 + TOLERANCE))
        return units * self.time_unit_s - self.reserve_s

    @property
    def nodes_max(self) -> int:
        """Return the largest number of nodes that a block is asked for: multiples of the granularity only."""
        return self.max_nodes // self.node_granularity * self.node_granularity

    @property
    def cores_max(self) -> int:
        """Return how many cores the widest block has."""
        return self.nodes_max * self.cores_per_node

    def new_blocks_max(self, used: int) -> int:
        """Return how many blocks may be asked for when ``used`` are not ended: ceil(step * free slots).

        The step is taken as the decimal number that the user wrote: 0.1 of 30 slots are 3.
        """
        return max(0, math.ceil(Fraction(str(self.allocation_step)) * (self.slots - used)))

    def walltime_s(self, height_s: float) -> float:
        """Return the time to ask for: with the reserve, rounded up to the unit of the batch system."""
        units = (height_s + self.reserve_s) / self.time_unit_s
        return math.ceil(units * (1 - TOLERANCE)) * self.time_unit_s


_POSITIVE = {"max_time_s", "allocation_step", "time_unit_s"}
_WHOLE = {"max_nodes", "cores_per_node", "slots", "node_granularity"}
