"""State of the scheduler: live tasks, grants, a queue for each shape."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from enum import IntEnum
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import Factory, define
from msgspec import Struct, field

from gspc_trio.components.job.scheduler.interface import (
    CodeTime,
    Dependents,
    HostRestricted,
    LookAheadPolicy,
    RetryPolicy,
    RunTimes,
    SchedulerAction,
    VariantCost,
    VariantPolicy,
    WorkAheadPolicy,
)
from gspc_trio.components.job.scheduler.waiting import (
    AssignedTasks,
    QueuesOfClass,
    ResourceQueue,
    Tie,
    Waiting,
)
from gspc_trio.core.demand import TaskGroup
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, RifId, TaskId
from gspc_trio.core.machine import Turn
from gspc_trio.core.task import Shape, Task, TaskState
from gspc_trio.records.facts import TaskChanged, TaskCounts
from gspc_trio.records.progress import LATELY_MAX, RECENT_SECONDS, keep_failure

if TYPE_CHECKING:
    from gspc_trio.components.job.scheduler.plans import Plans

SHAPES_MAX = 1024
"""Shapes for which grants may be asked at a time; the others wait."""

AVOIDING_SEEN = 8
"""So many of the tasks that wait for another resource than those that failed them are looked at at a time."""


class Sums(Struct, eq=False):
    """Of tasks that have ended.

    Attributes:
        first_s: time of the first event.
        computed_s: seconds of compute of those that finished.
        moved_bytes: what workers fetched from other hosts for them.
        recent: second -> number of tasks finished in it, the last ones.
        failures: records of those that failed last.
        failed_unsent: number of those that failed without having been ready; they are among ``failures``.
        lately: fields of the record of those that finished last, one of each report.
    """

    first_s: float | None = None
    computed_s: float = 0.0
    moved_bytes: int = 0
    recent: dict[int, int] = field(default_factory=dict)
    failures: dict[TaskId, TaskChanged] = field(default_factory=dict)
    failed_unsent: int = 0
    lately: deque[tuple[Any, ...]] = field(default_factory=lambda: deque(maxlen=LATELY_MAX))

    def finished(self, now: float, number: int, seconds: float) -> None:
        """So many tasks have finished, after so many seconds of compute in all."""
        self.computed_s += seconds
        second, recent = int(now), self.recent
        recent[second] = recent.get(second, 0) + number
        if len(recent) > RECENT_SECONDS:
            del recent[next(iter(recent))]

    def failed(self, record: TaskChanged) -> None:
        """A task has failed."""
        keep_failure(self.failures, record)

    def counts(self, now: float, job: JobId, totals: Mapping[TaskState, int], retried: int) -> TaskCounts:
        """Return the record that says all this, with these totals."""
        first_s = now if self.first_s is None else self.first_s
        recent, lately = tuple(self.recent.items()), tuple(TaskChanged(*fields) for fields in self.lately)
        return TaskCounts(
            now, job, dict(totals), self.computed_s, first_s, recent, lately, False, retried, self.moved_bytes
        )


class TaskPlace(IntEnum):
    """Where a task's entry is; a live task is in one of the first four, or in a resource's queue."""

    WAITING = 0
    """In the queue of its shape, for any grant."""
    ELSEWHERE = 1
    """In the queue of its shape, for a grant of another resource than those that failed it."""
    DELAYED = 2
    """It waits for a time before it is tried again."""
    SENT = 3
    """Submitted under a grant: it runs, or is next on its worker."""
    FAILED = 4
    """It has failed for good; only a request to try it again brings it back."""
    ENDED = 5
    """It has finished or was cancelled."""
    QUEUED = 6
    """In the queue of a resource, live as well."""
    BEHIND = 7
    """It was sent ahead and has come back: it waits for the task whose result it takes; live as well."""


TRANSITIONS: dict[TaskPlace, frozenset[TaskPlace]] = {
    TaskPlace.WAITING: frozenset(
        {TaskPlace.SENT, TaskPlace.ELSEWHERE, TaskPlace.QUEUED, TaskPlace.FAILED, TaskPlace.ENDED}
    ),
    TaskPlace.ELSEWHERE: frozenset(
        {TaskPlace.SENT, TaskPlace.WAITING, TaskPlace.QUEUED, TaskPlace.FAILED, TaskPlace.ENDED}
    ),
    TaskPlace.QUEUED: frozenset({TaskPlace.SENT, TaskPlace.WAITING, TaskPlace.FAILED, TaskPlace.ENDED}),
    TaskPlace.DELAYED: frozenset({TaskPlace.WAITING, TaskPlace.FAILED, TaskPlace.ENDED}),
    TaskPlace.SENT: frozenset(
        {TaskPlace.WAITING, TaskPlace.DELAYED, TaskPlace.BEHIND, TaskPlace.FAILED, TaskPlace.ENDED}
    ),
    TaskPlace.BEHIND: frozenset({TaskPlace.SENT, TaskPlace.WAITING, TaskPlace.FAILED, TaskPlace.ENDED}),
    TaskPlace.FAILED: frozenset({TaskPlace.WAITING}),
    TaskPlace.ENDED: frozenset(),
}
"""Where a task may go from where it is."""


class AskedBack(IntEnum):
    """Whether a submitted task was asked back, and whether the answer is still awaited."""

    NO = 0
    AWAITED = 1
    BEGUN = 2


class TaskEntry(Struct, eq=False):
    """A task that has not ended, or has failed and may be retried.

    Attributes:
        task: as the engine handed it out.
        queue: that it belongs to.
        alone: it shares no worker with others.
        attempt: number of its last submission; it names that between the job and its workers.
        given_back: submissions that came back and had not begun; people do not count those as attempts.
        failures, losses, returns: attempts used up by its own error, by a loss, and given back unasked.
        waits: how often it was given back because what it needs is being made again.
        place: where it is.
        held: the grant it is submitted to.
        cost_s: seconds of work it was taken for when it was sent.
        cancelling: it was asked to end.
        evacuating: its attempt was asked to end, for its host may fail; it runs again elsewhere.
        asked: it was asked back.
        number: of its last submission, among all of the job; in a resource's queue, its place among others.
        line: the grant in whose resource's queue it waits.
        tie: to others in a chain, None if it was never in one that was sent ahead.
        unsent: that submission never left this process.
        begun: it stages data, and its worker has said that it has begun with it.
        avoid: resources that failed it.
        lost_at: hosts that were charged with a loss of it.
        io_failures: how often its own error was that the storage of its host has failed.
        doubts: losses for which its host is held to be to blame.
        timer: number of its latest timer; older ones are void.
    """

    task: Task
    queue: ShapeQueue
    alone: bool
    attempt: int = 0
    given_back: int = 0
    failures: int = 0
    losses: int = 0
    returns: int = 0
    waits: int = 0
    place: TaskPlace = TaskPlace.WAITING
    held: Held | None = None
    cost_s: float = 0.0
    cancelling: bool = False
    evacuating: bool = False
    asked: AskedBack = AskedBack.NO
    number: int = 0
    unsent: bool = False
    begun: bool = False
    avoid: frozenset[ResourceId] = frozenset()
    lost_at: frozenset[str] = frozenset()
    io_failures: int = 0
    doubts: int = 0
    timer: int = 0
    line: Held | None = None
    tie: Tie[TaskEntry] | None = None

    @property
    def tries(self) -> int:
        """Its attempts as people count them; a submission that has not come back is one."""
        return self.attempt - self.given_back

    @property
    def staged(self) -> bool:
        """Whether it fetches or stores data, and so overlaps with others on its worker."""
        options = self.task.options
        return options.stage_in or options.stage_out

    def move(self, place: TaskPlace) -> None:
        """Go to another place, as :data:`TRANSITIONS` allows."""
        assert place in TRANSITIONS[self.place], f"task {self.task.task_id} from {self.place} to {place}"
        self.place = place


class Held(Struct, eq=False):
    """A grant in hand.

    Attributes:
        grant_id, resources: as granted; tasks run on the worker of the first resource.
        queue: of its shape.
        sent: what was submitted and has not ended, in order; the first one runs.
        announced: the task that was last found to run, ``since_s`` when.
        work_s: seconds of work in ``sent``, as measured so far.
        up: every resource can be reached.
        lost: a resource was lost; nothing more is submitted.
        leaving: it goes back when the running task has ended, for it was recalled or its worker refuses.
        slow: the running task takes long; no more is sent behind it than it overlaps with.
        blocked: that is nothing: it stages no data.
        stuck: number of tasks that wait behind a running one that takes long, and could be elsewhere.
        refusals: how often its worker refused it since a task last finished there.
        fresh: nothing has finished there since it was granted or refused.
        timer: number of the timer that ends its rest after a refusal, 0 if it does not rest.
        watched: attempt that ran at the last patrol.
        level: number of tasks under which it is found in the queue's levels, -1 if it is not there.
        line: tasks that wait for its resource, None if such a grant has no queue.
        tied: number of tasks in ``sent`` that wait there for the result of another one.
    """

    grant_id: GrantId
    resources: tuple[ResourceId, ...]
    queue: ShapeQueue
    sent: dict[TaskId, TaskEntry] = field(default_factory=dict)
    announced: TaskEntry | None = None
    since_s: float = 0.0
    work_s: float = 0.0
    up: bool = True
    lost: bool = False
    leaving: bool = False
    slow: bool = False
    blocked: bool = False
    stuck: int = 0
    refusals: int = 0
    fresh: bool = True
    timer: int = 0
    watched: tuple[TaskId, int] = (0, 0)
    level: int = -1
    line: ResourceQueue[TaskEntry] | None = None
    tied: int = 0

    def __repr__(self) -> str:
        return object.__repr__(self)  # tasks and queues refer to it, and it to them

    @property
    def resource_id(self) -> ResourceId:
        """Whose worker runs the tasks."""
        return self.resources[0]

    @property
    def usable(self) -> bool:
        """Whether tasks may be submitted to it."""
        return self.up and not (self.lost or self.leaving or self.blocked or self.timer)

    def head(self) -> TaskEntry | None:
        """Return the running task."""
        return next(iter(self.sent.values()), None)


class Levels:
    """The usable grants of a queue by number of tasks on them: finds the emptiest and the fullest."""

    __slots__ = ("by_count", "size")

    def __init__(self) -> None:
        # Ordered, because grants leave at the front and come at the back: a plain dict would be searched
        # for its first one through all that have left.
        self.by_count: dict[int, OrderedDict[Held, None]] = {}
        self.size: int = 0

    def place(self, held: Held) -> None:
        """Put a grant where its number of tasks says, or nowhere if it is not usable."""
        count, level = len(held.sent), held.level
        if not held.up or held.lost or held.leaving or held.blocked or held.timer:  # not usable
            count = -1
        if level == count:
            return
        if level >= 0:
            before = self.by_count[level]
            del before[held]
            if not before:
                del self.by_count[level]
            self.size -= 1
        if count >= 0:
            group = self.by_count.get(count)
            if group is None:
                group = self.by_count[count] = OrderedDict()
            group[held] = None
            self.size += 1
        held.level = count


Row: TypeAlias = OrderedDict[TaskId, TaskEntry]
"""Tasks of one rank that wait, in the order in which they came."""


@define(eq=False)
class ShapeQueue:
    """The tasks of one shape and the grants for them (SCH-3).

    Attributes:
        shape: of all of them.
        resource_class: of the resource whose worker runs them.
        single: it is a single resource, not a co-allocation.
        waiting: tasks that can run on any grant, by rank.
        elsewhere: tasks that wait for another resource than those that failed them.
        delayed: number of tasks that wait for a time, or for the task whose result they take.
        queued: how many wait in the queues of resources, whose grants may be of other shapes; ``urgent`` is
            priority -> how many of them have it.
        sent: number of tasks submitted.
        grants: all that are held.
        levels: the usable ones.
        told: further grants the RM thinks that can be used.
        told_priority: what it takes their priority for.
        awaited: tasks asked back that may still come.
        stuck: sum of those of its grants.
        changed_s: time of the last grant, or of asking when nothing was asked before.
        live: whether grants are asked for.
    """

    shape: Shape
    resource_class: str
    single: bool
    waiting: Waiting[TaskEntry] = Factory(Waiting)
    elsewhere: OrderedDict[TaskId, TaskEntry] = Factory(OrderedDict)
    delayed: int = 0
    queued: int = 0
    urgent: dict[int, int] = Factory(dict)
    sent: int = 0
    grants: dict[GrantId, Held] = Factory(dict)
    levels: Levels = Factory(Levels)
    told: int = 0
    told_priority: int = 0
    awaited: int = 0
    stuck: int = 0
    changed_s: float = 0.0
    live: bool = True

    @property
    def unserved(self) -> int:
        """Number of tasks that a further grant would run."""
        return self.waiting.size + len(self.elsewhere) + self.queued

    @property
    def priority(self) -> int:
        """The priority of the next task of the queue, 0 if nothing waits."""
        entries = list(islice(self.elsewhere.values(), AVOIDING_SEEN))
        if (first := self.waiting.first()) is not None:
            entries.append(first)
        priorities = [entry.task.options.priority for entry in entries]
        return max(priorities + list(self.urgent), default=0)

    @property
    def wanted(self) -> int:
        """Number of further grants that would let tasks begin sooner."""
        unserved = self.unserved
        if self.stuck:
            idle = len(self.levels.by_count.get(0, ()))  # of which some wait for what was asked back
            unserved += max(0, self.stuck - max(0, idle - self.awaited))
        return unserved

    @property
    def tasks(self) -> int:
        """Number of live tasks."""
        return self.waiting.size + len(self.elsewhere) + self.queued + self.delayed + self.sent


DEMAND_S = 1.0
"""Seconds between two demands at least."""

RunsUntil: TypeAlias = tuple[RifId, int, int, int]
"""A host, the time at which the walltime of a task there is over, and the cores and nodes that it has."""


class DemandTeller(Struct, eq=False):
    """What was said last of tasks that wait and run, and when there is more to say.

    Attributes:
        due_at: when to say it, None as long as nothing has changed.
        told_at: when it was looked at last; ``pause_s``: not before so many seconds after that again.
        groups, running: what was said.
        ended: host -> tasks that have come to their end there since then.
        step_s: walltimes were rounded up to multiples of this; 0: they were not.
        is_quiet: the event that is being handled changes nothing.
    """

    due_at: float | None = None
    told_at: float | None = None
    pause_s: float = DEMAND_S
    groups: tuple[TaskGroup, ...] = ()
    running: Counter[RunsUntil] = field(default_factory=Counter)
    ended: Counter[RifId] = field(default_factory=Counter)
    step_s: float = 0.0
    is_quiet: bool = False

    def changed(self, now: float) -> None:
        """Something may have changed."""
        if self.is_quiet:
            self.is_quiet = False
        elif self.due_at is None:
            self.due_at = now if self.told_at is None else max(now, self.told_at + self.pause_s)


Trial: TypeAlias = tuple[str, str, int]
"""What a task tries: code, variant, and power of two of the size of its input."""


class Tally(Struct, eq=False):
    """Of the tasks of a code: how many there were, and how many of them have tried a variant."""

    tasks: int = 0
    trials: int = 0


class Choice(Struct, eq=False):
    """Which of its variants a task takes.

    Attributes:
        task: as the engine handed it out.
        size: of its input.
        way: index of the variant, None as long as the task is none of the live ones.
        work_s: seconds that it was taken for when that was chosen.
        failed: indices of the variants whose attempts have failed or were lost.
        refused: index of a variant -> why there is no resource for it.
        costs: of all variants when it was chosen, None for what could not be.
        trial: what it tries by that, or None.
    """

    task: Task
    size: int = 0
    way: int | None = None
    work_s: float = 0.0
    failed: frozenset[int] = frozenset()
    refused: dict[int, str] = field(default_factory=dict)
    costs: tuple[VariantCost | None, ...] = ()
    trial: Trial | None = None


class ClassWork(Struct, eq=False):
    """The live tasks with variants that go to one resource class: how many, and the seconds they take."""

    tasks: int = 0
    seconds: float = 0.0


ClassQueues: TypeAlias = QueuesOfClass[Held]

Assigned: TypeAlias = AssignedTasks[Held, ShapeQueue]


@define(eq=False)
class SchedulerState(Turn[SchedulerAction]):
    """Everything one scheduler knows, and the actions of the event it is handling.

    Attributes:
        tasks: the live ones.
        failed: those that failed, for RetryTask; ``failed_max`` is how many, the last ones, or None for all.
        dropped: number of those that failed and are not kept.
        grants, by_resource: what is held, by grant and by resource.
        known, class_sizes: resources that are up with their class, and how many of each class.
        ends: hosts that end, and when; ``restricted``: those that get no tasks which use data in some ways.
        aside: shapes of tasks that wait for a host which stays as long as they take.
        proven: hosts where a task of the job has finished.
        of_host: a host and those of ``known`` that it has, when somebody has asked for them.
        times: (resource class, code id) -> measured time.
        queues: one for each shape; ``dormant`` are those that wait until another one is given up.
        timers: (due, number, whose), a heap.
        seen: newest grant received.
        patrol_s: time of the next patrol, or None.
        stopping: reason of Stop, or None.
        draining: what is at a worker may run to its end.
        recording: whether what becomes of single tasks is recorded.
        tracing: whether it is said of each attempt how it has ended.
        sums: what is known of those that have ended.
        demand: what is said to whoever asks batch systems for hosts, None if nobody does.
        choices: of the live tasks with variants, and of those that have failed and are kept.
        variant_work: resource class -> the tasks with variants that go there.
        model: of their run times.
        processor_of: host -> model of its processor, where that is known.
        processors: resource class -> those of its resources; counted anew after any have come or gone.
        tallies: name of a code -> how many of its tasks have tried a variant.
        trying: what is being tried -> the task that does.
        assigned: of tasks in queues of resources, None if tasks go where a resource is free.
        look_s: when to look again whether tasks had better change their variant, ``look_pause_s`` after the
            last time; None: none waits.
        now, actions: time of the event that is being handled, and what is to be done after it, in order.
        again: tasks that go back to the front of their queue when the event is done.
        touched, turned, filled: grants, queues, and grants with room behind, that the event has changed.
    """

    job: JobId
    retry: RetryPolicy
    work_ahead: WorkAheadPolicy
    look_ahead: LookAheadPolicy
    variants: VariantPolicy
    model: RunTimes
    random: Random | None
    failed_max: int | None = None
    tasks: dict[TaskId, TaskEntry] = Factory(dict)
    failed: dict[TaskId, TaskEntry] = Factory(dict)
    dropped: int = 0
    grants: dict[GrantId, Held] = Factory(dict)
    by_resource: dict[ResourceId, Held] = Factory(dict)
    known: dict[ResourceId, str] = Factory(dict)
    class_sizes: dict[str, int] = Factory(dict)
    evacuated: set[ResourceId] = Factory(set)
    of_host: tuple[str, frozenset[ResourceId]] = ("", frozenset())
    ends: dict[str, float] = Factory(dict)
    restricted: dict[str, HostRestricted] = Factory(dict)
    aside: set[Shape] = Factory(set)
    proven: set[str] = Factory(set)
    times: dict[tuple[str, int], CodeTime] = Factory(dict)
    queues: dict[Shape, ShapeQueue] = Factory(dict)
    dormant: OrderedDict[Shape, ShapeQueue] = Factory(OrderedDict)
    timers: list[tuple[float, int, TaskEntry | Held]] = Factory(list)
    timer_count: int = 0
    seen: GrantId = NO_GRANT
    patrol_s: float | None = None
    stopping: str | None = None
    draining: bool = False
    stopped: bool = False
    finished: int = 0
    cancelled: int = 0
    stale: int = 0
    attempts: int = 0
    retries: int = 0
    taken_back: int = 0
    recording: bool = True
    tracing: bool = False
    sums: Sums = Factory(Sums)
    demand: DemandTeller | None = None
    choices: dict[TaskId, Choice] = Factory(dict)
    variant_work: dict[str, ClassWork] = Factory(dict)
    processor_of: dict[str, str] = Factory(dict)
    processors: dict[str, Counter[str]] = Factory(dict)
    tallies: dict[str, Tally] = Factory(dict)
    trying: dict[Trial, TaskId] = Factory(dict)
    assigned: Assigned | None = None
    plans: Plans | None = None
    dependents: Dependents | None = None
    look_s: float | None = None
    look_pause_s: float = 0.0
    now: float = 0.0
    actions: list[SchedulerAction] = Factory(list)
    again: list[TaskEntry] = Factory(list)
    touched: dict[Held, None] = Factory(dict)
    turned: dict[ShapeQueue, None] = Factory(dict)
    filled: dict[Held, None] = Factory(dict)

    def queue_for(self, shape: Shape) -> ShapeQueue:
        """Return the queue of a shape, made when the shape first appears."""
        queue = self.queues.get(shape)
        if queue is None:
            first = shape.requirements[0]
            queue = ShapeQueue(shape, first.resource_class, len(shape.requirements) == 1)
            if len(self.queues) - len(self.dormant) >= SHAPES_MAX:
                queue.live = False
                self.dormant[shape] = queue
                self.turned.update(dict.fromkeys(q for q in self.queues.values() if q.live and not q.tasks))
            if len(self.queues) == 1:  # now it matters which of the two comes first
                self.turned.update(dict.fromkeys(one for one in self.queues.values() if one.priority))
            self.queues[shape] = queue
        return queue
