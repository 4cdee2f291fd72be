"""The shell of a co-allocation service: its sites, the services above and below, and its clients (COA-3)."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from gspc_trio.components.coallocation.agents.service import (
    PARENT,
    DropPeer,
    ParentLinked,
    PeerSaid,
    ToPeer,
)
from gspc_trio.components.coallocation.agents.service import PeerGone as SomeoneGone
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
    RequestDone,
    RequestList,
    RequestTaken,
    ServiceRefused,
    ServiceRegistered,
    ShowRequests,
    StopRequest,
    SubmitRequest,
)
from gspc_trio.components.coallocation.host import (
    NOBODY,
    CoallocationHost,
    HostAction,
    HostEvent,
    NoteRecords,
    RequestOver,
    RequestRead,
    RequestRestored,
    RequestStopped,
)
from gspc_trio.components.coallocation.jobs import jobs_with_options
from gspc_trio.components.coallocation.journal import NotedRequests
from gspc_trio.components.coallocation.language import order_of, parse_coallocation
from gspc_trio.components.coallocation.shell.journal_file import CoallocationJournal
from gspc_trio.components.coallocation.shell.site import RtsSite
from gspc_trio.components.coallocation.tree import RslError
from gspc_trio.components.rts.messages import StopRts
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import Performer, performs
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.connection_file import ConnectionFileError, read_connection_file
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.scope import open_scope

log: logging.Logger = logging.getLogger(__name__)

SERVICE_ROLE = "coallocation"
"""What a service says that it is, to its parent and to its clients."""

CONNECT_S = 1.0
"""A parent that is not there is looked for again after so long."""

JOBS_SHOWN_MAX = 5000
"""Of so many jobs it tells at a time."""

FROM_CHILDREN = (
    RegisterService,
    PartsAccepted,
    PartsReady,
    PartsDone,
    CredentialLent,
    RequestTaken,
    JobsEnded,
    RequestDone,
)
FROM_PARENT = (
    ServiceRegistered,
    ServiceRefused,
    PartsRequest,
    PartsGo,
    CancelParts,
    CredentialWanted,
    SubmitRequest,
    AttachRequest,
    CancelRequest,
)
FROM_CLIENTS = (SubmitRequest, AttachRequest, CancelRequest)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_name(text: str) -> bool:
    """Whether a service or a site can have this name."""
    return _NAME.fullmatch(text) is not None


class NoRequest(LookupError):
    """There is no such request; the message says which there are."""


class CoallocationShell(Performer[HostAction]):
    """A running service: the handle that :func:`open_coallocation_service` yields.

    Args:
        name: of the service.
        network: in which it listens.
        parent: connection file of the service above, None if it is at the top.
        journal: of what clients ask for, if there is one.

    Attributes:
        address: where it listens.
        stopped: set when a client has asked it to stop; its owner then leaves the block.
        machine: decides.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        parent: Path | None = None,
        journal: CoallocationJournal | None = None,
    ) -> None:
        self.address: str = ""
        self.stopped: trio.Event = trio.Event()
        taken = 0 if journal is None else journal.noted.count
        self.machine: CoallocationHost = CoallocationHost(
            name, secrets.token_hex(4), journal is not None, taken
        )
        self._journal = journal
        self._network = network
        self._parent_file = parent
        self._inbox: Inbox[HostEvent] = Inbox()
        self._sites: dict[str, RtsSite] = {}
        self._peers: dict[str, Peer] = {}
        self._parent: Peer | None = None
        self._numbers = Counter()
        self._warned: set[str] = set()
        self._waiting: dict[str, list[IncomingCall]] = {}

    async def run(
        self,
        sites: Mapping[str, RunTimeSystem | Path],
        listen: str,
        lends: bool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled.

        Args:
            sites: name -> run-time system, or its connection file.
            listen: address.
            lends: sites give resources to whoever asks, not only to who brings a credential.

        Raises:
            BadAddress, OSError: it cannot listen there.
            ConnectionFileError, ConnectionProblem: a run-time system is not there.
        """
        async with open_scope() as nursery:
            nursery.start_soon(drive, self.machine, self._inbox, self)
            for name, rts in sites.items():
                site = RtsSite(name, rts, self._inbox.put, lambda: self.machine.service.place, lends)
                await nursery.start(site.run)
                self._sites[name] = site
            await self._restore()

            async def serve(task_status: trio.TaskStatus[str]) -> None:
                await self._network.listen(
                    listen,
                    self.serve,
                    role=SERVICE_ROLE,
                    name=self.machine.service.name,
                    task_status=task_status,
                )

            self.address = await nursery.start(serve)
            if self._parent_file is not None:
                nursery.start_soon(self._follow_parent, self._parent_file)
            task_status.started()

    async def _restore(self) -> None:
        """Go on with the requests of the journal."""
        journal = NotedRequests() if self._journal is None else self._journal.noted
        closed = len(journal.closed)
        for number, noted in enumerate((*journal.closed.values(), *journal.requests.values())):
            read = await trio.to_thread.run_sync(read_request, NOBODY + noted.request_id, noted.told)
            begun, reports = dict(noted.begun), tuple(noted.reports.values())
            stages, was = tuple(noted.stages.values()), (number < closed, noted.is_cancelled)
            self._inbox.put(RequestRestored(noted.request_id, read, begun, reports, stages, *was))

    # Connections

    async def serve(self, peer: Peer) -> None:
        """Serve one connection until it is over."""
        if peer.role == SERVICE_ROLE:
            await self._serve_child(peer)
        elif peer.role == "control":
            await self._serve_client(peer)
        else:
            drop_offender(peer, f"a co-allocation service serves {SERVICE_ROLE} and control, not {peer.role}")

    async def _serve_child(self, peer: Peer) -> None:
        name = peer.name
        if not is_name(name) or name in self._peers or name in self._sites:
            reason = f"there is another {name} already" if is_name(name) else f"{name!r:.60} is no name"
            await peer.receive()
            peer.post(ServiceRefused(reason))
            return
        self._peers[name] = peer
        try:
            await peer.listen(lambda message: self._take_from_child(name, peer, message))
        finally:
            self._lose(name, peer)

    def _take_from_child(self, name: str, peer: Peer, message: object) -> None:
        if isinstance(message, FROM_CHILDREN) and _is_sound(message):
            self._inbox.put(PeerSaid(name, message), peer)
        else:
            drop_offender(peer, f"no service below says {type(message).__name__}")

    async def _serve_client(self, peer: Peer) -> None:
        name = f"client {self._numbers.next()}"
        self._peers[name] = peer
        try:
            while True:
                for message in await peer.receive():
                    if isinstance(message, IncomingCall) and isinstance(message.body, StopRts):
                        message.reply(Done())
                        await peer.aclose()  # what is said arrives before all ends
                        self.stopped.set()
                    elif isinstance(message, IncomingCall):
                        self._answer(message)
                    elif isinstance(message, FROM_CLIENTS):
                        await self._take_request(name, peer, message)
                    else:
                        drop_offender(peer, f"a client does not say {type(message).__name__}")
        finally:
            self._lose(name, peer)

    def _lose(self, name: str, peer: Peer) -> None:
        del self._peers[name]
        self._inbox.put(SomeoneGone(name, peer.reason or "its connection has ended"))

    async def _take_request(
        self, who: str, peer: Peer, message: SubmitRequest | AttachRequest | CancelRequest
    ) -> None:
        """Read a request, which may be long, beside the loop; so the service answers others meanwhile."""
        if not isinstance(message, SubmitRequest):
            self._inbox.put(PeerSaid(who, message), peer)
            return
        try:
            read = await trio.to_thread.run_sync(read_request, who, message)
        except (RslError, msgspec.DecodeError, RecursionError) as error:
            peer.post(RequestDone(message.request, str(error) or "it cannot be read"))
        else:
            if not peer.reason:
                self._inbox.put(read, peer)

    def _answer(self, call: IncomingCall) -> None:
        asked, machine = call.body, self.machine
        if isinstance(asked, ListRequests):
            call.reply(RequestList(machine.entries()))
        elif isinstance(asked, GetService):
            call.reply(machine.about())
        elif isinstance(asked, ShowRequests):
            call.reply(machine.shown(min(asked.jobs, JOBS_SHOWN_MAX)))
        elif isinstance(asked, GetRequest):
            details = machine.details(asked.request_id)
            if details is None:
                call.fail(self._no_request(asked.request_id))
            else:
                call.reply(details)
        elif isinstance(asked, StopRequest):
            is_over = machine.is_over(asked.request_id)
            if is_over is None:
                call.fail(self._no_request(asked.request_id))
            elif is_over:
                call.reply(Done())
            else:
                self._waiting.setdefault(asked.request_id, []).append(call)
                self._inbox.put(RequestStopped(asked.request_id))
        else:
            call.fail(TypeError(f"a co-allocation service does not answer {type(asked).__name__}"))

    def _no_request(self, request_id: str) -> NoRequest:
        there = ", ".join(entry.request_id for entry in self.machine.entries()) or "none"
        return NoRequest(f"there is no request {request_id!r}; there are: {there:.200}")

    # The service above

    async def _follow_parent(self, path: Path) -> None:
        """Register with the service above, again when the connection is lost."""
        said = ""
        while True:
            try:
                await self._serve_parent(path)
            except (ConnectionFileError, ConnectionProblem, PeerGone) as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("the service above (%s): %s", path, said)
            await trio.sleep(CONNECT_S)

    async def _serve_parent(self, path: Path) -> None:
        info = read_connection_file(path)
        network = Network(wire_codec, info.token, credentials=info.credentials)
        name = self.machine.service.name
        connection = network.connect(info.address, role=SERVICE_ROLE, name=name, expect=SERVICE_ROLE)
        async with connection as peer:
            self._parent = peer
            try:
                self._inbox.put(ParentLinked())
                await self._listen_to_parent(peer)
            finally:
                self._parent = None
                self._inbox.put(SomeoneGone(PARENT, peer.reason or "its connection has ended"))

    async def _listen_to_parent(self, peer: Peer) -> None:
        while True:
            for message in await peer.receive():
                if not isinstance(message, FROM_PARENT) or not _is_sound(message):
                    drop_offender(peer, f"no service above says {type(message).__name__}")
                    continue
                if isinstance(message, ServiceRegistered):
                    self._warn_of_names(message)
                if isinstance(message, SubmitRequest):
                    await self._take_request(PARENT, peer, message)
                else:
                    self._inbox.put(PeerSaid(PARENT, message), peer)

    def _warn_of_names(self, said: ServiceRegistered) -> None:
        """Say which sites cannot be used from above, once each."""
        for name in sorted(said.doubled.intersection(self._sites) - self._warned):
            self._warned.add(name)
            log.warning(
                "the service above: there is another %s already: give site %s another name", name, name
            )

    # What the machine decides

    @performs(NoteRecords)
    def _note(self, action: NoteRecords) -> None:
        assert self._journal is not None
        self._journal.append(action.records)

    @performs(ToPeer)
    def _say(self, action: ToPeer) -> None:
        site = self._sites.get(action.who)
        if site is not None:
            assert isinstance(action.message, PartsRequest | PartsGo | CancelParts | CredentialWanted)
            site.tell(action.message)
            return
        peer = self._parent if action.who == PARENT else self._peers.get(action.who)
        if peer is not None:
            peer.post(action.message)

    @performs(DropPeer)
    def _drop(self, action: DropPeer) -> None:
        peer = self._parent if action.who == PARENT else self._peers.get(action.who)
        if peer is not None:
            if action.who != PARENT:  # else whoever follows it says so, once while it stays the same
                log.warning("%s: %s", action.who, action.reason)
            peer.drop(action.reason)

    @performs(RequestOver)
    def _over(self, action: RequestOver) -> None:
        for call in self._waiting.pop(action.request_id, ()):
            if not call.peer.reason:
                call.reply(Done())


def _is_sound(message: object) -> bool:
    """Whether a message says what its kind can say."""
    if isinstance(message, PartsRequest):
        return bool(message.parts) and all(part.path and part.need.count > 0 for part in message.parts)
    if isinstance(message, CredentialWanted):
        return bool(message.path)
    if isinstance(message, RegisterService):
        counts = (count for offer in message.offers for count in offer.there.values())
        return all(offer.path for offer in message.offers) and all(count >= 0 for count in counts)
    return True


def read_request(who: str, told: SubmitRequest) -> RequestRead:
    """Return what was submitted, read.

    Raises:
        RslError, msgspec.DecodeError: it cannot be read.
    """
    tree = parse_coallocation(told.text)
    named = msgspec.json.decode(told.jobs, type=dict[str, dict[str, object] | str])
    return RequestRead(who, told, tree, jobs_with_options(tree, named), order_of(tree, told.is_stated))


@asynccontextmanager
async def open_coallocation_service(
    name: str,
    sites: Mapping[str, RunTimeSystem | Path],
    *,
    network: Network | None = None,
    listen: str = "memory:coallocation",
    parent: Path | None = None,
    lends: bool = True,
    journal: CoallocationJournal | None = None,
) -> AsyncIterator[CoallocationShell]:
    """A co-allocation service for as long as the block runs.

    Args:
        name: of the service, another one than all in its tree have.
        sites: name -> run-time system, or its connection file.
        network: in which it listens; None: one of its own.
        listen: address.
        parent: connection file of the service above, with which it registers.
        lends: sites give resources to whoever asks a service, not only to who brings a credential.
        journal: of what clients ask for: what it has goes on; None: there is none.

    Raises:
        BadAddress, OSError: it cannot listen there.
        ConnectionFileError, ConnectionProblem: a run-time system is not there.
    """
    shell = CoallocationShell(name, network or Network(wire_codec), parent, journal)
    async with open_scope() as nursery:
        await nursery.start(shell.run, sites, listen, lends)
        yield shell
        nursery.cancel_scope.cancel()
