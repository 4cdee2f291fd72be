"""Putting resources aside for a request that others could starve, and making them come free (SCH-5).

A request for several resources, for particular ones, or for one that contains others could wait for ever
while single ones come and go. After ``reserve_after_s`` the oldest such request gets a reservation:
particular resources, those soonest free as far as is known, that nobody else is given any more, unless it
is done before they could all be there. What the request itself has got before is not among them: its job
would give that back only to get it again. There is one reservation at a
time: what is put aside for it is bound to come free, so two requests can never wait for each other (no
    deadlock, no livelock).
"""

from __future__ import annotations

from gspc_trio.components.rm.gather import HOSTS_TRIED
from gspc_trio.components.rm.messages import Recall
from gspc_trio.components.rm.parts import GONE, Form, Host, Vertex, Want
from gspc_trio.components.rm.recall import SHORTEST_PAUSE_S, recall_holding
from gspc_trio.components.rm.search import Search, host_has_room
from gspc_trio.components.rm.state import ManagerState, Reservation
from gspc_trio.core.ids import GrantId, JobId


def reserve(state: ManagerState) -> None:
    """Make a reservation if one is due, and recall what keeps the present one from being used."""
    if state.reserve_at is None or state.now < state.reserve_at:
        return
    state.reserve_at = None
    state.reserved_at = state.now
    reservation = state.reservation
    if reservation is not None and not _is_sound(state, reservation):
        state.end_reservation()
        state.reserve_at = state.now  # after those have been served who were kept from it
        return
    if reservation is None:
        reservation = _make(state)
        if reservation is None:
            return
    chosen: dict[JobId, list[GrantId]] = {}
    for vertex in reservation.targets:
        for holding in state.pool.related_holdings(vertex, limit=4096):
            # Also here a grant is not recalled while it is young: else a stream of such requests would have
            # every job give back what it has just got.
            until = holding.since + state.limits.recall_after_s
            if state.now >= until:
                recall_holding(holding, chosen)
            elif state.reserve_at is None or until < state.reserve_at:
                state.reserve_at = until
    if state.reserve_at is not None:
        state.reserve_at = max(state.reserve_at, state.now + _look_again_s(state))
    for job, grant_ids in chosen.items():
        state.actions.append(Recall(job, tuple(sorted(grant_ids))))


def later(state: ManagerState) -> None:
    """Something has happened that may let something be put aside, or recalled for what has been."""
    if not state.starving:
        return
    if state.reservation is None and state.reserve_at is not None and not state.starves_in_vain:
        return  # nobody has waited for long enough
    due = max(state.now, state.reserved_at + _look_again_s(state))
    if state.reserve_at is None or due < state.reserve_at:
        state.reserve_at = due


def _is_sound(state: ManagerState, reservation: Reservation) -> bool:
    if reservation.want not in state.waiting:
        return False
    return not any(_is_hopeless(state, vertex) for vertex in reservation.targets)


def _is_hopeless(state: ManagerState, vertex: Vertex) -> bool:
    """Whether the resource will not come free, because it goes or rests, or work below cannot be stopped."""
    pool = state.pool
    if pool.resting and any(one in pool.resting for one in (vertex, *vertex.place.ancestors)):
        return True
    return vertex.holding is GONE or vertex in pool.leaving or vertex in pool.lost


def _is_its_own(vertex: Vertex, want: Want) -> bool:
    """Whether the resource, or one that contains it, is held under a grant for the same request."""
    return any(
        one.holding is not None and one.holding is not GONE and one.holding.want is want
        for one in (vertex, *vertex.place.ancestors)
    )


def _make(state: ManagerState) -> Reservation | None:
    """Reserve for a request that has waited long enough, of a job of the highest priority; else note when to
    look again.
    """
    after_s = state.limits.reserve_after_s
    waiting = sorted(state.starving, key=lambda want: (-want.owner.priority, want.since, want.number))
    due = [want for want in waiting if state.now >= want.since + after_s]
    state.starves_in_vain = bool(due)
    # The first for which there is something: one for which nothing could ever come free must not keep the
    # others behind it from a reservation.
    for want in due:
        strict = state.patience.strict_form(want)
        targets = None if strict is None else _choose(state, want, strict)
        if strict is None or not want.grants:  # it has got none of what it prefers, and may never get any
            targets = targets or _choose(state, want, want.form)
        if targets is not None:
            state.reservation, state.starves_in_vain = Reservation(want, targets, state.now), False
            if want in state.gangs:
                state.gangs.wake(want)
            # Those in use are put aside as well: nobody else gets them when they come free.
            state.pool.close(targets)
            return state.reservation
    if due and len(state.pool.hosts) > HOSTS_TRIED:  # the next look is at others
        state.reserve_at = state.now + _look_again_s(state)
    elif len(due) < len(waiting):
        state.reserve_at = min(want.since for want in waiting if state.now < want.since + after_s) + after_s
    return None


def _look_again_s(state: ManagerState) -> float:
    """Return after how long to look whether there is more to be recalled, or another to reserve for."""
    return max(min(state.limits.recall_after_s, state.limits.reserve_after_s), SHORTEST_PAUSE_S)


def _choose(state: ManagerState, want: Want, form: Form) -> list[Vertex] | None:
    """Return the resources that should be free for a want in this form soonest, as far as is known."""
    pool = state.pool

    def usable(position: int, vertex: Vertex) -> bool:
        if _is_hopeless(state, vertex) or _is_its_own(vertex, want):
            return False
        return position > 0 or not form.sizes or host_has_room(vertex.host, form.sizes, empty=True)

    def rank(vertex: Vertex) -> float:
        above = sum(ancestor.holding is not None for ancestor in vertex.place.ancestors)
        return vertex.below + above + (vertex.holding is not None)

    if not form.shape.same_host:
        return Search(pool, form, usable, rank=rank).run()
    best: list[Vertex] | None = None
    best_rank = float("inf")
    for host in _hosts(state, form):
        found = Search(pool, form, usable, host, rank=rank).run()
        if found is not None and sum(map(rank, found)) < best_rank:
            best, best_rank = found, sum(map(rank, found))
    return best


def _hosts(state: ManagerState, form: Form) -> list[Host]:
    hosts = state.pool.hosts_in_turn(HOSTS_TRIED)
    sizes = form.sizes
    return [host for host in hosts if not sizes or host_has_room(host, sizes, empty=True)]
