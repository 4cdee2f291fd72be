"""Fair share: what has come free goes to the job of the highest priority that holds least for its weight, and
to the oldest of that job's requests of the highest priority.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from gspc_trio.components.rm.gather import any_preferred, could_be_met, gather
from gspc_trio.components.rm.parts import NEVER, ClassQueue, Job, Turn, Waiting, Want
from gspc_trio.components.rm.state import ManagerState

SENT_REMEMBERED = 64
"""How long the list of grants underway gets before it is looked through for those known to have arrived."""


def start_waiting(state: ManagerState, want: Want) -> None:
    """The want has unmet credit: it waits its turn."""
    fresh = want not in state.waiting
    before = want.since
    want.settle(state.now)
    state.waiting[want] = None
    if fresh and may_starve(want):
        state.starving[want] = None
        due = state.now + state.limits.reserve_after_s
        if state.reserve_at is None or due < state.reserve_at:
            state.reserve_at = due
    if want.form.plain:
        if fresh or want.since != before:
            _push(state, want)
    elif fresh:
        state.special[want] = None
        if want.form.preferring:
            state.watch(want)
        _decide_patience(state, want)
        state.wake(want)


def move(state: ManagerState, want: Want) -> None:
    """A want that waits has another priority than before."""
    if want.takes_any:
        _push(state, want)
    if not want.form.plain:
        state.wake(want)


def may_starve(want: Want) -> bool:
    """Whether a stream of other requests could starve this one, so that resources may be put aside for it."""
    need = want.form.needs[0]
    if want.form.plain:
        return bool(need.queue.contains)
    return need.hard or not want.form.preferring or bool(need.queue.contains)


def _push(state: ManagerState, want: Want) -> None:
    """Enter the want into its queue's heap; it has at most one entry that is not stale."""
    queue = want.form.queue
    heap = queue.plain.get(want.owner)
    if heap is None:
        heap = queue.plain[want.owner] = []
        state.hungry[queue] = None
    elif len(heap) > 64 and len(heap) > 4 * len(want.owner.wants):
        heap[:] = [entry for entry in heap if _is_valid(entry)]
        heapify(heap)
    heappush(heap, (-want.priority, want.since, want.number, want))


def _decide_patience(state: ManagerState, want: Want) -> None:
    """Let the want wait for what it prefers (for ever if it must), or for anything that will do."""
    state.patience.decide(want, state.now)
    if want.takes_any:
        _push(state, want)


def lose_patience(state: ManagerState) -> None:
    """Wants that have waited long enough for what they prefer take what there is."""
    for want in state.patience.due(state.now):
        if not want.patient or want not in state.special:
            continue
        strict, reservation = want.strict, state.reservation
        if want in state.patience.declined and not _declines(state, want):
            state.patience.resume(want)
        _decide_patience(state, want)
        if want.patient and want.strict is strict:
            continue
        if not want.form.preferring:
            state.wake(want)
        if reservation is not None and reservation.want is want:  # of what it preferred
            state.end_reservation()
            state.reserve_at = state.now


def look_who_declines(state: ManagerState) -> None:
    """Everything that could be given has been: note who could have had others than it prefers."""
    patience, version = state.patience, state.pool.version
    if patience.is_simple and state.reservation is None:
        patience.look(state.now)
        return
    reserved = None if state.reservation is None else state.reservation.want
    for want in list(patience.declined):
        lacks = any(queue.free < count for queue, count in want.form.counts.items())
        if not want.patient or (lacks and want is not reserved):
            patience.resume(want)
    for want in state.gangs.ready:
        if want.patient and want not in patience.declined and want.looked != version:
            want.looked = version
            if _declines(state, want):
                patience.declines(want, state.now)
    if reserved is not None and reserved.patient and reserved.form.soft:
        idle = reserved not in patience.declined and _declines(state, reserved)
        if idle:
            patience.declines(reserved, state.now)
    patience.look(state.now)


def _declines(state: ManagerState, want: Want) -> bool:
    """Whether something lies idle since the want, which is patient, takes only what it prefers."""
    reservation = state.reservation
    mine = reservation.targets if reservation is not None and reservation.want is want else ()
    if any(state.pool.is_partly_idle(vertex) for vertex in mine):
        return True
    return not want.form.preferring and could_be_met(state.pool, want, state.now)


def serve(state: ManagerState) -> None:
    """Give what is free to those who wait, until nobody who waits can be given anything."""
    passed: set[Want] = set()
    failed: dict[ClassQueue, float] = {}  # wants of such an estimate, or a longer one, get nothing
    version = state.pool.version
    woken = _Woken(state)
    while state.waiting:
        if state.pool.version != version:  # a reservation has ended
            version = state.pool.version
            passed.clear()
            failed.clear()
            woken = _Woken(state)
        reserved = None if state.reservation is None else state.reservation.want
        want = _next_plain(state, failed, reserved)
        for other in (*woken.first(), *_others(state, reserved, passed)):
            if want is None or other.turn < want.turn:
                want = other
        if want is None:
            return
        # One grant at a time: with it the job holds more, and the next may be another's turn.
        if give(state, want):
            woken.add(want)
            continue
        # Whoever could not be met is not asked again in this round, but those behind it are: what is free
        # shall not lie idle because the first in turn needs more of it. That the first is not starved by
        # this is the reservation's work.
        if want is reserved or not want.takes_any:
            passed.add(want)
            want.tried = version
            queue = want.form.queue
            if want.form.is_flat and want is not reserved and not want.patient:
                state.gangs.put_aside(want, queue, queue.free + want.form.lacked)
        else:
            # There is none left but what is put aside, and that goes only to those who are done in time: a
            # longer estimate cannot have more luck.
            queue = want.form.queue
            failed[queue] = min(_estimate_s(want), failed.get(queue, NEVER))


