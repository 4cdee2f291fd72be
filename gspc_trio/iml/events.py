"""Events and actions of the coordinator's machine, besides ``iml.messages``."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gspc_trio.iml.messages import Evicted, JoinLayer, ServerHello

# Events ----------------------------------------------------------------------------------------------------


class ServerUp(Struct, frozen=True):
    """A server has come over ``link``; reply to ``ask``."""

    link: int
    ask: int
    hello: ServerHello


class ServerDown(Struct, frozen=True):
    """The server at ``link`` is gone, with all that it held."""

    link: int
    reason: str


class ServerSays(Struct, frozen=True):
    """The server at ``link`` has dropped a cached copy."""

    link: int
    message: Evicted


class ClientUp(Struct, frozen=True):
    """A client has come; reply to ``ask``."""

    client: int
    ask: int
    join: JoinLayer


class ClientDown(Struct, frozen=True):
    """A client is gone."""

    client: int


class Asked(Struct, frozen=True):
    """A client, or a server for a process of its host, asks for something; reply to ``ask``."""

    client: int
    ask: int
    request: Any


class Answered(Struct, frozen=True):
    """The server at ``link`` has answered ``call``; ``kind`` and ``message`` say why it did not do it."""

    call: int
    kind: str = ""
    message: str = ""
    link: int | None = None


# Actions ---------------------------------------------------------------------------------------------------


class AnswerRequest(Struct, frozen=True):
    """Answer what was asked."""

    ask: int
    message: Any


class RefuseRequest(Struct, frozen=True):
    """Refuse what was asked: name of the error and its message."""

    ask: int
    kind: str
    message: str


class CallServer(Struct, frozen=True):
    """Ask the server of this link; Answered follows, unless ServerDown does."""

    link: int
    call: int
    message: Any


class TellServer(Struct, frozen=True):
    """Tell the server of this link."""

    link: int
    message: Any


class TellClient(Struct, frozen=True):
    """Tell a client."""

    client: int
    message: Any
