"""Hostile peers beside the honest client of a memory layer: see :mod:`gspc_trio.testing.hostile`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

import msgpack
import trio
import trio.lowlevel

from gspc_trio.components.wire.registry import WIRE_TYPES
from gspc_trio.iml import messages as x
from gspc_trio.iml.errors import LayerGone
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.requests import LayerRequests
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.iml.shell.platform import platform
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.protocol.envelope import Call
from gspc_trio.testing.forged import POISON, ForgedMessages, Names
from gspc_trio.testing.simulated.coded import CodedNetwork, HostilePeer, Listeners

TOKEN = b"the token that hostile peers have, too"
LAYER, HOSTS = "iml", ("a", "b")
MEMORY_BYTES = 1 << 22
DATA_BYTES = 10_000
NEXT_IDS = 4
"""So many ids, from that of the data of the honest client on, are guessed by hostile peers."""

_BY_SERVER = (x.PartDone, x.PartDone, x.Evicted, x.ServerHello)
_TO_SERVER = (x.GetChunk, x.PutChunk, x.PutFrom)
_ASKED: Sequence[type] = sorted(
    LayerRequests.event_kinds() - {x.Free, x.SetRank}, key=lambda kind: kind.__name__
)
"""Who speaks for no job may free everything, and make a host the place of every name."""


class HostileLayer:
    """A memory layer of two hosts, an honest client of it, and hostile peers of every kind.

    Args:
        random: to draw from.
        number: how many messages the hostile peers are to say.
    """

    def __init__(self, random: Random, number: int) -> None:
        self.said: int = 0
        self.ended: int = 0
        self.kept: int = 0
        self._random = random
        self._number = number
        self._listeners = Listeners()
        self._honest: list[Peer] = []
        self._network = CodedNetwork(TOKEN, self._listeners, "honest", self._honest.append)
        words = [
            "",
            *[
                "hostile",
                "job",
                "a",
                "b",
                "d1",
                "d2",
                "d3",
                "d4",
                "lent",
                "memory:nowhere",
                "memory:a",
                "ws://",
                "*",
            ],
        ]
        self._forged = ForgedMessages(random, Names([*words, *["hostile"] * 10], [(0, 0)]))
        self._ids = ["d1"]
        self._near = ForgedMessages(random, Names(self._ids, [(0, 0)]))
        self._plan = self._forged.every()
        self._servers: list[ImlServer] = []

    async def run(self) -> None:
        """Send forged messages until all has been said; raises what the honest client has noticed."""
        async with trio.open_nursery() as nursery:
            coordinator = CoordinatorService(self._network)
            await nursery.start(coordinator.run, f"memory:{LAYER}")
            for host in HOSTS:
                server = ImlServer(self._network, host, MEMORY_BYTES)
                await nursery.start(self._serve, server)
                self._servers.append(server)
            nursery.start_soon(self._keep)
            async with trio.open_nursery() as attacks:
                for role, where in (("iml-client", LAYER), ("iml-server", LAYER), ("stranger", LAYER)):
                    attacks.start_soon(self._attack, role, where)
                attacks.start_soon(self._attack, "iml-client", "a")
                attacks.start_soon(self._attack, "iml-server", "a")
                attacks.start_soon(self._send_bad_handshakes)
            for peer in self._honest:
                assert not peer.reason or peer.reason.startswith("closed"), f"an honest one has ended: {peer}"
            assert not any(server.gone.is_set() for server in self._servers), "a memory server has ended"
            nursery.cancel_scope.cancel()

    async def _serve(self, server: ImlServer, *, task_status: trio.TaskStatus[ImlServer]) -> None:
        address = f"memory:{server.host}"
        await server.run(address, f"memory:{LAYER}", task_status=task_status)

    async def _keep(self) -> None:
        """Put data and get it back, again and again: what was put is what is got."""
        near = self._servers[0]
        async with join_layer(self._network, f"memory:{LAYER}", job="job", host="a", server=near) as iml:
            while True:
                content = self._random.randbytes(DATA_BYTES)
                data = await iml.alloc(DATA_BYTES, layout=Layout((self._random.choice(HOSTS),)))
                number = int(data.data_id[1:])
                self._ids[:] = [f"d{number + step}" for step in range(NEXT_IDS)]
                await iml.put(data.all, content)
                await trio.sleep(0.005)
                assert bytes(await iml.get(data)) == content, "what was put is not what was got"
                await iml.free(data)
                self.kept += 1

    def _goes_on(self) -> bool:
        self.said += 1
        return self.said <= self._number

    async def _attack(self, role: str, where: str) -> None:
        """Connect again and again, and say what one must not, until all has been said."""
        while self.said < self._number:
            network = CodedNetwork(TOKEN, self._listeners, "hostile")
            with suppress(ConnectionProblem):
                hostile = await network.connect_hostile(where, role, "hostile")
                self._introduce(hostile, role, where)
                await self._speak(hostile, role, where)
                hostile.leave()
            await trio.lowlevel.checkpoint()

    def _introduce(self, hostile: HostilePeer, role: str, where: str) -> None:
        if self._random.random() < 0.8 and where == LAYER and role == "iml-client":
            hostile.call_in_order(x.JoinLayer("hostile"))
        elif self._random.random() < 0.8 and where == LAYER:
            hostile.call_in_order(x.ServerHello("hostile", "memory:hostile", "", 0))

    async def _speak(self, hostile: HostilePeer, role: str, where: str) -> None:
        kinds = _TO_SERVER if where != LAYER else _BY_SERVER if role == "iml-server" else _ASKED
        for _ in range(self._random.randint(1, 60)):
            if hostile.reason:
                self.ended += 1
                return
            if not self._goes_on():
                return
            kind, fields = self._next(kinds)
            if kind is not x.Free and kind.__name__ != "StopRts":
                call = kind not in (x.PartDone, x.Evicted) if self._random.random() < 0.9 else False
                hostile.say(kind, fields, call=call)
            for item in hostile.heard:
                if isinstance(item, Call):
                    hostile.say(*self._forged.some(WIRE_TYPES), answers=item.call_id)
            hostile.heard.clear()
            await trio.lowlevel.checkpoint()

    def _next(self, kinds: Sequence[type]) -> tuple[type, object]:
        if self._random.random() < 0.2:
            found = next(self._plan, None)
            if found is not None:
                return found
            self._plan = self._forged.every()
        if (kinds is _TO_SERVER or kinds is _ASKED) and self._random.random() < 0.3:
            return self._near.some(_TO_SERVER if kinds is _TO_SERVER else (x.Alloc,))
        return self._forged.some(kinds)

    async def _send_bad_handshakes(self) -> None:
        """Be a process of the host that says to its memory server what it must not."""
        random, words = self._random, self._forged.names.texts
        while self.said < self._number:
            connection = platform().connect(self._servers[0].local_address)
            with connection:
                connection.setblocking(False)
                for number in range(1, random.randint(2, 60)):
                    if not self._goes_on():
                        return
                    fields = [random.choice((random.choice(words), *(0, 1, -1, 100))) for _ in range(4)]
                    if random.random() < 0.3:
                        fields[random.randrange(4)] = random.choice(POISON)
                    request = (random.randrange(16), number, *fields[: random.randrange(5)])
                    packet = msgpack.packb(request, unicode_errors="surrogatepass")
                    try:
                        connection.send(packet)
                        connection.recv(1 << 17)
                    except BlockingIOError:
                        pass
                    except OSError:
                        self.ended += 1
                        break
                    await trio.lowlevel.checkpoint()


def attack_layer(seed: int, number: int) -> HostileLayer:
    """Let hostile peers say so many messages; raise what the honest client has noticed."""
    hostile = HostileLayer(Random(seed), number)
    with suppress(LayerGone):
        trio.run(hostile.run)
        return hostile
    raise AssertionError("the memory layer has ended")
