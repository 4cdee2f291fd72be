"""Events and actions of a worker's machine, besides messages."""

from __future__ import annotations

from typing import TypeAlias, final

from msgspec import Struct

from gspc_trio.components.worker.messages import Begun, Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.components.worker.verdict import NOTHING_PRINTED, Verdict
from gspc_trio.core.ids import Attempt, JobId, ResourceId, TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.staging import DEFAULT_LIMITS
from gspc_trio.core.task import Outcome, Reason, TaskError
from gspc_trio.records.facts import WorkerChanged

AttemptKey: TypeAlias = tuple[TaskId, Attempt]
"""Which try of which task, within one job."""

# Events ----------------------------------------------------------------------------------------------------


class Assign(Struct, frozen=True):
    """Take the submissions of ``submit``.

    ``fate`` says whether its tasks share it in the phases (WRK-3), ``inputs_bytes_max`` how much data those
    in the phases may have fetched together; one alone may have more. So many of them may be in stage-in.
    """

    submit: Submit
    fate: bool = True
    inputs_bytes_max: int = DEFAULT_LIMITS.inputs_bytes_max
    stage_ins_max: int = 1


class StagedIn(Struct, frozen=True):
    """The data of the attempt is there; ``submission`` is what is to be computed instead, if given."""

    key: AttemptKey
    submission: Submission | None = None


class StagedOut(Struct, frozen=True):
    """The results of the attempt are stored; ``outcome`` is what is to be reported instead, if given."""

    key: AttemptKey
    outcome: Outcome | None = None


class StagingFailed(Struct, frozen=True):
    """Stage-in or stage-out of the attempt failed; ``returned``: through no doing of its own."""

    key: AttemptKey
    error: TaskError
    returned: bool = False

    @property
    def reason(self) -> Reason:
        """How the attempt ends."""
        return Reason.RETURNED if self.returned else Reason.FAILED


class Aborted(Struct, frozen=True):
    """Answer to :class:`Abort`: nothing is being staged for the attempt any more."""

    key: AttemptKey


class ComputeOpening(Struct, frozen=True):
    """There is no compute process yet for what was handed over: no time counts before ComputeReady."""


class ComputeReady(Struct, frozen=True):
    """The compute process is there: what it was handed begins now."""


class Computed(Struct, frozen=True):
    """Attempts whose compute ended, in the order in which they were handed over."""

    outcomes: tuple[Outcome, ...]


class ComputeLost(Struct, frozen=True):
    """The compute process is gone without having been asked, or none could be made.

    ``begun``: the first of what it has not reported may have begun; else it had certainly not read it.
    ``printed``: the last of its standard output and error.
    """

    detail: str
    begun: bool = True
    printed: tuple[bytes, bytes] = NOTHING_PRINTED

    @property
    def verdict(self) -> Verdict:
        """How the attempt in compute ends: nothing counts against it if it had not begun."""
        if self.begun:
            return Verdict(Reason.LOST, TaskError("lost", self.detail))
        return Verdict(Reason.RETURNED, TaskError("refused", self.detail))


class ComputeKilled(Struct, frozen=True):
    """Answer to :class:`Kill`: the compute process and its descendants are gone; its results came before.

    ``printed``: the last of standard output and error of the first that it has not reported.
    """

    printed: tuple[bytes, bytes] = NOTHING_PRINTED


class Retracted(Struct, frozen=True):
    """Answer to :class:`Retract`: these attempts were taken back unread, in order.

    They are mostly the last ones handed over; but the compute process reads on meanwhile, and may have read
    one from between.
    """

    keys: tuple[AttemptKey, ...]


class EndWork(Struct, frozen=True):
    """End all that the worker has.

    Attributes:
        reason: ``cancelled`` for everything; or ``lost`` for what has begun, and ``returned`` for the rest.
        detail: why, for people.
        close: the resource is removed: take no more, and stop when nothing is left.
    """

    reason: Reason
    detail: str
    close: bool = False


WorkerEvent: TypeAlias = (
    Assign
    | Cancel
    | TakeBack
    | StagedIn
    | StagedOut
    | StagingFailed
    | Aborted
    | ComputeOpening
    | ComputeReady
    | Computed
    | ComputeLost
    | ComputeKilled
    | Retracted
    | EndWork
    | Tick
)
"""What a worker's machine takes."""

# Actions ---------------------------------------------------------------------------------------------------


class StageIn(Struct, frozen=True):
    """Fetch the data of this attempt; answer StagedIn or StagingFailed."""

    resource_id: ResourceId
    job: JobId
    submission: Submission


class StageOut(Struct, frozen=True):
    """Store the results of this attempt; answer StagedOut or StagingFailed."""

    resource_id: ResourceId
    job: JobId
    submission: Submission
    outcome: Outcome


class Abort(Struct, frozen=True):
    """Stop staging for this attempt, drop what was staged; answer Aborted, also if it has just ended."""

    resource_id: ResourceId
    key: AttemptKey


class Compute(Struct, frozen=True):
    """Hand these to the job's compute process, to be run in order; open it first if there is none.

    If that process is lost, they are lost with it until ForgetCompute.
    """

    resource_id: ResourceId
    job: JobId
    submissions: tuple[Submission, ...]


class Retract(Struct, frozen=True):
    """Take back all that the compute process has not read; answer Retracted before anything else is done."""

    resource_id: ResourceId
    job: JobId


class Kill(Struct, frozen=True):
    """Kill the compute process with all its descendants; answer ComputeKilled, also if it was gone before."""

    resource_id: ResourceId
    job: JobId


class ForgetCompute(Struct, frozen=True):
    """The loss of the compute process has been seen to: the next Compute is for another one."""

    resource_id: ResourceId
    job: JobId


@final
class WorkerIdle(Struct, frozen=True):
    """The worker has nothing left: no attempt, no staging, and no compute process being killed."""

    resource_id: ResourceId


@final
class WorkerStopped(Struct, frozen=True):
    """The worker was closed and has nothing left."""

    resource_id: ResourceId


ComputeAction: TypeAlias = Compute | Retract | Kill | ForgetCompute | StageIn | StageOut | Abort
"""What the shell of a worker carries out."""

WorkerAction: TypeAlias = ComputeAction | Finished | WorkerChanged | WorkerIdle | WorkerStopped
"""What a worker's machine decides."""


def begun_with(action: ComputeAction, overtakes: bool) -> Begun | None:
    """Return which attempt begins with this action of a worker, if its job is told; None: it is not.

    It is told of those that stage data, and of all if they do not begin in the order in which they came.

    Args:
        action: of the worker.
        overtakes: whether attempts overtake each other in stage-in: then they begin in compute.
    """
    if type(action) is StageIn and not overtakes:
        first = action.submission
    elif type(action) is Compute:
        first = action.submissions[0]  # what stages data is handed over alone
        if not (overtakes or (first.options.stage_out and not first.options.stage_in)):
            return None
    else:
        return None
    return Begun(action.job, action.resource_id, first.task_id, first.attempt, overtakes)
