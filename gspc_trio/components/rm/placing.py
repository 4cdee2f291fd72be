"""Placement of a grant: a policy chooses among free resources, instead of the order of the queue (ASP-6,
RM-12: fragmentation).

Hosts of the same size and use are rated once, together, so that the cost grows with the number of different
uses, not with the number of hosts. A resource manager counts uses only while somebody asks for placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias

from gspc_trio.components.rm.parts import GONE, ClassQueue, Holding, Host, Job, Need, Vertex, Want
from gspc_trio.components.rm.pool import Pool
from gspc_trio.core.allocator import Allocator
from gspc_trio.policies.placement import Offer, Rating, rating_of

HOSTS_TRIED = 32
"""How many hosts of one rating are looked at before the next rating's turn."""

MEMORY_STEPS = 8
"""Into so many steps the use of a host's memory is rounded: hosts in the same step are rated together."""

Use: TypeAlias = tuple[int, int, int, int]
"""Of a host: leaves of the hierarchy that are held, and that there are; steps of its memory that are
free, rounded
up; bytes of memory that there are."""


class Placer:
    """Knows how much of each host is in use, and picks the host that a rating likes best."""

    def __init__(self) -> None:
        self.held_units: int = 0
        self.total_units: int = 0
        self._use: dict[Host, Use] = {}
        self._hosts: dict[Use, dict[Host, None]] = {}
        self._rated: dict[tuple[Rating, Use], float] = {}
        self._largest: tuple[int, int] = (0, 0)
        self._memories: dict[Host, tuple[Allocator, ...]] = {}
        self._host_of: dict[Allocator, Host] = {}

    @property
    def load(self) -> float:
        """Share of the leaves of all hosts that are held, from 0 to 1."""
        return self.held_units / self.total_units if self.total_units else 0.0

    def refresh(self, pool: Pool, host: Host) -> None:
        """The host's resources have changed: count anew."""
        there = host.count > 0
        self._note_memories(host)
        held = total = 0
        if there and pool.loose:
            held, total = _count_leaves(pool, host)
        elif there:
            total = sum(root.kinds.units for root in host.roots)
            held = _held_units(host)
        self._set(host, (held, total, *_memory(host)))
        if not there:
            self._remove(host)
        largest = max((use[1] for use in self._hosts), default=0), max((u[3] for u in self._hosts), default=0)
        if largest != self._largest:
            self._largest = largest
            self._rated.clear()

    def moved(self, vertex: Vertex, units: int) -> None:
        """The resource is held now (units more are), or no more (units less)."""
        held, total, free_steps, memory_bytes = self._use[vertex.host]
        self._set(vertex.host, (held + units, total, free_steps, memory_bytes))

    def memory_moved(self, memory: Allocator) -> None:
        """A piece of the memory was taken, or given back."""
        host = self._host_of.get(memory)
        if host is not None:
            held, total, _, _ = self._use[host]
            self._set(host, (held, total, *_memory(host)))

    def in_order(self, rating: Rating, each_max: int) -> Iterator[Host]:
        """Yield hosts, the best first, of those rated alike at most so many; full ones last.

        Where leaves hang below two resources, one of these may be free though all of its leaves are held.
        """
        uses = sorted((use[0] >= use[1], self._rate(rating, use), use) for use in self._hosts)
        for *_, use in uses:
            yield from list(islice(self._hosts[use], each_max))

    def pick(self, pool: Pool, queue: ClassQueue, rating: Rating) -> Vertex | None:
        """Return a free resource where the rating likes it best; None: it has no opinion, or finds none."""
        rated = {self._rate(rating, use) for use in self._hosts if use[0] < use[1]}
        if len(rated) < 2:
            return None
        for host in self.in_order(rating, HOSTS_TRIED):
            vertex = pool.find_on(host, queue)
            if vertex is not None:
                return vertex
        return None

    def check(self, pool: Pool) -> None:
        """Assert that the counts are those counted anew."""
        assert set(self._use) == set(pool.hosts.values())
        for host, use in self._use.items():
            counted = (*_count_leaves(pool, host), *_memory(host))
            assert use == counted, f"{host.name}: {use}, but in use are {counted}"
            assert host in self._hosts[use]
        assert self.held_units == sum(use[0] for use in self._use.values())
        assert self.total_units == sum(use[1] for use in self._use.values())
        assert sum(map(len, self._hosts.values())) == len(self._use)

    def _note_memories(self, host: Host) -> None:
        for memory in self._memories.pop(host, ()):
            del self._host_of[memory]
        if host.memories:
            self._memories[host] = tuple(host.memories.values())
            self._host_of.update(dict.fromkeys(self._memories[host], host))

    def _rate(self, rating: Rating, use: Use) -> float:
        found = self._rated.get((rating, use))
        if found is None:
            held, total, steps, memory_bytes = use
            free = total - held, steps * memory_bytes / MEMORY_STEPS
            found = self._rated[rating, use] = rating(Offer(free, (total, memory_bytes), self._largest))
        return found

    def _set(self, host: Host, use: Use) -> None:
        old = self._use.get(host)
        if old == use:
            return
        if old is not None:
            self.held_units -= old[0]
            self.total_units -= old[1]
            self._leave(host, old)
        self.held_units += use[0]
        self.total_units += use[1]
        self._use[host] = use
        self._hosts.setdefault(use, {})[host] = None

    def _leave(self, host: Host, use: Use) -> None:
        hosts = self._hosts[use]
        del hosts[host]
        if not hosts:
            del self._hosts[use]

    def _remove(self, host: Host) -> None:
        use = self._use.pop(host, None)
        if use is not None:
            self._leave(host, use)


