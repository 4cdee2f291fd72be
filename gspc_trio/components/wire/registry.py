"""All messages that travel between components; the place of each type is its number on the wire."""

from __future__ import annotations

from gspc_trio.components.coallocation.agents.delegation import (
    Credential,
    MintCredential,
    UseCredential,
)
from gspc_trio.components.coallocation.agents.words import (
    AttachRequest,
    CancelParts,
    CancelRequest,
    CredentialLent,
    CredentialWanted,
    GetRequest,
    GetService,
    JobsEnded,
    ListRequests,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    RegisterService,
    RequestDetails,
    RequestDone,
    RequestList,
    RequestsShown,
    RequestTaken,
    ServiceDetails,
    ServiceRefused,
    ServiceRegistered,
    ShowRequests,
    StopRequest,
    SubmitRequest,
)
from gspc_trio.components.job.messages import (
    ApplicationCall,
    ApplicationReply,
    AskWorkflow,
    CancelTask,
    ClosePort,
    DumpPart,
    GetDump,
    GetFunctions,
    GetJobStatus,
    GetMemory,
    GetNet,
    GetOutput,
    GetTask,
    GetTaskOutput,
    JobStatus,
    MemoryStatus,
    OfferedFunctions,
    OutputLines,
    PutToken,
    RetryFailed,
    StopJob,
    TaskDetails,
    TaskOutput,
    WaitJob,
)
from gspc_trio.components.launcher.events import (
    CancelClient,
    ClientMoved,
    ConnectionEnds,
    LauncherPing,
    RequestAccepted,
    RequestRefused,
    ServerPing,
    StatesFresh,
    StatesStale,
    StudyDone,
    SubmitClients,
)
from gspc_trio.components.managers.messages import (
    BeginManaging,
    JobWord,
    JobWords,
    ManagerClaim,
    ManagerHere,
    ManagerWords,
    WordToJob,
)
from gspc_trio.components.monitor.io_frames import IoTold
from gspc_trio.components.monitor.messages import (
    Echo,
    GetHardware,
    GetNodeStats,
    GetSystemStats,
    HardwareReport,
    MonitorTold,
    NodeFrame,
    StartMonitoring,
    SystemStats,
)
from gspc_trio.components.monitor.reports import GetIo, IoReport
from gspc_trio.components.provision.messages import (
    Enrol,
    Enrolled,
    FilesFailed,
    TurnBegins,
    TurnOver,
    WantTurn,
)
from gspc_trio.components.rif.messages import (
    AddResources,
    CannotStart,
    CloseJobEverywhere,
    DagReport,
    Endpoint,
    Hold,
    MemoryServer,
    OpenEndpoint,
    Orphans,
    RemoveResources,
    RifHello,
    ServerEnded,
    StartServer,
    StopRif,
    StopServer,
    WorkBack,
)
from gspc_trio.components.rm.events import (
    Added,
    Advanced,
    Awaited,
    Claimed,
    Coming,
    GivenElsewhere,
    JobGone,
    JobJoined,
    JobWeighed,
    Overruled,
    Removed,
    Rested,
    Resumed,
    Settled,
)
from gspc_trio.components.rm.explain import Explained, ExplainJob, GetManagerStatus, ManagerStatus
from gspc_trio.components.rm.messages import (
    Checkpoint,
    Demand,
    GetNewestGrant,
    Grant,
    GrantsAhead,
    Interrupt,
    Lapsed,
    ManagerReady,
    NewestGrant,
    Offence,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
    ServeRts,
)
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.components.rts.messages import (
    AddDag,
    Await,
    Bootstrap,
    BootstrapReport,
    EndedJob,
    Evacuate,
    Explain,
    Explanation,
    GetEndedJob,
    GetHostToResource,
    GetResources,
    GetStatus,
    HostToResource,
    JobList,
    JobRegistered,
    LeaveJob,
    Lend,
    ListJobs,
    NewWeight,
    RegisterJob,
    RemoveDag,
    ResourceList,
    Rest,
    Restrict,
    RifGone,
    RifUp,
    RtsStatus,
    SetWeight,
    StartIml,
    StopIml,
    StopRts,
    Teardown,
    TeardownReport,
)
from gspc_trio.components.rts.site_messages import (
    AddSite,
    BlockOutput,
    ChangeSite,
    EndBlock,
    GetBlockOutput,
    ListSites,
    SiteList,
)
from gspc_trio.components.wire.hot import register_hot_hooks
from gspc_trio.components.worker.messages import (
    AttemptStatus,
    Begun,
    Cancel,
    DefineCode,
    Finished,
    FromTask,
    GetAttempt,
    OpenJob,
    Submit,
    TakeBack,
    ToTask,
)
from gspc_trio.core.demand import DemandWanted, GroupRefused, TaskDemand
from gspc_trio.core.messages import Done
from gspc_trio.core.net import NetStatus
from gspc_trio.core.staging import DropFile, FileList, FilePiece, ListFiles, ReadFile, WriteFile
from gspc_trio.iml.messages import (
    AbortData,
    Alloc,
    ApplyPut,
    BeginPut,
    Chunk,
    CommitData,
    CopyPart,
    CreatePart,
    DropPart,
    Evicted,
    Free,
    GetChunk,
    GetLayerStatus,
    GetRank,
    GetServers,
    ImlDone,
    JoinLayer,
    KeepPart,
    LayerJoined,
    LayerStatus,
    Locate,
    Located,
    LookUp,
    LostData,
    PartDone,
    Publish,
    PutBegun,
    PutChunk,
    PutFrom,
    PutWritten,
    RankOf,
    Replicate,
    SealPart,
    ServerHello,
    ServerJoined,
    ServerList,
    SetRank,
    Vacate,
    Vacated,
)
from gspc_trio.protocol.codec import Registry
from gspc_trio.protocol.envelope import EncodeError
from gspc_trio.records.facts import RECORD_TYPES, Record
from gspc_trio.records.messages import RecordBatch, Watch

