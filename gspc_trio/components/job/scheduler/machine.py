"""The machine of a scheduler: each event goes to a part of it, and then it does what follows from any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, ClassVar, cast

from gspc_trio.components.job.scheduler import (
    assign,
    behind,
    changes,
    choices,
    demand,
    evacuation,
    grants,
    run_times,
    tasks,
)
from gspc_trio.components.job.scheduler.finished import begun, finished, finished_together
from gspc_trio.components.job.scheduler.interface import (
    AssignPolicy,
    CancelTasks,
    Dependents,
    EndedUnsent,
    HostEvacuated,
    HostRestricted,
    HostRests,
    LookAheadPolicy,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Restored,
    RetryPolicy,
    RetryTask,
    RunTimes,
    SchedulerAction,
    SchedulerEvent,
    Stop,
    Stopped,
    TasksKnown,
    TasksReady,
    VariantPolicy,
    Watched,
    Withheld,
    WorkAheadPolicy,
)
from gspc_trio.components.job.scheduler.resource_queues import check_queues, has_queue, tell_lengths
from gspc_trio.components.job.scheduler.serve import (
    count_stuck,
    follow_head,
    patrol,
    serve,
)
from gspc_trio.components.job.scheduler.state import (
    Assigned,
    Held,
    SchedulerState,
    ShapeQueue,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.status import Statistics, counted, explain_task, status
from gspc_trio.components.rm.messages import Grant, Lapsed, Recall, Refuse
from gspc_trio.components.worker.messages import Begun, Cancel, Finished
from gspc_trio.core.demand import DemandWanted, GroupRefused
from gspc_trio.core.ids import Attempt, GrantId, JobId, ResourceId, TaskId
from gspc_trio.core.machine import ComposedMachine, IllegalEvent, OnIllegal, Tick, handles
from gspc_trio.core.task import Task, TaskState
from gspc_trio.records.facts import TaskChanged, TaskCounts

if TYPE_CHECKING:
    from gspc_trio.components.job.scheduler.plans import Plans


class Scheduler(ComposedMachine[SchedulerEvent, SchedulerAction]):
    """Brings the tasks of one job to resources (GSPC19 2.5, 3.1-3.3; SCH-1 to SCH-3).

    Args:
        job: whose tasks they are.
        retry: says whether and when to try again.
        work_ahead: says how many tasks to send to one worker.
        look_ahead: says which queue a task joins and what to ask for.
        variants: says which variant of a task runs.
        model: knows how long they run, and learns it.
        random: spreads the delays between attempts, or None.
        failed_max: so many of the tasks that failed last are kept for RetryTask, or None for all.
        recording: whether single tasks are recorded from the beginning; Watched changes it.
        tracing: whether it is said of each attempt how it has ended.
        assign_policy: tasks wait in queues of resources, by this; None: they go where a resource is free.
        plans: the plan of the job, None: it has none.
        dependents: knows what may be sent before it is ready; None: nothing is.
    """

    noun = "a scheduler"
    gathered: ClassVar[frozenset[type[object]]] = frozenset({Finished, Grant})

    def __init__(
        self,
        job: JobId,
        *,
        retry: RetryPolicy,
        work_ahead: WorkAheadPolicy,
        look_ahead: LookAheadPolicy,
        variants: VariantPolicy,
        model: RunTimes,
        random: Random | None = None,
        failed_max: int | None = None,
        recording: bool = True,
        tracing: bool = False,
        assign_policy: AssignPolicy | None = None,
        plans: Plans | None = None,
        dependents: Dependents | None = None,
    ) -> None:
        self._state = SchedulerState(
            job,
            retry,
            work_ahead,
            look_ahead,
            variants,
            model,
            random,
            failed_max,
            recording=recording,
            tracing=tracing,
            assigned=None if assign_policy is None else Assigned(assign_policy),
            plans=plans,
            dependents=dependents if plans is None and assign_policy is None else None,
        )
        super().__init__(self._state)
        self.job = job

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

    def deadline(self) -> float | None:
        """Return when the next delayed task wakes or the next patrol is due, or None."""
        state = self._state
        due, patrol_s = tasks.next_timer(state), state.patrol_s
        if state.demand is not None and state.demand.due_at is not None:
            due = state.demand.due_at if due is None else min(due, state.demand.due_at)
        if state.choices and state.look_s is not None and state.stopping is None:
            due = state.look_s if due is None else min(due, state.look_s)
        if due is None or patrol_s is None:
            return patrol_s if due is None else due
        return min(due, patrol_s)

    def check(self) -> None:
        """Assert every invariant of the state."""
        from gspc_trio.components.job.scheduler.check import check_state  # only here: few ask

        check_state(self._state)
        demand.check(self._state)
        if self._state.assigned is not None:
            check_queues(self._state)

    def status(self) -> Mapping[TaskState, int]:
        """Return the number of tasks in each state."""
        return status(self._state)

    @property
    def ended(self) -> int:
        """Number of tasks that have ended."""
        state = self._state
        return state.finished + state.cancelled + len(state.failed) + state.dropped

    def glance(self, now: float, named_max: int | None) -> list[TaskCounts | TaskChanged]:
        """Return records of how it is now: how many tasks there are in each state, and some by name.

        Args:
            now: time, seconds.
            named_max: running tasks that are named, and others that are ready or on their way; None: all.
        """
        state = self._state
        heads = (head for held in state.grants.values() if (head := held.head()) is not None)
        resting = (
            entry for entry in state.tasks.values() if entry.held is None or entry.held.head() is not entry
        )
        named = [*islice(heads, named_max), *islice(resting, named_max)]
        if named_max is None:  # what becomes of each is told from now on
            named = [entry for entry in named if not entry.task.items]
        return counted(state, now, named)

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

    def queued(self) -> dict[ResourceId, tuple[GrantId, list[Task]]]:
        """Return for each resource with a queue its grant, and the tasks that wait for it, in order."""
        return {
            held.resource_id: (held.grant_id, [entry.task for entry in held.line])
            for held in self._state.grants.values()
            if held.line is not None
        }

    @property
    def stolen(self) -> int:
        """How many tasks idle resources have taken from the queues of others."""
        return 0 if self._state.assigned is None else self._state.assigned.stolen

    @property
    def has_queues(self) -> bool:
        """Whether tasks wait in queues of resources."""
        return self._state.assigned is not None

    @property
    def has_plan(self) -> bool:
        """Whether tasks are planned on hosts."""
        return self._state.plans is not None

    def running(self) -> list[tuple[ResourceId, Task, Attempt]]:
        """Return the attempts that are the first at their worker; it costs a look at all grants."""
        heads = [(held.resource_id, held.head()) for held in self._state.grants.values()]
        return [(name, entry.task, entry.attempt) for name, entry in heads if entry is not None]

    def number_of(self, resource_class: str) -> int:
        """Return how many resources of a class are known."""
        return self._state.class_sizes.get(resource_class, 0)

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

    # Events

    @handles(TasksReady)
    def _ready(self, event: TasksReady) -> None:
        tasks.add(self._state, event)

    @handles(TasksKnown)
    def _known(self, event: TasksKnown) -> None:
        if self._state.plans is not None:
            self._state.plans.tasks_known(event.tasks)

    @handles(RetryTask)
    def _retry(self, event: RetryTask) -> None:
        tasks.retry(self._state, event)

    @handles(Restored)
    def _restored(self, event: Restored) -> None:
        tasks.restored(self._state, event)

    @handles(EndedUnsent)
    def _ended_unsent(self, event: EndedUnsent) -> None:
        tasks.ended_unsent(self._state, event)

    @handles(Grant)
    def _grant(self, event: Grant) -> None:
        self._check_job(event)
        grants.grant(self._state, event)

    @handles(Recall)
    def _recall(self, event: Recall) -> None:
        self._check_job(event)
        grants.recall(self._state, event)

    @handles(Refuse)
    def _refuse(self, event: Refuse) -> None:
        self._check_job(event)
        grants.refuse(self._state, event)

    @handles(Lapsed)
    def _lapsed(self, event: Lapsed) -> None:
        self._check_job(event)
        grants.lapsed(self._state, event)

    @handles(Finished)
    def _finished(self, event: Finished) -> None:
        self._check_job(event)
        if self._state.choices:
            run_times.learn(self._state, event)
        finished(self._state, event)
        if self._state.choices:
            choices.ended(self._state, event.outcomes)
            if self._state.look_s == self._state.now:  # one has tried something
                changes.look(self._state)
        if self._state.plans is not None:
            self._state.plans.ended(self._state, event)

    def _take_run(self, events: Sequence[SchedulerEvent], refuse: OnIllegal) -> None:
        if type(events[0]) is not Finished:
            super()._take_run(events, refuse)
            return

        def take(place: int, report: Finished) -> None:
            try:
                self._finished(report)
            except IllegalEvent as error:
                refuse(place, error)

        finished_together(self._state, cast(Sequence[Finished], events), take)

    @handles(Begun)
    def _begun(self, event: Begun) -> None:
        self._check_job(event)
        begun(self._state, event)

    def _check_job(self, event: Grant | Recall | Refuse | Lapsed | Finished | Begun) -> None:
        if event.job != self.job:
            raise IllegalEvent(f"{type(event).__name__} of job {event.job} came to job {self.job}")

    @handles(ResourcesUp)
    def _resources_up(self, event: ResourcesUp) -> None:
        grants.resources_up(self._state, event)

    @handles(ResourcesLost)
    def _resources_lost(self, event: ResourcesLost) -> None:
        grants.resources_lost(self._state, event)

    @handles(HostEvacuated)
    def _host_evacuated(self, event: HostEvacuated) -> None:
        evacuation.evacuate(self._state, event)

    @handles(HostRests)
    def _host_rests(self, event: HostRests) -> None:
        evacuation.rest(self._state, event)

    @handles(HostRestricted)
    def _host_restricted(self, event: HostRestricted) -> None:
        evacuation.restrict(self._state, event)

    @handles(Withheld)
    def _withheld(self, event: Withheld) -> None:
        grants.withheld(self._state, event)

    @handles(Reclaim)
    def _reclaim(self, event: Reclaim) -> None:
        grants.reclaim(self._state, event)

    @handles(CancelTasks)
    def _cancel(self, event: CancelTasks) -> None:
        sent: dict[Held, list[tuple[TaskId, int]]] = {}
        tasks.cancel(self._state, event, sent)
        _cancel_sent(self._state, sent)

    @handles(Stop)
    def _stop(self, event: Stop) -> None:
        state = self._state
        if state.stopping is not None and (event.drain or not state.draining):
            return
        state.stopping = event.reason
        state.draining = event.drain
        state.patrol_s = None
        sent: dict[Held, list[tuple[TaskId, int]]] = {}
        for entry in list(state.tasks.values()):
            if entry.place is TaskPlace.BEHIND:
                continue  # it ends with the one before it
            if entry.held is None:
                tasks.cancel_unsent(state, entry, event.reason)
            elif not (entry.cancelling or event.drain):
                entry.cancelling = True
                sent.setdefault(entry.held, []).append((entry.task.task_id, entry.attempt))
        _cancel_sent(state, sent)
        state.touched.update(dict.fromkeys(state.grants.values()))
        state.turned.update(dict.fromkeys(state.queues.values()))

    @handles(Watched)
    def _watched(self, event: Watched) -> None:
        """Record single tasks from now on, beginning with those there are; or count them only."""
        state = self._state
        if event.on is state.recording:
            return
        state.recording = event.on
        entries = [it for it in state.tasks.values() if not it.task.items] if event.on else None
        state.actions += counted(state, state.now, entries)
        if state.assigned is not None:
            tell_lengths(state)

    @handles(DemandWanted)
    def _demand_wanted(self, event: DemandWanted) -> None:
        demand.wanted(self._state, event)

    @handles(GroupRefused)
    def _group_refused(self, event: GroupRefused) -> None:
        demand.refused(self._state, event)

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        tasks.wake(self._state)
        patrol(self._state)
        changes.look(self._state)
        demand.tell(self._state)

    def settle(self) -> None:
        """After an event: follow what runs, give back, submit, ask for more."""
        state = self._state
        if state.sums.first_s is None:
            state.sums.first_s = state.now
        if state.demand is not None:
            state.demand.changed(state.now)
        if state.again:
            tasks.flush(state)
        for held in list(state.touched):
            follow_head(state, held)
            if held.slow or held.stuck:
                count_stuck(state, held)
            if not held.sent and (held.leaving or state.stopping is not None):
                grants.release(state, held)
            else:
                held.queue.levels.place(held)
            if state.assigned is not None:
                assign.changed(state, held)
            elif state.dependents is not None:
                state.filled[held] = None
        if state.plans is not None and state.stopping is None:
            behind.serve_planned(state, [held for held in state.touched if not held.sent])
        state.touched.clear()
        if state.again:  # they waited for resources that are gone
            tasks.flush(state)
        while state.turned:
            queue = next(iter(state.turned))
            del state.turned[queue]
            if state.stopping is None:
                if state.choices:
                    changes.decide(state, queue)
                if state.assigned is None:
                    serve(state, queue)
                elif has_queue(queue.shape):
                    assign.serve(state, queue)
                else:
                    serve(state, queue)
                    assign.serve(state, queue)
                if state.choices:
                    changes.bring(state, queue)
            grants.tell_demand(state, queue)
            if not (queue.sent or queue.waiting.size or queue.tasks):
                _give_up(state, queue)
        if state.filled:
            behind.send_all(state)
        if state.assigned is not None:
            for queue in state.queues.values():
                if queue.stuck:  # its grants may have got tasks of other shapes since it was looked at
                    grants.tell_demand(state, queue)
        if state.stopping is not None and not (state.stopped or state.tasks or state.grants):
            state.stopped = True
            state.actions.append(Stopped())


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


def _cancel_sent(state: SchedulerState, sent: dict[Held, list[tuple[TaskId, int]]]) -> None:
    for held, attempts in sent.items():
        state.actions.append(Cancel(state.job, held.resource_id, tuple(attempts)))
