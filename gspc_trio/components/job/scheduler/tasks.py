"""The life of a task in the scheduler: it comes, ends, or is tried again."""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from itertools import islice

from msgspec.structs import replace

from gspc_trio.components.job.scheduler.choices import (
    Sums,
    choose_again,
    choose_first,
    forget_failures,
    leave,
)
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    EndedUnsent,
    Restored,
    RetryTask,
    TaskDone,
    TasksReady,
)
from gspc_trio.components.job.scheduler.resource_queues import take_out
from gspc_trio.components.job.scheduler.state import (
    AskedBack,
    Held,
    Row,
    SchedulerState,
    ShapeQueue,
    TaskEntry,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.ties import fill, untie, waits
from gspc_trio.components.job.scheduler.waiting import rank_of
from gspc_trio.core.ids import ResourceId, TaskId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import Outcome, Reason, Shape, TaskError, TaskState
from gspc_trio.records.columns import COLUMNS_MIN, columns_of
from gspc_trio.records.facts import TaskChanged

_READY = TaskState.READY

FROM_CACHE = "from the cache"
"""What people are told of a task whose result a cache had."""

PLANNED_ANEW_MAX = 1000
"""So many of the tasks that wait are planned anew when hosts come."""

OUTPUT_BYTES_MAX = 2_000
"""So much of the end of what a failed task has printed is recorded."""


def add(state: SchedulerState, event: TasksReady) -> None:
    """Take in tasks that became ready."""
    ids = {task.task_id for task in event.tasks}
    known = not (state.tasks.keys().isdisjoint(ids) and state.failed.keys().isdisjoint(ids))
    if known or len(ids) != len(event.tasks):
        raise IllegalEvent(f"job {state.job}: a task that the scheduler has already was said to be ready")
    tasks, records, now, job = state.tasks, state.actions, state.now, state.job
    columns = state.recording and len(event.tasks) >= COLUMNS_MIN
    recording = state.recording and not columns
    shape = options = distance = None
    queue: ShapeQueue | None = None
    row: Row = OrderedDict()
    sums: Sums = {}
    before = 0
    for task in event.tasks if state.plans is None else state.plans.ready(state, event.tasks):
        if (
            queue is None
            or task.shape is not shape
            or task.options is not options
            or task.distance != distance
            or task.variants is not None
        ):
            if queue is not None:
                queue.waiting.size += len(row) - before
            if task.variants is not None:
                task = choose_first(state, task, sums)
            else:
                sums.clear()
            shape, options, distance = task.shape, task.options, task.distance
            queue = state.queue_for(state.look_ahead.shape_of(task))
            state.turned[queue] = None
            alone = not (options.may_rerun and queue.single)
            row = queue.waiting.row(rank_of(task))
            before = len(row)
        task_id = task.task_id
        tasks[task_id] = row[task_id] = TaskEntry(task, queue, alone)
        if recording and not task.items:
            records.append(TaskChanged(now, job, task_id, _READY, 0, task.name))
    if queue is not None:
        queue.waiting.size += len(row) - before
    if columns:
        told = [task for task in event.tasks if not task.items]
        same = {"at_s": now, "job": job, "state": _READY}
        names = [task.name for task in told]
        if told:
            records += columns_of(
                TaskChanged, same, {"task_id": [task.task_id for task in told], "name": names}
            )
    if state.stopping is not None:
        for task in event.tasks:
            cancel_unsent(state, tasks[task.task_id], state.stopping)


def plan_waiting(state: SchedulerState) -> None:
    """Hosts have come: let the first of the tasks that wait be planned anew, for all that is known now."""
    plans = state.plans
    if plans is None or not state.tasks:
        return
    for entry in list(islice(state.tasks.values(), PLANNED_ANEW_MAX)):
        if entry.place is TaskPlace.WAITING and entry.held is None and entry.task.variants is None:
            task = plans.again(state, entry.task, entry.avoid)
            if task.shape != entry.task.shape and entry in entry.queue.waiting:
                entry.task = task
                move(state, entry, state.look_ahead.shape_of(task))


def retry(state: SchedulerState, event: RetryTask) -> None:
    """Try a failed task again, with all its attempts."""
    entry = state.failed.pop(event.task_id, None)
    if entry is None:
        raise IllegalEvent(f"job {state.job}: task {event.task_id} has not failed, so it cannot be retried")
    state.sums.failures.pop(event.task_id, None)
    entry.failures = entry.losses = entry.returns = entry.waits = entry.doubts = 0
    entry.cancelling = False
    entry.io_failures = 0
    entry.avoid = entry.lost_at = frozenset()
    if entry.task.variants is None:
        entry.queue = state.queue_for(entry.queue.shape)
        entry.alone = not (entry.task.options.may_rerun and entry.queue.single)
    else:
        forget_failures(state, event.task_id)
    state.tasks[event.task_id] = entry
    again(state, entry, "retried on request")


def restored(state: SchedulerState, _event: Restored) -> None:
    """Try again what waits for lost data."""
    for entry in state.tasks.values():
        if entry.waits and entry.place is TaskPlace.DELAYED:
            entry.timer = 0
            _wake(state, entry)
    flush(state)


def cancel(
    state: SchedulerState, event: CancelTasks, submitted: dict[Held, list[tuple[TaskId, int]]]
) -> None:
    """Cancel tasks; those at a worker are only noted in ``submitted``."""
    for task_id in event.task_ids:
        entry = state.tasks.get(task_id)
        if entry is None or entry.cancelling:
            continue
        if entry.held is None:
            cancel_unsent(state, entry, "it was cancelled")
        else:
            entry.cancelling = True
            submitted.setdefault(entry.held, []).append((task_id, entry.attempt))


def cancel_unsent(state: SchedulerState, entry: TaskEntry, detail: str) -> None:
    """End a task that is at no worker as cancelled."""
    withdraw(state, entry)
    outcome = Outcome(entry.task.task_id, entry.attempt, Reason.CANCELLED)
    end(state, entry, TaskState.CANCELLED, outcome, "", detail)


def came_back(state: SchedulerState, entry: TaskEntry, detail: str) -> None:
    """A task that was sent ahead has come back: its result does not count, if it has one by mistake.

    It waits for the task before it; or it has failed through that, or was cancelled.
    """
    tie, task_id = entry.tie, entry.task.task_id
    assert tie is not None, "it was not sent ahead"
    failed, tie.failed = tie.failed, None
    if failed is not None:
        _forget(state, entry)
        _count_failed(state, failed)
    elif entry.cancelling:
        end(state, entry, TaskState.CANCELLED, Outcome(task_id, entry.attempt, Reason.CANCELLED), "")
    else:
        entry.given_back += 1
        again(state, entry, detail)


def _forget(state: SchedulerState, entry: TaskEntry) -> None:
    untie(entry)
    entry.move(TaskPlace.ENDED)
    del state.tasks[entry.task.task_id]
    state.turned[entry.queue] = None


def made(state: SchedulerState, entry: TaskEntry, outcome: Outcome) -> None:
    """A task has finished: the one behind it is ready."""
    assert entry.tie is not None, "nothing is behind it"
    behind, entry.tie.behind = entry.tie.behind, None
    if behind is None:
        return
    tie = behind.tie
    assert tie is not None, "tied in one direction"
    tie.before, tie.made = None, outcome.values[0][0]
    if behind.held is not None:
        behind.held.tied -= 1
        return
    fill(behind)
    behind.queue.delayed -= 1
    behind.move(TaskPlace.WAITING)
    state.again.append(behind)
    state.turned[behind.queue] = None
    if state.stopping is not None:
        flush(state)
        cancel_unsent(state, behind, state.stopping)


def withdraw(state: SchedulerState, entry: TaskEntry) -> None:
    """Take a task that is at no worker out of where it waits."""
    queue, task_id = entry.queue, entry.task.task_id
    if entry.place is TaskPlace.WAITING:
        queue.waiting.remove(entry)
    elif entry.place is TaskPlace.ELSEWHERE:
        del queue.elsewhere[task_id]
    elif entry.place is TaskPlace.QUEUED:
        take_out(state, entry)
    else:
        queue.delayed -= 1
    entry.timer = 0
    state.turned[queue] = None


def to_own_queue(state: SchedulerState, entry: TaskEntry) -> None:
    """Count a task that is at no worker any more with its own shape: the grant may have been of another."""
    if state.assigned is not None:
        entry.queue = state.queue_for(state.look_ahead.shape_of(entry.task))
        state.turned[entry.queue] = None


def move(state: SchedulerState, entry: TaskEntry, shape: Shape) -> None:
    """Let a task that is at no worker wait in another queue, behind those of its rank."""
    withdraw(state, entry)
    if entry.place is not TaskPlace.WAITING:
        entry.move(TaskPlace.WAITING)
    queue: ShapeQueue = state.queue_for(shape)
    entry.queue = queue
    queue.waiting.row(rank_of(entry.task))[entry.task.task_id] = entry
    queue.waiting.size += 1
    state.turned[queue] = None


def end(
    state: SchedulerState,
    entry: TaskEntry,
    final: TaskState,
    outcome: Outcome,
    resource_id: ResourceId,
    detail: str = "",
) -> None:
    """A task that waits nowhere any more has ended; only failed ones are kept, for RetryTask."""
    task = entry.task
    del state.tasks[task.task_id]
    if entry.tie is not None:
        untie(entry)
        fill(entry)
    if state.plans is not None:
        entry.task = state.plans.without_wish(task)
        state.plans.drop((task.task_id,))
    if task.variants is not None:
        leave(state, task.task_id, may_return=final is TaskState.FAILED)
    if final is TaskState.CANCELLED:
        entry.move(TaskPlace.ENDED)
        state.cancelled += 1
    else:
        entry.move(TaskPlace.FAILED)
        state.failed[task.task_id] = entry
        if state.failed_max is not None and len(state.failed) > state.failed_max:
            first = next(iter(state.failed))
            del state.failed[first]
            state.choices.pop(first, None)
            state.dropped += 1
    state.actions.append(
        TaskDone(task.task_id, final, outcome, task.name, resource_id, entry.given_back, task.items)
    )
    recording = state.recording and not task.items
    if recording or final is TaskState.FAILED:
        record = TaskChanged(
            state.now, state.job, task.task_id, final, entry.tries, task.name, resource_id, detail,
            outcome.started_s, outcome.duration_s, outcome.staged_s, outcome.moved,
            _last_output(outcome) if final is TaskState.FAILED else "",
        )  # fmt: skip
        if final is TaskState.FAILED:
            state.sums.failed(record)
        if recording:
            state.actions.append(record)


def _last_output(outcome: Outcome) -> str:
    """Return the end of what an attempt printed, errors last."""
    printed = b"\n".join(text.rstrip() for text in (outcome.stdout, outcome.stderr) if text.strip())
    return printed[-OUTPUT_BYTES_MAX:].decode("utf-8", "replace")


def ended_unsent(state: SchedulerState, event: EndedUnsent) -> None:
    """Count and record tasks that ended elsewhere: they failed, or a cache had their results."""
    if state.plans is not None:
        state.plans.drop([done.task_id for done in event.ended])
    for done in event.ended:
        if done.state is TaskState.FINISHED:
            state.finished += 1
            state.sums.finished(state.now, 1, 0.0)
            fields = state.now, state.job, done.task_id, done.state, 0, done.name, "", FROM_CACHE
            if state.recording:
                state.actions.append(TaskChanged(*fields))
            state.sums.lately.append(fields)
            continue
        entry = state.tasks.get(done.task_id)
        if entry is not None:  # it was sent ahead
            if entry.held is not None:
                assert entry.tie is not None, "it was not sent ahead"
                untie(entry)
                entry.tie.failed = done
                continue
            withdraw(state, entry)
            _forget(state, entry)
        _count_failed(state, done)


def _count_failed(state: SchedulerState, done: TaskDone) -> None:
    state.sums.failed_unsent += 1
    error = done.outcome.error
    detail = f"{error.kind}: {error.message}" if error is not None else ""
    record = TaskChanged(state.now, state.job, done.task_id, TaskState.FAILED, 0, done.name, detail=detail)
    state.sums.failed(record)
    if state.recording:
        state.actions.append(record)


def fail(
    state: SchedulerState,
    entry: TaskEntry,
    outcome: Outcome,
    resource_id: ResourceId,
    error: TaskError | None = None,
) -> None:
    """A task has failed for good; ``error`` takes the place of the outcome's."""
    if error is not None:
        outcome = replace(outcome, error=error)
    reported = outcome.error or TaskError("unknown", "the task failed without saying why")
    end(state, entry, TaskState.FAILED, outcome, resource_id, f"{reported.kind}: {reported.message}")


def again(state: SchedulerState, entry: TaskEntry, detail: str, delay_s: float = 0.0) -> None:
    """A task gets another attempt: at the front of its queue, now or after a delay; not if the job stops."""
    fill(entry)
    if entry.task.variants is not None:
        choose_again(state, entry)
    elif state.plans is not None:
        entry.task = state.plans.again(state, entry.task, entry.avoid)
        entry.queue = state.queue_for(state.look_ahead.shape_of(entry.task))
    entry.asked = AskedBack.NO
    entry.evacuating = False
    queue = entry.queue
    if waits(entry):
        entry.move(TaskPlace.BEHIND)
        queue.delayed += 1
    elif delay_s > 0.0:
        entry.move(TaskPlace.DELAYED)
        queue.delayed += 1
        start_timer(state, entry, delay_s)
    else:
        entry.move(TaskPlace.WAITING)
        state.again.append(entry)
    state.turned[queue] = None
    if state.recording and not entry.task.items:
        state.actions.append(
            TaskChanged(
                state.now, state.job, entry.task.task_id, _READY, entry.tries, entry.task.name, "", detail
            )
        )
    if state.stopping is not None and entry.place is not TaskPlace.BEHIND:  # it ends with the one before it
        flush(state)
        cancel_unsent(state, entry, state.stopping)


def flush(state: SchedulerState) -> None:
    """Put what is to be tried again at the front of the queues, in the order in which it came."""
    for entry in reversed(state.again):
        task_id = entry.task.task_id
        if state.ends or entry.queue.shape.wait:  # which hosts stay long enough may be others by now
            state.turned[entry.queue] = None
            entry.queue = state.queue_for(state.look_ahead.shape_of(entry.task))
        queue = entry.queue
        if entry.avoid and has_alternative(state, entry):
            entry.move(TaskPlace.ELSEWHERE)
            queue.elsewhere[task_id] = entry
            queue.elsewhere.move_to_end(task_id, last=False)
            wait_s = state.retry.after_wait(entry.doubts) if entry.doubts else 0.0
            start_timer(state, entry, max(state.retry.elsewhere_s, wait_s))
        else:
            queue.waiting.put_first(entry)
        state.turned[queue] = None
    state.again.clear()


def has_alternative(state: SchedulerState, entry: TaskEntry) -> bool:
    """Return whether there may be a resource for the task that has not failed it."""
    first = entry.queue.shape.requirements[0]
    avoided = sum(state.known.get(resource_id) == first.resource_class for resource_id in entry.avoid)
    return not first.is_bound and state.class_sizes.get(first.resource_class, 0) > avoided


def start_timer(state: SchedulerState, whose: TaskEntry | Held, delay_s: float) -> None:
    """Wake a task or a grant after a delay; its earlier timer is void."""
    state.timer_count += 1
    whose.timer = state.timer_count
    heappush(state.timers, (state.now + delay_s, whose.timer, whose))


def next_timer(state: SchedulerState) -> float | None:
    """Return the time of the earliest timer that is not void."""
    timers = state.timers
    while timers and timers[0][2].timer != timers[0][1]:
        heappop(timers)
    return timers[0][0] if timers else None


def wake(state: SchedulerState) -> None:
    """Return to the queues what has waited long enough."""
    while (due := next_timer(state)) is not None and due <= state.now:
        entry = heappop(state.timers)[2]
        entry.timer = 0
        if isinstance(entry, Held):
            state.touched[entry] = state.turned[entry.queue] = None
            continue
        _wake(state, entry)
    flush(state)


def _wake(state: SchedulerState, entry: TaskEntry) -> None:
    if entry.place is TaskPlace.DELAYED:
        entry.queue.delayed -= 1
    else:
        del entry.queue.elsewhere[entry.task.task_id]
        entry.avoid = frozenset()
    entry.move(TaskPlace.WAITING)
    state.again.append(entry)
