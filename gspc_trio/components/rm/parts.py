"""State of the resource manager: resources, queues and hosts; jobs, their demands and their grants.

Each of these knows some of the others: a resource knows its grant, a grant the demand that it answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from attrs import evolve
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.allocator import Allocator
from gspc_trio.core.ids import NO_GRANT, Count, GrantId, JobId, ResourceId
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.policies.placement import FIFO

NEVER = float("inf")

Turn: TypeAlias = tuple[int, float, int, float, int]
"""When it is a want's turn, the lowest first: the priority of its job, negative; the units that the job holds
over its weight; its own priority, negative; its age; its number."""

LAPSED_REMEMBERED = 4096
"""How many of a job's lapsed grants are remembered, so that a release that crosses the news is no error."""

AGES_REMEMBERED = 64
"""How many ages of a want's credit are told apart; younger credit counts as old as the youngest of these."""

GONE: Any = object()
"""Holder of a removed resource: queue entries left behind are dropped like those of held ones."""


class Kinds:
    """What hangs below a resource: (queue, number) for each class, and the number of leaves. Equal ones
    are one object.

    The number leaves out resources that are below a loose ancestor (see :class:`Siblings`); it may be 0.
    """

    __slots__ = ("counts", "queues", "units")

    def __init__(self, counts: tuple[tuple[ClassQueue, int], ...], units: int) -> None:
        self.counts: tuple[tuple[ClassQueue, int], ...] = counts
        self.queues: frozenset[ClassQueue] = frozenset(queue for queue, _ in counts)
        self.units: int = units


LEAF = Kinds((), 1)


class Siblings:
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
        self.parents: tuple[Vertex, ...] = parents
        self.ancestors: tuple[Vertex, ...] = ancestors
        self.loose: tuple[Vertex, ...] = loose


class Vertex:
    """One resource.

    Attributes:
        resource_id: its id.
        queue: of its class.
        place: what is above it.
        children: what is directly below it.
        kinds: how much of what is anywhere below it.
        holding: the grant that holds it, None, or GONE.
        newest: the newest grant of it that this resource manager has given.
        below: number of held resources anywhere below it, and of those lost there with work that may still
            run.
        queued: whether it has an entry in its queue (or parked for it); there is never more than one.
        parked: entries of descendants that wait for this one's release.
        host: the host it is on.
    """

    __slots__ = (
        "below", "children", "holding", "host", "kinds", "newest", "parked", "place", "queue", "queued",
        "resource_id",
    )  # fmt: skip

    def __init__(self, resource_id: ResourceId, queue: ClassQueue, place: Siblings, host: Host) -> None:
        self.resource_id: ResourceId = resource_id
        self.queue: ClassQueue = queue
        self.place: Siblings = place
        self.children: list[Vertex] | tuple[Vertex, ...] = ()
        self.kinds: Kinds = LEAF
        self.holding: Holding | None = None
        self.newest: GrantId = NO_GRANT
        self.below: int = 0
        self.queued: bool = True
        self.parked: dict[ClassQueue, list[Entry]] | None = None
        self.host: Host = host

    def __repr__(self) -> str:
        return self.resource_id


class QueueChunk:
    """Entries that rejoin their queue together, all of them below ``vertex``; taken from ``at`` on."""

    __slots__ = ("at", "entries", "vertex")

    def __init__(self, vertex: Vertex, entries: list[Entry]) -> None:
        self.vertex: Vertex = vertex
        self.entries: list[Entry] = entries
        self.at: int = 0


Entry: TypeAlias = Vertex | QueueChunk


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
        self.name: str = name
        self.entries: deque[Entry] = deque()
        self.total: int = 0
        self.free: int = 0
        self.largest: int = 1
        self.nested: bool = False
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
        features: that it has; equal sets are one object.
        wanted: preferred resource -> wants that wait for it or for something below it.
    """

    __slots__ = ("count", "features", "label", "memories", "name", "roots", "wanted")

    def __init__(self, name: str, label: str) -> None:
        self.name: str = name
        self.label: str = label
        self.roots: list[Vertex] = []
        self.count: int = 0
        self.memories: dict[ResourceId, Allocator] = {}
        self.wanted: dict[Vertex, dict[Want, None]] = {}
        self.features: frozenset[str] = frozenset()


class DemandState(StrEnum):
    """Where a job's demand for one shape is."""

    MET = "met"
    """No credit is left that no grant has used."""
    PATIENT = "patient"
    """It waits for a resource that it prefers, or must have, though others may be free."""
    WAITING = "waiting"
    """It waits for any resource that will do."""
    GONE = "gone"
    """Withdrawn, refused, or its job has gone."""