class _Woken:
    """Those who prefer resources of which one may have come free, in the order of their turns.

    While resources are given out a turn can only get later, since what a job holds only grows.
    """

    def __init__(self, state: ManagerState) -> None:
        self._woken = state.woken
        self._heap = [(*want.turn, want) for want in state.woken]
        heapify(self._heap)

    def add(self, want: Want) -> None:
        """The want may have been woken by what it was given."""
        if want in self._woken:
            heappush(self._heap, (*want.turn, want))

    def first(self) -> list[Want]:
        """Return whose turn it is, if anybody's, and forget those for whom there is nothing now."""
        heap = self._heap
        while heap:
            want = heap[0][-1]
            if not (want.patient and want.tried < 0 and want in self._woken and want.form.queue.free):
                heappop(heap)
                self._woken.pop(want, None)
            elif heap[0][:-1] == want.turn:
                return [want]
            else:
                heapreplace(heap, (*want.turn, want))
        return []


def _others(state: ManagerState, reserved: Want | None, passed: set[Want]) -> list[Want]:
    """Return those who wait for several resources, or for those put aside, and are worth a try now."""
    found = []
    if reserved is not None and reserved.takes_any and reserved not in passed:
        found.append(reserved)
    gangs, version = state.gangs, state.pool.version
    gangs.look()
    for want in list(gangs.ready):
        if want in passed or want.tried == version:
            continue
        for queue, count in want.form.counts.items():
            if queue.free < count:
                gangs.put_aside(want, queue, count)
                break
        else:
            if want is reserved or want.strict is None or any_preferred(state.pool, want.strict):
                found.append(want)
            else:
                want.tried = version
    return found


def _estimate_s(want: Want) -> float:
    estimate_s = want.form.shape.estimate_s
    return NEVER if estimate_s is None else estimate_s


def give_at_once(state: ManagerState, want: Want, credit: int) -> int:
    """Give to a want, of which not any resource of one class will do, while nobody waits, and no more than
    it prefers; return how much credit that leaves.
    """
    state.patience.begin(want)
    while credit:
        found = gather(state, want)
        if found is None:
            break
        state.give(found)
        credit -= 1
    return credit


def give(state: ManagerState, want: Want) -> bool:
    """Give the want one grant if it can be met now."""
    holding = gather(state, want)
    if holding is None:
        return False
    before = want.since
    state.give(holding)
    want.use_credit()
    if len(want.sent) > SENT_REMEMBERED:
        want.forget_seen(want.owner.seen)
    if state.reservation is not None and state.reservation.want is want:
        state.end_reservation()
        state.reserve_at = state.now
    if not want.unmet:
        state.not_waiting(want)
    elif want.ages and want.since != before:
        if want.form.plain:
            _push(state, want)
        elif want.form.soft or want.form.preferring:
            _decide_patience(state, want)
            state.wake(want)
    return True


def _next_plain(state: ManagerState, failed: dict[ClassQueue, float], reserved: Want | None) -> Want | None:
    """Return who comes next of those who take any resource of a class that has one."""
    best: Want | None = None
    first: Turn | None = None
    for queue in list(state.hungry):
        if not queue.plain:
            del state.hungry[queue]
            continue
        if not queue.free:
            continue
        for job in list(queue.plain):
            if first is not None and (-job.priority, job.ratio) > first[:2]:
                continue
            want = _oldest(queue, job, failed.get(queue), reserved)
            if want is None:
                continue
            turn = want.turn
            if first is None or turn < first:
                best, first = want, turn
    return best


def _oldest(queue: ClassQueue, job: Job, below_s: float | None, reserved: Want | None) -> Want | None:
    """Return the job's oldest want of the queue but the reserved one; drop stale entries.

    With ``below_s`` only those with a shorter estimate count.
    """
    heap = queue.plain[job]
    while heap:
        want = heap[0][-1]
        if _is_valid(heap[0]):
            break
        heappop(heap)
    else:
        del queue.plain[job]
        return None
    if below_s is None and want is not reserved:
        return want
    limit_s = NEVER if below_s is None else below_s
    others = [
        entry
        for entry in heap
        if entry[-1] is not reserved
        and (below_s is None or _estimate_s(entry[-1]) < limit_s)
        and _is_valid(entry)
    ]
    return min(others)[-1] if others else None


def _is_valid(entry: Waiting) -> bool:
    """Whether an entry of a queue's heap still says that the want waits there."""
    behind, since, _, want = entry
    if want.priority != -behind or want.since != since:
        return False
    return bool(want.unmet and want.ages and not want.patient)
