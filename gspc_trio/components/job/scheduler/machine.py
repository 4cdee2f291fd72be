"""The scheduler of one job: one ``handle`` over the parts of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any

from msgspec import Struct

from gspc_trio.components.job.scheduler import grants, tasks
from gspc_trio.components.job.scheduler.checks import check_state
from gspc_trio.components.job.scheduler.explain import explain_task
from gspc_trio.components.job.scheduler.finished import begun, finished
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    FailedUnsent,
    LookAheadPolicy,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Restored,
    RetryPolicy,
    RetryTask,
    Stop,
    Stopped,
    TasksReady,
    Watched,
    Withheld,
    WorkAheadPolicy,
)
from gspc_trio.components.job.scheduler.serve import (
    count_stuck,
    follow_head,
    patrol,
    record_of,
    serve,
    tell_demand,
)
from gspc_trio.components.job.scheduler.state import Held, SchedulerState, ShapeQueue, TaskPlace
from gspc_trio.components.rm.messages import Grant, Lapsed, Recall, Refuse
from gspc_trio.components.worker.messages import Begun, Cancel, Finished
from gspc_trio.core.ids import Attempt, JobId, ResourceId, TaskId
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.task import Task, TaskState
from gspc_trio.records.facts import Record


class Statistics(Struct, frozen=True):
    """What a scheduler has done so far, and what it has in hand.

    Attributes:
        attempts: submissions.
        retries: attempts that followed a failure or a loss.
        taken_back: submissions that came back because they were asked back.
        stale: outcomes that were dropped, for their attempt was over already.
        grants, idle_grants: held now, and how many of them run nothing.
        queues, dormant: shapes that have a queue, and how many of them may not ask for grants yet.
    """

    attempts: int
    retries: int
    taken_back: int
    stale: int
    grants: int
    idle_grants: int
    queues: int
    dormant: int


class Scheduler:
    """Brings the tasks of one job to resources (GSPC19 2.5, 3.1-3.3; SCH-1 to SCH-3).

    Events are those of ``interface``, Grant, Recall, Refuse, Lapsed, Finished, Begun and Tick.
    Actions are Demand, Release, Submit, Cancel, TakeBack, Hold, Claims, GivenUp, TaskDone, Stopped, and the
    records TaskChanged, TaskCounts and GrantChanged.

    Args:
        job: whose tasks they are.
        retry: says whether and when to try again.
        work_ahead: says how many tasks to send to one worker.
        look_ahead: says which queue a task joins and what to ask for.
        random: spreads the delays between attempts, or None.
        failed_max: so many of the tasks that failed last are kept for RetryTask, or None for all.
    """

    def __init__(
        self,
        job: JobId,
        *,
        retry: RetryPolicy,
        work_ahead: WorkAheadPolicy,
        look_ahead: LookAheadPolicy,
        random: Random | None = None,
        failed_max: int | None = None,
    ) -> None:
        self._state = SchedulerState(job, retry, work_ahead, look_ahead, random, failed_max)

    @property
    def job(self) -> JobId:
        """Whose tasks they are."""
        return self._state.job

    @property
    def live(self) -> int:
        """Number of tasks that have not ended."""
        return len(self._state.tasks)

    @property
    def unsent(self) -> int:
        """Number of live tasks that are at no worker."""
        state = self._state
        number = len(state.tasks)
        for queue in state.queues.values():
            number -= queue.sent
        return number

    def handle(self, event: Any, now: float) -> list[Any]:
        """Take one event at time ``now`` (seconds) and return the actions in order.

        Raises:
            IllegalEvent: the event is unknown, of another job, names a task that is there already
                (TasksReady) or has not failed (RetryTask), or brings a grant twice; nothing was changed.
        """
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise IllegalEvent(f"a scheduler does not know the event {type(event).__name__}")
        state = self._state
        state.now = now
        if state.sums.first_s is None:
            state.sums.first_s = now
        handler(state, event)
        _settle(state)
        actions, state.out = state.out, []
        return actions

    def deadline(self) -> float | None:
        """Return when the next delayed task wakes or the next patrol is due, or None."""
        due, patrol_s = tasks.next_timer(self._state), self._state.patrol_s
        if due is None or patrol_s is None:
            return patrol_s if due is None else due
        return min(due, patrol_s)

    def check(self) -> None:
        """Assert every invariant of the state."""
        check_state(self._state)

    def status(self) -> Mapping[TaskState, int]:
        """Return the number of tasks in each state."""
        return _status(self._state)

    @property
    def ended(self) -> int:
        """Number of tasks that have ended."""
        state = self._state
        return state.finished + state.cancelled + len(state.failed) + state.dropped

    def glance(self, now: float, named_max: int) -> list[Record]:
        """Return records of how it is now: how many tasks there are in each state, and some by name.

        Args:
            now: time, seconds.
            named_max: running tasks that are named, and others that are ready or on their way.
        """
        return _glance(self._state, now, named_max)

    def state_of(self, task_id: TaskId) -> TaskState | None:
        """Return the state of a task that has not ended or has failed, None for any other."""
        if task_id in self._state.failed:
            return TaskState.FAILED
        entry = self._state.tasks.get(task_id)
        if entry is None:
            return None
        if entry.place is not TaskPlace.SENT or entry.held is None:
            return TaskState.READY
        return TaskState.RUNNING if entry.held.head() is entry else TaskState.SUBMITTED

    def task(self, task_id: TaskId) -> Task | None:
        """Return a task that has not ended or has failed, None for any other."""
        entry = self._state.tasks.get(task_id) or self._state.failed.get(task_id)
        return entry.task if entry is not None else None

    def sent_to(self, resource_ids: Sequence[ResourceId]) -> list[tuple[ResourceId, TaskId, Attempt]]:
        """Return the attempts that are at these resources, as far as is known."""
        held = [it for name in resource_ids if (it := self._state.by_resource.get(name)) is not None]
        return [
            (it.resource_id, task_id, entry.attempt)
            for it in dict.fromkeys(held)
            if it.resource_id in resource_ids
            for task_id, entry in it.sent.items()
        ]

    def attempt_of(self, task_id: TaskId) -> tuple[ResourceId, Attempt] | None:
        """Return at which resource a task is and the number of its submission; None if it is at none."""
        entry = self._state.tasks.get(task_id)
        if entry is None or entry.held is None:
            return None
        return entry.held.resource_id, entry.attempt

    def is_running(self, task_id: TaskId) -> bool:
        """Return whether the task is the one that its worker runs."""
        return self.state_of(task_id) is TaskState.RUNNING

    def explain(self, task_id: TaskId) -> str:
        """Return what the task waits for, where it runs, or that it is not there: one line for people."""
        return explain_task(self._state, task_id)

    def statistics(self) -> Statistics:
        """Return counters and what is held."""
        state = self._state
        return Statistics(
            attempts=state.attempts,
            retries=state.retries,
            taken_back=state.taken_back,
            stale=state.stale,
            grants=len(state.grants),
            idle_grants=sum(1 for held in state.grants.values() if not held.sent),
            queues=len(state.queues),
            dormant=len(state.dormant),
        )


def _status(state: SchedulerState) -> dict[TaskState, int]:
    sent = sum(queue.sent for queue in state.queues.values())
    running = sum(1 for held in state.grants.values() if held.sent)
    return {
        TaskState.READY: len(state.tasks) - sent,
        TaskState.SUBMITTED: sent - running,
        TaskState.RUNNING: running,
        TaskState.FINISHED: state.finished,
        TaskState.FAILED: len(state.failed) + state.dropped + state.sums.failed_unsent,
        TaskState.CANCELLED: state.cancelled,
    }


def _watched(state: SchedulerState, event: Watched) -> None:
    """Record single tasks from now on, beginning with those there are; or count them only."""
    if event.on is state.recording:
        return
    state.recording = event.on
    totals = _status(state)
    named = []
    if event.on:
        named = [*state.sums.failures.values(), *(record_of(state, entry) for entry in state.tasks.values())]
        for record in named:
            totals[record.state] -= 1
    state.out += [state.sums.counts(state.now, state.job, totals), *named]


def _glance(state: SchedulerState, now: float, named_max: int) -> list[Record]:
    heads = (head for held in state.grants.values() if (head := held.head()) is not None)
    running = list(islice(heads, named_max))
    resting = (
        entry for entry in state.tasks.values() if entry.held is None or entry.held.head() is not entry
    )
    others = islice(resting, named_max)
    named = [*state.sums.failures.values(), *(record_of(state, entry) for entry in (*running, *others))]
    totals = _status(state)
    for record in named:
        totals[record.state] -= 1
    return [state.sums.counts(now, state.job, totals), *named]


def _settle(state: SchedulerState) -> None:
    """After an event: follow what runs, give back, submit, ask for more."""
    if state.again:
        tasks.flush(state)
    for held in list(state.touched):
        follow_head(state, held)
        count_stuck(state, held)
        if not held.sent and (held.leaving or state.stopping is not None):
            grants.release(state, held)
        else:
            held.queue.levels.place(held)
    state.touched.clear()
    while state.turned:
        queue = next(iter(state.turned))
        del state.turned[queue]
        if state.stopping is None:
            serve(state, queue)
        tell_demand(state, queue)
        if not (queue.sent or queue.waiting.size or queue.tasks):
            _give_up(state, queue)
    if state.stopping is not None and not (state.stopped or state.tasks or state.grants):
        state.stopped = True
        state.out.append(Stopped())


def _give_up(state: SchedulerState, queue: ShapeQueue) -> None:
    """Forget a queue without tasks and grants; it gives its grants back if others may not ask yet."""
    if queue.live and state.dormant:
        for held in list(queue.grants.values()):
            grants.release(state, held)
    if queue.grants:
        return
    state.turned.pop(queue, None)
    del state.queues[queue.shape]
    if not queue.live:
        del state.dormant[queue.shape]
    elif state.dormant:
        follower = state.dormant.popitem(last=False)[1]
        follower.live = True
        state.turned[follower] = None


def _grant(state: SchedulerState, event: Grant) -> None:
    _ours(state, event)
    grants.grant(state, event)


def _recall(state: SchedulerState, event: Recall) -> None:
    _ours(state, event)
    grants.recall(state, event)


def _refuse(state: SchedulerState, event: Refuse) -> None:
    _ours(state, event)
    grants.refuse(state, event)


def _lapsed(state: SchedulerState, event: Lapsed) -> None:
    _ours(state, event)
    grants.lapsed(state, event)


def _finished(state: SchedulerState, event: Finished) -> None:
    _ours(state, event)
    finished(state, event)


def _begun(state: SchedulerState, event: Begun) -> None:
    _ours(state, event)
    begun(state, event)


def _ours(state: SchedulerState, event: Grant | Recall | Refuse | Lapsed | Finished | Begun) -> None:
    if event.job != state.job:
        raise IllegalEvent(f"{type(event).__name__} of job {event.job} came to job {state.job}")


def _cancel(state: SchedulerState, event: CancelTasks) -> None:
    submitted: dict[Held, list[tuple[TaskId, int]]] = {}
    tasks.cancel(state, event, submitted)
    _cancel_submitted(state, submitted)


def _cancel_submitted(state: SchedulerState, submitted: dict[Held, list[tuple[TaskId, int]]]) -> None:
    for held, attempts in submitted.items():
        state.out.append(Cancel(state.job, held.resource_id, tuple(attempts)))


def _stop(state: SchedulerState, event: Stop) -> None:
    if state.stopping is not None and (event.drain or not state.draining):
        return
    state.stopping = event.reason
    state.draining = event.drain
    state.patrol_s = None
    submitted: dict[Held, list[tuple[TaskId, int]]] = {}
    for entry in list(state.tasks.values()):
        if entry.held is None:
            tasks.cancel_unsent(state, entry, event.reason)
        elif not (entry.cancelling or event.drain):
            entry.cancelling = True
            submitted.setdefault(entry.held, []).append((entry.task.task_id, entry.attempt))
    _cancel_submitted(state, submitted)
    state.touched.update(dict.fromkeys(state.grants.values()))
    state.turned.update(dict.fromkeys(state.queues.values()))


def _tick(state: SchedulerState, _event: Tick) -> None:
    tasks.wake(state)
    patrol(state)


_HANDLERS: dict[type, Callable[[SchedulerState, Any], None]] = {
    TasksReady: tasks.add,
    RetryTask: tasks.retry,
    Restored: tasks.restored,
    CancelTasks: _cancel,
    Grant: _grant,
    Recall: _recall,
    Refuse: _refuse,
    Lapsed: _lapsed,
    Finished: _finished,
    Begun: _begun,
    ResourcesUp: grants.resources_up,
    ResourcesLost: grants.resources_lost,
    Withheld: grants.withheld,
    Reclaim: grants.reclaim,
    Stop: _stop,
    Watched: _watched,
    FailedUnsent: tasks.failed_unsent,
    Tick: _tick,
}
