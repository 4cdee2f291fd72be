"""Who gets what has come free: the job that holds least for its weight, and of its requests the oldest."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from gspc_trio.core.rm.gather import gather
from gspc_trio.core.rm.jobs import Holding, Want
from gspc_trio.core.rm.parts import ClassQueue
from gspc_trio.core.rm.pool import Pool
from gspc_trio.core.rm.search import preferred
from gspc_trio.core.rm.state import State


def start_waiting(state: State, want: Want, now: float) -> None:
    """The want has unmet credit: it waits its turn."""
    fresh = want not in state.waiting
    before = want.since
    want.settle(now)
    state.waiting[want] = None
    if fresh and may_reserve(want):
        due = now + state.limits.reserve_after_s
        if state.reserve_at is None or due < state.reserve_at:
            state.reserve_at = due
    if want.form.plain:
        if fresh or want.since != before:
            _push(state, want)
    elif fresh:
        state.special[want] = None
        want.tried = -1
        if want.form.preferring:
            state.watch(want)
            set_patience(state, want, now)


def may_reserve(want: Want) -> bool:
    """Whether a stream of other requests could starve this one, so that resources may be put aside for it."""
    need = want.form.needs[0]
    if want.form.plain:
        return need.queue.largest > 1
    return need.hard or not want.form.preferring or need.queue.largest > 1


def _push(state: State, want: Want) -> None:
    """Enter the want into its queue's heap; it has at most one entry that is not stale."""
    queue = want.form.queue
    heap = queue.plain.get(want.owner)
    if heap is None:
        heap = queue.plain[want.owner] = []
        state.hungry[queue] = None
    elif len(heap) > 64 and len(heap) > 4 * len(want.owner.wants):
        heap[:] = [entry for entry in heap if entry[2].unmet and entry[2].since == entry[0]]
        heapify(heap)
    heappush(heap, (want.since, want.number, want))


def set_patience(state: State, want: Want, now: float) -> None:
    """Decide whether a want waits for what it prefers (hard preferences: for ever), and until when."""
    need = want.form.needs[0]
    until = want.since + state.limits.patience_s
    want.patient = need.hard or (now < until and bool(preferred(state.pool, need)))
    if want.patient and not need.hard and (state.patience_at is None or until < state.patience_at):
        state.patience_at = until


def lose_patience(state: State, now: float) -> None:
    """Wants that have waited long enough for what they prefer take what there is."""
    if state.patience_at is None or now < state.patience_at:
        return
    state.patience_at = None
    for want in state.special:
        if want.form.preferring and want.patient:
            set_patience(state, want, now)
            if not want.patient:
                want.tried = -1


def serve(state: State, now: float, actions: list[Any]) -> None:
    """Give what is free to those who wait, until nobody who waits can be given anything."""
    passed: set[Want] = set()
    while state.waiting:
        want = _next_plain(state, passed)
        if state.special:
            for other in list(state.special):
                if other in passed or not _promising(state, other):
                    continue
                if want is None or _key(other) < _key(want):
                    want = other
        if want is None:
            return
        if not give(state, want, now, actions):
            passed.add(want)
            want.tried = state.pool.version


def give_at_once(state: State, want: Want, now: float, actions: list[Any]) -> bool:
    """Give to a want while nobody waits, and no more than it prefers; return whether that met it."""
    form = want.form
    if not form.plain:
        want.patient = form.preferring
        while want.unmet:
            found = gather(state, want, now)
            if found is None:
                return False
            state.give(found, now, actions)
        return True
    pool = state.pool
    queue = form.queue
    while want.unmet:
        vertex = pool.take(queue)
        if vertex is None:
            return False
        holding = Holding(want, now, (vertex,))
        pool.hold(vertex, holding)
        state.give(holding, now, actions)
    return True


def give(state: State, want: Want, now: float, actions: list[Any]) -> bool:
    """Give the want one grant if it can be met now."""
    holding = gather(state, want, now)
    if holding is None:
        return False
    before = want.since
    state.give(holding, now, actions)
    if state.reservation is not None and state.reservation.want is want:
        state.end_reservation()
        state.reserve_at = now
    if not want.unmet:
        state.not_waiting(want)
    elif want.ages and want.since != before:
        if want.form.plain:
            _push(state, want)
        elif want.form.preferring:
            set_patience(state, want, now)
    return True


def _key(want: Want) -> tuple[float, float, int]:
    return want.owner.ratio, want.since, want.number


def _next_plain(state: State, passed: set[Want]) -> Want | None:
    best: Want | None = None
    best_key: tuple[float, float, int] | None = None
    for queue in list(state.hungry):
        if not queue.plain:
            del state.hungry[queue]
            continue
        if not queue.free:
            continue
        for job in list(queue.plain):
            if best_key is not None and job.ratio > best_key[0]:
                continue
            want = _oldest(queue, job, passed)
            if want is None:
                continue
            key = (job.ratio, want.since, want.number)
            if best_key is None or key < best_key:
                best, best_key = want, key
    return best


def _oldest(queue: ClassQueue, job: Any, passed: set[Want]) -> Want | None:
    """Return the job's oldest want of the queue that has not been passed over; drop stale entries."""
    heap = queue.plain[job]
    while heap:
        since, _, want = heap[0]
        if want.unmet and want.ages and want.since == since:
            break
        heappop(heap)
    else:
        del queue.plain[job]
        return None
    if not passed or want not in passed:
        return want
    others = [
        entry for entry in heap if entry[2].unmet and entry[2].since == entry[0] and entry[2] not in passed
    ]
    return min(others)[2] if others else None


def _promising(state: State, want: Want) -> bool:
    """Whether a request that not any resource will do for is worth a try now."""
    pool: Pool = state.pool
    form = want.form
    if form.preferring and want.patient:
        return want.tried < 0
    if want.tried == pool.version:
        return False
    return all(queue.free >= count for queue, count in form.counts.items())
