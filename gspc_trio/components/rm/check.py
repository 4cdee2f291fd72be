"""The resource manager's invariants, counted anew."""

from __future__ import annotations

from collections.abc import Iterable

from gspc_trio.components.rm.parts import GONE, Entry, QueueChunk, Vertex
from gspc_trio.components.rm.pool import Pool
from gspc_trio.components.rm.serve import may_starve
from gspc_trio.components.rm.state import ManagerState


def check_state(state: ManagerState) -> None:
    """Assert that everything kept up to date step by step is what it is when counted from the start."""
    _check_tree(state.pool)
    _check_free(state.pool)
    _check_entries(state.pool)
    _check_grants(state)
    _check_claims(state)
    _check_leaving(state)
    _check_wants(state)
    _check_memories(state)
    state.pool.check_placement()


def _check_tree(pool: Pool) -> None:
    for vertex in pool.resources.values():
        above: set[Vertex] = set()
        level = set(vertex.place.parents)
        while level:
            above |= level
            level = {parent for each in level for parent in each.place.parents} - above
        assert set(vertex.place.ancestors) == above, f"{vertex}: ancestors"
        assert len(vertex.place.ancestors) == len(above), f"{vertex}: an ancestor twice"
        below = set(pool.walk(vertex)) - {vertex}
        assert all(pool.resources.get(each.resource_id) is each for each in (*above, *below)), (
            f"{vertex}: stale"
        )
        leaves = {each for each in below if not each.children}
        assert vertex.kinds.units == (len(leaves) or 1), f"{vertex}: units {vertex.kinds.units}"
        held = sum(isinstance(each.holding, object) and each.holding is not None for each in below)
        assert vertex.below == held + pool.lost.get(vertex, 0), f"{vertex}: below {vertex.below}"
        exact = {queue: count for queue, count in vertex.kinds.counts if count}
        counted: dict[object, int] = {}
        for each in below:
            if vertex not in each.place.loose:
                counted[each.queue] = counted.get(each.queue, 0) + 1
        assert exact == counted, f"{vertex}: kinds {exact} instead of {counted}"
        assert {each.queue for each in below} == vertex.kinds.queues, f"{vertex}: queues"
    for host in pool.hosts.values():
        members = [vertex for vertex in pool.resources.values() if vertex.host is host]
        assert host.count == len(members) > 0, f"{host.name}: count"
        assert set(host.roots) == {vertex for vertex in members if not vertex.place.parents}
        stated = [features for vertex, features in pool.featured.items() if vertex.host is host]
        assert host.features == frozenset().union(*stated), f"{host.name}: features"
    assert pool.featured.keys() <= set(pool.resources.values())


def is_free(pool: Pool, vertex: Vertex) -> bool:
    """Whether the resource is free, from the definition alone (RM-3, RM-4)."""
    if vertex.holding is not None or pool.lost.get(vertex):
        return False
    relatives = [*vertex.place.ancestors, *pool.walk(vertex)]
    return all(relative.holding is None for relative in relatives)


def _check_free(pool: Pool) -> None:
    for queue in pool.queues.values():
        members = [vertex for vertex in pool.resources.values() if vertex.queue is queue]
        assert queue.total == len(members), f"{queue}: total {queue.total}"
        free = [vertex for vertex in members if is_free(pool, vertex)]
        assert queue.free == len(free), f"{queue}: free {queue.free} instead of {len(free)}"
        assert all(pool.is_free(vertex) for vertex in free)
        assert all(vertex.queued for vertex in free), f"{queue}: a free resource is not queued"


def _flatten(entries: Iterable[Entry]) -> list[Vertex]:
    found: list[Vertex] = []
    for entry in entries:
        if isinstance(entry, QueueChunk):
            if entry.vertex.holding is not GONE:
                found.extend(_flatten(entry.entries[entry.at :]))
        elif entry.holding is not GONE:
            found.append(entry)
    return found


def _check_entries(pool: Pool) -> None:
    """Every queued resource has exactly one entry; that of a free one is where it will be found."""
    places: dict[Vertex, str] = {}

    def note(entries: Iterable[Entry], where: str) -> None:
        for vertex in _flatten(entries):
            assert vertex not in places, f"{vertex} is queued twice"
            places[vertex] = where

    for queue in pool.queues.values():
        note(queue.entries, "queue")
    for entries in pool.shelf.values():
        note(entries, "shelf")
    for vertex in pool.resources.values():
        for parked in (vertex.parked or {}).values():
            note(parked, "parked")
            assert vertex.holding is not None, f"entries parked at {vertex}, which nobody holds"
            assert all(vertex in each.place.ancestors for each in _flatten(parked))
    for vertex in pool.resources.values():
        assert vertex.queued == (vertex in places), (
            f"{vertex}: queued {vertex.queued}, but {places.get(vertex)}"
        )
        where = places.get(vertex)
        assert not pool.is_free(vertex) or where == "queue" or (where == "shelf" and pool.is_closed(vertex))


