"""Losses: tasks whose attempt was lost are tried again, if they may be, and not on the same resource."""

from __future__ import annotations

from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import AttemptEnded
from gspc_trio.components.job.scheduler.state import Held, SchedulerState, TaskEntry
from gspc_trio.components.job.scheduler.tasks import again, end, fail, has_alternative
from gspc_trio.core.ids import ResourceId, TaskId, host_name
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskState


def tell_of_attempt(state: SchedulerState, entry: TaskEntry, held: Held, outcome: Outcome) -> None:
    """Say of an attempt that had begun under a grant how it has ended, but for those that finished."""
    ran_s = state.now - held.since_s if held.announced is entry else 0.0
    told = AttemptEnded(outcome, entry.task.name, entry.tries, held.resource_id, ran_s)
    state.actions.append(told)


def lose(state: SchedulerState, entry: TaskEntry, lost: Outcome, resource_id: ResourceId) -> bool:
    """An attempt that may have begun was lost; the task is no longer at a worker.

    Whether the task or its host is to blame nobody knows before something of the job has finished there. Such
    a host takes one of the task's losses; after the next ones it only waits longer and longer for another.
    What was ended because its host is evacuated uses up nothing.

    Returns:
        Whether the host is in doubt: others are to be preferred.
    """
    options, task_id = entry.task.options, entry.task.task_id
    detail = lost.error.message if lost.error is not None else "its compute process ended"
    if entry.cancelling:
        end_cancelled(state, entry, lost, resource_id)
        return False
    if entry.evacuating:
        again_elsewhere(state, entry, resource_id, detail)
        return False
    host = host_name(resource_id)
    in_doubt = host not in state.proven and _may_run_elsewhere(state, entry, host)
    if in_doubt:
        _avoid(state, entry, _resources_of(state, host))
    if in_doubt and host in entry.lost_at and options.may_rerun:
        entry.doubts += 1
        again_elsewhere(state, entry, resource_id, f"lost on {host}, where none has finished yet: {detail}")
        return True
    entry.losses += 1
    entry.lost_at |= {host}
    if not options.may_rerun:
        why = f"it may have run, and must not run again: {detail}"
        fail(state, entry, lost, resource_id, TaskError("unknown", why))
        return in_doubt
    delay_s = state.retry.after_loss(options, entry.losses)
    if delay_s is None:
        fail(state, entry, lost, resource_id, TaskError("lost", _lost_message(task_id, entry.losses, detail)))
        return in_doubt
    again_elsewhere(state, entry, resource_id, f"lost: {detail}", delay_s)
    return in_doubt


def again_elsewhere(
    state: SchedulerState, entry: TaskEntry, resource_id: ResourceId, detail: str, delay_s: float = 0.0
) -> None:
    """Try a task again, on another resource if possible."""
    state.retries += 1
    _avoid(state, entry, frozenset((resource_id,)))
    again(state, entry, detail, delay_s)


def _avoid(state: SchedulerState, entry: TaskEntry, failed: frozenset[ResourceId]) -> None:
    """Avoid where a task has just failed, and where it failed before unless nothing is left then."""
    entry.avoid |= failed
    if not has_alternative(state, entry):
        entry.avoid = failed


def end_cancelled(state: SchedulerState, entry: TaskEntry, lost: Outcome, resource_id: ResourceId) -> None:
    """A task that was to end anyway was lost."""
    outcome = replace(lost, reason=Reason.CANCELLED, error=None)
    end(state, entry, TaskState.CANCELLED, outcome, resource_id)


def _may_run_elsewhere(state: SchedulerState, entry: TaskEntry, host: str) -> bool:
    """Whether there is a host for the task that has run others, or has not lost it yet."""
    first = entry.queue.shape.requirements[0]
    if first.is_bound:
        return False
    tried = {host, *(entry.lost_at - state.proven)}
    return any(
        resource_class == first.resource_class and host_name(resource_id) not in tried
        for resource_id, resource_class in state.known.items()
    )


def _resources_of(state: SchedulerState, host: str) -> frozenset[ResourceId]:
    """Return what is known of a host; many tasks are lost there at one time, and few hosts ever asked for."""
    if state.of_host[0] != host:
        state.of_host = host, frozenset(name for name in state.known if host_name(name) == host)
    return state.of_host[1]


def _lost_message(task_id: TaskId, losses: int, detail: str) -> str:
    times = "once" if losses == 1 else f"{losses} times"
    return f"task {task_id} was lost {times}, the last time: {detail}"
