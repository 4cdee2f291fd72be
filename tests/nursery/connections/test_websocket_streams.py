# ruff: noqa: ARG001 - the clock is a fixture
"""Websockets over streams in memory, on a clock that jumps: heartbeats, leases, deadlines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from gspc_trio.components.rm.messages import Release
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.messages import Done
from gspc_trio.core.staging import FilePiece
from gspc_trio.nursery.connections.link import LARGE_BYTES
from gspc_trio.nursery.connections.network import ConnectFailed, Network
from gspc_trio.nursery.connections.pending import LimitedStream, PendingConnections
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone
from gspc_trio.nursery.connections.websocket import AcceptPolicy, Dialer, connect_stream, serve_stream
from gspc_trio.protocol.limits import Limits
from tests.nursery.connections.support import TOKEN, echo, reply_of


class Watched(trio.abc.Stream):
    """A stream that counts what is sent, and can be frozen: it then neither sends nor receives."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.sent = 0
        self.running = trio.Event()
        self.running.set()
        self.speaking = trio.Event()
        self.speaking.set()

    def freeze(self) -> None:
        self.running = trio.Event()

    def mute(self) -> None:
        self.speaking = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self.stream.receive_some(max_bytes)
        await self.running.wait()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.running.wait()
        await self.speaking.wait()
        self.sent += 1
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.stream.aclose()


def accept_policy() -> AcceptPolicy:
    return AcceptPolicy(PendingConnections(4))


@asynccontextmanager
async def pair(
    handler: Callable[[Peer], Awaitable[None]] = echo,
    limits: Limits = Limits(),  # noqa: B008
) -> AsyncIterator[tuple[Peer, Watched, Watched]]:
    """Connect two sides over memory; yield the dialer's peer, its stream and the listener's."""
    network = Network(wire_codec, TOKEN, limits=limits)
    here, there = (Watched(stream) for stream in memory_stream_pair())
    policy = accept_policy()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            identity = network.identity("rts", "main", dialer=False)
            await serve_stream(there, identity, network.codec, handler, policy, remote="memory")

        nursery.start_soon(serve)
        identity = network.identity("job", "j1", dialer=True, expect="rts")
        async with connect_stream(here, Dialer(identity, network.codec, "here", "here")) as peer:
            yield peer, here, there
        nursery.cancel_scope.cancel()


async def test_calls_and_messages_go_over_any_stream(autojump_clock: MockClock) -> None:
    async with pair() as (peer, _, _):
        assert await peer.call(Done()) == Done()
        peer.post(Release("j1", (1, 1)))
        assert await peer.receive() == [Release("j1", (1, 1))]


async def test_what_was_queued_has_been_sent_when_a_peer_says_so(autojump_clock: MockClock) -> None:
    """Messages and large answers, which go in an order of their own."""
    told: list[str] = []

    async def answer(peer: Peer) -> None:
        calls = [call for call in await peer.receive() if isinstance(call, IncomingCall)]
        there.mute()
        for call in calls:
            call.reply(FilePiece(1, "", bytes(LARGE_BYTES)))
        peer.post(Release("j1", (1, 1)))
        await peer.sent()
        told.append("sent")

    async with pair(answer) as (peer, _, there), trio.open_nursery() as nursery:
        nursery.start_soon(peer.call, Done())
        await trio.sleep(1)
        assert told == []
        there.speaking.set()
        await trio.sleep(1)
        assert told == ["sent"]


async def test_what_has_gathered_travels_in_one_frame(autojump_clock: MockClock) -> None:
    async with pair(limits=Limits(frame_items_max=100)) as (peer, here, _):
        before = here.sent
        for number in range(250):
            peer.post(Release("j1", (1, number)))
        while (await peer.receive())[-1] != Release("j1", (1, 249)):
            pass
        assert here.sent - before == 3


async def test_a_frame_is_cut_off_at_its_size(autojump_clock: MockClock) -> None:
    async with pair(limits=Limits(frame_bytes_gather=100)) as (peer, here, _):
        before = here.sent
        for number in range(30):
            peer.post(Release("j" * 49, (1, number)))
        while (await peer.receive())[-1].grant_id != (1, 29):
            pass
        assert here.sent - before == 15


async def test_an_idle_connection_lives_on_heartbeats_alone(autojump_clock: MockClock) -> None:
    async with pair() as (peer, here, there):
        before = here.sent, there.sent
        await trio.sleep(100)
        assert not peer.lost.is_set()
        assert 49 <= here.sent - before[0] <= 51
        assert 49 <= there.sent - before[1] <= 51
        assert await peer.call(Done()) == Done()


async def test_a_busy_connection_needs_no_heartbeat(autojump_clock: MockClock) -> None:
    async with pair() as (peer, here, _):
        before = here.sent
        for _ in range(100):
            await peer.call(Done())
            await trio.sleep(1)
        assert here.sent - before == 100


async def test_a_silent_peer_is_gone_after_the_lease(autojump_clock: MockClock) -> None:
    async with pair() as (peer, _, there):
        await peer.call(Done())
        began = trio.current_time()
        there.freeze()
        with pytest.raises(PeerGone, match="nothing heard for 6 s"):
            await peer.receive()
        assert 6 <= trio.current_time() - began <= 8
        # The rest goes at once, though the other side reads nothing.
        began = trio.current_time()
    assert trio.current_time() - began <= 2.5


