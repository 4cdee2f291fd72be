"""Grants of the scheduler: received, recalled, released and lapsed; resources that come and go."""

from __future__ import annotations

from gspc_trio.components.job.scheduler import resource_queues
from gspc_trio.components.job.scheduler.changes import refuse_way
from gspc_trio.components.job.scheduler.choices import class_came
from gspc_trio.components.job.scheduler.ending import forget_ends, note_end
from gspc_trio.components.job.scheduler.interface import (
    Claims,
    GivenUp,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Withheld,
)
from gspc_trio.components.job.scheduler.losses import end_cancelled, lose, tell_of_attempt
from gspc_trio.components.job.scheduler.run_times import note_resources
from gspc_trio.components.job.scheduler.serve import count_stuck, take_back
from gspc_trio.components.job.scheduler.state import AskedBack, Held, SchedulerState, ShapeQueue
from gspc_trio.components.job.scheduler.tasks import (
    again,
    came_back,
    fail,
    plan_waiting,
    to_own_queue,
    withdraw,
)
from gspc_trio.components.job.scheduler.ties import waits
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Cancel
from gspc_trio.core.ids import host_name
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import Outcome, Reason, TaskError
from gspc_trio.records.facts import GrantChanged


def grant(state: SchedulerState, event: Grant) -> None:
    """Take a grant in hand; with nothing to run on it, it is kept for what comes."""
    if event.grant_id in state.grants:
        raise IllegalEvent(f"job {state.job}: grant {event.grant_id} came twice")
    if len(event.resources) != len(event.shape.requirements):
        raise IllegalEvent(
            f"job {state.job}: grant {event.grant_id} has {len(event.resources)} resources for {event.shape}"
        )
    if (state.ends or state.restricted) and not meets_wishes(
        event
    ):  # its tasks would be put aside, for it, for ever
        raise IllegalEvent(
            f"job {state.job}: grant {event.grant_id} of {', '.join(event.resources)} is not what "
            f"{event.shape} asks for"
        )
    queue = state.queue_for(event.shape)
    held = Held(event.grant_id, event.resources, queue)
    state.seen = max(state.seen, event.grant_id)
    queue.told = max(0, queue.told - 1)
    queue.changed_s = state.now
    queue.grants[held.grant_id] = state.grants[held.grant_id] = held
    for resource_id in held.resources:
        state.by_resource[resource_id] = held
        held.up = held.up and resource_id in state.known
    held.leaving = not state.evacuated.isdisjoint(held.resources)  # it was given before that was known
    state.touched[held] = None
    state.turned[queue] = None
    state.actions.append(GrantChanged(state.now, state.job, held.grant_id, held.resources, True))
    if held.up and state.stopping is None:
        hold_others(state, held)


def meets_wishes(event: Grant) -> bool:
    """Return whether the resources of a grant are on hosts that are asked for and no others will do."""
    return all(
        not wish.hard or host_name(resource_id) in map(host_name, wish.preferences)
        for wish, resource_id in zip(event.shape.requirements, event.resources, strict=True)
    )


def hold_others(state: SchedulerState, held: Held) -> None:
    """Tell the hosts of a co-allocation's other resources that they are taken."""
    if len(held.resources) > 1:
        state.actions.append(Hold(state.job, held.grant_id, held.resources[1:]))


def recall(state: SchedulerState, event: Recall) -> None:
    """Others wait: take back what has not begun; the grant goes when its running task has ended."""
    for grant_id in event.grant_ids:
        held = state.grants.get(grant_id)
        if held is not None:
            leave(state, held)


def leave(state: SchedulerState, held: Held) -> None:
    """Submit nothing more on a grant, and give it back as soon as nothing runs on it."""
    held.leaving = True
    state.touched[held] = None
    take_back(state, held, len(held.sent), all_tied=True)


def release(state: SchedulerState, held: Held) -> None:
    """Give an empty grant back."""
    state.actions.append(Release(state.job, held.grant_id))
    forget(state, held)


def forget(state: SchedulerState, held: Held) -> None:
    """The grant is no longer ours."""
    queue = held.queue
    del state.grants[held.grant_id], queue.grants[held.grant_id]
    for resource_id in held.resources:
        if state.by_resource.get(resource_id) is held:
            del state.by_resource[resource_id]
    held.leaving, held.timer = True, 0
    if state.assigned is not None:
        resource_queues.dissolve(state, held)
    queue.levels.place(held)
    state.touched.pop(held, None)
    state.turned[queue] = None
    state.actions.append(GrantChanged(state.now, state.job, held.grant_id, held.resources, False))


def refuse(state: SchedulerState, event: Refuse) -> None:
    """No grant of this shape will come: what waits for one has failed.

    A demand that crossed the refusal is withdrawn, for whoever waited behind it has failed, too.
    """
    queue = state.queues.get(event.shape)
    if queue is None:
        return
    queue.told = 0
    state.turned[queue] = None
    state.actions.append(Demand(state.job, event.shape, 0, state.seen))
    error = TaskError("refused", event.reason)
    for entry in [entry for entry in state.tasks.values() if entry.queue is queue and entry.held is None]:
        if entry.task.variants is not None:
            refuse_way(state, entry, event.reason)
            continue
        withdraw(state, entry)
        fail(state, entry, Outcome(entry.task.task_id, entry.attempt, Reason.FAILED, error=error), "")


def lapsed(state: SchedulerState, event: Lapsed) -> None:
    """These grants are gone, and what ran there is lost."""
    for grant_id in event.grant_ids:
        held = state.grants.get(grant_id)
        if held is not None:
            lose_all(state, held, event.reason)
            forget(state, held)


