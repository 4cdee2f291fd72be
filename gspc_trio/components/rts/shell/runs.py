"""The strategies at work: a RIF that the RTS machine wants started, until nothing is left of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import trio

from gspc_trio.components.provision.strategy import OutOfSight, RifOrder, Strategy
from gspc_trio.components.rts import actions, events
from gspc_trio.core.ids import RifId

log = logging.getLogger(__name__)


class StrategyRuns:
    """Runs strategies, and tells the RTS machine how each run ended.

    Args:
        strategies: name -> how RIFs are started.
        token: what RIFs prove to know.
        issue: returns credentials for the TLS of a RIF, "" for none.
        grace_s: how long RIFs are to wait for their run-time system.
        put: takes an event for the machine.
    """

    def __init__(
        self,
        strategies: Mapping[str, Strategy],
        token: bytes,
        issue: Callable[[RifId], str],
        grace_s: float,
        put: Callable[[events.RifEnded], None],
    ) -> None:
        self._strategies = strategies
        self._token = token
        self._issue = issue
        self._grace_s = grace_s
        self._put = put
        self._scopes: dict[tuple[RifId, int], trio.CancelScope] = {}

    async def run(self, action: actions.StartRif, addresses: Sequence[str]) -> None:
        """Start a RIF that is to reach the RTS at one of the addresses; return when it has ended."""
        key = (action.rif_id, action.incarnation)
        order = RifOrder(
            action.rif_id,
            action.incarnation,
            action.host,
            action.cores,
            action.options,
            tuple(addresses),
            self._token,
            self._issue(action.rif_id),
            grace_s=self._grace_s,
        )
        reason, adrift = "it was ended", False
        try:
            with trio.CancelScope() as scope:
                self._scopes[key] = scope
                reason = await self._strategies[action.strategy].run(order)
        except Exception as error:
            log.debug("strategy %s for %s", action.strategy, action.rif_id, exc_info=True)
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            adrift = isinstance(error, OutOfSight)
        finally:
            del self._scopes[key]
            if order.said:
                reason = f"{reason}; it said: {' | '.join(order.said)}"
            self._put(events.RifEnded(*key, reason, adrift))

    def kill(self, action: actions.KillRif) -> None:
        """End a RIF now."""
        scope = self._scopes.get((action.rif_id, action.incarnation))
        if scope is not None:  # else it has ended, and RifEnded is on its way
            scope.cancel()