def _check_grants(state: ManagerState) -> None:
    """Each held resource belongs to one live grant; no two grants hold relatives (invariant 4)."""
    held: dict[Vertex, object] = {}
    for grant_id, holding in state.grants.items():
        assert holding.grant_id == grant_id <= state.last
        assert holding.vertices, f"{grant_id} holds nothing"
        assert holding.want.grants.get(grant_id) is holding
        assert (holding.lease_until is not None) == (grant_id in state.lapsing)
        for vertex in holding.vertices:
            assert vertex not in held, f"{vertex} is held twice"
            assert vertex.holding is holding
            held[vertex] = holding
        if holding.lease_until is None:
            assert state.jobs.get(holding.owner) is holding.want.owner
    for vertex in state.pool.resources.values():
        assert vertex.holding is None or vertex in held, f"{vertex} is held by no live grant"
    for vertex in held:
        assert not any(ancestor in held for ancestor in vertex.place.ancestors), (
            f"{vertex}: a relative is held, too"
        )
    for job in state.jobs.values():
        assert job.units == sum(want.units for want in job.wants.values())
        for want in job.wants.values():
            assert want.units == sum(holding.units for holding in want.grants.values())
            assert (want in state.holders) == bool(want.grants)
            assert want.recalled == sum(holding.recalled for holding in want.grants.values())


def _check_claims(state: ManagerState) -> None:
    """What is claimed is of an earlier resource manager, and wholly there under no live grant."""
    for grant_id, grant in state.claims.items():
        assert grant_id == grant.grant_id
        assert not state.is_own(grant_id), f"{grant_id} is claimed"
        assert grant.job in state.jobs, f"{grant_id}: nobody claims it"
        assert not all(name in state.pool.resources for name in grant.resources), f"{grant_id} is there"


def _check_leaving(state: ManagerState) -> None:
    """What is to leave stays only while somebody uses it or a relative."""
    for vertex in state.pool.leaving:
        below = state.pool.walk(vertex)
        assert not all(state.may_leave(each) for each in below), f"{vertex} is free, and was to leave"
    assert not state.freed, "nobody has looked whether what was to leave is free now"


def _check_wants(state: ManagerState) -> None:
    for job in state.jobs.values():
        latest = job.latest
        assert latest is None or job.wants.get(latest.form.shape) is latest, f"{job.job}: latest"
        for want in job.wants.values():
            assert want.unmet == want.fresh + sum(int(count) for _, count in want.ages), (
                f"{want.form.shape}: ages"
            )
            assert want.fresh == 0, "credit of an event that is over"
            assert (want.unmet > 0) == (want in state.waiting)
            assert (want in state.special) == (want in state.waiting and not want.form.plain)
            assert (want in state.starving) == (want in state.waiting and may_starve(want))
            assert (want in state.gangs) == (want in state.special and not want.form.preferring)
            assert want not in state.woken or want in state.special
            if want in state.special and want.patient and want.form.soft:
                assert state.patience.watches(want), f"{want.form.shape} would wait for ever"
            assert (want.strict is not None) <= want.patient, f"{want.form.shape} insists for ever"
            assert all(state.pool.queues.get(queue.name) is queue for queue in want.form.counts)
            if want in state.waiting and want.takes_any:
                queue = want.form.queue
                valid = [
                    entry
                    for entry in queue.plain.get(job, ())
                    if entry[-1] is want and entry[:2] == (-want.priority, want.since)
                ]
                assert valid, f"{want.form.shape} would be forgotten"
                assert queue in state.hungry
            elif want.unmet == 0:
                assert not want.called
    assert all(want.owner.job in state.jobs for want in state.waiting)
    if state.reservation is not None:
        assert state.reservation.want in state.waiting
    assert bool(state.pool.closed) <= bool(state.reservation or state.pool.leaving or state.pool.resting)
    assert set(state.pool.resting) <= set(state.pool.closed)
    assert set(state.pool.resting) <= set(state.pool.resources.values())
    assert set(state.pool.leaving) <= set(state.pool.resources.values())
    state.gangs.check(state.pool.is_open, state.pool.resources.values())


def _check_memories(state: ManagerState) -> None:
    taken: dict[int, list[int]] = {}
    there = {id(memory) for host in state.pool.hosts.values() for memory in host.memories.values()}
    for holding in state.grants.values():
        for memory, offset in holding.pieces:
            taken.setdefault(id(memory), []).append(offset)
            assert id(memory) in there or holding.lease_until is not None, "a grant has memory that is gone"
    for host in state.pool.hosts.values():
        for memory in host.memories.values():
            memory.check()
            assert sorted(memory.pieces) == sorted(taken.get(id(memory), [])), "memory that no grant has"
