"""Events and actions of a scheduler, and what it asks its policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Begun, Cancel, Finished, Submit, TakeBack
from gspc_trio.core.demand import DemandWanted, GroupRefused, TaskDemand
from gspc_trio.core.ids import Attempt, Count, GrantId, JobId, ResourceId, TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import DataUse, Outcome, Reason, Shape, Task, TaskError, TaskOptions, TaskState
from gspc_trio.records.facts import FactColumns, GrantChanged, QueueChanged, TaskChanged, TaskCounts

# Events -----------------------------------------------------------------------------------------------------


class TasksReady(Struct, frozen=True):
    """These tasks can run now; none of their ids is known to the scheduler."""

    tasks: tuple[Task, ...]


class KnownTask(Struct, frozen=True):
    """A task that cannot run yet, or can.

    Attributes:
        task: as it is known: without what it takes from others.
        dependencies: the tasks whose results it takes.
    """

    task: Task
    dependencies: tuple[TaskId, ...] = ()


class TasksKnown(Struct, frozen=True):
    """These tasks will be ready later, or are said to be ready next; it matters to plans alone."""

    tasks: tuple[KnownTask, ...]


class ResourcesUp(Struct, frozen=True):
    """The workers of these resources can be reached; said again, it changes nothing.

    Attributes:
        until_s: time at which their host ends, with all that runs there; None: nobody knows of an end.
    """

    resources: tuple[Resource, ...]
    until_s: float | None = None


class ResourcesLost(Struct, frozen=True):
    """The workers of these resources can no longer be reached; what they had is lost."""

    resource_ids: tuple[ResourceId, ...]
    reason: str


class HostEvacuated(Struct, frozen=True):
    """A host may fail soon: what runs on these resources and may run again is to run elsewhere.

    Attributes:
        resources: of the host.
        reason: why; "": it may be used again.
    """

    resources: tuple[Resource, ...]
    reason: str = ""


class HostRests(Struct, frozen=True):
    """Nothing new is given out of a host for now: no plan counts on these resources.

    Attributes:
        resources: of the host.
        reason: why; "": it is again.
    """

    resources: tuple[Resource, ...]
    reason: str = ""


class HostRestricted(Struct, frozen=True):
    """A host is to get no new tasks that use data in some ways, as long as others can run them.

    Attributes:
        resources: of the host.
        uses: the ways; empty: it may get any again.
        reason: why.
    """

    resources: tuple[Resource, ...]
    uses: frozenset[DataUse] = frozenset()
    reason: str = ""


class Withheld(Struct, frozen=True):
    """What was submitted to these resources after submission number ``after`` of the job was never sent.

    It never will be, nor what is still submitted there until the answer, :class:`GivenUp`: who says this
    knows that they are lost, or the grants, and says so next. A task that was not sent has not begun.

    Attributes:
        resource_ids: to whose workers it was submitted.
        after: number of the last submission that was sent there, counting all of the job.
        grant_ids: under which; empty for any.
    """

    resource_ids: tuple[ResourceId, ...]
    after: int
    grant_ids: tuple[GrantId, ...] = ()

    def concerns(self, resource_id: ResourceId, grant_id: GrantId) -> bool:
        """Return whether it is about what is submitted to a resource under a grant."""
        return resource_id in self.resource_ids and (not self.grant_ids or grant_id in self.grant_ids)


class Reclaim(Struct, frozen=True):
    """The resource manager can be reached again; it may be another one, which knows nothing of the job."""


class CancelTasks(Struct, frozen=True):
    """Cancel these tasks wherever they are; those that have ended are left as they are."""

    task_ids: tuple[TaskId, ...]


class RetryTask(Struct, frozen=True):
    """Try a failed task again, as if its failures had not been."""

    task_id: TaskId


class Restored(Struct, frozen=True):
    """What was lost has been made again: tasks that were given back for want of it are tried at once."""


class Stop(Struct, frozen=True):
    """Start nothing more, cancel what runs, give everything back.

    Attributes:
        reason: for people.
        drain: let what is at a worker run to its end; another Stop without it cancels that too.
    """

    reason: str
    drain: bool = False


class Watched(Struct, frozen=True):
    """Whether anybody reads the records of single tasks; if nobody does, they are only counted."""

    on: bool


class EndedUnsent(Struct, frozen=True):
    """Tasks that the scheduler was not given have ended; they are counted and recorded.

    They have failed through one that they need, or have finished with a result that was kept by a cache.
    """

    ended: tuple[TaskDone, ...]


# Actions ----------------------------------------------------------------------------------------------------


class TaskDone(Struct, frozen=True):
    """A task has ended.

    Attributes:
        task_id: of the task.
        state: finished, failed or cancelled; it is final, but for a failed one that gets RetryTask.
        outcome: of its last submission, with the number of that; one that never was at a worker has 0.
        name: of the task.
        resource_id: where its last attempt was, or "".
        given_back: submissions that came back and had not begun.
        items: so many calls it computes that are told of each; 0: it is no such task.
    """

    task_id: TaskId
    state: TaskState
    outcome: Outcome
    name: str = ""
    resource_id: ResourceId = ""
    given_back: Count = 0
    items: Count = 0

    @property
    def tries(self) -> Attempt:
        """Its attempts as people count them."""
        return self.outcome.attempt - self.given_back


class EndedItems(Struct, frozen=True):
    """Calls of a range have ended, those with the lowest numbers.

    Attributes:
        done: how its task has ended.
        name: of the function.
        count: so many have ended.
        errors: place among them, from 0, -> why it has failed.
        ready_s: since when the range was ready, on the clock of the job.
    """

    done: TaskDone
    name: str
    count: int
    errors: Mapping[int, TaskError]
    ready_s: float

    @property
    def each_s(self) -> float:
        """Seconds that each took, as far as that is known."""
        return self.done.outcome.duration_s / max(1, self.count)

    def outcome(self, place: int) -> Outcome:
        """Return how the call at a place has ended."""
        outcome, error = self.done.outcome, self.errors.get(place)
        return replace(
            outcome,
            task_id=self.done.task_id + 1 + place,
            reason=Reason.FINISHED if error is None else Reason.FAILED,
            started_s=outcome.started_s and outcome.started_s + place * self.each_s,
            duration_s=self.each_s,
            values=(),
            error=error,
        )


class AttemptEnded(Struct, frozen=True):
    """An attempt that had begun has ended and did not finish; the task may be tried again.

    It is said of those that have printed something, and of all while attempts are traced.

    Attributes:
        outcome: of the attempt.
        name: of the task.
        tries: which attempt it was, as people count them.
        resource_id: where it was.
        ran_s: seconds since the task was the first one there; 0 if it was not.
    """

    outcome: Outcome
    name: str
    tries: Attempt
    resource_id: ResourceId = ""
    ran_s: float = 0.0


class Claims(Struct, frozen=True):
    """All that is held; the demands follow. What was said to the resource manager before may be lost."""

    job: JobId
    grants: tuple[Grant, ...]


class GivenUp(Struct, frozen=True):
    """What was withheld is taken to be not sent; what is submitted from now on is to be sent."""

    withheld: Withheld


class Stopped(Struct, frozen=True):
    """After Stop: no task is left and nothing is held."""


OutsideEvent: TypeAlias = (
    CancelTasks
    | RetryTask
    | Restored
    | Stop
    | Watched
    | ResourcesUp
    | ResourcesLost
    | HostEvacuated
    | HostRests
    | HostRestricted
    | Withheld
    | Reclaim
    | Grant
    | Recall
    | Refuse
    | Lapsed
    | Finished
    | Begun
    | DemandWanted
    | GroupRefused
    | Tick
)
"""What a scheduler is told from outside of its job."""

SchedulerEvent: TypeAlias = OutsideEvent | TasksReady | TasksKnown | EndedUnsent

SchedulerAction: TypeAlias = (
    Demand
    | Release
    | Submit
    | Cancel
    | TakeBack
    | Hold
    | Claims
    | GivenUp
    | TaskDemand
    | TaskDone
    | AttemptEnded
    | Stopped
    | TaskChanged
    | TaskCounts
    | FactColumns
    | GrantChanged
    | QueueChanged
)


# Policies ---------------------------------------------------------------------------------------------------


class CodeTime(Struct):
    """Measured seconds of compute of one code."""

    samples: int = 0
    average_s: float = 0.0


class RetryPolicy(Protocol):
    """Whether and when an attempt is followed by another."""

    @property
    def elsewhere_s(self) -> float:
        """Seconds for which a task waits for another resource than those that failed it."""
        ...

    def after_failure(self, options: TaskOptions, failures: int, rng: Random | None) -> float | None:
        """Return the seconds to wait after the task's own ``failures``-th failure; None: it has failed."""
        ...

    def after_loss(self, options: TaskOptions, losses: int) -> float | None:
        """Return the seconds to wait after loss number ``losses``; None: it has failed."""
        ...

    def after_return(self, returns: int) -> float | None:
        """Return the seconds to wait after ``returns`` unasked returns; None: it has failed."""
        ...

    def after_wait(self, waits: int) -> float:
        """Return the seconds to wait after ``waits`` tries in vain: for want of what is being made again, or
        on a host where nothing has finished yet."""
        ...

    def after_refusal(self, refusals: int) -> float | None:
        """Return the seconds for which a grant refused ``refusals`` times rests; None: it is given back."""
        ...

    def alone_after(self, returns: int) -> bool:
        """Return whether a task given back unasked ``returns`` times has no others beside it from now on."""
        ...


