"""The connection to a run-time system, which may go and come back."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from gspc_trio.components.rif.messages import StopRif
from gspc_trio.components.rts.shell.contact import RtsContact
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import CLOSED_HERE, Peer


class Place:
    """A run-time system that can be taken away and put back."""

    def __init__(self) -> None:
        self.network = Network(wire_codec)
        self.peers: list[Peer] = []
        self.heard: list[Any] = []
        self.greeted = 0

    async def listen(
        self, scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async def serve(peer: Peer) -> None:
            self.peers.append(peer)
            peer.post(StopRif())
            await peer.lost.wait()

        with scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.listening, serve)
                task_status.started()

    async def listening(self, serve: Any, task_status: trio.TaskStatus[str]) -> None:
        await self.network.listen("memory:rts", serve, role="rts", name="rts", task_status=task_status)

    def contact(self, grace_s: float) -> RtsContact:
        def greet(_: Peer) -> None:
            self.greeted += 1

        return RtsContact(self.connect, self.heard.append, greet, grace_s)

    def connect(self) -> Any:
        return self.network.connect("memory:rts", role="rif", name="r1", expect="rts")


async def test_it_is_found_again_and_heard(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    place, first = Place(), trio.CancelScope()
    await nursery.start(place.listen, first)
    contact, ends = place.contact(30.0), []

    async def run() -> None:
        async with place.connect() as peer:
            ends.append(await contact.run(peer))

    nursery.start_soon(run)
    await trio.sleep(1)
    first.cancel()
    await trio.sleep(20)
    assert (ends, place.greeted) == ([], 0)
    second = trio.CancelScope()
    await nursery.start(place.listen, second)
    await trio.sleep(100)
    assert (ends, place.greeted) == ([], 1), "it waits no more"
    assert len(place.heard) == 2
    second.cancel()
    await trio.sleep(29)
    assert ends == []
    await trio.sleep(2)
    assert "did not come back within 30 s" in ends[0]
    del autojump_clock


async def test_who_does_not_wait_ends_at_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    place, scope = Place(), trio.CancelScope()
    await nursery.start(place.listen, scope)
    async with place.connect() as peer:
        await trio.sleep(1)
        place.peers[0].drop("it was stopped")
        assert await place.contact(0.0).run(peer)
    async with place.connect() as peer:
        await trio.sleep(1)
        peer.drop()
        assert await place.contact(30.0).run(peer) == CLOSED_HERE
    scope.cancel()
    del autojump_clock
