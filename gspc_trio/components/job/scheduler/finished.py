"""Reports of workers to the scheduler: attempts that have begun, and the outcomes of those that ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gspc_trio.components.job.scheduler.choices import note_failure
from gspc_trio.components.job.scheduler.evacuation import is_fault_of_host
from gspc_trio.components.job.scheduler.grants import leave
from gspc_trio.components.job.scheduler.interface import CodeTime, TaskDone
from gspc_trio.components.job.scheduler.losses import again_elsewhere, lose, tell_of_attempt
from gspc_trio.components.job.scheduler.resource_queues import learned
from gspc_trio.components.job.scheduler.state import (
    AskedBack,
    Held,
    SchedulerState,
    ShapeQueue,
    TaskEntry,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.tasks import (
    again,
    came_back,
    end,
    fail,
    made,
    start_timer,
    to_own_queue,
)
from gspc_trio.components.job.scheduler.ties import waits
from gspc_trio.components.worker.messages import Begun, Finished
from gspc_trio.components.worker.verdict import had_begun
from gspc_trio.compute.channel import UNMADE
from gspc_trio.core.ids import ResourceId, host_name
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskState
from gspc_trio.records.columns import COLUMNS_MIN, columns_of
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.progress import LATELY_MAX

_FINISHED = TaskState.FINISHED
_BY_ITSELF = Reason.FINISHED
_AWAITED = AskedBack.AWAITED
_ENDED = TaskPlace.ENDED


def finished(state: SchedulerState, event: Finished) -> None:
    """Take the outcomes of attempts; unknown and old ones, and those of others, are only counted."""
    tasks, actions, now, job = state.tasks, state.actions, state.now, state.job
    resource_id = event.resource_id
    held: Held | None = None
    code_id, seconds, measured, computed_s = 0, 0.0, 0, 0.0
    done = own_errors = 0
    recording = state.recording
    columns = recording and len(event.outcomes) >= COLUMNS_MIN
    ended: list[TaskDone] = []
    for outcome in event.outcomes:
        task_id = outcome.task_id
        entry = tasks.get(task_id)
        if entry is None or entry.held is None or entry.attempt != outcome.attempt:
            state.stale += 1
            continue
        if entry.held is not held and entry.held.resource_id != resource_id:
            state.stale += 1
            continue
        if entry.held is not held:
            if measured:
                _learn(state, held, code_id, seconds, measured)
                seconds, measured = 0.0, 0
            held = entry.held
            state.touched[held] = state.turned[held.queue] = None
        queue = entry.queue
        queue.sent -= 1
        del held.sent[task_id]
        held.work_s -= entry.cost_s
        if entry.asked is _AWAITED:
            queue.awaited -= 1
        tie = entry.tie
        if outcome.reason is not _BY_ITSELF or (tie is not None and tie.before is not None):
            own_errors += _is_own_error(outcome)
            entry.held = None
            to_own_queue(state, entry)
            _ended_otherwise(state, entry, held, outcome, resource_id)
            continue
        task, last, its = entry.task, outcome, entry
        if task.code_id != code_id and measured:
            _learn(state, held, code_id, seconds, measured)
            seconds, measured = 0.0, 0
        code_id = task.code_id
        seconds += outcome.duration_s if not outcome.staged_s else _staged(state, outcome)
        computed_s += outcome.duration_s
        measured += 1
        done += 1
        del tasks[task_id]
        entry.move(_ENDED)
        told = TaskDone(task_id, _FINISHED, outcome, task.name, resource_id, entry.given_back, task.items)
        actions.append(told)
        if tie is not None:
            made(state, entry, outcome)
        if columns and not task.items:
            ended.append(told)
        elif recording and not task.items:
            actions.append(
                TaskChanged(
                    now, job, task_id, _FINISHED, its.tries, task.name, resource_id, "",
                    outcome.started_s, outcome.duration_s, outcome.staged_s, outcome.moved,
                )
            )  # fmt: skip
    if measured:
        _learn(state, held, code_id, seconds, measured)
    if ended:
        _tell_finished(state, resource_id, ended)
    if done:
        _count_finished(state, done, computed_s, [(its, last, resource_id)])
    if state.demand is not None and done + own_errors:
        state.demand.ended[host_name(resource_id)] += done + own_errors


def finished_together(
    state: SchedulerState, reports: Sequence[Finished], take: Callable[[int, Finished], None]
) -> None:
    """Take reports that have come at one time.

    Most tell of one task that has finished, and nothing else is to be thought of. What follows from these is
    done once for all that come after one another.

    Args:
        state: of the scheduler.
        reports: in order.
        take: takes any other report, by its place among them.
    """
    tasks, touched, finish = state.tasks, state.touched, state.actions.append
    ended: list[tuple[TaskEntry, Outcome, ResourceId]] = []
    queue: ShapeQueue | None = None
    code_id, seconds = 0, 0.0
    is_usual = not (state.choices or state.recording or state.demand or state.plans or state.assigned)
    for place, report in enumerate(reports):
        entry = held = None
        if is_usual and len(report.outcomes) == 1 and report.job == state.job:
            (outcome,), resource_id = report.outcomes, report.resource_id
            task_id = outcome.task_id
            entry = tasks.get(task_id)
            held = None if entry is None else entry.held
        if (
            entry is None
            or held is None
            or held.fresh
            or entry.attempt != outcome.attempt
            or held.resources[0] != resource_id
            or outcome.reason is not _BY_ITSELF
            or entry.tie is not None
            or entry.asked is _AWAITED
            or outcome.staged_s
        ):
            _learn_together(state, queue, code_id, seconds, ended)
            seconds = 0.0
            take(place, report)
            continue
        task = entry.task
        if task.code_id != code_id or held.queue is not queue:
            _learn_together(state, queue, code_id, seconds, ended)
            code_id, queue, seconds = task.code_id, held.queue, 0.0
            state.turned[queue] = None
        touched[held] = None
        entry.queue.sent -= 1
        del held.sent[task_id], tasks[task_id]
        held.work_s -= entry.cost_s
        seconds += outcome.duration_s
        entry.move(_ENDED)
        ended.append((entry, outcome, resource_id))
        finish(TaskDone(task_id, _FINISHED, outcome, task.name, resource_id, entry.given_back, task.items))
    _learn_together(state, queue, code_id, seconds, ended)


def _learn_together(
    state: SchedulerState,
    queue: ShapeQueue | None,
    code_id: int,
    seconds: float,
    ended: list[tuple[TaskEntry, Outcome, ResourceId]],
) -> None:
    """Count tasks of one code that have finished, learn how long they take, and forget them here."""
    if not ended or queue is None:
        return
    _learn_time(state, queue.resource_class, code_id, seconds, len(ended))
    _count_finished(state, len(ended), seconds, ended[-LATELY_MAX:])
    ended.clear()


def _count_finished(
    state: SchedulerState,
    number: int,
    computed_s: float,
    lately: Sequence[tuple[TaskEntry, Outcome, ResourceId]],
) -> None:
    """Count tasks that have finished, and keep the records of the last ones for who looks later."""
    state.finished += number
    state.sums.finished(state.now, number, computed_s)
    for entry, last, resource_id in lately:
        fields = (
            state.now, state.job, last.task_id, _FINISHED, entry.tries, entry.task.name, resource_id, "",
            last.started_s, last.duration_s, last.staged_s,
        )  # fmt: skip
        state.sums.lately.append(fields)


def _tell_finished(state: SchedulerState, resource_id: ResourceId, ended: list[TaskDone]) -> None:
    """Record in columns that tasks have finished."""
    same = {"at_s": state.now, "job": state.job, "state": _FINISHED, "resource_id": resource_id}
    outcomes = [done.outcome for done in ended]
    each: dict[str, Sequence[object]] = {
        "task_id": [outcome.task_id for outcome in outcomes],
        "attempt": [done.outcome.attempt - done.given_back for done in ended],
        "name": [done.name for done in ended],
        "started_s": [outcome.started_s for outcome in outcomes],
        "duration_s": [outcome.duration_s for outcome in outcomes],
    }
    if any(outcome.staged_s for outcome in outcomes):
        each["staged_s"] = [outcome.staged_s for outcome in outcomes]
        each["moved"] = [outcome.moved for outcome in outcomes]
    state.actions += columns_of(TaskChanged, same, each)


def _is_own_error(outcome: Outcome) -> bool:
    """Return whether a task has failed by itself, and not because its files could not be had."""
    return outcome.reason is Reason.FAILED and (outcome.error is None or outcome.error.kind != "staging")


def begun(state: SchedulerState, event: Begun) -> None:
    """A worker has begun with a task that stages data: it does not come back any more."""
    entry = state.tasks.get(event.task_id)
    if entry is None or entry.held is None or entry.attempt != event.attempt:
        return
    entry.begun = True
    if event.computes and entry is not entry.held.head():  # it has overtaken those that were sent before it
        sent = entry.held.sent
        before = {it: other for it, other in sent.items() if other is not entry}
        sent.clear()
        sent[event.task_id] = entry
        sent.update(before)
    if entry.asked is _AWAITED:
        entry.asked = AskedBack.BEGUN
        entry.queue.awaited -= 1
    state.touched[entry.held] = state.turned[entry.queue] = None


def _staged(state: SchedulerState, outcome: Outcome) -> float:
    """Return how long a staged task kept others from the same phase: that is what it costs beside them."""
    state.sums.moved_bytes += sum(size_bytes for _, size_bytes, _ in outcome.moved)
    times_s = outcome.staged_s
    staged_s = [end_s - begin_s for begin_s, end_s in zip(times_s[::2], times_s[1::2], strict=False)]
    return max(outcome.duration_s, *staged_s)


def _learn(state: SchedulerState, held: Held | None, code_id: int, seconds: float, count: int) -> None:
    """Note that ``count`` tasks of a code took ``seconds`` together."""
    assert held is not None
    if held.fresh:
        held.fresh, held.refusals = False, 0
        state.proven.add(host_name(held.resource_id))
    _learn_time(state, held.queue.resource_class, code_id, seconds, count)
    if state.assigned is not None:
        learned(state, (held.queue.resource_class, code_id))


def _learn_time(state: SchedulerState, resource_class: str, code_id: int, seconds: float, count: int) -> None:
    key = resource_class, code_id
    times = state.times.get(key)
    if times is None:
        times = state.times[key] = CodeTime()
    times.average_s = state.work_ahead.learn(times.average_s, times.samples, seconds / count, count)
    times.samples += count


def _ended_otherwise(
    state: SchedulerState, entry: TaskEntry, held: Held, outcome: Outcome, resource_id: ResourceId
) -> None:
    """An attempt did not finish; the task is no longer at the worker."""
    reason = outcome.reason
    if waits(entry):
        held.tied -= 1
        state.taken_back += entry.asked is not AskedBack.NO and reason is Reason.RETURNED
        came_back(state, entry, "it waits for the result of another task")
        return
    if (
        outcome.error is not None and outcome.error.kind == UNMADE
    ):  # the result was there: it is sent as others
        _came_back(state, entry, outcome, "sent without the result that it takes")
        return
    if outcome.stdout or outcome.stderr or (state.tracing and _is_attempt(outcome)):
        tell_of_attempt(state, entry, held, outcome)
    if reason is Reason.FAILED:
        _failed(state, entry, held, outcome, resource_id)
    elif reason is Reason.LOST:
        note_failure(state, entry)
        if lose(state, entry, outcome, resource_id):
            _refused(state, held)
    elif reason is Reason.CANCELLED and not entry.cancelling:
        # Somebody else has ended it: a run-time system that holds this job to be gone.
        lose(state, entry, replace(outcome, reason=Reason.LOST), resource_id)
    elif entry.cancelling:
        end(state, entry, TaskState.CANCELLED, replace(outcome, reason=Reason.CANCELLED), resource_id)
    elif entry.asked is not AskedBack.NO and reason is Reason.RETURNED:
        state.taken_back += 1
        _came_back(state, entry, outcome, "taken back")
    else:
        _given_back(state, entry, held, outcome, resource_id)


def _is_attempt(outcome: Outcome) -> bool:
    """Whether people see an attempt in what has come back: it had begun, or failed before."""
    return outcome.reason is not Reason.RETURNED or had_begun(outcome)


def _failed(
    state: SchedulerState, entry: TaskEntry, held: Held, outcome: Outcome, resource_id: ResourceId
) -> None:
    if is_fault_of_host(state, entry, outcome, resource_id):
        if not entry.evacuating:
            entry.io_failures += 1
            entry.doubts += 1
            _refused(state, held)
        told = "" if outcome.error is None else outcome.error.message
        again_elsewhere(state, entry, resource_id, f"its host has failed: {told}")
        return
    entry.failures += 1
    note_failure(state, entry)
    delay_s = None
    if not entry.cancelling:
        delay_s = state.retry.after_failure(entry.task.options, entry.failures, state.random)
    if delay_s is None:
        fail(state, entry, outcome, resource_id)
        return
    error = outcome.error
    detail = f"{error.kind}: {error.message}" if error is not None else "failed"
    again_elsewhere(state, entry, resource_id, detail, delay_s)


def _given_back(
    state: SchedulerState, entry: TaskEntry, held: Held, outcome: Outcome, resource_id: ResourceId
) -> None:
    """A worker gave a task back unasked: fate, it refuses the grant, or what the task needs is not there."""
    error = outcome.error
    if error is not None and error.kind == "awaited":  # for as long as that takes: it uses up nothing
        entry.waits += 1
        _came_back(state, entry, outcome, f"waits: {error.message}", state.retry.after_wait(entry.waits))
        return
    if error is not None and error.kind == "refused":
        _refused(state, held)
        _came_back(state, entry, outcome, f"refused: {error.message}")
        return
    entry.returns += 1
    delay_s = state.retry.after_return(entry.returns)
    detail = error.message if error is not None else "its worker gave it back"
    if delay_s is None:
        message = f"workers gave it back {entry.returns} times, the last time: {detail}"
        fail(state, entry, outcome, resource_id, TaskError("refused", message))
        return
    entry.alone = entry.alone or state.retry.alone_after(entry.returns)
    _came_back(state, entry, outcome, f"returned: {detail}", delay_s)


def _came_back(
    state: SchedulerState, entry: TaskEntry, outcome: Outcome, detail: str, delay_s: float = 0.0
) -> None:
    """A task gets another attempt; if it had not begun, people do not count the one that came back."""
    entry.given_back += not had_begun(outcome)
    again(state, entry, detail, delay_s)


def _refused(state: SchedulerState, held: Held) -> None:
    """A worker takes no tasks under the grant, or kills them: it rests a while, and in the end goes back."""
    if held.timer or held.leaving:
        return
    held.fresh = True
    held.refusals += 1
    delay_s = state.retry.after_refusal(held.refusals)
    if delay_s is None:
        leave(state, held)
    else:
        start_timer(state, held, delay_s)
