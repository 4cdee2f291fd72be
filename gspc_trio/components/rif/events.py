"""Events and actions of a RIF's machine, besides messages."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.rif.messages import AddResources, DagReport, Hold, RemoveResources
from gspc_trio.components.rm.messages import GrantsAhead, Revoke, Revoked
from gspc_trio.components.worker.events import (
    Assign,
    ComputeAction,
    EndWork,
    WorkerEvent,
    WorkerIdle,
    WorkerStopped,
)
from gspc_trio.components.worker.messages import Cancel, DefineCode, Finished, OpenJob, Submit, TakeBack
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.records.facts import WorkerChanged

# Events -----------------------------------------------------------------------------------------------------


class Called(Struct, frozen=True):
    """The RTS asks for this; answered by ReplyToCall or ReplyError with the same number."""

    call: int
    body: AddResources | RemoveResources


class EndJob(Struct, frozen=True):
    """The job is gone, with or without a word: end what it runs."""

    job: JobId
    reason: str


class GrantChecked(Struct, frozen=True):
    """The RTS has answered a CheckGrant: ``newest`` of the resource was given, and none that is newer."""

    asked: CheckGrant
    newest: GrantId


class Stop(Struct, frozen=True):
    """The RIF is to end: it was asked to, or its RTS is gone."""

    reason: str


class AtWorker(Struct, frozen=True):
    """An event of one worker, from its shell."""

    resource_id: ResourceId
    event: WorkerEvent


class StartFailed(Struct, frozen=True):
    """No compute process could be started, or (``died``) one has died before it took its first task."""

    detail: str
    died: bool = False


FromOthers: TypeAlias = (
    OpenJob
    | DefineCode
    | Submit
    | Cancel
    | TakeBack
    | EndJob
    | Hold
    | Revoke
    | GrantsAhead
    | GrantChecked
    | Called
    | Stop
)
"""What job servers, the RTS and the shell say to a RIF."""

RifEvent: TypeAlias = FromOthers | WorkerIdle | WorkerStopped
"""What the machine of a RIF takes; workers say the rest."""

HostEvent: TypeAlias = FromOthers | AtWorker | StartFailed | Tick
"""What the machine of a host takes."""

# Actions ----------------------------------------------------------------------------------------------------


class ReplyToCall(Struct, frozen=True):
    """Answer call number ``call`` of the RTS."""

    call: int
    report: DagReport


class ReplyError(Struct, frozen=True):
    """Refuse call number ``call`` of the RTS; nothing was changed."""

    call: int
    message: str


class StartWorker(Struct, frozen=True):
    """There is a worker for this resource now."""

    resource: Resource


class StopWorker(Struct, frozen=True):
    """The worker of this resource has nothing left and is no more."""

    resource_id: ResourceId


class ForwardToWorker(Struct, frozen=True):
    """Give the event to the worker's machine."""

    resource_id: ResourceId
    event: Assign | EndWork | Cancel | TakeBack


class Unfit(Struct, frozen=True):
    """The host cannot compute: the RTS should give out nothing of it for a while."""

    reason: str


class ForgetJob(Struct, frozen=True):
    """The job is over here: its code and its idle compute processes go."""

    job: JobId


class CheckGrant(Struct, frozen=True):
    """Ask the RTS whether a grant that is in the way of another, or would overtake it, was ever given.

    Attributes:
        resource_id: on which it was used, or is to be.
        grant_id: which is in doubt.
        user: number of the connection of the job that has used it; 0: whoever that is does not matter.
    """

    resource_id: ResourceId
    grant_id: GrantId
    user: int


class DropJob(Struct, frozen=True):
    """End the connection of a job: it has used a grant that was never given."""

    job: JobId
    reason: str


class Stopped(Struct, frozen=True):
    """No worker is left: the shell may go."""

    reason: str


RifShellAction: TypeAlias = (
    ReplyToCall
    | ReplyError
    | Revoked
    | Finished
    | StartWorker
    | StopWorker
    | OpenJob
    | DefineCode
    | ForgetJob
    | CheckGrant
    | DropJob
    | Stopped
)
"""What the machine of a RIF decides, for the shell to carry out."""

RifAction: TypeAlias = RifShellAction | ForwardToWorker
"""What the machine of a RIF decides."""

HostAction: TypeAlias = RifShellAction | Unfit | WorkerChanged | ComputeAction
"""What the machine of a host decides, for the shell to carry out."""
