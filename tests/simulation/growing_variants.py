"""Machines and shells that grow on purpose: each must be found by simulating."""

from __future__ import annotations

from typing import Any

import trio
from broken_variants import Patch

from gspc_trio.components.rif import RifService
from gspc_trio.core.rm import ResourceManager
from gspc_trio.nursery.link import WebSocketLink


def events_kept_for_ever(patch: Patch) -> None:
    """The resource manager keeps all that it has ever heard."""
    handle = ResourceManager.handle

    def keep(rm: ResourceManager, event: Any, now: float) -> list[Any]:
        vars(rm).setdefault("heard", []).extend(([event], [now], [event]))
        return handle(rm, event, now)

    patch(ResourceManager, "handle", keep)


def tasks_left_behind(patch: Patch) -> None:
    """A RIF starts a trio task for all that it does, and ends none."""
    perform = RifService._perform

    def leave(rif: RifService, action: Any) -> None:
        rif._nursery.start_soon(trio.sleep_forever)
        perform(rif, action)

    patch(RifService, "_perform", leave)


def inbox_without_bound(patch: Patch) -> None:
    """A connection goes on to be read though nobody takes what has come."""
    patch(WebSocketLink, "_is_full", lambda _link: False)


GROWING = [events_kept_for_ever, tasks_left_behind, inbox_without_bound]
