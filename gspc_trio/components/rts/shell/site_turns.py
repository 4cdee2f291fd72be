"""Whose file transfers and file operations may begin, by the throttles of sites (SWF-8).

All hosts of a site count together, and all sites. So each host asks for each of its turns, of which the
run-time system alone knows all.
"""

from __future__ import annotations

from collections.abc import Mapping

from gspc_trio.components.provision.messages import TurnBegins, TurnOver, WantTurn
from gspc_trio.components.provision.throttle import (
    OF_FILES,
    Limit,
    ThrottleGate,
    ThrottleKind,
    parse_throttles,
)
from gspc_trio.components.rts.state import ManagedRif
from gspc_trio.core.ids import Counter
from gspc_trio.nursery.connections.rpc import Peer, drop_offender

WANTED_MAX = 1 << 16
"""So many turns of one host may be wanted or taken."""


class _Host:
    """What is known of a connected host: its site, and its turns: their number there -> their name here."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.turns: dict[int, str] = {}


class SiteTurns:
    """Lets the files of all hosts be moved as the throttles say.

    Args:
        throttles: of all sites together, by name, as far as they differ from the usual ones.

    Attributes:
        gate: counts and decides.
    """

    def __init__(self, throttles: Mapping[str, Limit]) -> None:
        self.gate: ThrottleGate = ThrottleGate(throttles)
        self._hosts: dict[Peer, _Host] = {}
        self._names = Counter()
        self._waiting: dict[str, tuple[Peer, int]] = {}

    def want(self, peer: Peer, rif: ManagedRif, said: WantTurn) -> None:
        """A host wants a turn, or has one already."""
        host = self._hosts.get(peer)
        if host is None:
            host = self._hosts[peer] = _Host(site_of(rif))
            self.gate.set_host(host.site, host_throttles(rif))
        if said.number in host.turns or len(host.turns) == WANTED_MAX:
            drop_offender(peer, f"it wants turn {said.number} twice, or more than {WANTED_MAX} at a time")
            return
        name = host.turns[said.number] = str(self._names.next())
        kind = ThrottleKind(said.move)
        if said.begun:
            self.gate.adopt(name, kind, host.site)
            return
        self._waiting[name] = peer, said.number
        self.gate.want(name, kind, host.site)
        self._start()

    def over(self, peer: Peer, said: TurnOver) -> None:
        """A turn of a host is over, or not wanted any more; it may be of an earlier connection."""
        host = self._hosts.get(peer)
        if host is not None and said.number in host.turns:
            self._end(host.turns.pop(said.number))
            self._start()

    def gone(self, peer: Peer) -> None:
        """A connection is over: what is under way is told again over the next one."""
        host = self._hosts.pop(peer, None)
        if host is None:
            return
        for name in host.turns.values():
            self._end(name)
        if all(other.site != host.site for other in self._hosts.values()):
            self.gate.forget_host(host.site)
        self._start()

    def _end(self, name: str) -> None:
        self._waiting.pop(name, None)
        self.gate.ended(name)

    def _start(self) -> None:
        for name in self.gate.start():
            peer, number = self._waiting.pop(name)
            peer.post(TurnBegins(number))


def site_of(rif: ManagedRif) -> str:
    """Return the site of a host: hosts that belong to none are of one if they see the same directory."""
    site, slash, _ = rif.block.partition("/")
    return site if slash else rif.options.get("site_directory", "") or rif.host


def host_throttles(rif: ManagedRif) -> dict[str, Limit]:
    """Return the throttles of the site of a host alone, as its options say.

    What the options of a host of no site say of all sites together holds for its site alone.
    """
    known = parse_throttles({name: value for name, value in rif.options.items() if name in OF_FILES})
    own = {name: limit for name, limit in known.items() if name.startswith("host_")}
    if "/" in rif.block:
        return own
    for name, limit in known.items():
        if not name.startswith("host_") and limit is not None:
            there = own.get(f"host_{name}")
            own[f"host_{name}"] = limit if there is None else min(limit, there)
    return own
