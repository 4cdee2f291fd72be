"""The shell of a memory layer's coordinator: connections to its servers and clients."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import trio
from msgspec.structs import replace

from gspc_trio.components.rts.messages import StopRts
from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import IllegalEvent, Performer, performs
from gspc_trio.core.messages import Done
from gspc_trio.iml import events
from gspc_trio.iml import messages as x
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.errors import error_of
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.protocol.address import BadAddress, WebSocketAddress, parse_address

SILENT_HERE_S = 600.0
"""A client on the coordinator's own host may be silent for so long, suspended or starved: the kernel closes
its connection when it ends, and what it has lost cannot be had again."""


def _new_token() -> str:
    return secrets.token_hex(16)


class CoordinatorService(Performer[events.LayerAction]):
    """A running coordinator.

    Args:
        network: where it listens.
        new_token: makes secrets that nobody can guess.

    Attributes:
        machine: decides.
        address: where it listens.
        stopped: set when a client has asked the layer to end.
    """

    def __init__(self, network: Network, new_token: Callable[[], str] = _new_token) -> None:
        self.machine: Coordinator = Coordinator(network.instance)
        self.address: str = ""
        self.stopped: trio.Event = trio.Event()
        self._network = network
        self._new_token = new_token
        self._nursery: trio.Nursery
        self._inbox: Inbox[events.LayerEvent] = Inbox()
        self._numbers = Counter()
        self._peers: dict[int, Peer] = {}
        self._asks: dict[int, IncomingCall] = {}

    async def run(
        self, listen: str, *, inside: str = "", task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled.

        Args:
            listen: address.
            inside: another one, for a server in the same process: nothing is encoded and sent for it.
            task_status: told when it listens.
        """
        async with trio.open_nursery() as self._nursery:
            nursery = self._nursery
            nursery.start_soon(drive, self.machine, self._inbox, self)
            self.address = await nursery.start(self._listen, listen)
            if inside:
                await nursery.start(self._listen, inside)
            task_status.started()

    async def _listen(
        self, address: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await self._network.listen(address, self._serve, role="iml", name="iml", task_status=task_status)

    @performs(events.AnswerRequest)
    def _reply(self, action: events.AnswerRequest) -> None:
        self._asks.pop(action.ask).reply(action.message)

    @performs(events.RefuseRequest)
    def _refuse(self, action: events.RefuseRequest) -> None:
        self._asks.pop(action.ask).fail(error_of(action.kind, action.message))

    @performs(events.CallServer)
    def _call(self, action: events.CallServer) -> None:
        self._post(action.link, replace(action.message, call=action.call))

    @performs(events.TellServer)
    def _tell_server(self, action: events.TellServer) -> None:
        self._post(action.link, action.message)

    @performs(events.TellClient)
    def _tell_client(self, action: events.TellClient) -> None:
        self._post(action.client, action.message)

    def _post(self, number: int, message: object) -> None:
        peer = self._peers.get(number)
        if peer is not None:  # who is gone hears nothing any more
            peer.post(message)

    async def _serve(self, peer: Peer) -> None:
        """Take what a server or a client says until it is gone."""
        number = self._numbers.next()
        self._peers[number] = peer
        is_server = peer.role == "iml-server"
        joined = False
        try:
            while True:
                for message in await peer.receive():
                    if isinstance(message, IncomingCall):
                        joined = self._take_call(number, is_server, joined, message) or joined
                    elif is_server and joined and isinstance(message, x.PartDone):
                        done = events.Answered(message.call, message.kind, message.message, number)
                        self._inbox.put(done, peer)
                    elif is_server and joined and isinstance(message, x.Evicted):
                        self._inbox.put(events.ServerSays(number, message), peer)
                    else:
                        drop_offender(peer, f"a memory layer does not understand {type(message).__name__}")
        finally:
            del self._peers[number]
            reason = peer.reason or "it was dropped"
            self._inbox.put(events.ServerDown(number, reason) if is_server else events.ClientDown(number))

    def _take_call(self, number: int, is_server: bool, joined: bool, call: IncomingCall) -> bool:
        """Take a call; return whether the other side has joined with it."""
        body = call.body
        if isinstance(body, x.ServerHello) and is_server and not joined:
            self._inbox.put(events.ServerUp(number, self._ask(call), body), call.peer)
            return True
        if isinstance(body, x.JoinLayer) and not is_server and not joined:
            if _is_here(call.peer.remote, self.address):
                call.peer.allow_silence(SILENT_HERE_S)
            self._inbox.put(events.ClientUp(number, self._ask(call), body), call.peer)
            return True
        if isinstance(body, x.LayerRequest) and joined:
            self._inbox.put(events.Asked(number, self._ask(call), body, self._new_token()), call.peer)
        elif isinstance(body, x.GetLayerStatus):
            call.reply(self.machine.status())
        elif isinstance(body, StopRts):
            call.reply(Done())
            self._nursery.start_soon(self._stop_after, call.peer)
        else:
            call.fail(IllegalEvent(f"a memory layer cannot be asked for {type(body).__name__} now"))
        return False

    async def _stop_after(self, peer: Peer) -> None:
        """Let the answer arrive before everything ends."""
        await peer.aclose()
        self.stopped.set()

    def _ask(self, call: IncomingCall) -> int:
        number = self._numbers.next()
        self._asks[number] = call
        return number


def _is_here(remote: str, listening: str) -> bool:
    """Return whether an end of a connection is on the host of the one that listens."""
    try:
        there, here = parse_address(f"ws://{remote}"), parse_address(listening)
    except BadAddress:
        return False  # in a simulation
    if not (isinstance(there, WebSocketAddress) and isinstance(here, WebSocketAddress)):
        return False
    return there.is_loopback or there.host == here.host
