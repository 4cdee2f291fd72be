"""Hosts that cannot start processes are not used for a while, and then tried again.

The resource manager gives out nothing of them and has what is held given back; what runs there goes on, and
data there stays.
"""

from __future__ import annotations

from typing import Any

from gspc_trio.components.rm.events import Rested, Resumed
from gspc_trio.components.rts.actions import TellRm
from gspc_trio.components.rts.events import RifUnfit
from gspc_trio.components.rts.lifecycle import LifeCycle
from gspc_trio.components.rts.state import Quarantine, RifState
from gspc_trio.core.resources import MEMORY_CLASS
from gspc_trio.records.facts import RifChanged

Actions = list[Any]


class Quarantines:
    """Takes hosts out of use, and in again.

    Args:
        lives: the RIFs.
    """

    def __init__(self, lives: LifeCycle) -> None:
        self.lives = lives

    def unfit(self, event: RifUnfit, now: float, out: Actions) -> None:
        """A host could not start a process: use it no more for a while."""
        rif = self.lives.by_link.get(event.link)
        if rif is None or rif.state is not RifState.UP or rif.quarantine is not None:
            return
        tops = tuple(
            name
            for name, one in rif.resources.items()
            if not one.parents and one.resource_class != MEMORY_CLASS and name not in rif.left
        )
        delays_s = self.lives.limits.quarantine_delays_s
        if now - rif.fit_at >= self.lives.limits.stable_after_s:
            rif.quarantines = 0
        due_s = now + delays_s[min(rif.quarantines, len(delays_s) - 1)]
        rif.quarantines += 1
        rif.quarantine = Quarantine(event.reason, due_s, tops)
        out.append(RifChanged(now, rif.rif_id, rif.host, *rif.shown))
        out.append(TellRm(Rested(tops)))

    def deadline(self) -> float | None:
        """Return the earliest time at which a host is to be tried again."""
        pauses = [rif.quarantine for rif in self.lives.rifs.values() if rif.quarantine is not None]
        return min((pause.due_s for pause in pauses), default=None)

    def tick(self, now: float, out: Actions) -> None:
        """Try those again whose time has come."""
        for rif in self.lives.rifs.values():
            pause = rif.quarantine
            if pause is not None and pause.due_s <= now:
                rif.quarantine, rif.fit_at = None, now
                out.append(RifChanged(now, rif.rif_id, rif.host, *rif.shown))
                out.append(TellRm(Resumed(pause.resource_ids)))
