"""Whom to ask for a grant back because others wait.

A job keeps a grant for its next task until it is recalled. It is recalled when somebody else (another job,
or the same job for another shape) waits for what it blocks, if its owner could not use more anyway, or is
of a lower priority, or of the same one and holds more for its weight than the one who waits would with it;
and not before it has been held for a while, so that resources do not change hands more often than is useful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gspc_trio.components.rm.messages import Recall
from gspc_trio.components.rm.parts import NEVER, ClassQueue, Holding, Job, Vertex, Want
from gspc_trio.components.rm.search import tops_for
from gspc_trio.components.rm.state import ManagerState
from gspc_trio.core.ids import GrantId, JobId
from gspc_trio.core.task import Shape

GRANTS_AT_ONCE = 256
"""How many grants of one want are looked at, and recalled for another, at a time."""

HOSTS_SAMPLED = 64
"""On how many hosts a larger resource to be freed is looked for at a time."""

SHORTEST_PAUSE_S = 0.01
"""How long, at least, the resource manager leaves between looks at the same state."""

PAUSE_PER_WANT_S = 0.0001
"""And for each demand that waits: far more than it takes to look at one."""

LOOKS_PER_QUANTUM = 5
"""How often, at most, new demands make the resource manager look for grants to recall."""


def recall(state: ManagerState) -> None:
    """Recall what those who wait are entitled to, and note when to look again if nothing else happens."""
    state.recalled_at = state.now
    state.recall_at = None
    look = _Look(state, state.now)
    # Who alone holds something and waits for more would only be asked to give back what it gets again.
    only = next(iter(state.holders)) if len(state.holders) == 1 else None
    for want in sorted(state.waiting, key=lambda want: want.turn):
        if want is only or not state.holders:
            continue
        # What has been recalled for it and is not back yet counts as if it were: else each look would recall
        # as much again.
        underway = sum(want.called.values()) if want.called else 0
        for queue, count in want.form.counts.items():
            missing = min(want.unmet * count - look.free_for(want, queue), GRANTS_AT_ONCE) - underway
            if missing > 0:
                look.call(want, queue, missing)
    if look.again_at < NEVER:
        state.recall_at = max(look.again_at, state.now + pause_s(state))
    for job, grant_ids in look.chosen.items():
        state.actions.append(Recall(job, tuple(sorted(grant_ids))))


def soon(state: ManagerState) -> None:
    """Somebody new waits: look soon, but not at every demand."""
    _look_by(state, max(state.now, state.recalled_at + pause_s(state) / LOOKS_PER_QUANTUM))


def later(state: ManagerState) -> None:
    """Something has happened that may entitle somebody who waits to what others hold."""
    _look_by(state, max(state.now, state.recalled_at + pause_s(state)))


def _look_by(state: ManagerState, due: float) -> None:
    if (state.recall_at is None or due < state.recall_at) and may_help(state):
        state.recall_at = due


def pause_s(state: ManagerState) -> float:
    """Return after how long to look again while somebody waits: the more do, the rarer."""
    return max(state.limits.recall_after_s, SHORTEST_PAUSE_S, PAUSE_PER_WANT_S * len(state.waiting))


def may_help(state: ManagerState) -> bool:
    """Whether anybody holds something who is not the only one that waits."""
    holders, waiting = state.holders, state.waiting
    return bool(holders) and (len(holders) > 1 or len(waiting) > 1 or holders.keys() != waiting.keys())


def recall_holding(holding: Holding, chosen: dict[JobId, list[GrantId]]) -> None:
    """Note that the grant is to be given back, once."""
    if not holding.recalled and holding.lease_until is None:
        holding.recalled = True
        holding.want.recalled += 1
        chosen.setdefault(holding.owner, []).append(holding.grant_id)


class _Balance:
    """How many units jobs and wants will hold when everything that has been recalled has changed hands."""

    def __init__(self, state: ManagerState) -> None:
        self._jobs: dict[Job, int] = {}
        self._wants: dict[Want, int] = {}
        for want in state.waiting:
            want.called = {holding: count for holding, count in want.called.items() if holding.vertices}
            for holding in want.called:
                self.move(holding, want)

    def move(self, holding: Holding, want: Want) -> None:
        """The grant's resources will go to the one who waits."""
        units = holding.units
        for key, change in ((holding.want, -units), (want, units)):
            self._wants[key] = self._wants.get(key, 0) + change
            self._jobs[key.owner] = self._jobs.get(key.owner, 0) + change

    def of_job(self, job: Job) -> int:
        return job.units + self._jobs.get(job, 0)

    def of_want(self, want: Want) -> int:
        return want.units + self._wants.get(want, 0)


