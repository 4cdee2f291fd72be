"""Where those who connect wait until they have asked for something."""

from __future__ import annotations

import os
import resource
from contextlib import AsyncExitStack, suppress
from functools import partial

import psutil
import pytest
import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.acceptor import asks_for_encryption, asks_for_websocket
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.pending import ASKING_STAY_S, SILENT_STAY_S, PendingConnections
from tests.nursery.connections.support import (
    TOKEN,
    WEBSOCKET,
    Done,
    Limits,
    listening,
    raw_connection,
    until_closed,
    upgrade_request,
)

BOUND_S = 60


def crowd(pending: PendingConnections, kind: str, number: int, gone: list[str]) -> None:
    for i in range(number):
        who = f"{kind}{i}"
        pending.enter(who, partial(gone.append, who), 0.0, asking=kind == "asking")


def test_of_too_many_the_oldest_goes() -> None:
    gone: list[str] = []
    pending = PendingConnections(4)
    crowd(pending, "silent", 6, gone)
    assert gone == ["silent0", "silent1"]
    pending.leave("silent2")
    crowd(pending, "asking", 1, gone)
    assert gone == ["silent0", "silent1"]
    assert len(pending) == 4


def test_neither_crowd_displaces_the_other() -> None:
    gone: list[str] = []
    pending = PendingConnections(4)
    crowd(pending, "asking", 2, gone)
    crowd(pending, "silent", 4, gone)
    assert gone == ["silent0", "silent1"]
    pending = PendingConnections(4)
    gone.clear()
    crowd(pending, "silent", 2, gone)
    crowd(pending, "asking", 5, gone)
    assert gone == ["asking0", "asking1", "asking2"]
    assert len(pending) == 4


@pytest.mark.parametrize(("kind", "stay_s"), [("silent", SILENT_STAY_S), ("asking", ASKING_STAY_S)])
def test_nobody_is_displaced_who_has_just_come(kind: str, stay_s: float) -> None:
    gone: list[str] = []
    pending = PendingConnections(2)
    crowd(pending, kind, 2, gone)
    assert pending.is_closed(stay_s / 2)
    assert not pending.is_closed(stay_s)
    pending.leave(f"{kind}0")
    assert not pending.is_closed(0.0)


async def test_who_asks_keeps_its_place() -> None:
    gone: list[str] = []
    pending = PendingConnections(2)
    crowd(pending, "silent", 2, gone)
    pending.ask("silent0", trio.current_time(), "stream")
    assert len(pending) == 2
    with pending.place("stream", trio.current_time() + BOUND_S):
        assert len(pending) == 2
    assert len(pending) == 1
    assert gone == []


def test_nobody_is_evicted_from_no_pending_connections() -> None:
    PendingConnections(4).evict_oldest()


def test_who_asks_for_encryption_shows_a_whole_record_or_something_else() -> None:
    record = b"\x16\x03\x01\x00\x10" + bytes(16)
    assert not any(asks_for_encryption(record[:length]) for length in range(1, len(record)))
    assert asks_for_encryption(record)
    assert asks_for_encryption(b"GET")
    assert not asks_for_websocket(upgrade_request()[:-1])
    assert asks_for_websocket(upgrade_request())


async def test_a_request_may_come_in_pieces() -> None:
    network = Network(wire_codec, TOKEN)
    async with listening(network, WEBSOCKET) as address, await raw_connection(address) as stream:
        for piece in (upgrade_request()[:10], upgrade_request()[10:60], upgrade_request()[60:]):
            await stream.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(BOUND_S):
            assert (await stream.receive_some(12)).startswith(b"HTTP/1.1 101")


async def test_strangers_cost_no_tasks_and_leave_no_descriptors() -> None:
    me = psutil.Process()
    network = Network(wire_codec, TOKEN, limits=Limits(handshake_s=BOUND_S))
    async with listening(network, WEBSOCKET) as address:
        async with network.connect(address, role="job", name="j", expect="rts") as peer:
            await peer.call(Done())
            tasks, files = trio.lowlevel.current_statistics().tasks_living, me.num_fds()
            async with AsyncExitStack() as strangers:
                for _ in range(50):
                    stranger = await strangers.enter_async_context(await raw_connection(address))
                    await stranger.send_all(b"GET / HTTP/1.1\r\n")
                assert await peer.call(Done()) == Done()
                with trio.fail_after(BOUND_S):
                    while me.num_fds() < files + 100:
                        await peer.call(Done())
                assert trio.lowlevel.current_statistics().tasks_living <= tasks
            with trio.fail_after(BOUND_S):
                while me.num_fds() > files:
                    await peer.call(Done())


async def test_a_listener_that_ends_lets_go_of_those_who_wait() -> None:
    async with await _left_waiting() as stream:
        with trio.fail_after(BOUND_S):
            assert await until_closed(stream) == b""


async def _left_waiting() -> trio.SocketStream:
    """Return a connection whose listener is gone, after both had work to do."""
    network = Network(wire_codec, TOKEN)
    async with listening(network, WEBSOCKET) as address:
        stream = await raw_connection(address)
        async with network.connect(address, role="job", name="j", expect="rts") as peer:
            await peer.call(Done())
    return stream


async def test_a_listener_short_of_descriptors_says_what_the_limit_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    network = Network(wire_codec, TOKEN)
    async with listening(network, WEBSOCKET) as address, AsyncExitStack() as held:
        async with network.connect(address, role="job", name="old", expect="rts") as old:
            stranger = held.enter_context(trio.socket.socket())
            limit = psutil.Process().num_fds() + 10
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                with suppress(OSError):
                    while True:
                        held.callback(os.close, os.dup(0))
                host, port = address.removeprefix("ws://").split(":")
                await stranger.connect((host, int(port)))
                with trio.fail_after(BOUND_S):
                    while not caplog.records:
                        await old.call(Done())
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caplog.records[0].getMessage() == (
        "rts 'main': cannot accept connections: too many open files, "
        f"the limit of this process is {limit} (ulimit -n)"
    )
