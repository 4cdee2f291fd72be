"""Checker of revocations: RIFs are told, when they are back at the latest, and have to confirm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gspc_trio.components.rm.events import Awaited
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import RtsAction, TellRif, TellRm
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.state import RifState
from gspc_trio.core.ids import GrantId, ResourceId, RifId
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.due import Due
from gspc_trio.testing.checkers.rifs import Host, Rifs


class Revocations:
    """What the RIFs of one run-time system are told to revoke, and what they answer.

    Args:
        rifs: what is known of them.
        revoke_timeout_s: how long an answer may take.
    """

    def __init__(self, rifs: Rifs, revoke_timeout_s: float) -> None:
        self._rifs = rifs
        self._timeout_s = revoke_timeout_s
        self._owed: dict[RifId, dict[GrantId, set[ResourceId]]] = {}
        self._since_s: dict[tuple[RifId, GrantId], float] = {}
        self._states: dict[RifId, str] = {}
        self.due: Due = Due()

    def saw(self, event: RtsEvent, now: float, actions: Sequence[RtsAction], before: Host | None) -> None:
        """The run-time system took an event.

        Args:
            event, now, actions: as ever.
            before: the RIF at the connection that the event comes from.

        Raises:
            Broken: a RIF is not told what it is to revoke, or the resource manager what it waits for.
        """
        told: dict[tuple[int, GrantId], set[ResourceId]] = {}
        for action in actions:
            if type(action) is TellRif and isinstance(action.message, Revoke):
                key = (action.link, action.message.grant_id)
                told.setdefault(key, set()).update(action.message.resources)
        awaited = {
            action.event.grant_id
            for action in actions
            if type(action) is TellRm and isinstance(action.event, Awaited)
        }
        if type(event) is Revoke:
            for name in event.resources:
                host = self._rifs.of(name)
                if host is not None and name in host.there:
                    self._owe(host, event.grant_id, name, now)
            self._check_told(event.grant_id, told, awaited)
        elif type(event) is events.RevokedBy:
            self._answered(before, event.revoked, actions)
        elif type(event) is events.ResourcesLeft:
            self._settle(event.resource_ids)
        self._follow(now, told, awaited)
        self.due.set(
            (since_s + self._timeout_s, f"{rif_id} has not said in time that grant {grant_id} is over")
            for (rif_id, grant_id), since_s in self._since_s.items()
            if self._states.get(rif_id) in ("up", "quarantined")
        )

    def _owe(self, host: Host, grant_id: GrantId, name: ResourceId, now: float) -> None:
        self._owed.setdefault(host.rif_id, {}).setdefault(grant_id, set()).add(name)
        self._since_s.setdefault((host.rif_id, grant_id), now)

    def _check_told(
        self,
        grant_id: GrantId,
        told: dict[tuple[int, GrantId], set[ResourceId]],
        awaited: set[GrantId],
        only: Host | None = None,
    ) -> None:
        """Who can be heard is told, and for who is away the resource manager waits."""
        for host in self._rifs if only is None else (only,):
            names = self._owed.get(host.rif_id, {}).get(grant_id, set())
            if host.is_up and host.link is not None:
                missing = names - told.get((host.link, grant_id), set())
                if missing:
                    what = f"{host.rif_id} is not told that {min(missing)} is revoked"
                    raise Broken(f"{what} under grant {grant_id}", min(missing))
            elif names and host.state == RifState.AWAY and grant_id not in awaited:
                raise Broken(f"{host.rif_id} is away, and is not awaited with grant {grant_id}", *names)

    def _answered(self, host: Host | None, revoked: Revoked, actions: Sequence[RtsAction]) -> None:
        if host is None or not host.is_up:
            return
        passed = {
            name
            for action in actions
            if type(action) is TellRm and isinstance(action.event, Revoked)
            for name in action.event.resources
        }
        kept = (host.there & set(revoked.resources)) - passed
        if kept:
            raise Broken(f"{min(kept)} is revoked, and the resource manager is not told", min(kept))
        self._drop(host.rif_id, revoked.grant_id, revoked.resources)

    def _settle(self, names: Iterable[ResourceId]) -> None:
        for name in names:
            host = self._rifs.of(name)
            for grant_id in list(self._owed.get(host.rif_id, ())) if host is not None else ():
                assert host is not None
                self._drop(host.rif_id, grant_id, (name,))

    def _drop(self, rif_id: RifId, grant_id: GrantId, names: Iterable[ResourceId]) -> None:
        owed = self._owed.get(rif_id, {})
        if grant_id in owed:
            owed[grant_id].difference_update(names)
            if not owed[grant_id]:
                del owed[grant_id], self._since_s[rif_id, grant_id]

    def _follow(
        self, now: float, told: dict[tuple[int, GrantId], set[ResourceId]], awaited: set[GrantId]
    ) -> None:
        """A RIF has gone away, has come back, or is over."""
        there = {host.rif_id for host in self._rifs}
        for rif_id in [rif_id for rif_id in self._owed if rif_id not in there]:
            self._forget(rif_id)
        for host in self._rifs:
            before = self._states.get(host.rif_id, "")
            self._states[host.rif_id] = host.state
            if not host.is_up and host.state != RifState.AWAY:
                self._forget(host.rif_id)
            elif (before == RifState.AWAY) != (host.state == RifState.AWAY):
                for grant_id in list(self._owed.get(host.rif_id, ())):
                    self._since_s[host.rif_id, grant_id] = now
                    self._check_told(grant_id, told, awaited, host)

    def _forget(self, rif_id: RifId) -> None:
        for grant_id in self._owed.pop(rif_id, {}):
            del self._since_s[rif_id, grant_id]
