"""Finding resources for several needs at once, and whether a shape can be met at all by what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gspc_trio.components.rm.parts import ClassQueue, Form, Host, Need, Vertex
from gspc_trio.components.rm.pool import Pool
from gspc_trio.core.allocator import Allocator
from gspc_trio.core.similar import did_you_mean

CANDIDATES = 64
"""How many resources are looked at for each need."""

RANKED = 512
"""Of how many resources the best are picked where that matters."""

FEATURES_NAMED = 20
"""How many features a refusal names; a processor has about 150. ``gspc-rts status --json`` lists them all."""

HOSTS_NAMED = 8
"""How many hosts it names."""

STEPS = 2000
"""How many times a resource is tried before a search is given up."""


class Search:
    """Backtracking over the needs of a form: pairwise unrelated resources, one for each.

    Attributes:
        complete: whether a failed search means that there is no solution.
    """

    def __init__(
        self,
        pool: Pool,
        form: Form,
        usable: Callable[[int, Vertex], bool],
        host: Host | None = None,
        rank: Callable[[Vertex], float] | None = None,
    ) -> None:
        """Look for resources, without changing anything.

        Args:
            pool: where to look.
            form: what to look for.
            usable: whether the need at this position may have this resource.
            host: all resources are to be on it, if given.
            rank: resources for which it is least are tried first; in the order of preference and of the
                hosts otherwise.
        """
        self.complete: bool = True
        self._pool = pool
        self._form = form
        self._rank = rank
        self._chosen: dict[Vertex, None] = {}
        self._above: dict[Vertex, int] = {}
        self._result: list[Vertex | None] = [None] * len(form.needs)
        self._steps = STEPS
        self._candidates: list[list[Vertex]] = []
        for position in form.order:
            self._candidates.append(self._list(position, usable, host))
            if not self._candidates[-1]:
                break  # what comes first leaves the least choice: often there is none
        pairs = zip(self._candidates, self._candidates[1:], strict=False)
        self._equal = [one == other for one, other in pairs]

    def run(self) -> list[Vertex] | None:
        """Return a resource for each need, in the shape's order, or None."""
        if not self._candidates[-1] or not self._place(0, 0):
            return None
        return [vertex for vertex in self._result if vertex is not None]

    def _list(self, position: int, usable: Callable[[int, Vertex], bool], host: Host | None) -> list[Vertex]:
        found: dict[Vertex, None] = {}
        most = (
            max(CANDIDATES, len(self._form.needs)) if self._rank is None else RANKED + len(self._form.needs)
        )
        for vertex in self._all(self._form.needs[position], host):
            if len(found) >= most:
                self.complete = False
                break
            if usable(position, vertex):
                found[vertex] = None
        if self._rank is None:
            return list(found)
        return sorted(found, key=self._rank)[: max(CANDIDATES, len(self._form.needs))]

    def _all(self, need: Need, host: Host | None) -> Iterator[Vertex]:
        for vertex in preferred(self._pool, need):
            if host is None or vertex.host is host:
                yield from of_class_below(self._pool, vertex, need.queue)
        if need.hard:
            return
        hosts: Iterable[Host] = (host,) if host is not None else self._pool.hosts.values()
        if host is None and self._rank is not None:
            hosts = self._pool.hosts_in_turn(RANKED)
        for each in hosts:
            if not need.suits(each):
                continue
            for root in each.roots:
                yield from of_class_below(self._pool, root, need.queue)

    def _place(self, level: int, start: int) -> bool:
        order = self._form.order
        if level == len(order):
            return True
        candidates = self._candidates[level]
        for index in range(start, len(candidates)):
            vertex = candidates[index]
            if not self._fits(vertex):
                continue
            self._steps -= 1
            if self._steps < 0:
                self.complete = False
                return False
            self._choose(vertex)
            self._result[order[level]] = vertex
            # Equal needs are tried in one order only.
            equal = level + 1 < len(order) and self._equal[level]
            if self._place(level + 1, index + 1 if equal else 0):
                return True
            self._drop(vertex)
        return False

    def _fits(self, vertex: Vertex) -> bool:
        chosen = self._chosen
        if vertex in chosen or self._above.get(vertex):
            return False
        return not any(ancestor in chosen for ancestor in vertex.place.ancestors)

    def _choose(self, vertex: Vertex) -> None:
        self._chosen[vertex] = None
        for ancestor in vertex.place.ancestors:
            self._above[ancestor] = self._above.get(ancestor, 0) + 1

    def _drop(self, vertex: Vertex) -> None:
        del self._chosen[vertex]
        for ancestor in vertex.place.ancestors:
            self._above[ancestor] -= 1


def preferred(pool: Pool, need: Need) -> list[Vertex]:
    """Return, in order, the preferred resources that are there and are, or contain, what is needed."""
    found = []
    for resource_id in need.preferences:
        vertex = pool.resources.get(resource_id)
        if vertex is None or not need.suits(vertex.host):
            continue
        if vertex.queue is need.queue or need.queue in vertex.kinds.queues:
            found.append(vertex)
    return found


def tops_for(pool: Pool, need: Need) -> list[Vertex]:
    """Return resources at or below which alone the need, which is bound, finds what will do."""
    if need.hard:
        return preferred(pool, need)
    return [root for host in pool.suitable(need) for root in host.roots]


def of_class_below(pool: Pool, top: Vertex, queue: ClassQueue) -> Iterator[Vertex]:
    """Yield the resources of the class at or below ``top``."""
    if queue in top.kinds.queues:
        for vertex in pool.walk(top):
            if vertex.queue is queue:
                yield vertex
    elif top.queue is queue:
        yield top