async def test_who_was_not_heard_of_learns_that_it_was_signed_off(autojump_clock: MockClock) -> None:
    async with pair() as (peer, here, _):
        await peer.call(Done())
        here.mute()
        await trio.sleep(7)
        here.speaking.set()
        with pytest.raises(PeerGone) as caught:
            await peer.receive()
        assert caught.value.reason == (
            "signed off by the other side, which has heard nothing of this process for 6 s: "
            "it was stopped, or too busy"
        )


async def test_a_receiver_that_stops_reading_does_not_think_the_other_dead(autojump_clock: MockClock) -> None:
    """It is silent there only because nothing is read here."""
    limits = Limits(inbox_items_max=4, frame_items_max=2)

    async def chatter(peer: Peer) -> None:
        for number in range(500):
            peer.post(Release("j1", (1, number)))
        await peer.lost.wait()

    async with pair(chatter, limits) as (peer, _, _):
        await trio.sleep(60)
        assert not peer.lost.is_set()
        got: list[Release] = []
        while len(got) < 500:
            got += await peer.receive()
        assert got == [Release("j1", (1, number)) for number in range(500)]


async def test_closing_gives_up_on_a_peer_that_reads_nothing(autojump_clock: MockClock) -> None:
    async with pair() as (peer, _, there):
        there.freeze()
        for number in range(3000):
            peer.post(Release("j1", (1, number)))
        began = trio.current_time()
        await peer.aclose()
        assert trio.current_time() - began <= 1.0
        assert peer.reason == "closed here"


async def test_a_listener_that_says_nothing_is_given_up_at_the_deadline(autojump_clock: MockClock) -> None:
    network = Network(wire_codec, TOKEN)
    here, _ = memory_stream_pair()
    identity = network.identity("job", "j1", dialer=True)
    with pytest.raises(ConnectFailed, match="here does not answer"):
        async with connect_stream(here, Dialer(identity, network.codec, "here", "here")):
            raise AssertionError
    assert trio.current_time() == 5


async def test_a_dialer_that_says_nothing_is_given_up_at_the_deadline(autojump_clock: MockClock) -> None:
    network = Network(wire_codec, TOKEN)
    _, there = memory_stream_pair()
    identity = network.identity("rts", "main", dialer=False)
    policy = accept_policy()
    why = await serve_stream(there, identity, network.codec, echo, policy, remote="x")
    assert why == "it did not finish the handshake"
    assert trio.current_time() == 5
    assert len(policy.pending) == 0


async def test_a_dialer_that_goes_away_frees_its_place_at_once(autojump_clock: MockClock) -> None:
    network = Network(wire_codec, TOKEN)
    here, there = memory_stream_pair()
    identity = network.identity("rts", "main", dialer=False)
    await here.aclose()
    why = await serve_stream(there, identity, network.codec, echo, accept_policy(), remote="x")
    assert why == "closed the connection or does not speak websocket"
    assert trio.current_time() == 0


async def test_a_limited_stream_lets_in_its_allowance_and_the_rest_when_opened(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    here, there = memory_stream_pair()
    limited = LimitedStream(there, 4)
    heard: list[float] = []
    limited.on_arrival = lambda: heard.append(trio.current_time())
    await here.send_all(b"abcdef")
    assert await limited.receive_some(3) == b"abc"
    assert await limited.receive_some() == b"d"
    with trio.move_on_after(10) as scope:
        await limited.receive_some()
    assert scope.cancelled_caught
    nursery.start_soon(_open_later, limited)
    assert await limited.receive_some() == b"ef"
    assert heard == [15]


async def _open_later(limited: LimitedStream) -> None:
    await trio.sleep(5)
    limited.open()


@pytest.mark.parametrize("cut", range(0, 1400, 100))
async def test_a_connection_cut_at_any_byte_ends_cleanly(cut: int, autojump_clock: MockClock) -> None:
    """Both sides learn of it, nothing hangs, nothing else is raised."""

    class Cutting(Watched):
        left = cut

        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await self.stream.send_all(bytes(data[: self.left]) or b"\x00" * 0)
            self.left -= len(data)
            if self.left < 0:
                await self.stream.aclose()
                raise trio.BrokenResourceError

    network = Network(wire_codec, TOKEN)
    left, there = memory_stream_pair()
    here = Cutting(left)
    over = trio.Event()

    async def serve() -> None:
        identity = network.identity("rts", "main", dialer=False)
        await serve_stream(there, identity, network.codec, echo, accept_policy(), remote="x")
        over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises((ConnectFailed, PeerGone)):
            await _talk_for_ever(network, here)
        with trio.fail_after(20):
            await over.wait()


async def _talk_for_ever(network: Network, stream: trio.abc.Stream) -> None:
    identity = network.identity("job", "j1", dialer=True)
    async with connect_stream(stream, Dialer(identity, network.codec, "here", "here")) as peer:
        while True:
            await peer.call(Release("j1", (1, 1)))


async def test_what_is_short_does_not_wait_for_large_answers(autojump_clock: MockClock) -> None:
    """Else what asks for the next piece of a file would wait behind all that go the same way."""
    arrived: list[str] = []

    async def answer(peer: Peer) -> None:
        calls: list[IncomingCall] = []
        while len(calls) < 3:
            calls += await peer.receive()
        for call in calls:
            call.reply(reply_of(LARGE_BYTES))
        peer.post(Done())
        await peer.lost.wait()

    async with pair(answer) as (peer, _, _):

        async def ask() -> None:
            await peer.call(Done())
            arrived.append("answer")

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
            assert await peer.receive() == [Done()]
            arrived.append("message")
    assert arrived.index("message") < 2
    assert len(arrived) == 4
