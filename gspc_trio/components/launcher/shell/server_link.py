"""Listener of a launcher: connections of servers become its events, and what it decides on them is done."""

from __future__ import annotations

import hmac
import re
import secrets
from collections import Counter as Counts
from pathlib import Path

import trio
from msgspec import structs

from gspc_trio.components.launcher.events import (
    CloseConnection,
    ConnectionEnds,
    ConnectionShutdown,
    LauncherPing,
    Message,
    NewConnection,
    PingServer,
    RefuseConnection,
    SendToServer,
    ServerMessage,
    ToServer,
)
from gspc_trio.components.launcher.shell.turns import DrivenEvent
from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import Performer, performs
from gspc_trio.nursery.connections.certificates import Authority
from gspc_trio.nursery.connections.connection_file import (
    ConnectionInfo,
    write_connection_file,
)
from gspc_trio.nursery.connections.network import Network, outward_address
from gspc_trio.nursery.connections.rpc import Peer, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox
from gspc_trio.protocol.address import BadAddress, WebSocketAddress, parse_address
from gspc_trio.protocol.limits import KIB, MIB, Limits
from gspc_trio.version import VERSION

SERVER_ROLE, LAUNCHER_ROLE = "study server", "launcher"
"""What the two ends say that they are."""

CONNECTIONS_MAX = 4
"""Connections at a time of all that prove the secret of one server; more are closed."""

TEXT_CHARACTERS_MAX = 4 * KIB
"""Longer texts for people are cut."""

KEY_BYTES = 32
"""Of the key of a study, from which the secrets of its servers are made."""

NUMBER_BYTES = 8
"""A secret begins with the number of its server, so that it is found without a list of all."""

_NAME = re.compile(r"(?P<incarnation>[0-9]{1,9})(?: (?P<job_id>[A-Za-z0-9_][A-Za-z0-9_.@\[\]-]{0,127}))?")
"""How a server calls itself: its incarnation, and what the batch system calls its job, if it knows that."""


def link_limits(silent_s: float) -> Limits:
    """Return the limits of connections between a launcher and its servers.

    Args:
        silent_s: seconds of silence after which this end holds the other one to be gone.
    """
    return Limits(
        message_bytes_max=MIB,
        string_bytes_max=256 * KIB,
        frame_bytes_gather=256 * KIB,
        array_items_max=64 * KIB,
        map_items_max=KIB,
        outbox_bytes_max=32 * MIB,
        inbox_items_max=4 * KIB,
        inbox_bytes_max=4 * MIB,
        calls_max=1,
        lease_s=silent_s,
    )


def launcher_limits(interval_s: float) -> Limits:
    """Return the limits of a launcher; it is its machine that says that a server is dead, well before these.

    Args:
        interval_s: seconds between two pings.
    """
    return link_limits(4 * interval_s + 10.0)


def server_name(incarnation: str, job_id: str) -> str:
    """Return the name by which a server connects."""
    name = f"{incarnation} {job_id}"
    return name if _NAME.fullmatch(name) else incarnation