def resources_up(state: SchedulerState, event: ResourcesUp) -> None:
    """Resources can be reached: grants on them that waited for this become usable.

    A grant that had lost one of them goes back; the resource manager would not notice otherwise, for to it
    nothing was lost.
    """
    note_end(state, event)
    note_resources(state, event.resources)
    if state.assigned is not None:
        resource_queues.resources_up(state.assigned, event.resources)
    if state.plans is not None:
        usable = [one for one in event.resources if one.resource_id not in state.evacuated]
        if state.plans.resources_up(usable):
            plan_waiting(state)
    for resource in event.resources:
        resource_id, resource_class = resource.resource_id, resource.resource_class
        if resource_id not in state.known:
            state.of_host = "", frozenset()
            if state.choices:
                class_came(state, resource_class)
            state.known[resource_id] = resource_class
            state.class_sizes[resource_class] = state.class_sizes.get(resource_class, 0) + 1
        held = state.by_resource.get(resource_id)
        if held is None or (held.up and not held.lost):
            continue
        if held.lost:
            release(state, held)
        elif all(other in state.known for other in held.resources):
            held.up = True
            hold_others(state, held)
            state.touched[held] = state.turned[held.queue] = None


def resources_lost(state: SchedulerState, event: ResourcesLost) -> None:
    """What was submitted to these resources is lost; their grants stay, unused, until the RM speaks."""
    state.of_host = "", frozenset()
    state.processors.clear()
    for resource_id in event.resource_ids:
        resource_class = state.known.pop(resource_id, None)
        state.evacuated.discard(resource_id)
        if resource_class is not None:
            state.class_sizes[resource_class] -= 1
    if state.choices:
        state.look_s = state.now
    if state.plans is not None:
        state.plans.resources_lost(event.resource_ids)
    if state.ends or state.restricted:
        forget_ends(state, event.resource_ids)
    gone = set(event.resource_ids)
    for resource_id in event.resource_ids:
        held = state.by_resource.get(resource_id)
        if held is None or held.lost:
            continue
        if held.resource_id not in gone:
            attempts = tuple((task_id, entry.attempt) for task_id, entry in held.sent.items())
            if attempts:
                state.actions.append(Cancel(state.job, held.resource_id, attempts))
        held.lost = True
        state.touched[held] = None
        lose_all(state, held, f"{resource_id}: {event.reason}")


def withheld(state: SchedulerState, event: Withheld) -> None:
    """Note what was never sent: when it is lost it has not begun."""
    for resource_id in event.resource_ids:
        held = state.by_resource.get(resource_id)
        if held is None or held.resource_id != resource_id:
            continue
        if event.concerns(resource_id, held.grant_id):
            for entry in held.sent.values():
                entry.unsent = entry.number > event.after
    state.actions.append(GivenUp(event))


def reclaim(state: SchedulerState, _event: Reclaim) -> None:
    """Say what is held, then anew what is wanted; a grant that has lost a resource is given up."""
    for held in [held for held in state.grants.values() if held.lost]:
        forget(state, held)
    grants = tuple(
        Grant(state.job, held.queue.shape, held.grant_id, held.resources) for held in state.grants.values()
    )
    state.actions.append(Claims(state.job, grants))
    for queue in state.queues.values():
        queue.told = 0
        state.turned[queue] = None


def lose_all(state: SchedulerState, held: Held, detail: str) -> None:
    """All that was submitted under the grant is lost; only the running one may have begun, if it was sent."""
    queue = held.queue
    entries = list(held.sent.values())
    held.sent.clear()
    held.work_s, held.tied = 0.0, 0
    count_stuck(state, held)
    queue.sent -= len(entries)
    state.touched[held] = state.turned[queue] = None
    for position, entry in enumerate(entries):
        if entry.asked is AskedBack.AWAITED:
            queue.awaited -= 1
        entry.held = None
        to_own_queue(state, entry)
        lost = Outcome(entry.task.task_id, entry.attempt, Reason.LOST, error=TaskError("lost", detail))
        if waits(entry):
            came_back(state, entry, f"returned: {detail}")
        elif position == 0 and not entry.unsent:
            if state.tracing:
                tell_of_attempt(state, entry, held, lost)
            lose(state, entry, lost, held.resource_id)
        elif entry.cancelling:
            end_cancelled(state, entry, lost, held.resource_id)
        else:
            entry.given_back += 1
            again(state, entry, f"returned: {detail}")
    held.announced = None


def tell_demand(state: SchedulerState, queue: ShapeQueue) -> None:
    """Tell the resource manager how many further grants the queue can use, if that has changed much."""
    if not (queue.told or queue.waiting.size or queue.elsewhere or queue.stuck or queue.queued):
        return  # nothing was asked for, and nothing is wanted
    wanted = 0
    if state.stopping is None and queue.live:
        wanted = state.look_ahead.credit(queue.wanted)
    priority = priority_of(state, queue) if wanted and queue.unserved else queue.told_priority
    if priority != queue.told_priority or state.look_ahead.worth_telling(queue.told, wanted):
        if not queue.told:
            queue.changed_s = state.now
        queue.told, queue.told_priority = wanted, priority
        is_shared = _is_shared(state, queue)
        state.actions.append(Demand(state.job, queue.shape, wanted, state.seen, priority, is_shared))


def _is_shared(state: SchedulerState, queue: ShapeQueue) -> bool:
    """Whether what waits goes to any grant of the job that idles: what has a wish does, after some time."""
    if state.plans is None or not queue.single:
        return False
    first, wishes = queue.waiting.first(), state.plans.wishes
    return bool(wishes.sent) if first is None else first.task.task_id in wishes.waiting


def priority_of(state: SchedulerState, queue: ShapeQueue) -> int:
    """Return what the resource manager is told of a queue's priority: it matters beside another one only."""
    return queue.priority if len(state.queues) > 1 else 0
