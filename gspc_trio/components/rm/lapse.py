"""Ends of grants that their job did not ask for: the job or resources go, nobody answers (RM-10, RM-11)."""

from __future__ import annotations

from collections.abc import Iterable

from gspc_trio.components.rm.errors import BadPolicy, ResourceHeld, UnknownGrant
from gspc_trio.components.rm.events import REMOVE_POLICIES, Awaited, Removed, Rested, Resumed
from gspc_trio.components.rm.messages import Lapsed, Recall, Revoke, Revoked
from gspc_trio.components.rm.parts import Holding, Job, Vertex
from gspc_trio.components.rm.recall import recall_holding
from gspc_trio.components.rm.state import ManagerState
from gspc_trio.core.ids import GrantId, JobId, ResourceId


def job_gone(state: ManagerState, job: Job, fenced: bool) -> None:
    """Forget the job; free what it holds at once, or when its work is known to have stopped."""
    del state.jobs[job.job]
    for want in job.wants.values():
        state.drop_want(want)
    for queue in list(state.pool.queues.values()):
        queue.plain.pop(job, None)
    if state.reservation is not None and state.reservation.want.owner is job:
        state.end_reservation()
    holdings = [holding for want in job.wants.values() for holding in want.grants.values()]
    for holding in sorted(holdings, key=lambda holding: holding.grant_id):
        if holding.lease_until is not None:
            continue
        if fenced:
            state.release(holding, holding.vertices)
        else:
            revoke(state, holding)


def revoke(state: ManagerState, holding: Holding) -> None:
    """Have the work of a grant stopped; its resources stay held until that is confirmed."""
    holding.lease_until = state.now + state.limits.lease_s
    state.lapsing[holding.grant_id] = holding
    names = tuple(vertex.resource_id for vertex in holding.vertices)
    state.actions.append(Revoke(holding.grant_id, names))


def revoked(state: ManagerState, event: Revoked) -> None:
    """Free what is confirmed to run no more.

    Raises:
        UnknownGrant: the grant is not one that was revoked.
    """
    holding = state.lapsing.get(event.grant_id)
    if holding is None:
        epoch, number = event.grant_id
        if event.grant_id in state.grants or epoch != state.epoch or not 0 < number <= state.last[1]:
            raise UnknownGrant(f"grant {event.grant_id} has not been revoked")
        return  # the answer came after the resources had been removed
    names = set(event.resources)
    vertices = [vertex for vertex in holding.vertices if vertex.resource_id in names]
    if vertices:
        state.release(holding, vertices)


def expire(state: ManagerState) -> None:
    """Remove the resources of grants whose revocation nobody has confirmed in time."""
    for holding in list(state.lapsing.values()):
        if holding.lease_until is not None and state.now >= holding.lease_until:
            state.condemn(holding)


def awaited(state: ManagerState, event: Awaited) -> None:
    """Give whoever has to confirm a revocation more time."""
    holding = state.lapsing.get(event.grant_id)
    if holding is not None and holding.lease_until is not None:
        holding.lease_until = max(holding.lease_until, event.until_s)


def removed(state: ManagerState, event: Removed) -> None:
    """Take resources out, as the policy says (RM-11).

    Raises:
        BadPolicy, UnknownResource: and nothing was removed.
        ResourceHeld: the policy is ``refuse`` and one of them is in use.
    """
    if event.policy not in REMOVE_POLICIES:
        raise BadPolicy(f"no remove policy {event.policy!r}: there are {', '.join(REMOVE_POLICIES)}")
    vertices = state.changer.closure(event.resource_ids)
    if event.policy == "lose":
        _lose(state, vertices)
        return
    in_use = [vertex for vertex in vertices if not state.may_leave(vertex)]
    if event.policy == "refuse" and in_use:
        vertex = in_use[0]
        holder = state.pool.related_holdings(vertex, limit=1)[0]
        raise ResourceHeld(
            f"{vertex} cannot be removed: {holder.owner} holds {', '.join(holder.resources)} "
            f"under grant {holder.grant_id}"
        )
    _wait(state, vertices)