class _Connection:
    """A connection of a server."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.until = trio.CancelScope()


class ServerLink(Performer[SendToServer | PingServer | RefuseConnection | CloseConnection]):
    """Where the servers of one study connect.

    What a server says goes to the inbox in order, and no more is read from it before that was taken. What it
    is told waits within the limits of its connection; a server that does not read for so long loses that. So
    one that floods, or does not read, hurts only itself.

    Args:
        network: listens; its limits are :func:`launcher_limits`.
        inbox: of the machine of the launcher.
        authority: issues certificates for the servers, where connections are encrypted.
        patience_s: how long servers wait for another launcher in the place of this one.
        key: secrets of servers are made from it; a launcher that goes on has the same one. b"": a new one.
    """

    def __init__(
        self,
        network: Network,
        inbox: Inbox[DrivenEvent],
        authority: Authority | None = None,
        patience_s: float = 0.0,
        key: bytes = b"",
    ) -> None:
        self._network = network
        self._inbox = inbox
        self._authority = authority
        self._patience_s = patience_s
        self._key = key or secrets.token_bytes(KEY_BYTES)
        self._open: dict[int, _Connection] = {}
        self._counts: Counts[int] = Counts()
        self._numbers = Counter()
        self._address = ""
        network.token_of = self.token_of

    async def run(
        self, address: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; ``nursery.start`` returns the address for servers.

        Args:
            address: to listen at; see :meth:`Network.listen`.

        Raises:
            BadAddress: it has no form of ours, or others can reach it and nothing would be encrypted.
            OSError: it is taken, or not ours.
        """
        async with trio.open_nursery() as nursery:

            async def listen(task_status: trio.TaskStatus[str]) -> None:
                await self._network.listen(
                    address, self.serve, role=LAUNCHER_ROLE, name="launcher", task_status=task_status
                )

            self._address = _reachable(await nursery.start(listen))
            task_status.started(self._address)

    def secret_of(self, incarnation: int) -> bytes:
        """Return the secret of a server."""
        number = incarnation.to_bytes(NUMBER_BYTES, "big")
        return number + hmac.digest(self._key, number, "sha256")

    def incarnation_of(self, secret: bytes) -> int | None:
        """Return the server that has a secret, or None."""
        incarnation = int.from_bytes(secret[:NUMBER_BYTES], "big")
        return incarnation if hmac.compare_digest(self.secret_of(incarnation), secret) else None

    def write_server_file(self, path: Path, incarnation: int, http: str = "") -> None:
        """Write the file that says where to connect, and the secret; its owner alone can read it.

        Args:
            path: of the file. Its directory is made for its owner alone, if it is not there.
            incarnation: of the server that it is for.
            http: address of the HTTP interface, "" if there is none.

        Raises:
            ConnectionFileError: it cannot be written, or others could change it.
        """
        credentials = "" if self._authority is None else self._authority.issue(f"server {incarnation}")
        info = ConnectionInfo.create(
            self._address,
            self.secret_of(incarnation),
            VERSION,
            credentials,
            name=str(incarnation),
            http=http,
            patience_s=self._patience_s,
        )
        write_connection_file(path, info)

    def token_of(self, role: str, name: str) -> bytes | None:
        """Return what a dialer of this role and name has to know."""
        found = _NAME.fullmatch(name)
        if found is None or role != SERVER_ROLE:
            return secrets.token_bytes(KEY_BYTES)
        return self.secret_of(int(found["incarnation"]))

    # Connections --------------------------------------------------------------------------------------------

    async def serve(self, peer: Peer) -> None:
        """Serve one server until its connection is over, or is to be."""
        found = _NAME.fullmatch(peer.name)
        if found is None or peer.role != SERVER_ROLE:
            drop_offender(peer, f"{peer.role} {peer.name!r} is no server of a study")
            return
        incarnation = int(found["incarnation"])
        count = self._counts[incarnation]
        if count >= CONNECTIONS_MAX:
            peer.post(ConnectionEnds(f"server {incarnation} has {count} connections already"))
            return
        self._counts[incarnation] += 1
        number = self._numbers.next()
        connection = self._open[number] = _Connection(peer)
        try:
            self._inbox.put(NewConnection(number, incarnation, found["job_id"] or ""), peer)
            with connection.until:
                await self._take_all(number, peer)
        finally:
            del self._open[number]
            self._counts[incarnation] -= 1
            self._counts += Counts()  # forgets those that have none
            self._inbox.put(ConnectionShutdown(number))

    async def _take_all(self, number: int, peer: Peer) -> None:
        while True:
            for body in await peer.receive():
                if not isinstance(body, ServerMessage):
                    drop_offender(peer, f"no server of a study says {type(body).__name__}")
                    return
                self._inbox.put(Message(number, body), peer)

    def _end(self, number: int, reason: str) -> None:
        """Say why a connection ends; it ends when that is sent, or cannot be sent for a second."""
        connection = self._open.get(number)
        if connection is not None:
            connection.peer.post(ConnectionEnds(_cut(reason)))
            connection.until.cancel()

    # What the launcher decides ------------------------------------------------------------------------------

    @performs(SendToServer)
    def _send(self, action: SendToServer) -> None:
        connection = self._open.get(action.connection)
        if connection is not None:
            connection.peer.post(_short(action.body))

    @performs(PingServer)
    def _ping(self, action: PingServer) -> None:
        connection = self._open.get(action.connection)
        if connection is not None:
            connection.peer.post(LauncherPing())

    @performs(RefuseConnection, CloseConnection)
    def _close(self, action: RefuseConnection | CloseConnection) -> None:
        self._end(action.connection, action.reason)


def listen_address(bind: str, *, is_encrypted: bool) -> str:
    """Return where to listen, at any free port.

    Args:
        bind: address or name of this host.
        is_encrypted: whether connections are encrypted.

    Raises:
        BadAddress: others can reach it, and nothing would be encrypted.
    """
    where = WebSocketAddress(bind, 0, is_encrypted)
    try:
        bind.encode("idna")
        if parse_address(str(where)) != where:
            raise BadAddress
    except (BadAddress, UnicodeError):
        raise BadAddress(f"bind: {bind!r} is no address of a host") from None
    if not (where.is_loopback or is_encrypted):
        raise BadAddress(
            f"bind: other hosts can reach {bind}, and nothing would be encrypted: "
            "say --tls, or bind 127.0.0.1"
        )
    return str(where)


def _reachable(address: str) -> str:
    """Return an address with which a listener at all addresses of its host can be reached."""
    where = parse_address(address)
    if isinstance(where, WebSocketAddress) and where.host in ("0.0.0.0", "::"):
        return str(structs.replace(where, host=outward_address()))
    return address


def _short(body: ToServer) -> ToServer:
    """Return a message whose text for people is of bounded length."""
    text = getattr(body, "text", "") or getattr(body, "reason", "")
    if len(text) <= TEXT_CHARACTERS_MAX:
        return body
    return structs.replace(body, **{"text" if hasattr(body, "text") else "reason": _cut(text)})


def _cut(text: str) -> str:
    return text[:TEXT_CHARACTERS_MAX]
