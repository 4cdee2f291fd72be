"""Which variant of a task runs (SCH-7, GSPC19 3.6): the one that is expected to end first."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from msgspec import Struct

from gspc_trio.components.job.scheduler.interface import VariantCost


class LeastTime(Struct, frozen=True):
    """The variant whose waiting, transfer and run take least; of equal ones the first.

    What was never measured, and states nothing, is taken to run as long as the fastest of the others: then
    waiting decides.

    Attributes:
        estimate_weight: a stated run time counts as much as so many measured ones.
        margin_s: a task that waits changes to another variant only if it ends so much sooner by that.
    """

    estimate_weight: int = 3
    margin_s: float = 0.0005

    def run_s(self, estimate_s: float | None, samples: int, average_s: float) -> float | None:
        """Return how long a variant runs, None if nobody knows.

        Args:
            estimate_s: what it states, or None.
            samples: number of its tasks that were measured in this job.
            average_s: of these.
        """
        if estimate_s is None:
            return average_s if samples else None
        weight = self.estimate_weight
        return (estimate_s * weight + average_s * samples) / (weight + samples)

    def choose(self, costs: Sequence[VariantCost | None], in_order: bool) -> int | None:
        """Return the index of the variant to take, None if there is none.

        Args:
            costs: of each; None where it cannot be taken.
            in_order: the first one that need not wait is taken, else the one that waits least.
        """
        sums = self._sums(costs, in_order)
        best = min(sums, default=inf)
        return None if best == inf else sums.index(best)

    def moves(self, costs: Sequence[VariantCost | None], at: int, to: int, in_order: bool) -> bool:
        """Return whether a task that waits for variant ``at`` had better take variant ``to``."""
        sums = self._sums(costs, in_order)
        return sums[to] + self.margin_s < sums[at] or sums[at] == inf != sums[to]

    def _sums(self, costs: Sequence[VariantCost | None], in_order: bool) -> list[float]:
        if in_order:
            return [inf if cost is None else cost.wait_s for cost in costs]
        known = [cost.run_s for cost in costs if cost is not None and cost.run_s is not None]
        unknown_s = min(known, default=0.0)
        return [
            inf
            if cost is None
            else cost.wait_s + cost.transfer_s + (unknown_s if cost.run_s is None else cost.run_s)
            for cost in costs
        ]
