"""Hosts with anomalies (ASP-9).

From those that fail, or may soon, what may run again goes elsewhere, and uses up no attempt. Others get no
new tasks of some kinds.
"""

from __future__ import annotations

from gspc_trio.components.job.scheduler.ending import bring_back, is_misplaced
from gspc_trio.components.job.scheduler.grants import leave
from gspc_trio.components.job.scheduler.interface import HostEvacuated, HostRestricted, HostRests
from gspc_trio.components.job.scheduler.serve import take_back
from gspc_trio.components.job.scheduler.state import Held, SchedulerState, TaskEntry
from gspc_trio.components.job.scheduler.tasks import plan_waiting
from gspc_trio.components.worker.messages import Cancel
from gspc_trio.core.ids import ResourceId, host_name
from gspc_trio.core.task import Outcome

IO_FAILURES_MAX = 8
"""So many attempts of a task may fail by that and use up nothing. The waits between them add up to 25 s, in
which monitoring finds out about the host."""


def evacuate(state: SchedulerState, event: HostEvacuated) -> None:
    """Bring away what runs on a host, or use it again."""
    names = [resource.resource_id for resource in event.resources]
    if not event.reason:
        state.evacuated.difference_update(names)
        if state.plans is not None:
            known = [resource for resource in event.resources if resource.resource_id in state.known]
            if state.plans.resources_up(known):
                plan_waiting(state)
        return
    state.evacuated.update(names)
    if state.plans is not None:
        state.plans.resources_lost(names)
        plan_waiting(state)
    for held in dict.fromkeys(state.by_resource[name] for name in names if name in state.by_resource):
        if not held.lost:
            leave(state, held)
            _end_running(state, held)


def rest(state: SchedulerState, event: HostRests) -> None:
    """Plan nothing on a host that gives out nothing new, or plan there again; what is there goes on."""
    if state.plans is None or not event.resources:
        return
    if state.plans.host_rests(host_name(event.resources[0].resource_id), bool(event.reason)):
        plan_waiting(state)


def _end_running(state: SchedulerState, held: Held) -> None:
    """End what runs under a grant, if it may run again and there is another host for it."""
    attempts = []
    for entry in held.sent.values():
        is_begun = entry is held.head() or entry.begun
        if is_begun and not (entry.cancelling or entry.evacuating) and may_leave(state, entry):
            entry.evacuating = True
            attempts.append((entry.task.task_id, entry.attempt))
    if attempts:
        state.actions.append(Cancel(state.job, held.resource_id, tuple(attempts)))


def restrict(state: SchedulerState, event: HostRestricted) -> None:
    """Let a host get no new tasks of some kinds, or any again; what has begun there goes on."""
    host = host_name(event.resources[0].resource_id)
    if state.restricted.get(host, HostRestricted(())).uses == event.uses:
        return
    if event.uses:
        state.restricted[host] = event
    else:
        del state.restricted[host]
    if state.aside:
        bring_back(state)
    for held in dict.fromkeys(state.grants.values()):
        if host_name(held.resource_id) == host:
            state.touched[held] = state.turned[held.queue] = None
            if any(is_misplaced(state, entry, held.resource_id) for entry in held.sent.values()):
                take_back(state, held, len(held.sent))


def is_fault_of_host(
    state: SchedulerState, entry: TaskEntry, outcome: Outcome, resource_id: ResourceId
) -> bool:
    """Return whether a task has failed because its host does, and had better run elsewhere.

    A device of the host has failed; or it ended with an error when it was asked to end, as its host may fail.
    Should the task itself be the cause, it fails in the end: there is a limit to this.
    """
    error, host = outcome.error, host_name(resource_id)
    has_failed = error is not None and error.is_of_device
    if entry.cancelling or state.stopping is not None or not (entry.evacuating or has_failed):
        return False
    return entry.io_failures < IO_FAILURES_MAX and may_leave(state, entry, host)


def may_leave(state: SchedulerState, entry: TaskEntry, host: str = "") -> bool:
    """Return whether a task may run again, and there is a host but for this and those that are evacuated."""
    first = entry.queue.shape.requirements[0]
    if first.is_bound or not entry.task.options.may_rerun:
        return False
    return any(
        resource_class == first.resource_class and name not in state.evacuated and host_name(name) != host
        for name, resource_class in state.known.items()
    )
