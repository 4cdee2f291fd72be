"""What goes into the coordinator's machine and what comes out, besides ``core.iml.exchange``."""

from __future__ import annotations

from typing import Any

from gspc_trio.core.iml.exchange import Evicted, JoinLayer, ServerHello
from gspc_trio.core.value import frozen

# Events ----------------------------------------------------------------------------------------------------


@frozen
class ServerUp:
    """A server has come over ``link``; reply to ``ask``."""

    link: int
    ask: int
    hello: ServerHello


@frozen
class ServerDown:
    """The server at ``link`` is gone, with all that it held."""

    link: int
    reason: str


@frozen
class ServerSays:
    """The server at ``link`` has dropped a cached copy."""

    link: int
    message: Evicted


@frozen
class ClientUp:
    """A client has come; reply to ``ask``."""

    client: int
    ask: int
    join: JoinLayer


@frozen
class ClientDown:
    """A client is gone."""

    client: int


@frozen
class Asked:
    """A client, or a server for a process of its host, asks for something; reply to ``ask``."""

    client: int
    ask: int
    request: Any


@frozen
class Answered:
    """A server has answered ``call``; ``kind`` and ``message`` say why it did not do it."""

    call: int
    kind: str = ""
    message: str = ""


# Actions ---------------------------------------------------------------------------------------------------


@frozen
class Reply:
    """Answer what was asked."""

    ask: int
    message: Any


@frozen
class Refuse:
    """Refuse what was asked: name of the error and its message."""

    ask: int
    kind: str
    message: str


@frozen
class CallServer:
    """Ask the server of this link; Answered follows, unless ServerDown does."""

    link: int
    call: int
    message: Any


@frozen
class TellServer:
    """Tell the server of this link."""

    link: int
    message: Any


@frozen
class TellClient:
    """Tell a client."""

    client: int
    message: Any