class WorkAheadPolicy(Protocol):
    """How many tasks are sent ahead to one worker."""

    @property
    def ahead_s(self) -> float:
        """Seconds of work after which nothing more is sent ahead."""
        ...

    @property
    def patrol_s(self) -> float:
        """Seconds that one task may keep others waiting behind it before they are taken back."""
        ...

    @property
    def settle_s(self) -> float:
        """Seconds after the last grant during which more grants are expected and work is kept for them."""
        ...

    def depth(self, samples: int, average_s: float, staged: bool) -> tuple[int, int]:
        """Return how many tasks one grant gets: (in any case, as long as it has less than ``ahead_s``).

        Args:
            samples: how often the task's code was measured.
            average_s: its measured seconds, those of its longest phase.
            staged: whether it fetches or stores data.
        """
        ...

    def beside_long(self, staged: bool) -> int:
        """Return how many tasks a grant keeps whose running one takes long, that one among them.

        Args:
            staged: whether that one fetches or stores data, and so overlaps with the next ones.
        """
        ...

    def takes_long(self, average_s: float) -> bool:
        """Return whether a task of so many seconds takes long."""
        ...

    def learn(self, average_s: float, samples: int, mean_s: float, count: int) -> float:
        """Return the new average after ``count`` more measurements with the given mean (seconds)."""
        ...

    def worth_taking_back(self, work_s: float) -> bool:
        """Return whether an idle worker should get part of ``work_s`` seconds of another's work."""
        ...