DEMAND_TRANSITIONS: dict[DemandState, frozenset[DemandState]] = {
    DemandState.MET: frozenset({DemandState.PATIENT, DemandState.WAITING, DemandState.GONE}),
    DemandState.PATIENT: frozenset({DemandState.MET, DemandState.WAITING, DemandState.GONE}),
    DemandState.WAITING: frozenset({DemandState.MET, DemandState.PATIENT, DemandState.GONE}),
    DemandState.GONE: frozenset(),
}
"""Where a demand may go from where it is."""


class GrantState(StrEnum):
    """Where a grant is in its life."""

    HELD = "held"
    RECALLED = "recalled"
    """Others wait: its job is to give it back when the task in compute is over."""
    REVOKED = "revoked"
    """Its job is gone or has lost a part of it: the rest stays held until its work is known to be over."""
    OVER = "over"
    """Released, lapsed or confirmed; or not confirmed within the lease, then the resources are removed."""


GRANT_TRANSITIONS: dict[GrantState, frozenset[GrantState]] = {
    GrantState.HELD: frozenset({GrantState.RECALLED, GrantState.REVOKED, GrantState.OVER}),
    GrantState.RECALLED: frozenset({GrantState.REVOKED, GrantState.OVER}),
    GrantState.REVOKED: frozenset({GrantState.OVER}),
    GrantState.OVER: frozenset(),
}
"""Where a grant may go from where it is."""


class Need:
    """One requirement of a shape, with its queue."""

    __slots__ = ("features", "hard", "patience_s", "preferences", "queue")

    def __init__(self, queue: ClassQueue, requirement: Requirement) -> None:
        self.queue: ClassQueue = queue
        self.preferences: tuple[ResourceId, ...] = requirement.preferences
        self.hard: bool = requirement.hard
        self.patience_s: float | None = requirement.patience_s
        self.features: frozenset[str] = frozenset(requirement.features)

    @property
    def is_bound(self) -> bool:
        """Whether some resources of the class will not do."""
        return self.hard or bool(self.features)

    def suits(self, host: Host) -> bool:
        """Whether the host has the features that are needed."""
        return self.features <= host.features


class Form:
    """A shape as the resource manager works with it.

    Attributes:
        shape: the shape.
        needs: its requirements, in its order.
        counts: queue -> number of resources needed.
        sizes: pieces of memory, bytes.
        queue: of the first need.
        single: it needs one resource.
        plain: any one resource of the class will do.
        preferring: one resource, with preferences and nothing else.
        soft: positions of the needs that prefer some resources and would take others.
        strict, strict_at: for some of these positions, the form of who insists there (see ``patience.py``),
            and the version of the pool's resources for which that is known.
        lacked: how many of its resources were missing when it was tried last.
        order: positions of the needs, those first that leave the least choice.
        possible_at: version of the pool's resources for which it is known that it can be met by what there
            is.
    """

    __slots__ = (
        "counts", "lacked", "needs", "order", "plain", "possible_at", "preferring", "queue", "shape",
        "single", "sizes", "soft", "strict", "strict_at",
    )  # fmt: skip

    def __init__(self, shape: Shape, queue_of: Callable[[str], ClassQueue]) -> None:
        self.shape: Shape = shape
        self.needs: tuple[Need, ...] = tuple(
            Need(queue_of(requirement.resource_class), requirement) for requirement in shape.requirements
        )
        self.counts: dict[ClassQueue, int] = {}
        for need in self.needs:
            self.counts[need.queue] = self.counts.get(need.queue, 0) + 1
        self.sizes: tuple[Count, ...] = tuple(size for size in (shape.memory_bytes, *shape.memories) if size)
        first = self.needs[0]
        self.queue: ClassQueue = first.queue
        self.single: bool = len(self.needs) == 1
        alone = self.single and not self.sizes and not first.features
        self.plain: bool = alone and not first.preferences and not first.hard
        self.preferring: bool = alone and not self.plain
        self.soft: tuple[int, ...] = tuple(
            position for position, need in enumerate(self.needs) if need.preferences and not need.hard
        )
        self.strict: dict[tuple[int, ...], Form | None] = {}
        self.strict_at: int = -1
        self.possible_at: int = -1
        self.lacked: int = 0
        self.order: tuple[int, ...] = ()
        self.sort()

    @property
    def is_flat(self) -> bool:
        """Whether it needs several resources and any so many of one class will do, wherever they are."""
        if self.single or len(self.counts) > 1 or self.queue.nested:
            return False
        return not (self.sizes or self.shape.same_host or any(need.is_bound for need in self.needs))

    def sort(self) -> None:
        """Order the needs: bound to some resources first, then large before small."""

        def freedom(position: int) -> tuple[bool, int, bool]:
            need = self.needs[position]
            return not need.is_bound, -need.queue.largest, not need.preferences

        self.order = tuple(sorted(range(len(self.needs)), key=freedom))


