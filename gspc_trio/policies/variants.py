"""Which variant of a task runs (SCH-7, GSPC19 3.6): the one that is expected to end first."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from msgspec import Struct

from gspc_trio.components.job.scheduler.interface import VariantCost


class LeastTime(Struct, frozen=True):
    """The variant whose waiting, transfer and run take least; of equal ones the first.

    What was measured too seldom to be trusted is left alone while there is something that is trusted, but for
    a task that may try it: then it is taken to run in no time. If nothing is trusted, what was never measured
    is taken to run as long as the fastest of the others: then waiting decides.

    Attributes:
        margin_s: a task that waits changes to another variant only if it ends so much sooner by that.
    """

    margin_s: float = 0.0005

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
        run_s = _run_s(costs)
        return [
            inf if cost is None else cost.wait_s + cost.transfer_s + its_s
            for cost, its_s in zip(costs, run_s, strict=True)
        ]


def _run_s(costs: Sequence[VariantCost | None]) -> list[float]:
    """Return how long each variant is taken to run."""
    if any(cost is not None and cost.is_trusted for cost in costs):
        tried_s = [0.0 if cost is not None and cost.may_try else inf for cost in costs]
        return [
            cost.run_s if cost is not None and cost.run_s is not None and cost.is_trusted else other_s
            for cost, other_s in zip(costs, tried_s, strict=True)
        ]
    known = [cost.run_s for cost in costs if cost is not None and cost.run_s is not None]
    unknown_s = min(known, default=0.0)
    return [unknown_s if cost is None or cost.run_s is None else cost.run_s for cost in costs]
