"""Taking the resources for one grant, all or nothing (RM-6, RM-7, RM-8).

Nothing is ever held while waiting for the rest: what cannot be had whole is given back before the next
request is looked at. So list requests cannot deadlock, and none can block another by having half of it
(RM-12).
"""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.components.rm.parts import ClassQueue, Form, Holding, Host, Need, Vertex, Want
from gspc_trio.components.rm.pool import Pool
from gspc_trio.components.rm.search import Search, allocate_all, host_has_room, preferred
from gspc_trio.components.rm.state import ManagerState, Reservation

HOSTS_TRIED = 128
"""How many hosts are tried at a time for a request that needs a whole host's worth of something."""


def gather(state: ManagerState, want: Want) -> Holding | None:
    """Return a grant in the making that holds what the want asks for, or None."""
    form = want.form
    pool = state.pool
    holding = Holding(want, state.now)
    if form.plain:
        vertex = pool.take(form.queue, want)
    elif form.preferring:
        need = form.needs[0]
        vertex = open_preferred(pool, need, None)
        if vertex is None and not need.hard and not want.patient:
            vertex = pool.take(need.queue, want)
    elif _assemble(pool, holding, want.strict or form):
        pool.given(want)
        if holding.pieces:
            pool.memory_moved([memory for memory, _ in holding.pieces])
        return holding
    else:
        vertex = None
    if vertex is not None:
        pool.hold(vertex, holding)
        holding.vertices = (vertex,)
        return holding
    if state.reservation is not None:
        return from_reservation(state, state.reservation, holding)
    return None


def could_be_met(pool: Pool, want: Want, now: float) -> bool:
    """Whether a want for several resources, or with memory, could be met now if it preferred nothing."""
    holding = Holding(want, now)
    if not _assemble(pool, holding, want.form):
        return False
    for memory, offset in holding.pieces:
        memory.free(offset)
    _give_up(pool, holding)
    return True


def open_preferred(pool: Pool, need: Need, host: Host | None) -> Vertex | None:
    """Return the first preferred resource that is open, or an open one below it; it stays in its queue."""
    queue = need.queue
    if not queue.free:
        return None
    resources = pool.resources
    features = need.features
    for name in need.preferences:
        vertex = resources.get(name)
        if vertex is None or (host is not None and vertex.host is not host):
            continue
        if features and not features <= vertex.host.features:
            continue
        if vertex.queue is queue and pool.is_open(vertex):
            return vertex
        if queue in vertex.kinds.queues and all(a.holding is None for a in vertex.place.ancestors):
            found = pool.find_below(vertex, queue)
            if found is not None:
                return found
    return None


def any_preferred(pool: Pool, form: Form) -> bool:
    """Whether each need that has to have what it prefers finds some of it open: the others may be many."""
    return all(open_preferred(pool, need, None) is not None for need in form.needs if need.hard)


# Several resources ------------------------------------------------------------------------------------------


def _assemble(pool: Pool, holding: Holding, form: Form) -> bool:
    """Hold a resource for each need, and allocate the memory; or leave everything as it was."""
    for queue, count in form.counts.items():
        if queue.free < count:
            form.lacked = count - queue.free
            return False
    # The first open resource for each need is enough nearly always, and costs no more than to hold them; the
    # search, which finds a combination wherever there is one, costs far more.
    if not form.shape.same_host and not form.sizes:
        return _pick_all(pool, holding, form, None) or _search(pool, holding, form, None)
    for host in _hosts(pool, holding.want, form):
        if form.sizes and not host_has_room(host, form.sizes, empty=False):
            continue
        if not (_pick_all(pool, holding, form, host) or _search(pool, holding, form, host)):
            continue
        pieces = allocate_all(list(host.memories.values()), form.sizes)
        if pieces is not None:
            holding.pieces = pieces
            return True
        _give_up(pool, holding)
    return False


def _hosts(pool: Pool, want: Want, form: Form) -> list[Host]:
    """Return hosts worth a try, preferred ones first, each once."""
    first = form.needs[0]
    hosts = dict.fromkeys(vertex.host for vertex in preferred(pool, first))
    if not first.hard:
        hosts.update(dict.fromkeys(pool.hosts_for(want, HOSTS_TRIED)))
    needed = form.counts.items() if form.shape.same_host else ((first.queue, 1),)
    bound = [need for need in (form.needs if form.shape.same_host else (first,)) if need.features]
    return [
        host
        for host in hosts
        if all(_offers(host, queue, count) for queue, count in needed)
        and all(need.suits(host) for need in bound)
    ]


def _offers(host: Host, queue: ClassQueue, count: int) -> bool:
    """Whether the host may have so many of the class free, judged by its roots alone."""
    offered = 0
    for root in host.roots:
        if root.holding is not None:
            continue
        if root.queue is queue:
            offered += 1
        for below, number in root.kinds.counts:
            if below is queue:
                offered += number or count  # 0: there are some, shared with another root
    return offered >= count