TRUSTED_SAMPLES = 3
"""A run time that was measured so often is trusted; until then tasks are tried, one at a time."""


class RunKey(Struct, frozen=True, cache_hash=True):
    """What run times are kept for, beside the size of the input.

    Attributes:
        code: name of the tasks, without the variant.
        variant: name of the variant.
        resource_class: of the resource on which they run.
        processor: model of its host's processor, or "".
    """

    code: str
    variant: str
    resource_class: str
    processor: str = ""


class Basis(StrEnum):
    """From what a run time is known."""

    STATED = "stated"
    """It was stated, and nothing was measured."""
    MEASURED = "measured"
    """Tasks with inputs of that size were measured."""
    LAW = "law"
    """Tasks with inputs of other sizes were measured; a power law tells of this one."""


class Expected(Struct, frozen=True):
    """How long a task is expected to run.

    Attributes:
        seconds: that it runs.
        samples: from how many measurements that is known; what was stated counts as some.
        basis: from what it is known.
    """

    seconds: float
    samples: int
    basis: Basis


class RunTimes(Protocol):
    """Knows how long tasks with variants run, and learns it."""

    def expected(self, key: RunKey, size: int, estimate_s: float | None) -> Expected | None:
        """Return how long a task runs with an input of a size, None if nobody knows; its code states
        ``estimate_s`` or None.
        """
        ...

    def is_measured(self, key: RunKey) -> bool:
        """Return whether a task was measured, with an input of whatever size."""
        ...

    def learn(self, key: RunKey, size: int, estimate_s: float | None, seconds: float) -> None:
        """Take a task into account that has finished."""
        ...


