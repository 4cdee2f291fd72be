"""Placement of a grant: a policy chooses among free resources, instead of the order of the queue (ASP-6,
RM-12: fragmentation).

A placement policy is a pure function that rates an :class:`Offer`; the lowest is taken. Hosts of the same
size and use are rated once, together, so that the cost grows with the number of different uses, not with
the number of hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.rm.parts import GONE, ClassQueue, Holding, Host, Vertex
from gspc_trio.components.rm.pool import Pool

HOSTS_TRIED = 32
"""How many hosts of one rating are looked at before the next rating's turn."""


class Offer(Struct, frozen=True):
    """What a placement policy sees of a host.

    Attributes:
        free_units: leaves of the hierarchy (cores, say) that nobody holds there.
        total_units: leaves there are.
        load: share of the leaves of all hosts that are held, from 0 to 1.
    """

    free_units: int
    total_units: int
    load: float


Placement: TypeAlias = Callable[[Offer], float]


class Placer:
    """Knows how much of each host is held, and picks the host that the policy likes best."""

    def __init__(self, policy: Placement) -> None:
        self.policy = policy
        self.held_units: int = 0
        self.total_units: int = 0
        self._use: dict[Host, tuple[int, int]] = {}
        self._hosts: dict[tuple[int, int], dict[Host, None]] = {}

    def refresh(self, pool: Pool, host: Host) -> None:
        """The host's resources have changed: count anew."""
        there = host.count > 0
        held = total = 0
        if there and pool.loose:
            held, total = _count_leaves(pool, host)
        elif there:
            total = sum(root.kinds.units for root in host.roots)
            held = _held_units(host)
        self._set(host, held, total)
        if not there:
            self._remove(host)

    def moved(self, vertex: Vertex, units: int) -> None:
        """The resource is held now (units more are), or no more (units less)."""
        held, total = self._use[vertex.host]
        self._set(vertex.host, held + units, total)

    def pick(self, pool: Pool, queue: ClassQueue) -> Vertex | None:
        """Return a free resource where the policy likes it best; None: it has no opinion, or finds none."""
        load = self.held_units / self.total_units if self.total_units else 0.0
        rated = sorted(
            (self.policy(Offer(total - held, total, load)), held, total)
            for held, total in self._hosts
            if held < total
        )
        if not rated or rated[0][0] == rated[-1][0]:
            return None
        for _, held, total in rated:
            for host in islice(self._hosts[held, total], HOSTS_TRIED):
                for root in host.roots:
                    vertex = pool.find_below(root, queue)
                    if vertex is not None:
                        return vertex
        return None

    def check(self, pool: Pool) -> None:
        """Assert that the counts are those counted anew."""
        assert set(self._use) == set(pool.hosts.values())
        for host, (held, total) in self._use.items():
            assert (held, total) == _count_leaves(pool, host), f"{host.name}: {held} of {total} held"
            assert host in self._hosts[held, total]
        assert self.held_units == sum(held for held, _ in self._use.values())
        assert self.total_units == sum(total for _, total in self._use.values())
        assert sum(map(len, self._hosts.values())) == len(self._use)

    def _set(self, host: Host, held: int, total: int) -> None:
        old = self._use.get(host)
        if old == (held, total):
            return
        if old is not None:
            self.held_units -= old[0]
            self.total_units -= old[1]
            self._leave(host, old)
        self.held_units += held
        self.total_units += total
        self._use[host] = (held, total)
        self._hosts.setdefault((held, total), {})[host] = None

    def _leave(self, host: Host, use: tuple[int, int]) -> None:
        hosts = self._hosts[use]
        del hosts[host]
        if not hosts:
            del self._hosts[use]

    def _remove(self, host: Host) -> None:
        use = self._use.pop(host, None)
        if use is not None:
            self._leave(host, use)


def _count_leaves(pool: Pool, host: Host) -> tuple[int, int]:
    """Return how many leaves of the host are held, and how many there are, each once."""
    leaves = {vertex for root in host.roots for vertex in pool.walk(root) if not vertex.children}
    held = [
        leaf
        for leaf in leaves
        if any(vertex.holding not in (None, GONE) for vertex in (leaf, *leaf.place.ancestors))
    ]
    return len(held), len(leaves)


def _held_units(host: Host) -> int:
    """Return the leaves of what is held on the host, without looking below what is held."""
    units = 0
    seen: set[Vertex] = set()
    waiting = list(host.roots)
    while waiting:
        vertex = waiting.pop()
        if vertex in seen:
            continue
        seen.add(vertex)
        if vertex.holding is not None and vertex.holding is not GONE:
            units += vertex.kinds.units
        else:
            waiting.extend(vertex.children)
    return units


class PlacedPool(Pool):
    """A pool where a placement policy says which free resource is taken."""

    def __init__(self, placer: Placer) -> None:
        super().__init__()
        self.placer = placer

    def take(self, queue: ClassQueue) -> Vertex | None:
        """Return the free resource that the policy likes best, which leaves its entry behind; see Pool."""
        picked = self.placer.pick(self, queue) if queue.free else None
        return super().take(queue) if picked is None else picked

    def hold(self, vertex: Vertex, holding: Holding) -> None:
        """See Pool."""
        self.placer.moved(vertex, self._own_units(vertex))
        super().hold(vertex, holding)

    def free(self, vertex: Vertex, in_front: bool = False) -> None:
        """See Pool."""
        self.placer.moved(vertex, -self._own_units(vertex))
        super().free(vertex, in_front)

    def host_changed(self, host: Host) -> None:
        """See Pool."""
        self.placer.refresh(self, host)

    def check_placement(self) -> None:
        """See Pool."""
        self.placer.check(self)

    def _own_units(self, vertex: Vertex) -> int:
        """Return how many leaves are held by this one alone; what hangs below two may be held by both."""
        units = vertex.kinds.units
        for shared in self.loose.get(vertex, ()):
            if not shared.children and self._other_holder(shared, vertex):
                units -= 1
        return units
