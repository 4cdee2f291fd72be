"""RIFs on their way, for the first time or again: the RM is told to wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from gspc_trio.components.rm.events import Coming, Settled
from gspc_trio.components.rts.actions import TellRm
from gspc_trio.components.rts.state import Rif, RifState
from gspc_trio.core.ids import RifId
from gspc_trio.core.resources import Resource

Brought: TypeAlias = tuple[Resource, ...] | None


class Expected:
    """Which RIFs will bring what, kept up to date at the cost of what changed."""

    def __init__(self) -> None:
        self._changed: dict[RifId, Rif] = {}
        self._told: dict[RifId, Brought] = {}

    def changed(self, rif: Rif) -> None:
        """What this RIF will bring may be something else from now on."""
        self._changed[rif.rif_id] = rif

    def tell(self, out: list[Any]) -> None:
        """Tell the RM what comes, as far as that has changed."""
        for rif_id, rif in self._changed.items():
            told = rif_id in self._told
            if not self.brings(rif):
                if told:
                    del self._told[rif_id]
                    out.append(TellRm(Settled(rif_id)))
            elif not told or self._told[rif_id] != rif.wanted:
                self._told[rif_id] = rif.wanted
                out.append(TellRm(Coming(rif_id, rif.wanted, rif.host)))
        self._changed.clear()

    def brings(self, rif: Rif) -> bool:
        """Return whether this RIF is on its way, for the first time or again."""
        if rif.state is RifState.LOST:
            return not rif.is_first_try
        return rif.state is RifState.STARTING or (rif.state is RifState.AWAY and not rif.resources)

    def check(self, rifs: Iterable[Rif]) -> None:
        """Assert that the RM was told of just those RIFs that are on their way."""
        assert not self._changed, self._changed
        coming = {rif.rif_id: rif.wanted for rif in rifs if self.brings(rif)}
        assert self._told == coming, (self._told, coming)
