"""The pool of resources and which of them are free: class queues over a hierarchy, at a cost that no
subtree's size enters.

A resource is *free* when it is not held and neither is an ancestor or a descendant of it (RM-3, and the
erratum of RM-4). To know that without touching the descendants of a node that is taken, each resource
counts the held resources below it, and asks its few ancestors whether one of them is held. Queues may hold
resources that are not free. One that turns up at the head of its queue is dropped when it is held itself
or something below it is (its release puts it back), and *parked* at the ancestor that blocks it otherwise;
when that ancestor is given back, everything parked there rejoins the queue at once, as one chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from gspc_trio.components.rm.parts import (
    GONE,
    LEAF,
    ClassQueue,
    Entry,
    Holding,
    Host,
    Need,
    QueueChunk,
    Vertex,
    Want,
)
from gspc_trio.core.allocator import Allocator
from gspc_trio.core.ids import ResourceId


class Pool:
    """All resources and their queues.

    Attributes:
        resources: by id.
        queues: by name of the class; one that somebody waits for may be empty.
        hosts: by name.
        loose: resource -> descendants that have it among their loose ancestors.
        lost: resource -> number of resources removed below it whose work may still run: it stays blocked.
        leaving: resources to be removed when they are released.
        memories_lost: those of removed resources of which grants have pieces, until these have lapsed.
        resting: resources not to be used for a while, with everything below them.
        closed: resources put aside for a reservation, with everything related to them.
        closed_above: their ancestors.
        shelf: entries of closed resources, by queue.
        featured: features that resources state of their hosts.
        version: goes up whenever something may have become free.
        changed: goes up whenever resources are added or removed.
    """

    def __init__(self) -> None:
        self.resources: dict[ResourceId, Vertex] = {}
        self.queues: dict[str, ClassQueue] = {}
        self.hosts: dict[str, Host] = {}
        self.loose: dict[Vertex, list[Vertex]] = {}
        self.lost: dict[Vertex, int] = {}
        self.leaving: dict[Vertex, None] = {}
        self.memories_lost: list[Allocator] = []
        self.resting: dict[Vertex, None] = {}
        self.closed: dict[Vertex, None] = {}
        self.closed_above: set[Vertex] = set()
        self.shelf: dict[ClassQueue, deque[Entry]] = {}
        self.featured: dict[Vertex, frozenset[str]] = {}
        self.version: int = 0
        self.changed = 0
        self._host_list: list[Host] = []
        self._host_list_at = -1
        self._host_turn = 0
        self._suitable: dict[frozenset[str], list[Host]] = {}
        self._suitable_at = -1

    def queue(self, name: str) -> ClassQueue:
        """Return the queue of the class, made when it is first asked for."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = ClassQueue(name)
        return found

    def hosts_in_turn(self, limit: int) -> list[Host]:
        """Return hosts, at most ``limit``, beginning with another one each time when there are more."""
        if self._host_list_at != self.changed:
            self._host_list = list(self.hosts.values())
            self._host_list_at = self.changed
        hosts = self._host_list
        if len(hosts) <= limit:
            return hosts
        start = self._host_turn % len(hosts)
        self._host_turn = start + limit
        return [*hosts[start : start + limit], *hosts[: max(0, start + limit - len(hosts))]]

    # Free or not --------------------------------------------------------------------------------------------

    def is_free(self, vertex: Vertex) -> bool:
        """Whether neither it nor a relative is held (RM-3, RM-4)."""
        if vertex.holding is not None or vertex.below:
            return False
        return all(ancestor.holding is None for ancestor in vertex.place.ancestors)

    def is_closed(self, vertex: Vertex) -> bool:
        """Whether a reservation keeps it from others."""
        closed = self.closed
        if vertex in closed or vertex in self.closed_above:
            return True
        return any(ancestor in closed for ancestor in vertex.place.ancestors)

    def is_open(self, vertex: Vertex) -> bool:
        """Whether it is free and not closed."""
        return self.is_free(vertex) and not (self.closed and self.is_closed(vertex))

    def take(self, queue: ClassQueue, _want: Want, /) -> Vertex | None:
        """Return a free resource of the queue for a want, taken out of it, or None; the caller holds it next.

        It is the first one, unless the want's job asks for another placement.
        """
        if not queue.free:
            return None
        if self.closed:
            return self._take(queue, queue.entries, True)
        entries = queue.entries
        first: Any = entries[0]
        vertex: Any = first.entries[first.at] if type(first) is QueueChunk else first
        # Nearly always that one is free: what else there may be at the head is for the loop below.
        if type(vertex) is QueueChunk or vertex.holding is not None or vertex.below:
            return self._take(queue, entries, False)
        for ancestor in vertex.place.ancestors:
            if ancestor.holding is not None:
                return self._take(queue, entries, False)
        if vertex is first:
            entries.popleft()
        else:
            first.at = at = first.at + 1
            if at == len(first.entries):
                entries.popleft()
        vertex.queued = False
        taken: Vertex = vertex
        return taken

    def take_closed(self, queue: ClassQueue) -> Vertex | None:
        """Return a free resource of the queue that is closed, or None; ask :meth:`take` first."""
        shelf = self.shelf.get(queue)
        return self._take(queue, shelf, False) if shelf else None

    def _take(self, queue: ClassQueue, entries: deque[Entry], mind_closed: bool) -> Vertex | None:
        while entries:
            entry: Any = entries[0]
            if entry.__class__ is QueueChunk:
                inner = self._next_of_chunk(queue, entries, entry, mind_closed)
                if inner is None:
                    continue
                vertex = inner
            else:
                vertex = entry
                entries.popleft()
            if vertex.holding is not None or vertex.below:
                vertex.queued = False
                continue
            for ancestor in vertex.place.ancestors:
                if ancestor.holding is not None:
                    _park(ancestor, queue, vertex)
                    break
            else:
                if mind_closed and self.is_closed(vertex):
                    self.shelf.setdefault(queue, deque()).append(vertex)
                    continue
                vertex.queued = False
                return vertex
        return None

    def _next_of_chunk(
        self, queue: ClassQueue, entries: deque[Entry], chunk: QueueChunk, mind_closed: bool
    ) -> Vertex | None:
        """Take the next resource out of the chunk that comes first; None: look at the first entry again."""
        top = chunk.vertex
        if top.holding is not None:
            entries.popleft()
            if top.holding is not GONE:
                _park(top, queue, chunk)
            return None
        for ancestor in top.place.ancestors:
            if ancestor.holding is not None:
                entries.popleft()
                _park(ancestor, queue, chunk)
                return None
        if mind_closed and (top in self.closed or any(a in self.closed for a in top.place.ancestors)):
            entries.popleft()
            self.shelf.setdefault(queue, deque()).append(chunk)
            return None
        inner = chunk.entries[chunk.at]
        chunk.at += 1
        if chunk.at == len(chunk.entries):
            entries.popleft()
        if isinstance(inner, QueueChunk):
            entries.appendleft(inner)
            return None
        return inner

    # Hold and free ------------------------------------------------------------------------------------------

    def hold(self, vertex: Vertex, holding: Holding) -> None:
        """Let the grant hold a free resource."""
        vertex.holding = holding
        vertex.queue.free -= 1
        for ancestor in vertex.place.ancestors:
            below = ancestor.below
            ancestor.below = below + 1
            if not below:
                ancestor.queue.free -= 1
        if vertex.kinds is LEAF:
            return
        for queue, count in vertex.kinds.counts:
            queue.free -= count
        if self.loose:
            for shared in self.loose.get(vertex, ()):
                if not self._other_holder(shared, vertex):
                    shared.queue.free -= 1

    def free(self, vertex: Vertex, in_front: bool = False) -> None:
        """Take a held resource from its grant (RM-4).

        It, its ancestors without anything held below, and what is parked at it rejoin their queues at the
        back, or in front if the grant never came to be.
        """
        vertex.holding = None
        self.version += 1
        queue = vertex.queue
        queue.free += 1
        if not vertex.queued:
            vertex.queued = True
            if in_front:
                queue.entries.appendleft(vertex)
            else:
                queue.entries.append(vertex)
        for ancestor in vertex.place.ancestors:
            ancestor.below = below = ancestor.below - 1
            if not below:
                ancestor.queue.free += 1
                if not ancestor.queued:
                    ancestor.queued = True
                    ancestor.queue.entries.append(ancestor)
        if vertex.kinds is not LEAF:
            for below_queue, count in vertex.kinds.counts:
                below_queue.free += count
            if self.loose:
                for shared in self.loose.get(vertex, ()):
                    if not self._other_holder(shared, vertex):
                        shared.queue.free += 1
        parked = vertex.parked
        if parked is not None:
            vertex.parked = None
            for parked_queue, entries in parked.items():
                chunk = QueueChunk(vertex, entries)
                if in_front:
                    parked_queue.entries.appendleft(chunk)
                else:
                    parked_queue.entries.append(chunk)

    @staticmethod
    def _other_holder(shared: Vertex, than: Vertex) -> bool:
        return any(
            ancestor.holding is not None for ancestor in shared.place.ancestors if ancestor is not than
        )

    # Reservations -------------------------------------------------------------------------------------------

    def close(self, vertices: Iterable[Vertex]) -> None:
        """Keep these, and with them all above and below them, from being taken."""
        for vertex in vertices:
            self.closed[vertex] = None
            self.closed_above.update(vertex.place.ancestors)

    def reopen(self) -> None:
        """End the reservation: what was closed is in front of its queues again."""
        self.closed.clear()
        self.closed_above.clear()
        self.version += 1
        for queue, entries in self.shelf.items():
            queue.entries.extendleft(reversed(entries))
        self.shelf.clear()

    def closed_and_free(self) -> dict[ClassQueue, int]:
        """Return of each class how many resources nobody holds and nobody else may take: they are closed."""
        found: dict[ClassQueue, int] = {}
        closed = dict.fromkeys(vertex for top in self.closed for vertex in self.walk(top))
        closed.update(dict.fromkeys(self.closed_above))
        for vertex in closed:
            if self.is_free(vertex):
                found[vertex.queue] = found.get(vertex.queue, 0) + 1
        return found

    # Views --------------------------------------------------------------------------------------------------

    def related_holdings(self, vertex: Vertex, limit: int) -> list[Holding]:
        """Return the grants that hold the resource or a relative, at most ``limit`` of those below it."""
        found: dict[Holding, None] = {}
        for relative in (vertex, *vertex.place.ancestors):
            if relative.holding is not None and relative.holding is not GONE:
                found[relative.holding] = None
        stack = [vertex]
        while stack and len(found) < limit:
            for child in stack.pop().children:
                if child.holding is not None and child.holding is not GONE:
                    found[child.holding] = None
                elif child.below:
                    stack.append(child)
        return list(found)

    def find_below(self, top: Vertex, queue: ClassQueue) -> Vertex | None:
        """Return an open resource of the class at or below ``top``, not taken out of its queue, or None."""
        stack = [top]
        prune = not self.loose
        lost = self.lost
        while stack:
            vertex = stack.pop()
            if vertex.holding is not None:
                continue
            if vertex.queue is queue and not vertex.below and self.is_open(vertex):
                return vertex
            kinds = vertex.kinds
            held = vertex.below - lost.get(vertex, 0) if lost else vertex.below
            if queue in kinds.queues and not (prune and held >= kinds.units):
                stack.extend(reversed(vertex.children))
        return None

    def is_partly_idle(self, vertex: Vertex) -> bool:
        """Whether nobody holds it or what contains it, and something at its bottom is not held either."""
        if any(ancestor.holding is not None for ancestor in vertex.place.ancestors):
            return False
        stack = [vertex]
        while stack:
            one = stack.pop()
            if one.holding is None:
                if not one.children:
                    return True
                stack.extend(one.children)
        return False

    def walk(self, top: Vertex) -> Iterator[Vertex]:
        """Yield the resource and all below it, parents before children, each once."""
        seen = {top}
        waiting = deque([top])
        while waiting:
            vertex = waiting.popleft()
            yield vertex
            for child in vertex.children:
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)

    def find_on(self, host: Host, queue: ClassQueue) -> Vertex | None:
        """Return an open resource of the class on the host, not taken out of its queue, or None."""
        for root in host.roots:
            vertex = self.find_below(root, queue)
            if vertex is not None:
                return vertex
        return None

    def suitable(self, need: Need) -> list[Host]:
        """Return the hosts that have the features that are needed."""
        if self._suitable_at != self.changed:
            self._suitable_at = self.changed
            self._suitable.clear()
        found = self._suitable.get(need.features)
        if found is None:
            found = self._suitable[need.features] = list(filter(need.suits, self.hosts.values()))
        return found

    def find_suitable(self, need: Need, _want: Want, /) -> Vertex | None:
        """Return an open resource for a need of features, of each of the hosts in turn; it stays in its
        queue."""
        hosts = self.suitable(need)
        for _ in hosts:
            self._host_turn += 1
            vertex = self.find_on(hosts[self._host_turn % len(hosts)], need.queue)
            if vertex is not None:
                return vertex
        return None

    # What placement needs to know, and says -----------------------------------------------------------------

    def hosts_for(self, _want: Want, limit: int, /) -> list[Host]:
        """Return hosts to be looked through for a want, at most ``limit``, in this order."""
        return self.hosts_in_turn(limit)

    def given(self, want: Want) -> None:
        """The want has got several resources, or one with memory."""

    def memory_moved(self, memories: Iterable[Allocator]) -> None:
        """Pieces of these memories were taken, or given back."""

    def host_changed(self, host: Host) -> None:
        """Resources of a host were added or removed."""

    def check_placement(self) -> None:
        """Assert what a placement policy counts."""


def _park(ancestor: Vertex, queue: ClassQueue, entry: Entry) -> None:
    parked = ancestor.parked
    if parked is None:
        parked = ancestor.parked = {}
    parked.setdefault(queue, []).append(entry)