WIRE_TYPES: tuple[type, ...] = (
    Demand, Release, Interrupt, Grant, Recall, Refuse, Lapsed, OpenJob, DefineCode, Submit,
    Cancel, TakeBack, Hold, Finished, AddResources, RemoveResources, Revoke, Revoked, DagReport,
    RegisterJob, JobRegistered, LeaveJob, RifUp, RifGone, Done, GetStatus, RtsStatus, Bootstrap,
    BootstrapReport, Teardown, TeardownReport, AddDag, RemoveDag, GetHostToResource, HostToResource,
    ListJobs, JobList, StopRts, RifHello, CloseJobEverywhere, StopRif, GetJobStatus, WaitJob, StopJob,
    ApplicationCall, ApplicationReply, Watch, RecordBatch, Explain, SetWeight, GetResources, ResourceList,
    GetTask, GetNet, CancelTask, RetryFailed, Orphans, GetMemory, GetAttempt, AttemptStatus,
    CannotStart, Begun, JoinLayer, LayerJoined, Alloc, Located, Locate, LookUp, BeginPut, PutBegun,
    CommitData, AbortData, Free, Replicate, Publish, GetRank, SetRank, RankOf, GetServers, ServerList,
    ImlDone, LostData, ServerHello, ServerJoined, Evicted, CreatePart, SealPart, DropPart, ApplyPut,
    CopyPart, KeepPart, PartDone, GetChunk, Chunk, PutChunk, PutFrom, ReadFile, FilePiece, WriteFile,
    DropFile, Await, WorkBack, NewWeight, GrantsAhead, GetLayerStatus, LayerStatus,
    MemoryStatus, JobStatus, TaskDetails, NetStatus, Explanation,
    GetOutput, OutputLines, GetTaskOutput, TaskOutput, GetNewestGrant, NewestGrant,
    GetFunctions, OfferedFunctions, GetEndedJob, EndedJob,
    GetDump, DumpPart, PutToken, AskWorkflow, ClosePort, ListFiles, FileList,
    Added, Removed, Rested, Resumed, Awaited, Coming, Settled, JobJoined, JobWeighed, JobGone, Claimed,
    ResourcesLeft, RmAnswered, ServeRts, ManagerReady, Offence, GetManagerStatus, ManagerStatus,
    ExplainJob, Explained,
    Lend, FromTask, ToTask,
    StartIml, StopIml, StartServer, StopServer, MemoryServer, ServerEnded,
    OpenEndpoint, Endpoint,
    TaskDemand, DemandWanted, GroupRefused,
    ListSites, SiteList, AddSite, ChangeSite, EndBlock, GetBlockOutput, BlockOutput,
    Enrol, Enrolled,
    ServerPing, SubmitClients, CancelClient, StudyDone,
    RequestAccepted, RequestRefused, ClientMoved, StatesStale, StatesFresh, LauncherPing, ConnectionEnds,
    WantTurn, TurnBegins, TurnOver, FilesFailed,
    Advanced, BeginManaging, ManagerHere, Overruled, ManagerClaim, GivenElsewhere,
    StartMonitoring, MonitorTold, GetHardware, HardwareReport, GetNodeStats, NodeFrame,
    GetSystemStats, SystemStats, IoTold, GetIo, IoReport, Echo, Evacuate, Vacate, Vacated,
    MintCredential, Credential, UseCredential,
    RegisterService, ServiceRegistered, ServiceRefused,
    PartsRequest, PartsAccepted, PartsReady, PartsGo, CancelParts, PartsDone,
    SubmitRequest, AttachRequest, RequestTaken, CancelRequest, JobsEnded, RequestDone,
    ListRequests, RequestList, GetRequest, RequestDetails, ShowRequests, RequestsShown, StopRequest,
    GetService, ServiceDetails,
    JobWords, ManagerWords, Checkpoint, PutWritten, CredentialWanted, CredentialLent,
    Restrict, Rest,
)  # fmt: skip
"""Append, never reorder, and raise ``PROTOCOL_VERSION`` when a message changes its fields."""


