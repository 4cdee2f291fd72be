"""How tasks are: how many in which state, records of them, and what each waits for, or where it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.scheduler import assign, choices, ending
from gspc_trio.components.job.scheduler.resource_queues import PATIENCE_S
from gspc_trio.components.job.scheduler.serve import record_of
from gspc_trio.components.job.scheduler.state import SchedulerState, ShapeQueue, TaskEntry, TaskPlace
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.records.facts import TaskChanged, TaskCounts
from gspc_trio.records.progress import JobProgress


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


def status(state: SchedulerState) -> dict[TaskState, int]:
    """Return the number of tasks in each state."""
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


def counted(
    state: SchedulerState, now: float, named: Iterable[TaskEntry] | None
) -> list[TaskCounts | TaskChanged]:
    """Return a record of all tasks by number, but for some that records of their own follow for.

    Args:
        state: of the scheduler.
        now: time, seconds.
        named: those, beside failed ones; None: nobody is named, not even those.
    """
    records: list[TaskChanged] = []
    totals = status(state)
    if named is not None:
        records = [*state.sums.failures.values(), *(record_of(state, entry) for entry in named)]
        for record in records:
            totals[record.state] -= 1
    return [state.sums.counts(now, state.job, totals, state.retries), *records]


def explain_task(state: SchedulerState, task_id: TaskId) -> str:
    """Return what the task waits for, where it runs, or that it is not there."""
    if task_id in state.failed:
        return f"task {task_id} has failed; it can be retried"
    entry = state.tasks.get(task_id)
    if entry is None:
        return f"task {task_id} has ended or was never ready"
    name = f"task {task_id} ({entry.task.name})"
    why = choices.explain(state, task_id)
    if state.plans is not None:
        why += state.plans.explain(task_id)
    if entry.place is TaskPlace.SENT:
        return f"{name} {_at_worker(entry)}{why or _why_there(entry)}"
    queue = entry.queue
    why += ending.why_not(state, entry)
    if entry.place is TaskPlace.QUEUED:
        return f"{name} {assign.explain(state, entry)}{why}"
    if entry.place is TaskPlace.DELAYED:
        due = min(due for due, number, _ in state.timers if number == entry.timer)
        return f"{name} is tried again in {max(0.0, due - state.now):.1f} s, after {_history(entry)}"
    if entry.place is TaskPlace.BEHIND:
        return f"{name} waits for the result of another task"
    if entry.place is TaskPlace.ELSEWHERE:
        return f"{name} waits for another {queue.resource_class} than {', '.join(sorted(entry.avoid))}"
    return f"{name} waits for {queue.shape}: {_position(entry)}; {_grants(queue)}{why}"


def _at_worker(entry: TaskEntry) -> str:
    held = entry.held
    assert held is not None
    position = list(held.sent).index(entry.task.task_id)
    cancelling = ", and was asked to end" if entry.cancelling else ""
    if position == 0:
        return f"runs on {held.resource_id}{cancelling}"
    return f"is number {position} in the queue of {held.resource_id}{cancelling}"


def _why_there(entry: TaskEntry) -> str:
    """Return why a task is at a worker when neither a variant nor a plan has decided it."""
    held, shape = entry.held, entry.task.shape
    assert held is not None
    first = shape.requirements[0]
    if first.hard:
        return f"; it asked for {shape}"
    if first.preferences:
        patience_s = PATIENCE_S if first.patience_s is None else first.patience_s
        return f"; it asked for {shape}, and takes any after {patience_s:g} s"
    reason = "had room first" if held.line is None else "was to end it first, or had nothing else to do"
    return f"; it asked for {shape}: any will do, and this one {reason}"


def _history(entry: TaskEntry) -> str:
    parts = (
        (entry.failures, "failures"),
        (entry.losses, "losses"),
        (entry.returns, "times given back by a worker"),
        (entry.doubts, "losses where none has finished yet"),
        (entry.waits, "times without data that is being made again"),
    )
    return ", ".join(f"{number} {what}" for number, what in parts if number)


def _position(entry: TaskEntry) -> str:
    before = 0
    for other in entry.queue.waiting:
        if other is entry:
            break
        before += 1
    return "it is the next" if before == 0 else f"{before} are before it"


def _grants(queue: ShapeQueue) -> str:
    if not queue.live:
        return "too many other shapes are asked for; it is asked for when one of them is done"
    away = sum(1 for held in queue.grants.values() if not held.up or held.lost)
    refused = sum(1 for held in queue.grants.values() if held.timer)
    text = f"{len(queue.grants)} grants are held, {queue.told} more are asked for"
    text += f", {away} are on hosts that cannot be reached" if away else ""
    return text + (f", {refused} are refused by their workers for now" if refused else "")


Glance: TypeAlias = Callable[[float, int | None], list[TaskCounts | TaskChanged]]
"""Returns how tasks are, by number, and some by name: of the time, and of how many to name."""


class HasItems(Protocol):
    """A job some of whose tasks may be ranges."""

    count_more: Callable[[dict[TaskState, int]], None] | None
    """Adds to numbers of tasks what makes items of them; None: they are."""


class ItemCounts:
    """Counts items in place of ranges, each of which is one task here, for those who watch a job.

    Args:
        glance: tells of tasks.
        machine: of the job.
    """

    def __init__(self, glance: Glance, machine: HasItems) -> None:
        self._glance, self._machine = glance, machine

    def _more(self) -> dict[TaskState, int]:
        """Return what is to be added to the numbers of tasks."""
        more: dict[TaskState, int] = {}
        if self._machine.count_more is not None:
            self._machine.count_more(more)
        return more

    def numbers(self, ended: int, live: int) -> tuple[int, int]:
        """Return how many items have ended, and how many have not, where so many tasks have."""
        more = self._more()
        over = sum(more.get(state, 0) for state in FINAL_STATES)
        return ended + over, live + sum(more.values()) - over

    def glance(self, now: float, named_max: int | None) -> list[TaskCounts | TaskChanged]:
        """Return the scheduler's records of how it is now, with items counted.

        Args:
            now: time, seconds.
            named_max: running tasks that are named, and others that are ready or on their way; None: all.
        """
        records = self._glance(now, named_max)
        first = records[0]
        assert isinstance(first, TaskCounts)
        records[0] = replace(first, counts=_sum(first.counts, self._more()))
        return records

    def news(self, now: float, known: JobProgress | None) -> list[TaskCounts]:
        """Return the record that says how many there are, if that is not known; none if none is a range.

        Args:
            now: time, seconds.
            known: what was recorded so far; None: nothing.
        """
        if self._machine.count_more is None or known is None:
            return []
        first, *named = self.glance(now, 0)
        assert isinstance(first, TaskCounts)
        counts = _sum(first.counts, Counter(one.state for one in named if isinstance(one, TaskChanged)))
        return [] if counts == _sum(known.counts, {}) else [replace(first, counts=counts, keep=True)]


def _sum(counts: Mapping[TaskState, int], more: Mapping[TaskState, int]) -> dict[TaskState, int]:
    """Return the sums of two counts, for each state."""
    return {state: counts.get(state, 0) + more.get(state, 0) for state in TaskState}
