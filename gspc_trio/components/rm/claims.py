"""Grants that an earlier resource manager has given and that are in use still.

Nothing of them was written down: jobs and RIFs say what they have when they are back. What they do not speak
of is free. Should two speak of one resource, the fence of its RIF decides, as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gspc_trio.components.rm.events import Claimed, Overruled
from gspc_trio.components.rm.lapse import recall_unwanted, revoke
from gspc_trio.components.rm.messages import Grant, Lapsed
from gspc_trio.components.rm.parts import Form, Holding, Job
from gspc_trio.components.rm.search import allocate_all
from gspc_trio.components.rm.state import ManagerState
from gspc_trio.core.allocator import Allocator
from gspc_trio.core.ids import GrantId, JobId, ResourceId, host_name
from gspc_trio.records.facts import GrantChanged

TAKEN = "given to others, or removed, while this job was away"


def claimed(state: ManagerState, event: Claimed) -> None:
    """Hold what is claimed.

    Raises:
        UnknownJob: the job has not joined.
    """
    job = state.job(event.job)
    if event.whole:
        _begin_anew(state, job, event.grants)
    lost = [grant.grant_id for grant in event.grants if not _hold(state, job, grant)]
    _lapse(state, job, lost)
    recall_unwanted(state, [grant.grant_id for grant in event.grants])


def overruled(state: ManagerState, event: Overruled) -> None:
    """Give up a grant that was not given, and hold what others have of it."""
    holding = state.grants.get(event.grant_id)
    if holding is not None and holding.lease_until is None and holding.owner == event.job:
        state.release(holding, holding.vertices)
    for grant in event.held:
        given_elsewhere(state, grant)


def given_elsewhere(state: ManagerState, grant: Grant) -> None:
    """Hold what another resource manager has given; what was to be given of it here will be overruled."""
    resources = state.pool.resources
    if grant.job not in state.jobs or grant.grant_id in state.grants:
        return
    for name in grant.resources:
        vertex = resources.get(name)
        for holding in [] if vertex is None else list(state.pool.related_holdings(vertex, limit=4096)):
            state.release(holding, holding.vertices)
    if grant.memories and grant.resources[0] in resources:
        _clear(state, resources[grant.resources[0]].host.memories, grant)
    _hold(state, state.jobs[grant.job], grant)


def _clear(state: ManagerState, memories: Mapping[ResourceId, Allocator], grant: Grant) -> None:
    """Release what was to be given of the pieces of memory of a grant."""
    sizes = [size for size in (grant.shape.memory_bytes, *grant.shape.memories) if size]
    for (name, offset), size_bytes in zip(grant.memories, sizes, strict=False):
        memory = memories.get(name)
        for holding in list(state.grants.values()) if memory is not None else ():
            for one, at in holding.pieces:
                if one is memory and at < offset + size_bytes and offset < at + memory.pieces[at]:
                    state.release(holding, holding.vertices)
                    break


def there(state: ManagerState) -> None:
    """Resources were added: hold what is claimed of them."""
    for grant in list(state.claims.values()):
        job = state.jobs[grant.job]
        if not _hold(state, job, grant):
            _lapse(state, job, [grant.grant_id])


def settled(state: ManagerState, name: str) -> None:
    """A host is there with all that it brings, or does not come: what is claimed of it besides is lost.

    Work under such a grant may run on other hosts: what it holds there is revoked.
    """
    resources = state.pool.resources
    for grant in list(state.claims.values()):
        if all(one in resources or host_name(one) != name for one in grant.resources):
            continue
        del state.claims[grant.grant_id]
        holding = state.grants.get(grant.grant_id)
        if holding is None or holding.lease_until is None:
            _lapse(state, state.jobs[grant.job], [grant.grant_id])
        if holding is not None and holding.lease_until is None:
            revoke(state, holding)


def drop(state: ManagerState, job: JobId) -> None:
    """The job claims nothing any more."""
    for grant_id in [grant_id for grant_id, grant in state.claims.items() if grant.job == job]:
        del state.claims[grant_id]


def _begin_anew(state: ManagerState, job: Job, grants: tuple[Grant, ...]) -> None:
    """Forget what the job demanded, and free what it does not speak of."""
    drop(state, job.job)
    if state.reservation is not None and state.reservation.want.owner is job:
        state.end_reservation()
    shapes = {grant.grant_id: grant.shape for grant in grants}
    for want in list(job.wants.values()):
        state.drop_want(want)
        want.sent.clear()
        for grant_id, holding in list(want.grants.items()):
            if holding.lease_until is None and shapes.get(grant_id) != want.form.shape:
                state.release(holding, holding.vertices)
            elif holding.recalled:
                _recall_again(state, holding)
    for queue in state.pool.queues.values():
        queue.plain.pop(job, None)


def _recall_again(state: ManagerState, holding: Holding) -> None:
    """The job may not have heard that this grant was recalled: its connection was over."""
    holding.recalled = False
    holding.want.recalled -= 1
    for want in state.waiting:
        want.called.pop(holding, None)


def _hold(state: ManagerState, job: Job, grant: Grant) -> bool:
    """Hold what is there of a grant; return False if that cannot be: others have it, or it was removed."""
    pool, grant_id = state.pool, grant.grant_id
    grant = state.claims.get(grant_id, grant)  # a RIF knows of its own part only
    holding = state.grants.get(grant_id)
    if holding is not None and (holding.want.owner is not job or holding.lease_until is not None):
        return False
    if state.is_own(grant_id):  # our own: it is held, or has ended while the job was away
        return holding is not None
    state.advance(grant_id)
    mine = () if holding is None else holding.vertices
    found = [pool.resources[name] for name in grant.resources if name in pool.resources]
    new = tuple(vertex for vertex in found if vertex not in mine)
    if not all(pool.is_free(vertex) for vertex in new) or _was_removed(state, grant):
        state.claims.pop(grant_id, None)
        if holding is not None:
            state.release(holding, holding.vertices)
        return False
    if len(found) < len(grant.resources):
        state.claims[grant_id] = grant
    else:
        state.claims.pop(grant_id, None)
    if new:
        state.gangs.wake_all()
        holding = holding or _begin(state, job, grant)
        for vertex in new:
            pool.hold(vertex, holding)
        units = sum(vertex.kinds.units for vertex in new)
        holding.vertices += new
        holding.units += units
        holding.want.units += units
        job.units += units
        names = tuple(vertex.resource_id for vertex in new)
        holding.resources += names
        state.actions.append(GrantChanged(state.now, job.job, grant_id, names, True))
        if new[0].resource_id == grant.resources[0] and not holding.pieces:
            sizes = holding.want.form.sizes
            holding.pieces = _pieces(new[0].host.memories, grant, sizes)
            pool.memory_moved([memory for memory, _ in holding.pieces])
    return True


def _pieces(
    memories: Mapping[ResourceId, Allocator], grant: Grant, sizes: tuple[int, ...]
) -> Sequence[tuple[Allocator, int]]:
    """Take the pieces of memory that the grant has; if it does not say where they are, others."""
    taken: list[tuple[Allocator, int]] = []
    for (name, offset), size_bytes in zip(grant.memories, sizes, strict=False):
        memory = memories.get(name)
        if memory is not None and memory.allocate_at(offset, size_bytes):
            taken.append((memory, offset))
    if len(taken) == len(sizes):
        return taken
    for memory, offset in taken:
        memory.free(offset)
    return allocate_all(list(memories.values()), sizes) or ()


def _was_removed(state: ManagerState, grant: Grant) -> bool:
    """Whether a part of the grant will not come: its host is there and, with all it brings, has it not."""
    pool = state.pool
    return any(name not in pool.resources and host_name(name) in pool.hosts for name in grant.resources)


def _begin(state: ManagerState, job: Job, grant: Grant) -> Holding:
    """Make a grant that holds nothing yet."""
    want = job.wants.get(grant.shape) or state.new_want(job, Form(grant.shape, state.pool.queue))
    holding = Holding(want, state.now)
    holding.grant_id, holding.resources, holding.units = grant.grant_id, (), 0
    want.grants[grant.grant_id] = state.grants[grant.grant_id] = holding
    state.holders[want] = None
    return holding


def _lapse(state: ManagerState, job: Job, grant_ids: list[GrantId]) -> None:
    """Tell a job that it has not got these any more."""
    for grant_id in grant_ids:
        job.remember_lapsed(grant_id)
    if grant_ids:
        state.actions.append(Lapsed(job.job, tuple(grant_ids), TAKEN))
