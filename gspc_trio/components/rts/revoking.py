"""What RIFs are told to revoke, at once or, if one is away, when it is back."""

from __future__ import annotations

from typing import Any

from gspc_trio.components.rm.events import Awaited
from gspc_trio.components.rm.messages import Revoke
from gspc_trio.components.rts.actions import TellRif, TellRm
from gspc_trio.components.rts.state import Limits, Rif
from gspc_trio.core.ids import GrantId, ResourceId

Actions = list[Any]


def revoke(
    rif: Rif, grant_id: GrantId, names: tuple[ResourceId, ...], limits: Limits, now: float, out: Actions
) -> None:
    """Have a RIF end what runs under a grant, and say when nothing of it is left.

    The RM waits for one that is away.
    """
    if rif.link is not None:
        rif.owe(grant_id, names, now + limits.revoke_timeout_s)
        out.append(TellRif(rif.link, Revoke(grant_id, names)))
        return
    assert rif.timer_at is not None, "nobody awaits it"
    rif.unsaid[grant_id] = (*rif.unsaid.get(grant_id, ()), *names)
    # When it is back at the last moment, it has the usual time to answer.
    out.append(TellRm(Awaited(grant_id, rif.timer_at + 2 * limits.revoke_timeout_s)))


def put_off(rif: Rif, limits: Limits, now: float, out: Actions) -> None:
    """A RIF has gone away before it has answered: it is told again."""
    owed = {grant_id: tuple(sorted(one.resource_ids)) for grant_id, one in rif.owed.items()}
    rif.owed.clear()
    for grant_id, names in owed.items():
        revoke(rif, grant_id, names, limits, now, out)


def make_up(rif: Rif, limits: Limits, now: float, out: Actions) -> None:
    """Tell a RIF that is back what it is to revoke."""
    unsaid = dict(rif.unsaid)
    rif.unsaid.clear()
    for grant_id, names in unsaid.items():
        revoke(rif, grant_id, names, limits, now, out)
