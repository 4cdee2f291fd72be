"""Adding resources to the pool and taking them out (RM-1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gspc_trio.components.rm.errors import (
    AddClashes,
    CyclicResources,
    DuplicateResource,
    UnknownResource,
)
from gspc_trio.components.rm.parts import GONE, LEAF, ClassQueue, Host, Kinds, QueueChunk, Siblings, Vertex
from gspc_trio.components.rm.pool import Pool
from gspc_trio.core.allocator import Allocator
from gspc_trio.core.ids import ResourceId, host_name
from gspc_trio.core.resources import Resource

ROOT = Siblings((), (), ())


class Changer:
    """Adds to a pool and removes from it; keeps equal summaries of subtrees as one object."""

    def __init__(self, pool: Pool) -> None:
        self.pool: Pool = pool
        self._features: dict[frozenset[str], frozenset[str]] = {}
        self._kinds: dict[tuple[int, tuple[tuple[ClassQueue, int], ...]], Kinds] = {(1, ()): LEAF}

    # Add ----------------------------------------------------------------------------------------------------

    def add(self, resources: tuple[Resource, ...], label: str) -> list[Vertex]:
        """Add resources and return them, parents before children.

        Raises:
            DuplicateResource, UnknownResource, CyclicResources, AddClashes: and nothing was added.
        """
        ordered = self._validated(resources)
        pool = self.pool
        known = pool.resources
        hosts = pool.hosts
        places: dict[tuple[ResourceId, ...], Siblings] = {(): ROOT}
        added: list[Vertex] = []
        were_leaves: list[Vertex] = []
        host: Host | None = None
        prefix = queue_name = ""
        queue: ClassQueue | None = None
        for resource in ordered:
            parents = resource.parents
            place = places.get(parents)
            if place is None:
                place = places[parents] = self._new_place(parents, were_leaves)
            resource_id = resource.resource_id
            if host is None or not resource_id.startswith(prefix):
                name = host_name(resource_id)
                prefix = name + "."
                host = hosts.get(name)
                if host is None:
                    host = hosts[name] = Host(name, label)
            if queue is None or queue_name != resource.resource_class:
                queue_name = resource.resource_class
                queue = pool.queue(queue_name)
            vertex = known[resource_id] = Vertex(resource_id, queue, place, host)
            queue.total += 1
            queue.free += 1
            host.count += 1
            for parent in place.parents:
                parent.children.append(vertex)  # type: ignore[union-attr]
            if not parents:
                host.roots.append(vertex)
            if resource.memory_bytes > 0:
                self._add_memory(resource, vertex)
            if resource.features:
                pool.featured[vertex] = frozenset(resource.features)
                self._note_features(host, host.features.union(resource.features))
            added.append(vertex)
        self._count(added, were_leaves)
        self._enqueue(added)
        pool.version += 1
        pool.changed += 1
        for changed in dict.fromkeys(vertex.host for vertex in added):
            pool.host_changed(changed)
        return added

    def _new_place(self, parents: tuple[ResourceId, ...], were_leaves: list[Vertex]) -> Siblings:
        """Return the place below these, and note which of them had nothing below them so far."""
        above = tuple([self.pool.resources[name] for name in parents])
        for parent in above:
            if not parent.children:
                were_leaves.append(parent)
                parent.children = []
        return _place(above)

    def _validated(self, resources: tuple[Resource, ...]) -> Iterable[Resource]:
        """Return the resources with parents before children; raise if they cannot be added."""
        known = self.pool.resources
        names: set[ResourceId] = set()
        ordered = True
        checked: set[ResourceId] = set()
        for resource in resources:
            name = resource.resource_id
            if name in names:
                raise DuplicateResource(f"{name} is named twice in what is to be added")
            if name in known:
                raise DuplicateResource(f"{name} is there already: remove it before it is added again")
            for parent in resource.parents:
                if parent in names or parent in checked:
                    continue
                vertex = known.get(parent)
                if vertex is None:
                    ordered = False
                    continue
                checked.add(parent)
                self._check_clash(name, vertex)
            names.add(name)
        return resources if ordered else _parents_first(resources, names, known)

    def _check_clash(self, name: ResourceId, parent: Vertex) -> None:
        for vertex in (parent, *parent.place.ancestors):
            if vertex in self.pool.leaving:
                raise AddClashes(f"{name} cannot be added below {parent}: {vertex} is being removed")
            holding = vertex.holding
            if holding is not None:
                raise AddClashes(
                    f"{name} cannot be added below {parent}: {vertex} is held by {holding.owner} "
                    f"under grant {holding.grant_id}; add it when that grant is over"
                )

    def _add_memory(self, resource: Resource, vertex: Vertex) -> None:
        """Only the topmost resource that offers memory counts: a node's memory is that of its sockets."""
        memories = vertex.host.memories
        if not any(ancestor.resource_id in memories for ancestor in vertex.place.ancestors):
            memories[resource.resource_id] = Allocator(resource.memory_bytes)

    def _note_features(self, host: Host, features: frozenset[str]) -> None:
        """Hosts with the same features share one set."""
        host.features = self._features.setdefault(features, features)

    def _count(self, added: list[Vertex], were_leaves: list[Vertex]) -> None:
        """Bring the summaries of all ancestors up to date."""
        counts: dict[Vertex, dict[ClassQueue, int]] = {}
        units: dict[Vertex, int] = {}
        new = set(added)
        for vertex in were_leaves:
            if vertex not in new:  # was one leaf of its ancestors, and is none any more
                units[vertex] = units.get(vertex, 0) - 1
                for ancestor in vertex.place.ancestors:
                    units[ancestor] = units.get(ancestor, 0) - 1
        for place, queue, run in _runs(added):
            leaves = sum([not vertex.children for vertex in run])
            for ancestor in place.ancestors:
                if leaves:
                    units[ancestor] = units.get(ancestor, 0) + leaves
                below = counts.get(ancestor)
                if below is None:
                    below = counts[ancestor] = {}
                number = len(run)
                if place.loose and ancestor in place.loose:
                    self.pool.loose.setdefault(ancestor, []).extend(run)
                    number = 0
                below[queue] = below.get(queue, 0) + number
        for ancestor, below in counts.items():
            old = ancestor.kinds
            leaves = units.get(ancestor, 0) + (old.units if ancestor not in new else 0)
            self._summarise(ancestor, below, leaves, self.pool.loose.get(ancestor, ()))

    def _summarise(
        self, vertex: Vertex, change: dict[ClassQueue, int], units: int, shared: Iterable[Vertex]
    ) -> None:
        """Change what is known to be below a resource; ``shared`` is what is there and not counted."""
        totals = dict(vertex.kinds.counts)
        for queue, count in change.items():
            totals[queue] = totals.get(queue, 0) + count
        if 0 in totals.values():
            uncounted = {each.queue for each in shared}
            totals = {queue: count for queue, count in totals.items() if count or queue in uncounted}
        counts = tuple(totals.items())
        key = (units, counts)
        kinds = self._kinds.get(key)
        if kinds is None:
            kinds = self._kinds[key] = Kinds(counts, units)
        vertex.kinds = kinds
        queue = vertex.queue
        queue.largest = max(queue.largest, units)
        queue.contains |= kinds.queues
        queue.nested = queue in queue.contains

    def _enqueue(self, added: list[Vertex]) -> None:
        """Add to the queues: what hangs below a new root as one chunk, hidden at once when it is held."""
        new_roots = {vertex for vertex in added if not vertex.place.parents}
        chunks: dict[tuple[Vertex, ClassQueue], list[Vertex | QueueChunk]] = {}
        for place, queue, run in _runs(added):
            if place.ancestors and place.ancestors[-1] in new_roots:
                root = place.ancestors[-1]
                entries = chunks.get((root, queue))
                if entries is None:
                    entries = chunks[root, queue] = []
                    queue.entries.append(QueueChunk(root, entries))
                entries.extend(run)
            else:
                queue.entries.extend(run)

    # Remove -------------------------------------------------------------------------------------------------

    def closure(self, resource_ids: Iterable[ResourceId]) -> list[Vertex]:
        """Return the resources and all below them, each once.

        Raises:
            UnknownResource: one is not there.
        """
        tops = []
        for resource_id in resource_ids:
            vertex = self.pool.resources.get(resource_id)
            if vertex is None:
                raise UnknownResource(f"there is no resource {resource_id}")
            tops.append(vertex)
        return self.below(tops)

    def below(self, tops: Iterable[Vertex]) -> list[Vertex]:
        """Return the resources and all below them, each once."""
        found: dict[Vertex, None] = {}
        for vertex in tops:
            if vertex not in found:
                found.update(dict.fromkeys(self.pool.walk(vertex)))
        return list(found)

    def remove(self, vertices: Iterable[Vertex]) -> None:
        """Take resources out, with all below each of them; none is held, but one above may be."""
        pool = self.pool
        going = dict.fromkeys(vertices)
        for vertex in going:
            if pool.is_free(vertex):
                vertex.queue.free -= 1
            vertex.queue.total -= 1
        self._uncount(going)
        for vertex in going:
            del pool.resources[vertex.resource_id]
            vertex.holding = GONE
            vertex.parked = None
            pool.loose.pop(vertex, None)
            pool.lost.pop(vertex, None)
            pool.closed.pop(vertex, None)
            pool.closed_above.discard(vertex)
            host = vertex.host
            if vertex in pool.featured:
                del pool.featured[vertex]
                left = [some for one, some in pool.featured.items() if one.host is host]
                self._note_features(host, frozenset().union(*left))
            memory = host.memories.pop(vertex.resource_id, None)
            if memory is not None and memory.free_bytes < memory.size_bytes:
                pool.memories_lost.append(memory)
            host.count -= 1
            if not vertex.place.parents:
                host.roots.remove(vertex)
            if not host.count:
                pool.hosts.pop(host.name, None)
        for queue in dict.fromkeys(vertex.queue for vertex in going):
            self._tidy(queue)
        pool.version += 1
        pool.changed += 1
        for host in dict.fromkeys(vertex.host for vertex in going):
            pool.host_changed(host)

    def _uncount(self, going: dict[Vertex, None]) -> None:
        """Bring the summaries of the ancestors that stay up to date."""
        counts: dict[Vertex, dict[ClassQueue, int]] = {}
        units: dict[Vertex, int] = {}
        parents: dict[Vertex, None] = {}
        for vertex in going:
            place = vertex.place
            for ancestor in place.ancestors:
                if ancestor in going:
                    continue
                below = counts.setdefault(ancestor, {})
                if ancestor in place.loose:
                    self.pool.loose[ancestor].remove(vertex)
                else:
                    below[vertex.queue] = below.get(vertex.queue, 0) - 1
                if not vertex.children:
                    units[ancestor] = units.get(ancestor, 0) - 1
            parents.update((parent, None) for parent in place.parents if parent not in going)
        for parent in parents:
            left = [child for child in parent.children if child not in going]
            parent.children = left or ()
            if not left:  # is a leaf of its ancestors now, and its own only unit
                units[parent] = units.get(parent, 0) + 1
                for ancestor in parent.place.ancestors:
                    units[ancestor] = units.get(ancestor, 0) + 1
        for ancestor, below in counts.items():
            shared = self.pool.loose.get(ancestor, ())
            self._summarise(ancestor, below, ancestor.kinds.units + units.get(ancestor, 0), shared)
            if not shared:
                self.pool.loose.pop(ancestor, None)

    def _tidy(self, queue: ClassQueue) -> None:
        """Drop entries of removed resources when they may be most of the queue."""
        if len(queue.entries) > 2 * queue.total + 64 or not queue.total:
            queue.entries = type(queue.entries)(
                entry
                for entry in queue.entries
                if (entry.vertex if isinstance(entry, QueueChunk) else entry).holding is not GONE
            )


