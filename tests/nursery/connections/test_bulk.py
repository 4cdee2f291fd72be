"""Large bytes on a websocket of their own: whole, in order, and nothing else is taken for them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.bulk import (
    ASKED_BYTES_MAX,
    BulkAndCalls,
    BulkGone,
    BulkHandler,
    BulkStream,
    frame_header,
    mask,
)
from gspc_trio.nursery.connections.certificates import Authority
from gspc_trio.nursery.connections.errors import AuthenticationFailed, ConnectFailed
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Handler, Peer
from tests.nursery.connections.support import TOKEN

HEAD = b"head"


async def never(peer: Peer) -> None:
    raise AssertionError(f"{peer} is no connection for bytes")


async def send_back_twice(stream: BulkStream) -> None:
    """Answer each question with itself, twice; the number before it says how often it is repeated."""
    while True:
        count, _, text = (await stream.asked()).partition(b" ")
        for _ in range(2):
            await stream.answer(HEAD, memoryview(text * int(count)))


@asynccontextmanager
async def listening(handler: Handler | BulkHandler, network: Network) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        scheme = "wss" if network.credentials else "ws"

        async def listen(task_status: trio.TaskStatus[str]) -> None:
            await network.listen(
                f"{scheme}://127.0.0.1:0", handler, role="holder", name="h", task_status=task_status
            )

        yield await nursery.start(listen)
        nursery.cancel_scope.cancel()


async def next_message(stream: BulkStream) -> bytes:
    data = bytearray(await stream.begin())
    with memoryview(data) as view:
        await stream.take(view[:2])  # in whatever pieces
        await stream.take(view[2:])
    return bytes(data)


@pytest.fixture
def issue(tmp_path: Path) -> Callable[[str], str]:
    tmp_path.chmod(0o700)
    return Authority(tmp_path / "tls").issue


@pytest.mark.parametrize("encrypted", [False, True])
async def test_what_is_sent_arrives_whole_and_in_order(encrypted: bool, issue: Callable[[str], str]) -> None:
    issue = issue if encrypted else lambda _: ""
    here, there = (Network(wire_codec, TOKEN, credentials=issue(name)) for name in ("client", "holder"))
    async with listening(BulkAndCalls(never, send_back_twice), there) as address:
        async with here.connect_bulk(address, name="c", expect="holder") as stream:
            sizes = [1, 60, 61, 62, 5_000, 32_766, 32_767, 200_000, 1_500_000]
            for size in sizes:
                await stream.ask(b"%d " % size + bytes([size % 256, 7]))
            for size in sizes:
                for _ in range(2):
                    assert await next_message(stream) == HEAD + bytes([size % 256, 7]) * size


async def test_both_ends_use_the_listener_for_messages_too() -> None:
    async def greet(peer: Peer) -> None:
        assert peer.role == "client"
        await peer.receive()

    network = Network(wire_codec, TOKEN)
    async with listening(BulkAndCalls(greet, send_back_twice), network) as address:
        async with network.connect(address, role="client", name="c", expect="holder") as peer:
            assert peer.role == "holder"
        async with network.connect_bulk(address, name="c", expect="holder") as stream:
            await stream.ask(b"1 x")
            assert await next_message(stream) == HEAD + b"x"


async def test_strangers_get_no_bytes() -> None:
    async with listening(BulkAndCalls(never, send_back_twice), Network(wire_codec, TOKEN)) as address:
        with pytest.raises(AuthenticationFailed):
            async with Network(wire_codec, b"another" * 5).connect_bulk(address, name="c", expect="holder"):
                pass


async def test_a_listener_without_bytes_is_told_apart() -> None:
    async def hang_up(peer: Peer) -> None:
        peer.drop("no bulk here")

    network = Network(wire_codec, TOKEN)
    async with listening(hang_up, network) as address:
        with pytest.raises(ConnectFailed, match="sends no large bytes"):
            async with network.connect_bulk(address, name="c", expect="holder"):
                pass
    with pytest.raises(ConnectFailed, match="nothing has to be sent"):
        async with network.connect_bulk("memory:here", name="c", expect=""):
            pass


async def test_the_end_of_one_side_is_the_end_of_the_other() -> None:
    async def one_answer(stream: BulkStream) -> None:
        await stream.asked()
        await stream.answer(HEAD, memoryview(b"last"))

    network = Network(wire_codec, TOKEN)
    async with listening(BulkAndCalls(never, one_answer), network) as address:
        async with network.connect_bulk(address, name="c", expect="holder") as stream:
            await stream.ask(b"any")
            assert await next_message(stream) == HEAD + b"last"
            with pytest.raises(BulkGone, match="closed by the other side"):
                await stream.begin()


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (frame_header(3) + b"abc", "no place here"),  # of a dialer, and not masked
        (b"\x81\x83\0\0\0\0abc", "no place here"),  # text
        (b"\x02\x83\0\0\0\0abc", "no place here"),  # the first of several
        (b"\x88\x80\0\0\0\0", "closed by the other side"),
        (frame_header(ASKED_BYTES_MAX + 1, 0x80) + bytes(4), "are allowed"),
        (frame_header(1 << 62, 0x80) + bytes(4), "are allowed"),
        (b"\x82", "closed by the other side"),
        (frame_header(100, 0x80) + bytes(50), "in the middle of a message"),
    ],
)
async def test_anything_but_a_question_ends_the_connection(frame: bytes, why: str) -> None:
    here, there = trio.testing.memory_stream_pair()
    stream = BulkStream(there, dialer=False)
    await here.send_all(frame)
    await here.aclose()
    with pytest.raises(BulkGone, match=why):
        await stream.asked()


async def test_an_answer_that_is_shorter_than_it_should_be_is_noticed() -> None:
    here, there = trio.testing.memory_stream_pair()
    stream = BulkStream(there, dialer=True)
    await here.send_all(frame_header(3) + b"abc")
    assert await stream.begin() == 3
    with pytest.raises(BulkGone, match="2 bytes too short"):
        await stream.take(memoryview(bytearray(5)))


def test_masking_twice_is_the_same_again() -> None:
    for size in (0, 1, 3, 4, 5, 1000):
        data, key = os.urandom(size), os.urandom(4)
        masked = mask(data, key)
        assert mask(masked, key) == data
        assert all(byte == data[at] ^ key[at % 4] for at, byte in enumerate(masked))
