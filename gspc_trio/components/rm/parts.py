"""What the pool is made of: resources as the resource manager sees them, queues, hosts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from gspc_trio.core.ids import ResourceId

if TYPE_CHECKING:
    from gspc_trio.components.rm.jobs import Holding, Job, Want
    from gspc_trio.core.allocator import Allocator

GONE: Any = object()
"""Holder of a removed resource: queue entries left behind are dropped like those of held ones."""


class Kinds:
    """What hangs below a resource: (queue, number) for each class, and the number of leaves. Equal ones
    are one object.

    The number leaves out resources that are below a loose ancestor (see :class:`Place`); it may be 0.
    """

    __slots__ = ("counts", "queues", "units")

    def __init__(self, counts: tuple[tuple[ClassQueue, int], ...], units: int) -> None:
        self.counts = counts
        self.queues = frozenset(queue for queue, _ in counts)
        self.units = units


LEAF = Kinds((), 1)


class Place:
    """Where siblings hang: shared by all resources with the same parents.

    Attributes:
        parents: direct ones.
        ancestors: all, nearest first.
        loose: those ancestors for which there is another ancestor that is neither above nor below them,
            e.g. the two sockets of one GPU: holding one of these does not tell whether the resource was
            free before.
    """

    __slots__ = ("ancestors", "loose", "parents")

    def __init__(
        self, parents: tuple[Vertex, ...], ancestors: tuple[Vertex, ...], loose: tuple[Vertex, ...]
    ) -> None:
        self.parents = parents
        self.ancestors = ancestors
        self.loose = loose


class Vertex:
    """One resource.

    Attributes:
        resource_id: its id.
        queue: of its class.
        place: what is above it.
        children: what is directly below it.
        kinds: how much of what is anywhere below it.
        holding: the grant that holds it, None, or GONE.
        below: number of held resources anywhere below it, and of those lost there with work that may still
            run.
        queued: whether it has an entry in its queue (or parked for it); there is never more than one.
        parked: entries of descendants that wait for this one's release.
        host: the host it is on.
    """

    __slots__ = (
        "below", "children", "holding", "host", "kinds", "parked", "place", "queue", "queued", "resource_id",
    )  # fmt: skip

    def __init__(self, resource_id: ResourceId, queue: ClassQueue, place: Place, host: Host) -> None:
        self.resource_id = resource_id
        self.queue = queue
        self.place = place
        self.children: list[Vertex] | tuple[Vertex, ...] = ()
        self.kinds = LEAF
        self.holding: Holding | None = None
        self.below = 0
        self.queued = True
        self.parked: dict[ClassQueue, list[Entry]] | None = None
        self.host = host

    def __repr__(self) -> str:
        return self.resource_id


class Chunk:
    """Entries that rejoin their queue together, all of them below ``vertex``; taken from ``at`` on."""

    __slots__ = ("at", "entries", "vertex")

    def __init__(self, vertex: Vertex, entries: list[Entry]) -> None:
        self.vertex = vertex
        self.entries = entries
        self.at = 0


Entry: TypeAlias = Vertex | Chunk


Waiting: TypeAlias = "tuple[int, float, int, Want]"
"""A want that waits for any one resource of a class: its priority, negative; its age; its number; itself."""


class ClassQueue:
    """The FIFO queue of a class (RM-2).

    Attributes:
        name: of the class.
        entries: resources and chunks; see the module's text.
        total, free: how many there are, and how many of them are free.
        largest: most leaves below one of them.
        nested: one of them is below another.
        contains: queues of what is, or was, below one of them.
        plain: for each job that waits for any one resource of the class, a heap of those that wait.
    """

    __slots__ = ("contains", "entries", "free", "largest", "name", "nested", "plain", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: deque[Entry] = deque()
        self.total = 0
        self.free = 0
        self.largest = 1
        self.nested = False
        self.contains: set[ClassQueue] = set()
        self.plain: dict[Job, list[Waiting]] = {}

    def __repr__(self) -> str:
        return self.name


class Host:
    """Resources of one host: those whose ids are the same up to the first dot.

    Attributes:
        name: that part of the ids.
        label: the host's name for people.
        roots: resources without parents.
        count: number of resources.
        memories: allocators of its memories, by memory id (RM-8).
        wanted: preferred resource -> wants that wait for it or for something below it.
    """

    __slots__ = ("count", "label", "memories", "name", "roots", "wanted")

    def __init__(self, name: str, label: str) -> None:
        self.name = name
        self.label = label
        self.roots: list[Vertex] = []
        self.count = 0
        self.memories: dict[ResourceId, Allocator] = {}
        self.wanted: dict[Vertex, dict[Want, None]] = {}