def _memory(host: Host) -> tuple[int, int]:
    """Return how many steps of the host's memory are free, rounded up, and how many bytes there are."""
    total = sum(memory.size_bytes for memory in host.memories.values())
    free = sum(memory.free_bytes for memory in host.memories.values())
    return (-(-free * MEMORY_STEPS // total) if total else 0), total


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
    """A pool where the placement of a job says which free resource it is given."""

    def __init__(self, before: Pool) -> None:
        """Take over all that a pool has; that one is used no more."""
        super().__init__()
        _take_over(self, before)
        self.placer: Placer = Placer()
        self._due: float = 0.0
        for host in self.hosts.values():
            self.placer.refresh(self, host)

    def take(self, queue: ClassQueue, want: Want, /) -> Vertex | None:
        """Return the free resource that the want's job likes best, which leaves its entry behind; see
        Pool."""
        job = want.owner
        rating = self._rating(job)
        if rating is None:
            return super().take(queue, want)
        picked = self.placer.pick(self, queue, rating) if queue.free else None
        taken = super().take(queue, want) if picked is None else picked
        if taken is not None and (want.form.plain or want.form.preferring):
            job.compact_due = self._due
        return taken

    def given(self, want: Want) -> None:
        """See Pool."""
        want.owner.compact_due = self._due

    def hosts_for(self, want: Want, limit: int, /) -> list[Host]:
        """See Pool."""
        rating = self._rating(want.owner)
        if rating is None:
            return super().hosts_for(want, limit)
        return list(islice(self.placer.in_order(rating, limit), limit))

    def find_suitable(self, need: Need, want: Want, /) -> Vertex | None:
        """See Pool."""
        rating = self._rating(want.owner)
        if rating is None:
            return super().find_suitable(need, want)
        for host in self.placer.in_order(rating, len(self.hosts)):
            vertex = self.find_on(host, need.queue) if need.suits(host) else None
            if vertex is not None:
                return vertex
        return None

    def hold(self, vertex: Vertex, holding: Holding) -> None:
        """See Pool."""
        self.placer.moved(vertex, self._own_units(vertex))
        super().hold(vertex, holding)

    def free(self, vertex: Vertex, in_front: bool = False) -> None:
        """See Pool."""
        self.placer.moved(vertex, -self._own_units(vertex))
        super().free(vertex, in_front)

    def memory_moved(self, memories: Iterable[Allocator]) -> None:
        """See Pool."""
        for memory in memories:
            self.placer.memory_moved(memory)

    def host_changed(self, host: Host) -> None:
        """See Pool."""
        self.placer.refresh(self, host)

    def check_placement(self) -> None:
        """See Pool."""
        self.placer.check(self)

    def _rating(self, job: Job) -> Rating | None:
        """Return by what the job's next grant goes, and note what is due once it is given."""
        rating, self._due = rating_of(job.placement, self.placer.load, job.compact_due)
        return rating

    def _own_units(self, vertex: Vertex) -> int:
        """Return how many leaves are held by this one alone; what hangs below two may be held by both."""
        units = vertex.kinds.units
        for shared in self.loose.get(vertex, ()):
            if not shared.children and self._other_holder(shared, vertex):
                units -= 1
        return units


def continued(before: Pool) -> Pool:
    """Return a pool without placement that takes over all that another one has; that one is used no more."""
    pool = Pool()
    _take_over(pool, before)
    return pool


def _take_over(pool: Pool, before: Pool) -> None:
    """Let a new pool go on with what another one has."""
    for name in vars(pool):
        setattr(pool, name, getattr(before, name))