def check_submit(message: Submit, room_bytes: int) -> None:
    """Refuse arguments of a single task that cannot travel with it.

    Raises:
        EncodeError: they are too large.
    """
    if len(message.submissions) == 1:
        size_bytes = sum(map(len, message.submissions[0].arguments))
        advice = "pass less, write it to a file and pass its name"
        _check("arguments", size_bytes, room_bytes, advice)


def check_finished(message: Finished, room_bytes: int) -> None:
    """Refuse the result of a single task that cannot travel with its outcome.

    Raises:
        EncodeError: it is too large.
    """
    if len(message.outcomes) == 1:
        outputs = message.outcomes[0].values
        size_bytes = sum(len(data) for values in outputs for data in values)
        most = max(map(len, outputs), default=0)
        advice = "return less, write it to a file and return its name"
        if most > 1:  # it took several items, as a stage of a pipeline does
            advice = f"take fewer items in a task (batch=), {advice}"
        _check("a result" if most < 2 else f"{most} results", size_bytes, room_bytes, advice)


def _check(what: str, size_bytes: int, room_bytes: int, advice: str) -> None:
    if size_bytes > room_bytes:
        raise EncodeError(
            f"{what} of {size_bytes} bytes, {room_bytes} can travel with a task: {advice}, "
            "or keep it in a memory layer"
        )


REGISTRY = Registry(
    types=WIRE_TYPES,
    unions={
        Record: RECORD_TYPES,
        Added | Removed: (Added, Removed),
        JobWord: (Demand, Release, Interrupt),
        WordToJob: (Grant, Recall, Refuse, Lapsed),
    },
    add_hooks=register_hot_hooks,
    bulk_types=frozenset({Chunk, PutChunk}),
    checks={Submit: check_submit, Finished: check_finished},
)