def _runs(vertices: list[Vertex]) -> Iterator[tuple[Siblings, ClassQueue, list[Vertex]]]:
    """Yield (place, queue, resources) for each run of resources with the same ones."""
    place: Siblings | None = None
    queue: ClassQueue | None = None
    run: list[Vertex] = []
    for vertex in vertices:
        if vertex.place is place and vertex.queue is queue:
            run.append(vertex)
            continue
        if place is not None and queue is not None:
            yield place, queue, run
        place, queue, run = vertex.place, vertex.queue, [vertex]
    if place is not None and queue is not None:
        yield place, queue, run


def _place(parents: tuple[Vertex, ...]) -> Siblings:
    """Return the place below these parents."""
    first = parents[0]
    if len(parents) == 1:
        return Siblings(parents, (first, *first.place.ancestors), first.place.loose)
    ancestors: dict[Vertex, None] = {}
    level: dict[Vertex, None] = dict.fromkeys(parents)
    while level:
        for vertex in level:
            ancestors.pop(vertex, None)
            ancestors[vertex] = None
        level = {parent: None for vertex in level for parent in vertex.place.parents}
    nearest_first = tuple(ancestors)
    above = {vertex: set(vertex.place.ancestors) for vertex in nearest_first}
    loose = tuple(
        vertex
        for vertex in nearest_first
        if any(
            other is not vertex and other not in above[vertex] and vertex not in above[other]
            for other in nearest_first
        )
    )
    return Siblings(parents, nearest_first, loose)


def _parents_first(
    resources: tuple[Resource, ...], names: set[ResourceId], known: dict[ResourceId, Vertex]
) -> list[Resource]:
    """Order parents before children; raise if a parent is nowhere, or on a cycle."""
    missing: dict[ResourceId, set[ResourceId]] = {}
    children: dict[ResourceId, list[Resource]] = {}
    for resource in resources:
        for parent in resource.parents:
            if parent not in names and parent not in known:
                raise UnknownResource(f"{resource.resource_id} has the parent {parent}, which is not there")
        missing[resource.resource_id] = {parent for parent in resource.parents if parent in names}
        for parent in missing[resource.resource_id]:
            children.setdefault(parent, []).append(resource)
    ordered = [resource for resource in resources if not missing[resource.resource_id]]
    for resource in ordered:
        for child in children.get(resource.resource_id, ()):
            missing[child.resource_id].discard(resource.resource_id)
            if not missing[child.resource_id]:
                ordered.append(child)
    if len(ordered) != len(resources):
        stuck = sorted(set(missing) - {resource.resource_id for resource in ordered})
        raise CyclicResources(f"the parents of these resources form a cycle: {', '.join(stuck)}")
    return ordered
