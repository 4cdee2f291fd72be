"""Events and actions of the launcher, and what it and the server of a study say to each other."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.provision.batch import BatchJob
from gspc_trio.core.ids import Count
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import StudyRecord


class ClientState(StrEnum):
    """Where a client is."""

    POSTPONED = "postponed"
    """Its job waits for a place below the limit of jobs."""
    SUBMITTED = "submitted"
    """The engine was given its job, and has not said clearly that it has it."""
    QUEUED = "queued"
    """The engine has its job, which waits."""
    HELD = "held"
    """The engine has its job, and does not let it run."""
    RUNNING = "running"
    """Its job runs."""
    COMPLETED = "completed"
    """Its command has ended with status 0."""
    FAILED = "failed"
    """Its job is over, and its command did not end with status 0."""
    NOT_SUBMITTED = "not submitted"
    """The engine did not take its job."""
    CANCELLED = "cancelled"
    """The server had asked for that, and it is over."""


_ENDS = frozenset(
    {ClientState.COMPLETED, ClientState.FAILED, ClientState.NOT_SUBMITTED, ClientState.CANCELLED}
)
_AT_ENGINE = frozenset({ClientState.QUEUED, ClientState.HELD, ClientState.RUNNING})

CLIENT_TRANSITIONS: dict[ClientState, frozenset[ClientState]] = {
    ClientState.POSTPONED: frozenset({ClientState.SUBMITTED, ClientState.CANCELLED}),
    ClientState.SUBMITTED: _AT_ENGINE | _ENDS,
    **{state: (_AT_ENGINE - {state}) | _ENDS - {ClientState.NOT_SUBMITTED} for state in sorted(_AT_ENGINE)},
    **{state: frozenset[ClientState]() for state in sorted(_ENDS)},
}
"""Where a client may go from where it is; one that has ended is another client when its id is used again."""


# What the server says ---------------------------------------------------------------------------------------


class ServerPing(Struct, frozen=True):
    """The server is alive; any other message says so, too."""


class SubmitClients(Struct, frozen=True):
    """The server asks for clients, which share one job.

    Attributes:
        request: number of the request, which its answer repeats.
        client_ids: of the clients; none of them runs.
        command: program and arguments of each.
        again: the launcher may have taken this request before, over a connection that is over.
    """

    request: Count
    client_ids: tuple[Count, ...]
    command: tuple[str, ...]
    again: bool = False


class CancelClient(Struct, frozen=True):
    """The server asks that a client ends; the others of its group go on.

    Attributes:
        request: number of the request, which its answer repeats.
        client_id: of the client.
        again: as of :class:`SubmitClients`.
    """

    request: Count
    client_id: Count
    again: bool = False


class StudyDone(Struct, frozen=True):
    """The study is done: the last that a server says."""


ServerMessage: TypeAlias = ServerPing | SubmitClients | CancelClient | StudyDone


# What the server is told ------------------------------------------------------------------------------------


class RequestAccepted(Struct, frozen=True):
    """The request is carried out; clients that it asked for are postponed until another state is told."""

    request: Count


class RequestRefused(Struct, frozen=True):
    """The request has changed nothing.

    Attributes:
        request: its number.
        reason: why.
        is_full: the same may be asked for again when clients have ended.
    """

    request: Count
    reason: str
    is_full: bool = False


class ClientMoved(Struct, frozen=True):
    """A client is in another state than before.

    Attributes:
        client_id: of the client.
        state: the new one.
        job_id: what the engine calls its job; "" while that is not known.
        text: more about it, for people.
    """

    client_id: Count
    state: ClientState
    job_id: str = ""
    text: str = ""


class StatesStale(Struct, frozen=True):
    """The engine does not tell of its jobs: the states told last are as old as that; this is why."""

    reason: str


class StatesFresh(Struct, frozen=True):
    """The engine tells of its jobs again."""


class LauncherPing(Struct, frozen=True):
    """The launcher asks for a sign of life; the server answers at once, with :class:`ServerPing`."""


class ConnectionEnds(Struct, frozen=True):
    """The launcher says no more over this connection, and this is why."""

    reason: str


ToServer: TypeAlias = RequestAccepted | RequestRefused | ClientMoved | StatesStale | StatesFresh


# Events -----------------------------------------------------------------------------------------------------


class Signal(Struct, frozen=True):
    """The launcher got a signal that ends it."""

    number: int


class LauncherResumed(Struct, frozen=True):
    """The program that was told of all this has ended, and this one goes on for it.

    The commands that ran then have no answer any more, and the connections are over. A server that was
    connected may connect again.
    """


class NewConnection(Struct, frozen=True):
    """Someone has connected.

    Attributes:
        connection: number of the connection, which no other has.
        incarnation: of the server whose secret was proved; None: of none.
        job_id: of the job that it runs in, "" if it did not say.
    """

    connection: int
    incarnation: int | None
    job_id: str = ""


class ConnectionShutdown(Struct, frozen=True):
    """Nothing more comes over a connection; all messages that came before were handed in."""

    connection: int


class Message(Struct, frozen=True):
    """A message has come over a connection."""

    connection: int
    body: ServerMessage


class Submitted(Struct, frozen=True):
    """A submission has ended, was killed or took too long.

    Attributes:
        uid: of the submission.
        job_id: what the engine calls the job; None: it is not clear whether there is one.
        is_running: whether it runs already.
    """

    uid: int
    job_id: str | None
    is_running: bool = False


class SubmitFailed(Struct, frozen=True):
    """There is no job, and this is why."""

    uid: int
    reason: str


class Listed(Struct, frozen=True):
    """The jobs that were asked for."""

    uid: int
    jobs: tuple[BatchJob, ...]


class ListFailed(Struct, frozen=True):
    """The engine did not say what it was asked for, and this is why: nothing is known that was not before."""

    uid: int
    reason: str


class Cancelled(Struct, frozen=True):
    """The command that cancels has ended; whether the job is gone is seen by asking."""

    uid: int


class CommandExited(Struct, frozen=True):
    """The command of a job, or of one client of a group, has ended.

    Its own script, or the process itself, says so. What a batch system says of the end of a job is not enough
    to take it for a success.

    Attributes:
        uid: of the submission of the job.
        status: exit status.
        client_id: of the client; None: of all clients of the job.
        is_gone: nothing of the job is left, so that nobody needs to be asked.
    """

    uid: int
    status: int
    client_id: int | None = None
    is_gone: bool = False


LauncherEvent: TypeAlias = (
    Tick
    | Signal
    | LauncherResumed
    | NewConnection
    | ConnectionShutdown
    | Message
    | Submitted
    | SubmitFailed
    | Listed
    | ListFailed
    | Cancelled
    | CommandExited
)


# Actions ----------------------------------------------------------------------------------------------------


class SubmitToEngine(Struct, frozen=True):
    """Submit a job; Submitted or SubmitFailed follows.

    Attributes:
        uid: number of this call of the engine; files are named by it.
        name: of the job; no other has it.
        incarnation: of the server that it is, or that has asked for it.
        client_ids: of its clients; none: it is the server.
        command: of each client.
        from_checkpoint: the server is to go on from its last checkpoint.
    """

    uid: int
    name: str
    incarnation: int
    client_ids: tuple[int, ...] = ()
    command: tuple[str, ...] = ()
    from_checkpoint: bool = False


class ListEngine(Struct, frozen=True):
    """Ask for all jobs of the user, or for the one with this id; Listed or ListFailed follows."""

    uid: int
    job_id: str = ""


class CancelAtEngine(Struct, frozen=True):
    """Cancel a job, by name if its id is ""; Cancelled follows."""

    uid: int
    name: str
    job_id: str


class EndClient(Struct, frozen=True):
    """End one client of a group, or let it not begin; CommandExited follows.

    Attributes:
        uid: number of this call of the engine.
        job_uid, job_id: of the job of the group; the id is "" while it is not known.
        client_id: of the client.
    """

    uid: int
    job_uid: int
    job_id: str
    client_id: int


class SendToServer(Struct, frozen=True):
    """Send a message to the server."""

    connection: int
    body: ToServer


class PingServer(Struct, frozen=True):
    """Ask the server for a sign of life."""

    connection: int


class RefuseConnection(Struct, frozen=True):
    """Say why whoever has connected is not wanted, and close."""

    connection: int
    reason: str


class CloseConnection(Struct, frozen=True):
    """Say why it is over with the server, and close."""

    connection: int
    reason: str


class KillCommands(Struct, frozen=True):
    """Kill the commands that run, each with its group; they are answered as after a time-out."""


class Stop(Struct, frozen=True):
    """End the launcher.

    Attributes:
        status: its exit status.
        reason: why, for people.
        left: names of jobs that may be left at the engine.
        output_uid: of the job whose last lines tell more; None: there is none.
    """

    status: int
    reason: str
    left: tuple[str, ...] = ()
    output_uid: int | None = None


LauncherAction: TypeAlias = (
    SubmitToEngine
    | ListEngine
    | CancelAtEngine
    | EndClient
    | SendToServer
    | PingServer
    | RefuseConnection
    | CloseConnection
    | KillCommands
    | Stop
    | StudyRecord
)
