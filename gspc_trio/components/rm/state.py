"""The state of a resource manager and the few things that every part of it does: count, hold, release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.rm.change import Changer
from gspc_trio.components.rm.errors import UnknownJob
from gspc_trio.components.rm.events import Numbering, RmAction
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.rm.parts import ClassQueue, Form, Holding, Job, Vertex, Want
from gspc_trio.components.rm.patience import Patience
from gspc_trio.components.rm.placing import PlacedPool, continued
from gspc_trio.components.rm.pool import Pool
from gspc_trio.components.rm.search import host_has_room, impossible, preferred
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.core.machine import Turn
from gspc_trio.core.resources import Resource
from gspc_trio.policies.placement import FIFO
from gspc_trio.records.facts import GrantChanged, ResourceChanged

Memories: TypeAlias = tuple[tuple[ResourceId, int], ...]


class Limits(Struct, frozen=True):
    """Times and numbers of a resource manager.

    Attributes:
        recall_after_s: how long a grant is held at least before it is recalled for others.
        reserve_after_s: how long a request that needs several resources, or particular ones, waits before
            resources are put aside for it.
        patience_s: how long a request waits for a resource that it prefers while others are free (see
            ``patience.py``).
        lease_s: how long a revocation may go unanswered before the resources are removed.
        shapes_max: how many shapes a job may wait for at a time.
    """

    recall_after_s: float = 0.05
    reserve_after_s: float = 0.5
    patience_s: float = 0.05
    lease_s: float = 6.0
    shapes_max: int = 1024


class Reservation:
    """Resources put aside for a request that has waited long (capability 4 of the co-allocation).

    Attributes:
        want: whose request it is.
        targets: a resource for each of its needs, in the shape's order.
        made_at: when.
    """

    __slots__ = ("made_at", "targets", "want")

    def __init__(self, want: Want, targets: list[Vertex], made_at: float) -> None:
        self.want: Want = want
        self.targets: list[Vertex] = targets
        self.made_at: float = made_at


class ComingHosts:
    """Hosts that are on their way: what they will bring may be waited for, and nothing else.

    A host that comes for the first time may bring anything. One that was there before and is started again is
    known: what neither the resources that are there nor those hosts could ever give is refused at once.
    """

    def __init__(self) -> None:
        self._pool = Pool()
        self._changer = Changer(self._pool)
        self._known: dict[str, tuple[ResourceId, ...]] = {}
        self._unknown: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._known or self._unknown)

    def expect(self, name: str, resources: tuple[Resource, ...] | None, label: str) -> None:
        """This host is on its way, with these resources, or with what nobody knows yet."""
        self.settle(name)
        if resources is None:
            self._unknown[name] = None
            return
        self._known[name] = tuple(resource.resource_id for resource in resources)
        self._changer.add(resources, label)

    def settle(self, name: str) -> None:
        """This host is there, or does not come."""
        self._unknown.pop(name, None)
        gone = self._known.pop(name, ())
        if gone:
            self._changer.remove([self._pool.resources[resource_id] for resource_id in gone])

    def counts(self) -> dict[str, int]:
        """Return class -> number of resources that are known to come."""
        return {queue.name: queue.total for queue in self._pool.queues.values() if queue.total}

    def may_meet(self, pool: Pool, form: Form) -> bool:
        """Whether what comes may meet a form, by itself or with what is there (true when in doubt)."""
        if self._unknown:
            return True
        if not any(self._total(queue.name) for queue in form.counts):
            return False
        if any(queue.total + self._total(queue.name) < count for queue, count in form.counts.items()):
            return False
        all_there = all(self._total(queue.name) for queue in form.counts)
        if all_there and impossible(self._pool, Form(form.shape, self._pool.queue)) is None:
            return True
        if form.single or form.shape.same_host or not pool.resources:
            return False  # all of it would have to be on one of these hosts
        return self._may_complete(pool, form)

    def _may_complete(self, pool: Pool, form: Form) -> bool:
        """Whether these hosts and those that are there may meet it together, as far as is easily seen."""
        for need in form.needs:
            here = [name for name in need.preferences if name in self._pool.resources]
            if need.hard and not here and not preferred(pool, need):
                return False
        hosts = [*pool.hosts.values(), *self._pool.hosts.values()]
        return not form.sizes or any(host_has_room(host, form.sizes, empty=True) for host in hosts)

    def _total(self, class_name: str) -> int:
        queue = self._pool.queues.get(class_name)
        return queue.total if queue is not None else 0

    def waited_for(self, form: Form) -> Iterator[str]:
        """Yield the hosts that have, or may have, something of what the form needs."""
        yield from self._unknown
        classes = {queue.name for queue in form.counts}
        for name, resource_ids in self._known.items():
            if any(self._pool.resources[one].queue.name in classes for one in resource_ids):
                yield name


class Lacking:
    """Requests for several resources that wait; those that cannot be met yet are not tried at every release.

    A request that lacks resources of a class is put aside until so many of the class are free that it may
    have what it lacks; a release looks at those alone whose number it has reached.

    Attributes:
        ready: those that lack nothing as far as is known.
    """

    def __init__(self) -> None:
        self.ready: dict[Want, None] = {}
        self._aside: dict[Want, tuple[ClassQueue, int]] = {}
        self._heaps: dict[ClassQueue, list[tuple[int, int, Want]]] = {}
        """By class: (how many must be free, number, who); an entry is stale if ``_aside`` says else."""

    def __contains__(self, want: Want) -> bool:
        return want in self.ready or want in self._aside

    def wake_all(self) -> None:
        """Each of them is worth a try."""
        self.ready.update(dict.fromkeys(self._aside))
        self._aside.clear()
        self._heaps.clear()

    def check(self, is_open: Callable[[Vertex], bool], resources: Iterable[Vertex]) -> None:
        """Assert that nobody is put aside who could be given all, and that all of those are found again."""
        assert not self.ready.keys() & self._aside.keys()
        there = Counter(vertex.queue for vertex in resources if is_open(vertex)) if self._aside else Counter()
        for want, (queue, free) in self._aside.items():
            assert (free, want.number, want) in self._heaps[queue], f"{want.form.shape}: put aside for ever"
            counts = want.form.counts.items()
            assert any(there[each] < count for each, count in counts), f"{want.form.shape}: put aside"

    def wake(self, want: Want) -> None:
        """The want is worth a try."""
        self._aside.pop(want, None)
        self.ready[want] = None

    def forget(self, want: Want) -> None:
        """The want waits no more."""
        self._aside.pop(want, None)
        self.ready.pop(want, None)

    def put_aside(self, want: Want, queue: ClassQueue, free: int) -> None:
        """The want is not worth a try before so many resources of the class are free."""
        self.ready.pop(want, None)
        self._aside[want] = (queue, free)
        heap = self._heaps.setdefault(queue, [])
        heappush(heap, (free, want.number, want))
        if len(heap) > 64 and len(heap) > 4 * len(self._aside):
            heap[:] = [entry for entry in heap if self._aside.get(entry[2]) == (queue, entry[0])]
            heapify(heap)

    def look(self) -> None:
        """Find those for whom enough may be free now."""
        for queue, heap in self._heaps.items():
            while heap and heap[0][0] <= queue.free:
                free, _, want = heappop(heap)
                if self._aside.get(want) == (queue, free):
                    self.wake(want)


class ManagerState(Turn[RmAction]):
    """Everything a resource manager knows.

    It has fewer than 30 attributes: CPython looks up those of an object with more by a slower way.

    Attributes:
        epoch: first part of its grant ids.
        last: id of the newest grant.
        numbering: which of several resource managers this is.
        limits: times and numbers.
        pool, changer: the resources.
        jobs: by id.
        grants: live ones by id, those being revoked among them.
        holders: wants that hold something.
        waiting: wants with unmet credit, by first need.
        special: those of them that not any resource of one class satisfies.
        gangs: those of these that want more than one resource, or memory.
        starving: those of ``waiting`` for which resources may be put aside.
        woken: those that prefer resources of which one may have come free.
        patience: of those that wait for what they prefer.
        hungry: queues for which plain wants wait.
        lapsing: grants that are being revoked.
        freed: what this event has freed, or taken out of use, if others are to leave when they are released.
        claims: grants of an earlier resource manager of which something is not there yet.
        coming: hosts that are on their way.
        reservation: at most one.
        recall_at, recalled_at: when to look next whom to recall, and when that was last done.
        reserve_at, reserved_at: when to look next whether a reservation is due, and when that was last done.
        wants_made: number of wants so far.
    """

    def __init__(
        self,
        epoch: int,
        limits: Limits,
        numbering: Numbering | None = None,
    ) -> None:
        super().__init__()
        self.epoch = epoch
        self.numbering: Numbering = numbering or Numbering()
        self.last: GrantId = (epoch, self.numbering.first)
        self.limits = limits
        self.pool: Pool = Pool()
        self.changer: Changer = Changer(self.pool)
        self.jobs: dict[JobId, Job] = {}
        self.grants: dict[GrantId, Holding] = {}
        self.holders: dict[Want, None] = {}
        self.waiting: dict[Want, None] = {}
        self.special: dict[Want, None] = {}
        self.gangs: Lacking = Lacking()
        self.starving: dict[Want, None] = {}
        self.woken: dict[Want, None] = {}
        self.patience: Patience = Patience(self.pool, limits.patience_s)
        self.hungry: dict[ClassQueue, None] = {}
        self.lapsing: dict[GrantId, Holding] = {}
        self.freed: list[Vertex] = []
        self.claims: dict[GrantId, Grant] = {}
        self.coming: ComingHosts = ComingHosts()
        self.reservation: Reservation | None = None
        self.recall_at: float | None = None
        self.recalled_at: float = float("-inf")
        self.reserve_at: float | None = None
        self.reserved_at: float = float("-inf")
        self.starves_in_vain = False
        """Whether, at the last look, there was nothing to put aside for those who had waited long enough."""
        self.wants_made: int = 0

    def job(self, job: JobId) -> Job:
        """Return the job.

        Raises:
            UnknownJob: it has not joined, or has gone.
        """
        found = self.jobs.get(job)
        if found is None:
            raise UnknownJob(f"job {job} has not joined, or has gone")
        return found

    # Jobs ---------------------------------------------------------------------------------------------------

    def place(self, job: Job, placement: str) -> None:
        """The job's resources come from the hosts that this placement says, from now on."""
        job.placement = placement
        self.count_places()

    def count_places(self) -> None:
        """Count how much of each host is in use while a job asks for that, and only then."""
        asked = any(job.placement != FIFO for job in self.jobs.values())
        if asked != isinstance(self.pool, PlacedPool):
            pool = PlacedPool(self.pool) if asked else continued(self.pool)
            self.pool = self.changer.pool = self.patience.pool = pool

    # Wants --------------------------------------------------------------------------------------------------

    def new_want(self, job: Job, form: Form) -> Want:
        """Return a new want of the job, not waiting yet."""
        self.wants_made += 1
        want = job.wants[form.shape] = Want(job, form, self.wants_made)
        return want

    def forget_queues(self, form: Form) -> None:
        """Drop the queues of classes that the form named and nobody else knows."""
        for queue in form.counts:
            if queue.total or any(
                queue in want.form.counts for job in self.jobs.values() for want in job.wants.values()
            ):
                continue
            self.pool.queues.pop(queue.name, None)
            self.hungry.pop(queue, None)
            self.patience.idle.pop(queue, None)

    def drop_want(self, want: Want) -> None:
        """The want asks for nothing more."""
        want.unmet = want.fresh = 0
        want.ages.clear()
        self.not_waiting(want)

    def not_waiting(self, want: Want) -> None:
        """The want has no unmet credit (an entry in a heap goes when it comes up)."""
        self.waiting.pop(want, None)
        self.starving.pop(want, None)
        if want in self.special:
            del self.special[want]
            self.gangs.forget(want)
            self.woken.pop(want, None)
            self.patience.leave(want)
            if want.form.preferring:
                self.unwatch(want)
        want.called.clear()

    def wake(self, want: Want) -> None:
        """Something may have changed for a want that not any resource of one class satisfies."""
        want.tried = want.looked = -1
        if want.form.preferring:
            self.woken[want] = None
        else:
            self.gangs.wake(want)

    def rest(self) -> None:
        """Nobody waits: nothing is to be done when time passes."""
        self.recall_at = self.reserve_at = None
        self.patience.rest()

    def watch(self, want: Want) -> None:
        """Look at the want when one of the resources it prefers may have come free."""
        for resource_id in want.form.needs[0].preferences:
            vertex = self.pool.resources.get(resource_id)
            if vertex is not None:
                vertex.host.wanted.setdefault(vertex, {})[want] = None

    def unwatch(self, want: Want) -> None:
        """Undo :meth:`watch`."""
        for resource_id in want.form.needs[0].preferences:
            vertex = self.pool.resources.get(resource_id)
            if vertex is not None:
                wants = vertex.host.wanted.get(vertex)
                if wants is not None:
                    wants.pop(want, None)
                    if not wants:
                        del vertex.host.wanted[vertex]

    def end_reservation(self) -> None:
        """Nothing is put aside any more; who was kept from it may try again."""
        self.reservation = None
        self.close_again()

    def close_again(self) -> None:
        """Keep from being taken what is reserved, rests or is to leave, and nothing else."""
        pool = self.pool
        pool.reopen()
        pool.close(pool.leaving)
        pool.close(pool.resting)
        if self.reservation is not None:
            pool.close(self.reservation.targets)
        for want in self.special:
            self.wake(want)
        self.reserve_at = None

    # Grants -------------------------------------------------------------------------------------------------

    def is_own(self, grant_id: GrantId) -> bool:
        """Whether this resource manager may have given the grant; it has not if the number is too high."""
        first = self.numbering.first
        return grant_id > (self.epoch, first) and (grant_id[1] - first) % self.numbering.step == 0

    def advance(self, grant_id: GrantId) -> None:
        """Give newer grants than this one of another resource manager from now on."""
        epoch, number = grant_id
        if epoch == self.epoch and grant_id > self.last:
            self.last = (epoch, number + (self.numbering.first - number) % self.numbering.step)

    def give_one(self, want: Want) -> bool:
        """Give a want the first free resource of its class; return whether there is one."""
        vertex = self.pool.take(want.form.queue, want)
        if vertex is None:
            return False
        vertex.newest = self.last = grant_id = (self.epoch, self.last[1] + self.numbering.step)
        holding = Holding(want, self.now, (vertex,), (vertex.resource_id,), vertex.kinds.units, grant_id)
        self.pool.hold(vertex, holding)
        self._enter(holding, ())
        return True

    def give(self, holding: Holding) -> None:
        """Make a live grant of resources that are held already."""
        vertices = holding.vertices
        holding.resources = tuple([vertex.resource_id for vertex in vertices])
        holding.units = sum([vertex.kinds.units for vertex in vertices])
        holding.grant_id = self.last = grant_id = (self.epoch, self.last[1] + self.numbering.step)
        for vertex in vertices:
            vertex.newest = grant_id
        self._enter(holding, memories_of(holding))

    def _enter(self, holding: Holding, memories: Memories) -> None:
        """Count a new grant and tell its job."""
        grant_id = holding.grant_id
        want = holding.want
        job = want.owner
        units = holding.units
        job.units += units
        want.units += units
        grants = want.grants
        if not grants:
            self.holders[want] = None
        grants[grant_id] = self.grants[grant_id] = holding
        want.sent.append(grant_id)
        name = job.job
        resources = holding.resources
        self.actions.extend(
            (
                Grant(name, want.form.shape, grant_id, resources, memories),
                GrantChanged(self.now, name, grant_id, resources, True),
            )
        )

    def release(self, holding: Holding, vertices: Sequence[Vertex]) -> None:
        """Free these resources of a grant; with the last of them the grant is over.

        What is to leave stays until the event has been taken (see :meth:`leave_freed`): a claim that comes
        with it may be on the same resources.
        """
        pool, special = self.pool, self.special
        in_front = self.numbering.own_first and self.is_own(holding.grant_id)
        for vertex in vertices:
            pool.free(vertex, in_front)
            if special and vertex.host.wanted:
                self._freed(vertex)
        if vertices is holding.vertices or len(vertices) == len(holding.vertices):
            self._end(holding)
        else:
            self._shrink(holding, vertices)
        if pool.leaving:
            self.freed += vertices

    def _shrink(self, holding: Holding, vertices: Sequence[Vertex]) -> None:
        """Some of its resources do not belong to the grant any more."""
        want = holding.want
        names = tuple([vertex.resource_id for vertex in vertices])
        units = min(sum([vertex.kinds.units for vertex in vertices]), holding.units)
        holding.vertices = tuple([vertex for vertex in holding.vertices if vertex not in vertices])
        holding.resources = tuple([name for name in holding.resources if name not in names])
        holding.returned += names
        holding.units -= units
        want.units -= units
        want.owner.units -= units
        self.actions.append(GrantChanged(self.now, want.owner.job, holding.grant_id, names, False))

    def _end(self, holding: Holding) -> None:
        """The grant is over: nothing counts it any more."""
        want = holding.want
        job = want.owner
        units = holding.units
        holding.vertices = ()
        want.units -= units
        job.units -= units
        grant_id = holding.grant_id
        del self.grants[grant_id]
        grants = want.grants
        del grants[grant_id]
        if not grants:
            del self.holders[want]
        if holding.recalled:
            want.recalled -= 1
        if holding.pieces:
            for memory, offset in holding.pieces:
                memory.free(offset)
            self.pool.memory_moved([memory for memory, _ in holding.pieces])
        if holding.lease_until is not None:
            self.lapsing.pop(grant_id, None)
        if self.claims:
            self.claims.pop(grant_id, None)
        self.actions.append(GrantChanged(self.now, job.job, grant_id, holding.resources, False))

    def condemn(self, holding: Holding) -> None:
        """Remove what a grant holds without freeing it: its work may still run. All above stays blocked."""
        pool = self.pool
        lost = list(holding.vertices)
        self._end(holding)
        going = dict.fromkeys(vertex for top in lost for vertex in pool.walk(top))
        for vertex in lost:
            for ancestor in vertex.place.ancestors:
                pool.lost[ancestor] = pool.lost.get(ancestor, 0) + 1
        self.remove(list(going))

    def remove(self, vertices: list[Vertex]) -> None:
        """Take resources, none of them held by a live grant, out of the pool."""
        self.changer.remove(vertices)
        self.gangs.wake_all()
        closed = bool(self.pool.leaving or self.pool.resting)
        doubtful: dict[Want, None] = {}
        for vertex in vertices:
            self.pool.leaving.pop(vertex, None)
            self.pool.resting.pop(vertex, None)
            doubtful.update(vertex.host.wanted.pop(vertex, {}))
            self.actions.append(
                ResourceChanged(self.now, vertex.resource_id, vertex.queue.name, "removed", vertex.host.label)
            )
        for host in dict.fromkeys([vertex.host for vertex in vertices]):
            for wants in host.wanted.values():  # for what is above it, perhaps
                doubtful.update(wants)
        for want in doubtful:
            self.wake(want)
            self.patience.doubt(want, self.now)
        if self.pool.leaving:
            self.freed += vertices
        if closed and (not self.pool.leaving or self._opens(vertices)):
            self.close_again()

    def _opens(self, gone: list[Vertex]) -> bool:
        """Whether something above was kept from others only because these were to leave."""
        pool = self.pool
        return any(
            pool.resources.get(above.resource_id) is above and above not in pool.leaving
            for vertex in gone
            for above in vertex.place.ancestors
        )

    def leave_freed(self) -> None:
        """Remove what was to leave and is free since this event.

        Only relatives can be of what the event has freed or removed, and then of what has left for it.
        """
        pool = self.pool
        while self.freed:
            related: dict[Vertex, None] = {}
            freed, self.freed = self.freed, []
            for vertex in freed:
                for below in pool.walk(vertex) if vertex.children else (vertex,):
                    related.update(dict.fromkeys((below, *below.place.ancestors)))
            self.leave([vertex for vertex in related if vertex in pool.leaving])

    def leave(self, leaving: Iterable[Vertex]) -> None:
        """Remove those of the resources, which were to go when they are released, that are free now."""
        gone = [
            vertex for vertex in leaving if all(self.may_leave(below) for below in self.pool.walk(vertex))
        ]
        if gone:
            self.remove(gone)

    def may_leave(self, vertex: Vertex) -> bool:
        """Whether nobody uses it or a relative."""
        if vertex.holding is not None or vertex.below > self.pool.lost.get(vertex, 0):
            return False
        return all(ancestor.holding is None for ancestor in vertex.place.ancestors)

    def _freed(self, vertex: Vertex) -> None:
        """A resource has come free: look again at the wants that prefer it or a relative of it."""
        wanted = vertex.host.wanted
        if vertex.children:
            for wants in wanted.values():
                for want in wants:
                    self.wake(want)
            return
        for relative in (vertex, *vertex.place.ancestors):
            for want in wanted.get(relative, ()):
                self.wake(want)


def memories_of(holding: Holding) -> Memories:
    """Return (memory id, offset) of each piece of memory of a grant."""
    if not holding.pieces:
        return ()
    names = {id(memory): name for name, memory in holding.vertices[0].host.memories.items()}
    return tuple([(names[id(memory)], offset) for memory, offset in holding.pieces])