class _Look:
    """One look at all who wait: what keeps each from its resources is recalled, the likely ones first.

    Attributes:
        chosen: job -> grants recalled by this look.
        again_at: when another look can find more by itself: when a grant is no longer too young to be
            recalled, or at once since not all hosts were looked at, or what was recalled entitles others.
    """

    def __init__(self, state: ManagerState, now: float) -> None:
        self.state = state
        self.now = now
        self.chosen: dict[JobId, list[GrantId]] = {}
        self.want: Want
        self.queue: ClassQueue
        self.missing = 0
        self.again_at = NEVER
        self._balance = _Balance(state)
        self._closed: dict[ClassQueue, int] | None = None
        # Those who cannot use more first: what they hold may be idle. Then those with most for their weight.
        self._holders = sorted(state.holders, key=_likely)
        self._of: dict[ClassQueue, tuple[list[Want], list[Want]]] = {}
        self._in_vain: set[tuple[Job, int, ClassQueue, bool, Shape | None]] = set()

    def free_for(self, want: Want, queue: ClassQueue) -> int:
        """Return how many of a class are free for a want: not at rest, to leave, or put aside for others."""
        reservation = self.state.reservation
        if reservation is not None and reservation.want is want:
            return queue.free
        if self._closed is None:
            self._closed = self.state.pool.closed_and_free()
        return queue.free - self._closed.get(queue, 0)

    def call(self, want: Want, queue: ClassQueue, missing: int) -> None:
        """Recall what keeps a want from up to ``missing`` resources of a class."""
        self.want, self.queue, self.missing = want, queue, missing
        needs = [need for need in want.form.needs if need.queue is queue and need.is_bound]
        if needs:
            for need in needs:
                for top in tops_for(self.state.pool, need):
                    self._free_one_of(_of_class_below(top, queue))
            return
        kind = (want.owner, want.priority, queue, self._balance.of_want(want) > 0, want.shared_as)
        if kind in self._in_vain:
            return
        same, larger = self._holders_of(queue)
        for holder in same:
            if holder is not want:
                self._call_from(holder, lambda vertex: int(vertex.queue is queue))
        for holder in larger:
            if holder is not want:
                self._call_from(holder, lambda vertex: dict(vertex.kinds.counts).get(queue, 0))
        if self.missing > 0 and queue.contains:
            hosts = self.state.pool.hosts_in_turn(HOSTS_SAMPLED)
            if len(hosts) < len(self.state.pool.hosts):
                self.again_at = self.now
            roots = [root for host in hosts for root in host.roots]
            above = [vertex for root in roots for vertex in _of_class_below(root, queue) if vertex.below]
            self._free_one_of(sorted(above, key=lambda vertex: vertex.below))
        elif self.missing > 0:  # what this one cannot have, another of the kind cannot have either
            self._in_vain.add(kind)

    def _holders_of(self, queue: ClassQueue) -> tuple[list[Want], list[Want]]:
        """Return those who hold resources of the class, and those who hold some that contain it."""
        found = self._of.get(queue)
        if found is None:
            same = [holder for holder in self._holders if queue in holder.form.counts]
            larger = [
                holder
                for holder in self._holders
                if any(queue in need.queue.contains for need in holder.form.needs)
            ]
            found = self._of[queue] = same, larger
        return found

    def _call_from(self, holder: Want, gain: Callable[[Vertex], int]) -> None:
        """Recall grants of one holder, the oldest first."""
        if holder.recalled == len(holder.grants):
            return
        for holding in islice(holder.grants.values(), GRANTS_AT_ONCE):
            if self.missing <= 0:
                return
            if holding.recalled or holding.lease_until is not None:
                continue
            if self._is_young(holding):
                return
            gained = sum(map(gain, holding.vertices))
            if not gained:
                continue
            if not self._may_recall(holding, holding.units // gained or 1):
                return  # its others are as many units
            self._take(holding, gained)

    def _free_one_of(self, vertices: Iterable[Vertex]) -> None:
        """Recall all that is in the way of one resource after the other, if all of it may be recalled."""
        for vertex in vertices:
            if self.missing <= 0:
                return
            blocking = self.state.pool.related_holdings(vertex, limit=1024)
            units = vertex.kinds.units
            if not blocking or any(holding in self.want.called for holding in blocking):
                continue
            if all(self._may_recall(holding, units) for holding in blocking):
                for holding in blocking:
                    self._take(holding, int(holding is blocking[0]))

    def _may_recall(self, holding: Holding, units: int) -> bool:
        """Whether the one who waits for so many units may have this grant's resources."""
        if holding.recalled or holding.lease_until is not None:
            return True
        want, holder = self.want, holding.want
        if holder is want or self._is_young(holding):
            return False
        if holder.owner is want.owner and want.shared_as is not None and want.shared_as == holder.shared_as:
            return False  # its job can use it for what waits as it is
        # One that wants no more keeps its grants only in case of a next task.
        if not holder.unmet:
            return True
        above, below = _priorities(want, holder)
        if above != below:
            return above > below
        balance = self._balance
        if holder.owner is want.owner:
            mine, theirs = balance.of_want(want), float(balance.of_want(holder))
        else:
            mine, theirs = balance.of_job(want.owner), balance.of_job(holder.owner) / holder.owner.weight
        weight = 1.0 if holder.owner is want.owner else want.owner.weight
        # Who has nothing gets its first in any case. Else the one who waits must not hold more for its weight
        # afterwards than the other does now, or the two would take it from one another for ever.
        return not mine or (mine + units) / weight <= theirs

    def _is_young(self, holding: Holding) -> bool:
        """Whether it is too early to recall the grant."""
        until = holding.since + self.state.limits.recall_after_s
        if self.now >= until:
            return False
        self.again_at = min(self.again_at, until)
        return True

    def _take(self, holding: Holding, gained: int) -> None:
        self.again_at = self.now
        self.want.called[holding] = gained
        self.missing -= gained
        if not holding.recalled:
            self._balance.move(holding, self.want)
        recall_holding(holding, self.chosen)


def _likely(holder: Want) -> tuple[bool, int, float, int, int]:
    """Return in which order those who hold something are asked for it."""
    owner = holder.owner
    return holder.unmet > 0, owner.priority, -owner.ratio, holder.priority, -holder.units


def _priorities(want: Want, holder: Want) -> tuple[int, int]:
    """Return how the one who waits compares with one who holds: the jobs, or the wants of one job."""
    if want.owner is holder.owner:
        return want.priority, holder.priority
    return want.owner.priority, holder.owner.priority


def _of_class_below(top: Vertex, queue: ClassQueue) -> Iterator[Vertex]:
    """Yield the resources of a class at or below ``top``, without looking where there are none."""
    if top.queue is queue:
        yield top
    stack = [top] if queue in top.kinds.queues else []
    while stack:
        for child in stack.pop().children:
            if child.queue is queue:
                yield child
            if queue in child.kinds.queues:
                stack.append(child)
