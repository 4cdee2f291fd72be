"""Messages between clients, coordinator and servers of the memory layer.

Unless said otherwise each is a call, answered by what its text names or refused with an error of
:mod:`gspc_trio.iml.errors`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, TypeAlias

from msgspec import Struct

from gspc_trio.core.ids import Count
from gspc_trio.core.messages import Question
from gspc_trio.iml.layout import ONE_HOST, Layout
from gspc_trio.iml.quota import Quota
from gspc_trio.protocol.hidden import HidesFields

EVERY_JOB = "*"
"""May read what is published, or belongs to no job."""

# Client to coordinator -------------------------------------------------------------------------------------


class JoinLayer(Struct, frozen=True):
    """A client comes, answered by LayerJoined; data of ``job`` goes with the last client that named it."""

    job: str
    host: str = ""


class LayerJoined(Struct, frozen=True):
    """The client takes part; ``instance`` is the layer's."""

    instance: str


class Alloc(Struct, frozen=True):
    """Make data, answered by Located.

    Attributes:
        job: to which it belongs.
        size_bytes: of the data.
        layout: where it is to lie.
        name: published under this name, or "".
        writing: nobody sees it before CommitData, and it goes if its client does.
        data_id: its id if it is to have a certain one: data that was lost comes back under its own id.
        is_there: the server that asks has made it already, in one part, and nobody need be told to.
    """

    job: str
    size_bytes: int
    layout: Layout = ONE_HOST
    name: str = ""
    writing: bool = False
    data_id: str = ""
    is_there: bool = False


class ServerEntry(Struct, frozen=True):
    """A server of the layer and how it is reached.

    Attributes:
        rank: its number in the layer.
        host: its name.
        address: of its listener.
        local_address: of its socket for processes of the same machine.
        memory_bytes: its quota.
    """

    rank: int
    host: str
    address: str
    local_address: str
    memory_bytes: Count


class Located(Struct, frozen=True):
    """Where data lies.

    Attributes:
        data_id: of the data.
        job: to which it belongs, "" if it is published.
        name: under which it is published, or "".
        size_bytes, block_bytes: its size and the size of its blocks.
        parts: for each part the ranks of the servers that hold it, those that will keep it first.
        servers: the servers named in ``parts``.
        write_token: shows the servers that who asked is to write it; "" unless they are making it.
    """

    data_id: str
    job: str
    name: str
    size_bytes: Count
    block_bytes: Count
    parts: tuple[tuple[Count, ...], ...]
    servers: tuple[ServerEntry, ...]
    write_token: str = ""


class Locate(Struct, frozen=True):
    """Answered by Located."""

    job: str
    data_id: str


class LookUp(Struct, frozen=True):
    """Find data by the name under which it was published; answered by Located."""

    name: str


class BeginPut(Struct, frozen=True):
    """Prepare to overwrite a range; answered by PutBegun."""

    job: str
    data_id: str
    offset: int
    size_bytes: int


class PutBegun(Struct, frozen=True):
    """The new bytes go into the parts of ``staging_id``, which has only those that the range touches."""

    staging_id: str
    located: Located


class CommitData(Struct, frozen=True):
    """What was written becomes visible: new data, or a put; answered by ImlDone.

    ``without`` are the ranks of holders that could not be reached and do not have it all.
    """

    data_id: str
    without: tuple[Count, ...] = ()


class AbortData(Struct, frozen=True):
    """What was written is dropped; answered by ImlDone, also when there is nothing."""

    data_id: str


class Free(Struct, frozen=True):
    """Data goes: its id is unknown from now on; answered by ImlDone."""

    job: str
    data_id: str


class Replicate(Struct, frozen=True):
    """Have copies of all parts elsewhere too; answered by Located.

    Attributes:
        job, data_id: of the data.
        copies: on how many hosts each part is to lie, 0: on those named only.
        hosts: where each part is to lie besides.
        cached: the copies may be dropped again when room is short.
        undivided: what lies in stripes is not copied: the answer says where.
    """

    job: str
    data_id: str
    copies: int = 0
    hosts: tuple[str, ...] = ()
    cached: bool = False
    undivided: bool = False


class Vacate(Struct, frozen=True):
    """Rely on a host no more: what lies there alone is copied to others; answered by Vacated after that.

    Attributes:
        host: which one.
        is_over: it is as any other again; so it is when the client that has asked goes.
    """

    host: str
    is_over: bool = False


class Vacated(Struct, frozen=True):
    """How much data was copied away from a host, and how much is still there alone: others have no room."""

    copied: Count = 0
    left: Count = 0


