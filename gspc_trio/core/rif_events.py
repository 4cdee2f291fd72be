"""What goes into a RIF's machine and what comes out, besides the messages of ``core.exchange``."""

from __future__ import annotations

from typing import Any

from gspc_trio.core.exchange import AddResources, DagReport, RemoveResources
from gspc_trio.core.ids import JobId, ResourceId
from gspc_trio.core.resources import Resource
from gspc_trio.core.value import frozen, value

# Events -----------------------------------------------------------------------------------------------------


@frozen
class Called:
    """The RTS asks for this; answered by Reply or ReplyError with the same number."""

    call: int
    body: AddResources | RemoveResources


@frozen
class EndJob:
    """The job is gone, with or without a word: end what it runs."""

    job: JobId
    reason: str


@frozen
class Stop:
    """The RIF is to end: it was asked to, or its RTS is gone."""

    reason: str


@value
class AtWorker:
    """An event of one worker (``core.work``), from its shell."""

    resource_id: ResourceId
    event: Any


# Actions ----------------------------------------------------------------------------------------------------


@frozen
class Reply:
    """Answer call number ``call`` of the RTS."""

    call: int
    report: DagReport


@frozen
class ReplyError:
    """Refuse call number ``call`` of the RTS; nothing was changed."""

    call: int
    message: str


@frozen
class StartWorker:
    """There is a worker for this resource now."""

    resource: Resource


@frozen
class StopWorker:
    """The worker of this resource has nothing left and is no more."""

    resource_id: ResourceId


@value
class Forward:
    """Give the event to the worker's machine."""

    resource_id: ResourceId
    event: Any


@frozen
class ForgetJob:
    """The job is over here: its code and its idle compute processes go."""

    job: JobId


@frozen
class Stopped:
    """No worker is left: the shell may go."""

    reason: str