def _pick_all(pool: Pool, holding: Holding, form: Form, host: Host | None) -> bool:
    """Hold the first open resource for each need: enough unless the needs get in each other's way.

    A need without preferences goes to the host of what was preferred before it, if it can: else requests that
    prefer different hosts would take each other's resources.
    """
    chosen: list[Vertex | None] = [None] * len(form.needs)
    taken: list[Vertex] = []
    near: Host | None = None
    want = holding.want
    for position in form.order:
        need = form.needs[position]
        bound = host if form.shape.same_host or position == 0 else None
        vertex = None
        if near is not None and bound is None and not need.preferences and need.suits(near):
            vertex = pool.find_on(near, need.queue)
        vertex = vertex or _pick(pool, need, bound, want)
        if vertex is None:
            form.lacked = len(form.needs) - len(taken)
            _release_all(pool, taken)
            return False
        pool.hold(vertex, holding)
        taken.append(vertex)
        chosen[position] = vertex
        near = vertex.host if need.preferences else near
    holding.vertices = tuple([vertex for vertex in chosen if vertex is not None])
    return True


def _pick(pool: Pool, need: Need, host: Host | None, want: Want) -> Vertex | None:
    if need.preferences:
        vertex = open_preferred(pool, need, host)
        if vertex is not None:
            return vertex
    if need.hard:
        return None
    if host is None and not need.features:
        return pool.take(need.queue, want)
    if host is not None:
        return pool.find_on(host, need.queue) if need.suits(host) else None
    return pool.find_suitable(need, want)


def _search(pool: Pool, holding: Holding, form: Form, host: Host | None) -> bool:
    """Look for a combination where taking the first of each was not enough."""
    same_host = form.shape.same_host
    flat = len(form.counts) == 1 and not any(need.hard for need in form.needs)
    flat = flat and (form.single or not any(need.features for need in form.needs))
    if host is not None and not same_host:  # another need may have preferred what the first one has to have
        flat = flat and not any(need.preferences for need in form.needs)
    if flat and not form.needs[0].queue.nested:
        return False

    def usable(position: int, vertex: Vertex) -> bool:
        if host is not None and (same_host or position == 0) and vertex.host is not host:
            return False
        return pool.is_open(vertex)

    found = Search(pool, form, usable, host if same_host else None).run()
    if found is None:
        return False
    for vertex in found:
        pool.hold(vertex, holding)
    holding.vertices = tuple(found)
    return True


def _give_up(pool: Pool, holding: Holding) -> None:
    _release_all(pool, holding.vertices)
    holding.vertices = ()


def _release_all(pool: Pool, taken: Sequence[Vertex]) -> None:
    """Free what was held for a grant that does not come to be, as if nothing had been."""
    # In front and in reverse: a try leaves the queues as they were, and changes nobody's turn.
    # The version stays: nothing has come free, and nobody who was passed over need be tried again.
    version = pool.version
    for vertex in reversed(taken):
        pool.free(vertex, in_front=True)
    pool.version = version


def from_reservation(state: ManagerState, reservation: Reservation, holding: Holding) -> Holding | None:
    """Let the grant in the making hold what is put aside, if it may; return None if not."""
    if holding.want is reservation.want:
        return holding if _all_of_it(state.pool, reservation, holding) else None
    form = holding.want.form
    if not holding.want.takes_any or state.pool.leaving or state.pool.resting:
        return None
    estimate_s = form.shape.estimate_s
    if estimate_s is None or state.now + estimate_s > gap_ends_at(state.pool, reservation, state.now):
        return None
    vertex = state.pool.take_closed(form.queue)
    if vertex is None:
        return None
    state.pool.hold(vertex, holding)
    state.gangs.wake_all()  # there is one less that is free, but not one less that they may have
    holding.vertices = (vertex,)
    return holding


def _all_of_it(pool: Pool, reservation: Reservation, holding: Holding) -> bool:
    """Hold all that is put aside, for the one it is for; or nothing."""
    targets = reservation.targets
    if not all(pool.is_free(vertex) for vertex in targets):
        return False
    sizes = holding.want.form.sizes
    if sizes:
        pieces = allocate_all(list(targets[0].host.memories.values()), sizes)
        if pieces is None:
            return False
        holding.pieces = pieces
        pool.memory_moved([memory for memory, _ in pieces])
    for vertex in targets:
        pool.hold(vertex, holding)
    holding.vertices = tuple(targets)
    return True


def gap_ends_at(pool: Pool, reservation: Reservation, now: float) -> float:
    """Return the time before which the reservation cannot be used, as far as is known; ``now`` if nothing is.

    Those that hold what it waits for, and have said how long they take, are over by then; of the others
    nothing is known, so they lengthen no gap.
    """
    latest = now
    for vertex in reservation.targets:
        for holding in pool.related_holdings(vertex, limit=256):
            ends_at = holding.ends_at
            if ends_at is not None and ends_at > latest:
                latest = ends_at
    return latest