class Publish(Struct, frozen=True):
    """Give data a name: every job may read it, and it stays when its job goes; answered by ImlDone.

    Attributes:
        replaces: what has this name already is freed; without it the name must be free.
    """

    job: str
    data_id: str
    name: str
    replaces: bool = False


class GetRank(Struct, frozen=True):
    """Answered by RankOf: where data of this name lies or will lie (ASP-7)."""

    name: str


class SetRank(Struct, frozen=True):
    """Data of this name, made later, will lie at this rank (ASP-7); answered by ImlDone.

    Attributes:
        name: of the data.
        rank: of the server.
        worker: number of the worker on the server's host that is meant; -1: none in particular.
    """

    name: str
    rank: int
    worker: int = -1


class RankOf(Struct, frozen=True):
    """A server's rank and its host, and the number of the worker that was named there, or -1."""

    rank: Count
    host: str
    worker: int = -1


class GetServers(Struct, frozen=True):
    """Answered by ServerList."""


class ServerList(Struct, frozen=True):
    """The servers of the layer, by rank."""

    servers: tuple[ServerEntry, ...]


class ImlDone(Struct, frozen=True):
    """It was done."""


class LostData(Struct, frozen=True):
    """To clients (message): data of their job was lost with a host."""

    job: str
    data_ids: tuple[str, ...]
    reason: str


# State of the layer ----------------------------------------------------------------------------------------


class DataState(StrEnum):
    """Where data is in its life; only ``READY`` data is seen by others than its maker."""

    CREATING = "creating"
    WRITING = "writing"
    READY = "ready"
    LOST = "lost"
    GONE = "gone"


class ServerStatus(Struct, frozen=True):
    """A memory server.

    Attributes:
        rank, host, address: which one it is, and where.
        memory_bytes, spill_bytes: what it may use of memory and of disk.
        held_bytes: size of the parts that it has.
    """

    rank: int
    host: str
    address: str
    memory_bytes: Count
    spill_bytes: Count
    held_bytes: Count


class PartStatus(Struct, frozen=True):
    """A part of some data: its size, hosts that hold it, and hosts that may drop their copy again."""

    size_bytes: Count
    hosts: tuple[str, ...]
    cached: tuple[str, ...]


class DataStatus(Struct, frozen=True):
    """Some data.

    Attributes:
        data_id, job, name: which it is, whose, and under which name it is published, or "".
        hosts: those that hold any of it.
        block_bytes: of a layout by blocks, or 0.
    """

    data_id: str
    job: str
    name: str
    size_bytes: Count
    state: DataState
    hosts: tuple[str, ...]
    block_bytes: Count
    parts: tuple[PartStatus, ...]


class TransferStatus(Struct, frozen=True):
    """A part that is being copied from the host ``source`` to ``host``."""

    data_id: str
    part: Count
    size_bytes: Count
    source: str
    host: str


class LayerStatus(Struct, frozen=True):
    """The state of a memory layer.

    Attributes:
        instance: names the layer.
        servers: by rank.
        data: all that it knows of.
        transfers: copies under way.
        jobs: those that are connected.
    """

    instance: str
    servers: tuple[ServerStatus, ...] = ()
    data: tuple[DataStatus, ...] = ()
    transfers: tuple[TransferStatus, ...] = ()
    jobs: tuple[str, ...] = ()


class GetLayerStatus(Question[LayerStatus], frozen=True):
    """Ask the coordinator for the state of the layer."""


# Server to coordinator -------------------------------------------------------------------------------------


class ServerHello(Struct, frozen=True):
    """A server comes; answered by ServerJoined.

    Attributes:
        host: its name, one server for each.
        address, local_address: as in ServerEntry.
        memory_bytes, spill_bytes: its quotas.
    """

    host: str
    address: str
    local_address: str
    memory_bytes: Count
    spill_bytes: Count = 0


class ServerJoined(Struct, frozen=True):
    """The server takes part.

    Attributes:
        rank: that which its host had before, if it had one.
        prefix: what it makes itself has this, a dot and a number as its id; "": it gives none.
    """

    rank: Count
    prefix: str = ""


class Evicted(Struct, frozen=True):
    """A server has dropped a cached copy to make room (message)."""

    data_id: str
    part: int


# Coordinator to server: messages in order; those with a call other than 0 are answered by PartDone ----------


class CreatePart(Struct, frozen=True):
    """Make room for a part, zeros at first; answered.

    ``writing`` says that it is written before SealPart and read by nobody; who shows ``write_token`` may
    write it.
    """

    data_id: str
    part: Count
    size_bytes: Count
    writing: bool = False
    call: Count = 0
    write_token: str = ""