def host_has_room(host: Host, sizes: tuple[int, ...], empty: bool) -> bool:
    """Whether pieces of memory of these sizes fit on the host, now or when it is ``empty``."""
    if len(sizes) == 1 and not empty:
        return any(memory.largest_free >= sizes[0] for memory in host.memories.values())
    if empty:
        memories = [Allocator(memory.size_bytes, memory.alignment_bytes) for memory in host.memories.values()]
        return all(
            any(m.allocate(size) is not None for m in memories) for size in sorted(sizes, reverse=True)
        )
    pieces = allocate_all(list(host.memories.values()), sizes)
    if pieces is None:
        return False
    for memory, offset in pieces:
        memory.free(offset)
    return True


def allocate_all(memories: list[Allocator], sizes: tuple[int, ...]) -> list[tuple[Allocator, int]] | None:
    """Allocate a piece for each size, all or nothing; pieces come in the order of the sizes."""
    pieces: dict[int, tuple[Allocator, int]] = {}
    for position in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        for memory in memories:
            offset = memory.allocate(sizes[position])
            if offset is not None:
                pieces[position] = (memory, offset)
                break
        else:
            for memory, offset in pieces.values():
                memory.free(offset)
            return None
    return [pieces[position] for position in range(len(sizes))]


def impossible(pool: Pool, form: Form) -> tuple[str, str] | None:
    """Return (kind, reason) if what has been added can never meet the form, or None."""
    if form.possible_at == pool.changed:
        return None
    found = _impossible(pool, form)
    if found is None:
        form.possible_at = pool.changed
        form.sort()
    return found


def _impossible(pool: Pool, form: Form) -> tuple[str, str] | None:
    there = (
        ", ".join(f"{queue.total} {queue.name}" for queue in pool.queues.values() if queue.total) or "nothing"
    )
    asked = f"asked for {form.shape}"
    for queue, count in form.counts.items():
        if not queue.total:
            return "unknown class", f"{asked}, but there is no {queue.name}; there is: {there}"
        if count > queue.total:
            return "impossible", f"{asked}: {count} {queue.name} at once, but there is: {there}"
        lost = [vertex.resource_id for vertex in pool.lost if vertex.queue is queue]
        if count > queue.total - len(lost):
            return "impossible", (
                f"{asked}, but {', '.join(lost[:8])} cannot be used: work that nobody could stop may still "
                f"run below; there is: {there}"
            )
    for need in form.needs:
        if need.features and (lacking := _lacking(pool, need)):
            return "unknown feature", f"{asked}, but {lacking}"
        if need.hard and not preferred(pool, need):
            names = ", ".join(need.preferences) or "no resource"
            suitable = need.queue.name
            suitable += f" with {' and '.join(sorted(need.features))}" if need.features else ""
            return "unknown resource", f"{asked}, but {names} is not there, or has no {suitable}"
    hosts = list(pool.hosts.values())
    if form.sizes:
        hosts = [host for host in hosts if host_has_room(host, form.sizes, empty=True)]
        if not hosts:
            most = max(
                (m.size_bytes for host in pool.hosts.values() for m in host.memories.values()), default=0
            )
            return "impossible", f"{asked}, but no host offers that much memory: the largest has {most} bytes"
    return None if _fits_somewhere(pool, form, hosts) else (
        "impossible", f"{asked}, but no resources that are there fit that together; there is: {there}"
    )  # fmt: skip


def _lacking(pool: Pool, need: Need) -> str:
    """Return what is wrong with the features that are needed, "" if a host with the class has them all."""
    if any(need.suits(host) and _has_class(host, need.queue) for host in pool.hosts.values()):
        return ""
    every = set().union(*(host.features for host in pool.hosts.values()))
    common = every.intersection(*(host.features for host in pool.hosts.values()))
    there = sorted(every, key=lambda name: (name in common, name))  # what tells hosts apart comes first
    missing = sorted(need.features.difference(there))
    if missing:
        like = did_you_mean(missing[0], there)
        named = ", ".join(there[:FEATURES_NAMED]) or "none"
        more = len(there) - FEATURES_NAMED
        named += f" and {more} more" if more > 0 else ""
        return f"no host has {' or '.join(missing)}{like}; features that hosts have: {named}"
    lacks = [
        f"{host.label or host.name} has no {' or '.join(sorted(need.features - host.features))}"
        if not need.suits(host)
        else f"{host.label or host.name} has no {need.queue.name}"
        for host in islice(pool.hosts.values(), HOSTS_NAMED)
    ]
    more = len(pool.hosts) - len(lacks)
    return f"no host has all of it: {', '.join(lacks)}{f', and {more} more hosts' if more else ''}"


def _has_class(host: Host, queue: ClassQueue) -> bool:
    return any(root.queue is queue or queue in root.kinds.queues for root in host.roots)


def _fits_somewhere(pool: Pool, form: Form, hosts: list[Host]) -> bool:
    """Whether there are resources for all needs when nothing is held (true when in doubt)."""
    if form.shape.same_host:
        for host in hosts:
            search = Search(pool, form, lambda _position, vertex: vertex not in pool.lost, host)
            if search.run() is not None or not search.complete:
                return True
        return False
    flat = len(form.counts) == 1 and not next(iter(form.counts)).nested
    if flat and not form.sizes and not any(need.is_bound for need in form.needs):
        return True
    with_room = set(hosts)

    def usable(position: int, vertex: Vertex) -> bool:
        return vertex not in pool.lost and (position > 0 or vertex.host in with_room)

    search = Search(pool, form, usable)
    return search.run() is not None or not search.complete
