"""Using what is put aside: by the one it is for, or by one that is done in time (backfilling)."""

from __future__ import annotations

from gspc_trio.components.rm.parts import Holding
from gspc_trio.components.rm.pool import Pool
from gspc_trio.components.rm.search import allocate_all
from gspc_trio.components.rm.state import Reservation, State


def from_reservation(state: State, reservation: Reservation, holding: Holding, now: float) -> Holding | None:
    """Let the grant in the making hold what is put aside, if it may; return None if not."""
    if holding.want is reservation.want:
        return holding if _all_of_it(state.pool, reservation, holding) else None
    form = holding.want.form
    if not holding.want.takes_any or state.pool.leaving or state.pool.resting:
        return None
    estimate_s = form.shape.estimate_s
    if estimate_s is None or now + estimate_s > gap_ends_at(state.pool, reservation, now):
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