class Job:
    """A job that has joined.

    Attributes:
        job: its id.
        weight: its share relative to others of the same priority.
        priority: those of a higher one come first.
        wants: by shape.
        latest: the one it has spoken of last.
        units: leaves of the hierarchy that it holds: a node counts as the cores below it.
        seen: the newest grant that it is known to have received.
        lapsed: grants taken from it, of which a late release is no error.
        placement: from which host its resources come, a name in ``policies.placement``.
        compact_due: the share of a grant by ``compact`` that is due (see ``policies.placement``).
    """

    __slots__ = (
        "compact_due", "job", "lapsed", "latest", "placement", "priority", "seen", "units", "wants", "weight",
    )  # fmt: skip

    def __init__(self, job: JobId, weight: float, priority: int = 0, placement: str = FIFO) -> None:
        self.job: JobId = job
        self.weight: float = weight
        self.priority: int = priority
        self.wants: dict[Shape, Want] = {}
        self.latest: Want | None = None
        self.units: int = 0
        self.seen: GrantId = NO_GRANT
        self.lapsed: dict[GrantId, None] = {}
        self.placement: str = placement
        self.compact_due: float = 0.0

    @property
    def ratio(self) -> float:
        """Units over weight: of equal priority, the next resource goes to the job for which it is least."""
        return self.units / self.weight

    def saw(self, grant_id: GrantId) -> None:
        """The job has received this grant."""
        if grant_id > self.seen:
            self.seen = grant_id

    def forget(self, want: Want) -> None:
        """The job has nothing more to do with this shape."""
        del self.wants[want.form.shape]
        if self.latest is want:
            self.latest = None

    def remember_lapsed(self, grant_id: GrantId) -> None:
        """A release of this grant may still come."""
        self.lapsed[grant_id] = None
        if len(self.lapsed) > LAPSED_REMEMBERED:
            del self.lapsed[next(iter(self.lapsed))]


def shared_part(shape: Shape) -> Shape | None:
    """Return a shape without what it prefers, and without its estimate; None if it is bound to some place."""
    first, *rest = shape.requirements
    if first.hard:
        return None
    any_will_do = evolve(first, preferences=(), patience_s=None)
    return replace(shape, requirements=(any_will_do, *rest), estimate_s=None)


