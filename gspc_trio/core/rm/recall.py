"""Whom to ask for a grant back because others wait.

A job keeps a grant for its next task until it is recalled. It is recalled when somebody else (another job,
or the same job for another shape) waits for what it blocks, if its owner could not use more anyway or
holds more for its weight than the one who waits would with it; and not before it has been held for a
while, so that resources do not change hands more often than is useful.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from gspc_trio.core.exchange import Recall
from gspc_trio.core.ids import GrantId, JobId
from gspc_trio.core.rm.jobs import Holding, Want
from gspc_trio.core.rm.parts import ClassQueue, Vertex
from gspc_trio.core.rm.search import preferred
from gspc_trio.core.rm.state import State

TARGETS_AT_ONCE = 256
"""How many resources are recalled for one want at a time."""

HOSTS_SAMPLED = 64
"""On how many hosts a larger resource to be freed is looked for at a time."""

LOOKS_PER_QUANTUM = 5
"""How often, at most, new demands make the resource manager look for grants to recall."""


def recall(state: State, now: float, actions: list[Any]) -> None:
    """Recall what those who wait are entitled to, and note when to look again."""
    state.recalled_at = now
    state.recall_at = None
    chosen: dict[JobId, list[GrantId]] = {}
    again = False
    for want in sorted(state.waiting, key=lambda want: (want.owner.ratio, want.since, want.number)):
        if not any(holder is not want for holder in state.holders):
            continue
        again = True
        _forget_returned(state, want)
        for queue, count in want.form.counts.items():
            missing = min(want.unmet * count - queue.free, TARGETS_AT_ONCE) - len(want.called)
            if missing > 0:
                _call(state, want, queue, missing, now, chosen)
    if again:
        state.recall_at = now + state.limits.recall_after_s
    for job, grant_ids in chosen.items():
        actions.append(Recall(job, tuple(grant_ids)))


def soon(state: State, now: float) -> None:
    """Somebody new waits: look soon, but not at every demand."""
    due = max(now, state.recalled_at + state.limits.recall_after_s / LOOKS_PER_QUANTUM)
    if state.recall_at is None or due < state.recall_at:
        state.recall_at = due


def recall_holding(holding: Holding, chosen: dict[JobId, list[GrantId]]) -> None:
    """Note that the grant is to be given back, once."""
    if not holding.recalled and holding.lease_until is None:
        holding.recalled = True
        chosen.setdefault(holding.owner, []).append(holding.grant_id)


def _forget_returned(state: State, want: Want) -> None:
    for vertex in list(want.called):
        if not any(
            holding.recalled or holding.lease_until for holding in state.pool.related_holdings(vertex, 8)
        ):
            del want.called[vertex]


def _call(
    state: State, want: Want, queue: ClassQueue, missing: int, now: float, chosen: dict[JobId, list[GrantId]]
) -> None:
    """Recall what blocks up to ``missing`` resources of the class."""
    for vertex in _targets(state, want, queue):
        if missing <= 0:
            return
        if vertex in want.called:
            continue
        blocking = state.pool.related_holdings(vertex, limit=1024)
        if not blocking or not all(_may_recall(state, holding, want, vertex, now) for holding in blocking):
            continue
        want.called[vertex] = None
        missing -= 1
        for holding in blocking:
            recall_holding(holding, chosen)


def _targets(state: State, want: Want, queue: ClassQueue) -> Iterator[Vertex]:
    """Yield resources of the class that could be freed, the likely ones first."""
    hard = [need for need in want.form.needs if need.queue is queue and need.hard]
    if hard:
        for need in hard:
            for vertex in preferred(state.pool, need):
                yield from _below(vertex, queue)
        return
    holders = [holder for holder in state.holders if holder is not want]
    # Those who cannot use more first: what they hold may well be idle. Then those who hold most for their
    # weight.
    holders.sort(key=lambda holder: (holder.unmet > 0, -holder.owner.ratio, -holder.units))
    for holder in holders:
        if queue in holder.form.counts:
            for holding in islice(holder.grants.values(), TARGETS_AT_ONCE):
                yield from (vertex for vertex in holding.vertices if vertex.queue is queue)
    for holder in holders:
        if any(queue in vertex.kinds.queues for vertex in _first_vertices(holder)):
            for holding in islice(holder.grants.values(), TARGETS_AT_ONCE):
                for top in holding.vertices:
                    yield from islice(_below(top, queue), TARGETS_AT_ONCE)
    if queue.largest == 1:
        return
    larger = [
        vertex
        for host in state.pool.hosts_in_turn(HOSTS_SAMPLED)
        for root in host.roots
        for vertex in _below(root, queue)
        if vertex.below
    ]
    larger.sort(key=lambda vertex: vertex.below)
    yield from larger


def _first_vertices(holder: Want) -> Iterable[Vertex]:
    return next(iter(holder.grants.values())).vertices


def _below(top: Vertex, queue: ClassQueue) -> Iterator[Vertex]:
    if top.queue is queue:
        yield top
    if queue in top.kinds.queues:
        stack = [top]
        while stack:
            vertex = stack.pop()
            for child in reversed(vertex.children):
                if child.queue is queue:
                    yield child
                if queue in child.kinds.queues:
                    stack.append(child)


def _may_recall(state: State, holding: Holding, want: Want, vertex: Vertex, now: float) -> bool:
    """Whether the one who waits may have this grant's resources for ``vertex``."""
    if holding.recalled or holding.lease_until is not None:
        return True
    if now < holding.since + state.limits.recall_after_s:
        return False
    holder = holding.want
    if holder is want:
        return False
    if not holder.unmet:
        return True
    size = vertex.kinds.units
    if holder.owner is want.owner:
        return not want.units or want.units + size <= holder.units
    owner = want.owner
    return not owner.units or (owner.units + size) / owner.weight <= holder.owner.ratio
