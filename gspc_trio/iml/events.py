"""Events and actions of the coordinator's machine."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.machine import Tick
from gspc_trio.iml import messages as x

# Events ----------------------------------------------------------------------------------------------------


class ServerUp(Struct, frozen=True):
    """A server has come over ``link``; reply to ``ask``."""

    link: int
    ask: int
    hello: x.ServerHello


class ServerDown(Struct, frozen=True):
    """The server at ``link`` is gone, with all that it held."""

    link: int
    reason: str


class ServerSays(Struct, frozen=True):
    """The server at ``link`` has dropped a cached copy."""

    link: int
    message: x.Evicted


class ClientUp(Struct, frozen=True):
    """A client has come; reply to ``ask``."""

    client: int
    ask: int
    join: x.JoinLayer


class ClientDown(Struct, frozen=True):
    """A client is gone."""

    client: int


class Asked(Struct, frozen=True):
    """A client, or a server for a process of its host, asks for something; reply to ``ask``.

    ``write_token`` is a new secret: whoever is told it may write what this request makes.
    """

    client: int
    ask: int
    request: x.LayerRequest
    write_token: str = ""


class Answered(Struct, frozen=True):
    """The server at ``link`` has answered ``call``; ``kind`` and ``message`` say why it did not do it."""

    call: int
    kind: str = ""
    message: str = ""
    link: int | None = None


LayerEvent: TypeAlias = ServerUp | ServerDown | ServerSays | ClientUp | ClientDown | Asked | Answered | Tick


# Actions ---------------------------------------------------------------------------------------------------


class AnswerRequest(Struct, frozen=True):
    """Answer what was asked."""

    ask: int
    message: x.LayerAnswer


class RefuseRequest(Struct, frozen=True):
    """Refuse what was asked: name of the error and its message."""

    ask: int
    kind: str
    message: str


class CallServer(Struct, frozen=True):
    """Ask the server of this link; Answered follows, unless ServerDown does."""

    link: int
    call: int
    message: x.ServerCall


class TellServer(Struct, frozen=True):
    """Tell the server of this link."""

    link: int
    message: x.ServerNotice


class TellClient(Struct, frozen=True):
    """Tell a client."""

    client: int
    message: x.LostData


LayerAction: TypeAlias = AnswerRequest | RefuseRequest | CallServer | TellServer | TellClient
