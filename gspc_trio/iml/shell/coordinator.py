"""The shell of a memory layer's coordinator: connections to its servers and clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from msgspec.structs import replace

from gspc_trio.components.rts.messages import StopRts
from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.messages import Done, GetStatus, Status
from gspc_trio.iml import events
from gspc_trio.iml import messages as x
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.errors import error_of
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive

REQUESTS = frozenset(
    {
        x.Alloc, x.Locate, x.LookUp, x.BeginPut, x.CommitData, x.AbortData, x.Free, x.Replicate, x.Publish,
        x.GetRank, x.SetRank, x.GetServers,
    }
)  # fmt: skip
"""What clients, and servers for the processes of their hosts, may ask for."""


class CoordinatorService:
    """A running coordinator.

    Attributes:
        machine: decides.
        address: where it listens.
        stopped: set when a client has asked the layer to end.
    """

    def __init__(self, network: Network) -> None:
        self.machine = Coordinator(network.instance)
        self.address = ""
        self.stopped = trio.Event()
        self._network = network
        self._nursery: trio.Nursery
        self._inbox: Inbox[Any] = Inbox()
        self._numbers = Counter()
        self._peers: dict[int, Peer] = {}
        self._asks: dict[int, IncomingCall] = {}
        self._performers: dict[type, Callable[[Any], None]] = {
            events.AnswerRequest: lambda action: self._asks.pop(action.ask).reply(action.message),
            events.RefuseRequest: lambda action: self._asks.pop(action.ask).fail(
                error_of(action.kind, action.message)
            ),
            events.CallServer: lambda action: self._post(
                action.link, replace(action.message, call=action.call)
            ),
            events.TellServer: lambda action: self._post(action.link, action.message),
            events.TellClient: lambda action: self._post(action.client, action.message),
        }

    async def run(
        self, listen: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            nursery = self._nursery
            nursery.start_soon(drive, self.machine, self._inbox, self._perform)
            self.address = await nursery.start(self._listen, listen)
            task_status.started()

    async def _listen(
        self, address: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await self._network.listen(address, self._serve, role="iml", name="iml", task_status=task_status)

    def _perform(self, action: Any) -> None:
        self._performers[type(action)](action)

    def _post(self, number: int, message: Any) -> None:
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
            self._inbox.put(events.ClientUp(number, self._ask(call), body), call.peer)
            return True
        if type(body) in REQUESTS and joined:
            self._inbox.put(events.Asked(number, self._ask(call), body), call.peer)
        elif isinstance(body, GetStatus):
            call.reply(Status(self.machine.status()))
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