class Want:
    """A job's demand for one shape.

    Attributes:
        owner: the job.
        form: of the shape.
        number: order of first demand, breaks ties.
        priority: of the job's wants, those of a higher one come first.
        unmet: credit that no grant has used yet.
        fresh: the part of it that has come with the present event.
        ages: the rest, oldest first: [since, credit].
        sent: grants that the job may not have received when it last spoke, oldest first.
        grants: what the job holds of this shape, oldest first.
        units: leaves that it holds of this shape.
        tried: version of the pool at which it could not be met.
        looked: version of the pool at which it was seen that there is nothing else for it either.
        patient: waits for preferred resources, and has not waited too long.
        strict: what it waits for then, if it is not just one resource.
        recalled: how many of its grants have been recalled.
        called: grants that have been recalled for it, and how many resources it gains by each.
        shared_as: what its shape shares with others of the job for which its grants are used, too, or None.
    """

    __slots__ = (
        "ages", "called", "form", "fresh", "grants", "looked", "number", "owner", "patient", "priority",
        "recalled", "sent", "shared_as", "strict", "tried", "units", "unmet",
    )  # fmt: skip

    def __init__(self, owner: Job, form: Form, number: int) -> None:
        self.owner: Job = owner
        self.form: Form = form
        self.number: int = number
        self.priority: int = 0
        self.unmet: int = 0
        self.fresh: int = 0
        self.ages: deque[list[float]] = deque()
        self.sent: deque[GrantId] = deque()
        self.grants: dict[GrantId, Holding] = {}
        self.units: int = 0
        self.tried: int = -1
        self.looked: int = -1
        self.patient: bool = False
        self.strict: Form | None = None
        self.recalled: int = 0
        self.called: dict[Holding, int] = {}
        self.shared_as: Shape | None = None

    @property
    def state(self) -> DemandState:
        """Where the demand is."""
        if not self.unmet:
            return DemandState.MET
        return DemandState.PATIENT if self.patient else DemandState.WAITING

    @property
    def takes_any(self) -> bool:
        """Whether any one resource of its class will do now."""
        return self.form.plain or (self.form.preferring and not self.patient)

    @property
    def turn(self) -> Turn:
        """Who waits with the lowest turn gets the next resource."""
        owner = self.owner
        return -owner.priority, owner.units / owner.weight, -self.priority, self.since, self.number

    @property
    def since(self) -> float:
        """When its oldest unmet credit came."""
        return self.ages[0][0] if self.ages else NEVER

    def set_credit(self, credit: int) -> int:
        """Take an absolute credit (grants underway are subtracted) and return by how much the unmet part
        rose.

        Less credit withdraws the youngest first.
        """
        unmet = max(0, credit - len(self.sent))
        change = unmet - self.unmet
        self.unmet = unmet
        if change >= 0:
            self.fresh += change
            return change
        less = -change
        cut = min(less, self.fresh)
        self.fresh -= cut
        less -= cut
        while less:
            youngest = self.ages[-1]
            if youngest[1] > less:
                youngest[1] -= less
                break
            less -= int(youngest[1])
            self.ages.pop()
        return change

    def settle(self, now: float) -> None:
        """What came with the present event and was not met waits from now on."""
        if self.fresh:
            if self.ages and (self.ages[-1][0] == now or len(self.ages) >= AGES_REMEMBERED):
                self.ages[-1][1] += self.fresh
            else:
                self.ages.append([now, self.fresh])
            self.fresh = 0

    def use_credit(self) -> None:
        """A grant uses one credit, of the oldest."""
        self.unmet -= 1
        if self.ages:
            oldest = self.ages[0]
            oldest[1] -= 1
            if not oldest[1]:
                self.ages.popleft()
        else:
            self.fresh -= 1

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if it were forgotten: nothing wanted, held or underway."""
        self.forget_seen(self.owner.seen)
        return not (self.unmet or self.grants or self.sent)

    def forget_seen(self, seen: GrantId) -> None:
        """The job has received all grants up to this one."""
        sent = self.sent
        while sent and sent[0] <= seen:
            sent.popleft()


class Holding(Struct, eq=False):
    """A live grant, or one in the making, which has no id, names and units yet.

    Attributes:
        want: what it answers.
        since: when it was given.
        vertices: what it holds.
        resources: ids of what it holds.
        units: leaves it holds.
        grant_id: its id.
        pieces: its pieces of memory: (allocator, offset).
        returned: ids of what has been given back.
        recalled: its job has been told to give it back.
        lease_until: time until which its revocation must be confirmed, or None.
    """

    want: Want
    since: float
    vertices: tuple[Vertex, ...] = ()
    resources: tuple[ResourceId, ...] = ()
    units: int = 0
    grant_id: GrantId = NO_GRANT
    pieces: Sequence[tuple[Allocator, int]] = ()
    returned: tuple[ResourceId, ...] = ()
    recalled: bool = False
    lease_until: float | None = None

    @property
    def state(self) -> GrantState:
        """Where the grant is."""
        if not self.vertices:
            return GrantState.OVER
        if self.lease_until is not None:
            return GrantState.REVOKED
        return GrantState.RECALLED if self.recalled else GrantState.HELD

    @property
    def owner(self) -> JobId:
        """The job it was given to."""
        return self.want.owner.job

    @property
    def ends_at(self) -> float | None:
        """When its task should be over by its estimate, or None."""
        estimate_s = self.want.form.shape.estimate_s
        return None if estimate_s is None else self.since + estimate_s
