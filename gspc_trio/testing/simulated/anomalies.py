"""Anomalies of hosts in a simulated cluster: what a run-time system with ``--anomalies act`` finds and does.

Hosts are not measured: the world says which of them has what. All that follows is the product's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import trio

from gspc_trio.components.monitor.detector import Finding
from gspc_trio.components.monitor.messages import NodeFrame
from gspc_trio.components.monitor.reaction import ReactionLimits
from gspc_trio.components.monitor.shell.anomalies import AnomalyWatch
from gspc_trio.components.monitor.shell.collector import Collector
from gspc_trio.components.rts.shell.host_use import HostUse
from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.testing.faults import ANOMALY_KINDS, Fault
from gspc_trio.testing.options import Options, steps_of

KINDS = ("dial", "leak", "ioerr", "pagefail", "copy", "linklog", "linklog")
"""What hosts may have: they are avoided for it, by all tasks or by some, or evacuated."""

LIMITS = (
    ReactionLimits(held_s_max=60.0),
    ReactionLimits(held_s=1.0, held_s_max=8.0, forget_s=16.0),
)
"""What a run-time system does; longer times would only make runs longer."""

WATCHED = 0.35
"""In so many of the runs without a batch system hosts are watched, and may have anomalies."""

FRAME_S = 1.0
"""Seconds between two looks at all hosts."""


class Anomalies:
    """Which hosts have what, whether or not there is a run-time system that looks.

    Args:
        random: to draw from.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._until_s: dict[str, dict[str, tuple[float, bool]]] = {}
        self.limits: ReactionLimits = random.choice(LIMITS)

    def begin(self, host: str, lasts_s: float) -> None:
        """A host has an anomaly from now on, for so long."""
        kind = self._random.choice(KINDS)
        is_urgent = kind == "leak" and self._random.random() < 0.5
        self._until_s.setdefault(host, {})[kind] = trio.current_time() + lasts_s, is_urgent

    def of(self, host: str) -> dict[str, bool]:
        """Return what a host has now, and whether it may fail by it."""
        there = self._until_s.get(host, {})
        return {
            kind: is_urgent for kind, (until_s, is_urgent) in there.items() if until_s > trio.current_time()
        }


def draw_anomalies(seed: int, options: Options, is_sited: bool) -> tuple[Anomalies | None, tuple[Fault, ...]]:
    """Return what hosts may have in a run in which they are watched, and when; None in another one.

    Args:
        seed: of the cluster.
        options: of the run.
        is_sited: there is a batch system.
    """
    random = Random(seed + 24)
    is_drawn = options.faults.anomalies and not is_sited and random.random() < WATCHED
    is_watched = is_drawn or any(fault.kind in ANOMALY_KINDS for fault in options.schedule or ())
    if not is_watched:
        return None, ()
    return Anomalies(random), options.faults.draw(Random(seed + 25), steps_of(options), ANOMALY_KINDS)


class _Looks:
    """Finds what hosts have, as a detector does."""

    def __init__(self, anomalies: Anomalies) -> None:
        self._anomalies = anomalies
        self.known: dict[str, set[str]] = {}

    def joined(self, host: str, cpus: int) -> None:
        del cpus
        self.known[host] = set()

    def take(self, host: str, frame: NodeFrame) -> Sequence[Finding]:
        del frame
        now, known = self._anomalies.of(host), self.known[host]
        found = [
            Finding(0.0, host, kind, True, is_urgent=urgent)
            for kind, urgent in now.items()
            if kind not in known
        ]
        found += [Finding(0.0, host, kind, False) for kind in sorted(known - now.keys())]
        self.known[host] = set(now)
        return found

    def gone(self, host: str) -> None:
        self.known.pop(host, None)


class SimulatedMonitor(Collector):
    """Stands beside a run-time system, and asks no RIF to measure anything.

    Args:
        anomalies: of hosts.
        service: the run-time system.
    """

    def __init__(self, anomalies: Anomalies, service: RtsService) -> None:
        super().__init__(None)
        self._looks = _Looks(anomalies)
        watch = AnomalyWatch(True, self.add_event, (self._looks,), anomalies.limits)
        watch.hosts = HostUse(service)
        self.anomalies: AnomalyWatch = watch

    def greet(self, rif: Peer, host: str = "", rack: str = "") -> None:
        """A RIF has joined."""
        del rif, rack
        self.anomalies.joined(host, 1)

    async def look(self) -> None:
        """Look at all hosts again and again, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.anomalies.run)
            while True:
                await trio.sleep(FRAME_S)
                for host in list(self._looks.known):
                    self.anomalies.take(host, NodeFrame(0, FRAME_S, {}, {}))