class VariantCost(Struct, frozen=True):
    """What it costs to run a task by one of its variants.

    Attributes:
        wait_s: seconds until a resource is free for it: the job's work for its class, over the resources of
            the class that the job can have.
        transfer_s: seconds that it takes to bring its data there.
        run_s: seconds that it runs, None if nobody knows.
        samples: from how many measurements that is known.
        may_try: that is too few to trust it, but this task may try it.
        basis: from what it is known.
    """

    wait_s: float
    transfer_s: float
    run_s: float | None
    samples: int = TRUSTED_SAMPLES
    may_try: bool = False
    basis: Basis = Basis.MEASURED

    @property
    def is_trusted(self) -> bool:
        """Whether the run time was measured often enough."""
        return self.run_s is not None and self.samples >= TRUSTED_SAMPLES


class VariantPolicy(Protocol):
    """Which variant of a task runs."""

    def choose(self, costs: Sequence[VariantCost | None], in_order: bool) -> int | None:
        """Return the index of the variant to take, None if none can be: their costs are None."""
        ...

    def moves(self, costs: Sequence[VariantCost | None], at: int, to: int, in_order: bool) -> bool:
        """Return whether a task that waits for variant ``at`` had better take variant ``to``."""
        ...


class Dependents(Protocol):
    """Knows which tasks take the results of others, before they are ready."""

    def follower(self, task_id: TaskId) -> Task | None:
        """Return the only task that takes the result of an extracted one, if that is all it waits for."""
        ...

    def extract(self, task_id: TaskId, ahead: int = 0) -> Task:
        """Return a task; it counts as extracted, though so many of those it depends on are under way."""
        ...


class AssignPolicy(Protocol):
    """In which resource's queue a task waits (SCH-4)."""

    def task_s(self, stated_s: float | None, measured_s: float | None, mean_s: float | None) -> float:
        """Return how long a task is taken to run.

        Args:
            stated_s: what it states, or None.
            measured_s: what tasks of its code have taken on resources of its class; None: nothing was
                measured.
            mean_s: what all tasks of the job have taken; None: nothing was measured.
        """
        ...

    def left_s(self, work_s: float, since_s: float) -> float:
        """Return how long what is at a worker still takes: it was taken for ``work_s``, ``since_s`` ago."""
        ...

    def steals(self, own_s: float, transfer_s: float, run_s: float, victim_s: float) -> bool:
        """Return whether an idle resource takes a task that waits in the queue of another one.

        Args:
            own_s: work that it has taken so far.
            transfer_s: time to bring the task's data there.
            run_s: time that the task runs.
            victim_s: work of the other resource, this task included.
        """
        ...


class LookAheadPolicy(Protocol):
    """Which queue a task joins, and what the resource manager is told of it."""

    def shape_of(self, task: Task) -> Shape:
        """Return the shape whose queue the task joins."""
        ...

    def credit(self, waiting: int) -> int:
        """Return how many more grants ``waiting`` tasks can use."""
        ...

    def worth_telling(self, told: int, wanted: int) -> bool:
        """Return whether the resource manager, told of ``told`` more grants, should learn of ``wanted``."""
        ...
