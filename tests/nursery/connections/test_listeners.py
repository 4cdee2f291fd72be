"""Who listens to a peer gets each message as soon as it is there."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gspc_trio.components.rm.messages import Release
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.memory import memory_pair
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone
from tests.nursery.connections.support import MEMORY, WEBSOCKET, connected

by_address = pytest.mark.parametrize("address", [MEMORY, WEBSOCKET], ids=["memory", "websocket"])


def release(number: int) -> Release:
    return Release("j1", (1, number))


@by_address
async def test_messages_and_calls_arrive_in_order(address: str) -> None:
    heard: list[Any] = []
    over = trio.Event()

    async def serve(peer: Peer) -> None:
        def take(message: Any) -> None:
            if isinstance(message, IncomingCall):
                message.reply(message.body)
            else:
                heard.append(message)

        with pytest.raises(PeerGone):
            await peer.listen(take)
        over.set()

    async with connected(address, serve) as peer:
        for number in range(3000):
            peer.post(release(number))
        assert await peer.call(Done()) == Done()
        peer.post(release(3000))
    with trio.fail_after(60):
        await over.wait()
    assert heard == [release(number) for number in range(3001)]


async def test_in_memory_it_is_the_sender_who_hands_over(nursery: trio.Nursery) -> None:
    here, there = memory_pair("job", "a", "rif", "b")
    heard: list[Any] = []

    def take(message: Any) -> None:
        heard.append(message)
        if message == release(1):
            here.post(release(2))
            assert heard == [release(0), release(1)], "one after the other"

    here.post(release(0))
    nursery.start_soon(listen, there, take)
    await wait_all_tasks_blocked()
    here.post(release(1))
    assert heard == [release(0), release(1), release(2)]
    here.drop()


async def listen(peer: Peer, take: Any) -> None:
    with pytest.raises(PeerGone):
        await peer.listen(take)


async def test_what_the_listener_raises_ends_it_and_not_the_sender() -> None:
    here, there = memory_pair("job", "a", "rif", "b")

    def take(message: Any) -> None:
        raise LookupError(message)

    with pytest.RaisesGroup(LookupError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(there.listen, take)
            await wait_all_tasks_blocked()
            here.post(release(1))
    here.drop()


async def test_nothing_is_heard_of_a_peer_that_was_dropped() -> None:
    here, there = memory_pair("job", "a", "rif", "b")
    heard: list[Any] = []

    def take(message: Any) -> None:
        heard.append(message)
        there.drop("it talks too much")

    for number in range(3):
        here.post(release(number))
    with pytest.raises(PeerGone, match="too much"):
        await there.listen(take)
    assert heard == [release(0)]
    assert here.reason == "it talks too much"


async def test_only_one_listens(nursery: trio.Nursery) -> None:
    here, there = memory_pair("job", "a", "rif", "b")
    nursery.start_soon(listen, there, print)
    await wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await there.listen(print)
    with pytest.raises(trio.BusyResourceError):
        await there.receive()
    here.drop()