def memory_lost(state: ManagerState) -> None:
    """Grants with pieces of memory that has gone lapse; what they hold besides, elsewhere, is revoked."""
    gone = {id(memory) for memory in state.pool.memories_lost}
    for holding in list(state.grants.values()):
        if holding.lease_until is None and any(id(memory) in gone for memory, _ in holding.pieces):
            holding.want.owner.remember_lapsed(holding.grant_id)
            state.actions.append(Lapsed(holding.owner, (holding.grant_id,), "its memory was removed"))
            revoke(state, holding)
    state.pool.memories_lost.clear()


def recall_unwanted(state: ManagerState, grant_ids: Iterable[GrantId]) -> None:
    """Have those of the grants given back that keep something from resting or from leaving.

    They were claimed after it was to rest or to leave, or their job was away and may not have heard of it.
    """
    pool = state.pool
    if not pool.leaving and not pool.resting:
        return
    chosen: dict[JobId, list[GrantId]] = {}
    for grant_id in grant_ids:
        holding = state.grants.get(grant_id)
        if holding is not None and any(
            relative in pool.leaving or relative in pool.resting
            for vertex in holding.vertices
            for relative in (*pool.walk(vertex), *vertex.place.ancestors)
        ):
            recall_holding(holding, chosen)
    state.actions += _recall_actions(chosen)


def rested(state: ManagerState, event: Rested) -> None:
    """Give out nothing more of these, and have it given back."""
    vertices = _there(state, event.resource_ids)
    state.pool.resting.update(dict.fromkeys(vertices))
    state.reservation = None
    state.close_again()
    state.actions += _recalls(state, vertices)


def resumed(state: ManagerState, event: Resumed) -> None:
    """These may be given out again."""
    for vertex in _there(state, event.resource_ids):
        state.pool.resting.pop(vertex, None)
    state.close_again()


def _there(state: ManagerState, names: Iterable[ResourceId]) -> list[Vertex]:
    return [state.pool.resources[name] for name in names if name in state.pool.resources]


def _recalls(state: ManagerState, vertices: Iterable[Vertex]) -> list[Recall]:
    """Return what has all that is held of these, or related to them, given back."""
    chosen: dict[JobId, list[GrantId]] = {}
    for vertex in vertices:
        for holding in state.pool.related_holdings(vertex, limit=4096):
            recall_holding(holding, chosen)
    return _recall_actions(chosen)


def _recall_actions(chosen: dict[JobId, list[GrantId]]) -> list[Recall]:
    return [Recall(job, tuple(sorted(grant_ids))) for job, grant_ids in chosen.items()]


def _lose(state: ManagerState, vertices: list[Vertex]) -> None:
    """The resources are gone: grants that hold one of them lapse, and what else they hold is revoked."""
    going = set(vertices)
    lapsed: dict[JobId, list[GrantId]] = {}
    holdings = dict.fromkeys(vertex.holding for vertex in vertices if vertex.holding is not None)
    rest: list[Holding] = []
    for holding in holdings:
        job = holding.want.owner
        lost = [vertex for vertex in holding.vertices if vertex in going]
        if holding.lease_until is None:
            lapsed.setdefault(job.job, []).append(holding.grant_id)
            job.remember_lapsed(holding.grant_id)
            if len(lost) < len(holding.vertices):
                rest.append(holding)
        state.release(holding, lost)
    state.remove([vertex for vertex in vertices if vertex.resource_id in state.pool.resources])
    for holding in rest:
        revoke(state, holding)
    for name, grant_ids in lapsed.items():
        reason = f"resources removed: {', '.join(vertex.resource_id for vertex in vertices[:8])}"
        state.actions.append(Lapsed(name, tuple(grant_ids), reason + (" ..." if len(vertices) > 8 else "")))
    if state.reservation is not None and any(vertex in going for vertex in state.reservation.targets):
        state.end_reservation()


def _wait(state: ManagerState, vertices: list[Vertex]) -> None:
    """Remove what is free, give out nothing more of the rest, and have it given back."""
    for vertex in vertices:
        state.pool.leaving[vertex] = None
    recalls = _recalls(state, vertices)
    if state.reservation is not None and any(
        vertex in state.pool.leaving for vertex in state.reservation.targets
    ):
        state.reservation = None
    state.close_again()
    state.leave(state.pool.leaving)
    state.actions += recalls
