"""What the RM is told to wait for: resources of RIFs that are on their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gspc_trio.core.ids import RifId
from gspc_trio.core.rm.events import Coming, Settled
from gspc_trio.core.rts.actions import TellRm
from gspc_trio.core.rts.state import Rif, RifState


class Expected:
    """Sum of the resources that RIFs will bring, kept up to date at the cost of what changed.

    Args:
        tries_max: how often a lost RIF is bootstrapped again.
    """

    def __init__(self, tries_max: int) -> None:
        self._tries_max = tries_max
        self._changed: dict[RifId, Rif] = {}
        self._per_rif: dict[RifId, Counter[str]] = {}
        self._sum: Counter[str] = Counter()
        self._told: dict[str, int] = {}

    def changed(self, rif: Rif) -> None:
        """What this RIF will bring may be something else from now on."""
        self._changed[rif.rif_id] = rif

    def tell(self, out: list[Any]) -> None:
        """Tell the RM what comes, if that has changed."""
        for rif_id, rif in self._changed.items():
            self._sum.subtract(self._per_rif.pop(rif_id, Counter()))
            if self.brings(rif):
                self._per_rif[rif_id] = _resources_of(rif)
                self._sum.update(self._per_rif[rif_id])
        self._changed.clear()
        counts = self._counts()
        if counts != self._told:
            self._told = counts
            out.append(TellRm(Coming(counts) if counts else Settled()))

    def brings(self, rif: Rif) -> bool:
        """Return whether this RIF is on its way, for the first time or again."""
        if rif.state is RifState.LOST:
            return rif.ask is None and (rif.timer_at is not None or rif.tries < self._tries_max)
        return rif.state is RifState.STARTING or (rif.state is RifState.AWAY and not rif.resources)

    def _counts(self) -> dict[str, int]:
        counts = {name: number for name, number in self._sum.items() if number}
        return counts or dict.fromkeys(["core"] if self._per_rif else [], 0)

    def check(self, rifs: Iterable[Rif]) -> None:
        """Assert that the RM was told of just those RIFs that are on their way."""
        assert not self._changed, self._changed
        coming = {rif.rif_id: _resources_of(rif) for rif in rifs if self.brings(rif)}
        assert self._per_rif == coming, (self._per_rif, coming)
        assert self._told == self._counts(), (self._told, self._counts())


def _resources_of(rif: Rif) -> Counter[str]:
    """Count resources by class; a RIF that never was up is known by the number of cores asked for."""
    if rif.wanted is None:
        return Counter({"core": rif.cores})
    return Counter(resource.resource_class for resource in rif.wanted)