class SealPart(Struct, frozen=True):
    """The part was written: it may be read."""

    data_id: str
    part: Count


class DropPart(Struct, frozen=True):
    """The part goes; answered when nobody can read it any more."""

    data_id: str
    part: Count
    call: Count = 0


class ApplyPut(Struct, frozen=True):
    """Copy the part of ``staging_id`` over the part of ``data_id`` at ``offset``; answered."""

    data_id: str
    part: Count
    staging_id: str
    offset: Count
    call: Count = 0


class CopyPart(Struct, frozen=True):
    """Fetch the part from another server and hold it, too; answered.

    ``readers`` may read it there as soon as it is whole: a job, or :data:`EVERY_JOB`; "" if there is more of
    the data.
    """

    data_id: str
    part: Count
    size_bytes: Count
    source: ServerEntry
    cached: bool = False
    call: Count = 0
    readers: str = ""


class KeepPart(Struct, frozen=True):
    """A cached copy is to stay: it is the last one."""

    data_id: str
    part: Count


class PartDone(Struct, frozen=True):
    """A server's answer (message); ``kind`` and ``message`` name the error, if it was not done."""

    call: Count
    kind: str = ""
    message: str = ""


# Anybody to server -----------------------------------------------------------------------------------------


class GetChunk(Struct, frozen=True):
    """Bytes of a part, answered by Chunk."""

    data_id: str
    part: int
    offset: Count
    size_bytes: Count


class Chunk(Struct, frozen=True):
    """Bytes of a part; ``version`` is another one when a put came between."""

    version: Count
    data: bytes


class PutChunk(Struct, frozen=True):
    """Bytes for a part that is being written, with the token of its CreatePart; answered by ImlDone."""

    data_id: str
    part: int
    offset: Count
    write_token: str
    data: bytes


class PutFrom(Struct, frozen=True):
    """Fetch all bytes of what another server lends, for a part that is being written; answered by ImlDone.

    ``write_token`` is as in PutChunk. So they travel as chunks do that are asked for: what asks need not be
    masked.
    """

    data_id: str
    part: Count
    size_bytes: Count
    source: ServerEntry
    lent_id: str
    lent_part: int
    write_token: str


class PutWritten(Struct, frozen=True):
    """Copy what is being written on the same server into a part that is, too; answered by ImlDone.

    Attributes:
        data_id: of the data whose first part gets the bytes.
        offset: where they begin.
        write_token: as in PutChunk.
        sources: (data_id, write token) of data of one part each, whose bytes come one behind the other.
    """

    data_id: str
    offset: Count
    write_token: str
    sources: tuple[tuple[str, str], ...]


# What is asked, answered and ordered -----------------------------------------------------------------------

JobRequest: TypeAlias = Alloc | Locate | BeginPut | Free | Replicate | Publish
"""What a client asks for as one of a job."""

LayerRequest: TypeAlias = (
    JobRequest | LookUp | CommitData | AbortData | GetRank | SetRank | GetServers | Vacate
)
"""What clients, and servers for the processes of their hosts, ask the coordinator for."""

LayerAnswer: TypeAlias = (
    LayerJoined | ServerJoined | Located | PutBegun | RankOf | ServerList | ImlDone | Vacated
)
"""What the coordinator answers."""

ServerCall: TypeAlias = CreatePart | DropPart | ApplyPut | CopyPart
"""What the coordinator tells a server to do and to answer."""

ServerNotice: TypeAlias = SealPart | DropPart | KeepPart
"""What the coordinator tells a server without awaiting an answer."""


# To and from a server in a process of its own: lines of JSON on its standard input and output ---------------


class ServerOrder(HidesFields, frozen=True):
    """What a memory server in a process of its own is told.

    Attributes:
        coordinator: address; "" to be one itself.
        token, credentials: the secret of the layer, and what it needs for TLS, or "".
        listen: where it listens, "" for where the coordinator can reach it.
        host: its name in the layer.
        quota: what it may use.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "credentials"})

    coordinator: str
    token: bytes
    credentials: str
    listen: str
    host: str
    quota: Quota


class ServerStarted(Struct, frozen=True):
    """A memory server is there, or why it is not.

    Attributes:
        coordinator: address of the layer's coordinator.
        local_address: of the server's socket for processes of this machine.
        problem: kind and text of the error with which it did not start.
    """

    coordinator: str = ""
    local_address: str = ""
    problem: tuple[str, str] | None = None
