"""Many strangers at once, from another process, while honest peers go on."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import psutil
import pytest
import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.errors import AuthenticationFailed, HandshakeCut
from gspc_trio.nursery.connections.network import AGAIN_AFTER_S, Network
from gspc_trio.nursery.connections.rpc import PeerGone
from tests.nursery.connections.support import (
    TOKEN,
    WEBSOCKET,
    Done,
    Limits,
    listening,
    raw_connection,
    upgrade_request,
)

BOUND_S = 60
MEMORY_BYTES_MAX = 64 * 2**20

PATIENT = Limits(handshake_s=BOUND_S)
"""A machine that is busy with other things is no reason to fail."""

STRANGERS = """
import socket, sys
host, port, number, said = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
again = int(sys.argv[5])
sockets = []
for _ in range(number):
    one = socket.socket()
    one.settimeout(10)
    try:
        one.connect((host, port))
        one.sendall(said)
    except OSError:
        pass
    if again:
        one.close()
    else:
        sockets.append(one)
print("done", flush=True)
sys.stdin.read()
"""


@contextmanager
def strangers(
    address: str, number: int, said: bytes = b"", again: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that opens so many connections, says something on each, and keeps or closes it."""
    host, port = address.removeprefix("ws://").split(":")
    process = subprocess.Popen(
        [sys.executable, "-c", STRANGERS, host, port, str(number), said.hex(), str(int(again))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def until_done(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert await trio.to_thread.run_sync(process.stdout.readline) == b"done\n"


KINDS = {
    "idle": (b"", False),
    "slow": (upgrade_request()[:30], False),
    "upgraded": (upgrade_request(), False),
    "hasty": (b"", True),
    "loud": (b"\xff" * 2_000, True),
}


async def until_heard(network: Network, address: str) -> None:
    """Connect and call, three times at most: who is not known yet when a 65th comes may be the oldest."""
    for tries_left in (2, 1, 0):
        try:
            async with network.connect(address, role="job", name="new", expect="rts") as new:
                assert await new.call(Done()) == Done()
                return
        except PeerGone:
            if not tries_left:
                raise


@pytest.mark.parametrize("kind", KINDS)
async def test_a_thousand_strangers_do_not_keep_honest_peers_out(kind: str) -> None:
    said, again = KINDS[kind]
    me = psutil.Process()
    network = Network(wire_codec, TOKEN, limits=PATIENT)
    async with listening(network, WEBSOCKET) as address:
        async with network.connect(address, role="job", name="old", expect="rts") as old:
            before, files = me.memory_info().rss, me.num_fds()
            with strangers(address, 1_000, said, again) as process, trio.fail_after(BOUND_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(until_done, process)
                    for _ in range(20):
                        assert await old.call(Done()) == Done()
                        await until_heard(network, address)
                assert me.num_fds() - files < 2 * 64 + 50, "strangers have 64 places"
                assert me.memory_info().rss - before < MEMORY_BYTES_MAX
            assert await old.call(Done()) == Done()


@asynccontextmanager
async def cutting(address: str, cuts: list[int]) -> AsyncIterator[tuple[str, list[int]]]:
    """Forward connections to a listener, but end each of the first ones after so many of its answer's bytes.

    Yields:
        where, and the number of bytes that passed on each connection, in the order in which they came.
    """
    passed: list[int] = []

    async def serve(client: trio.SocketStream) -> None:
        number = len(passed)
        passed.append(0)
        async with client, await raw_connection(address) as listener, trio.open_nursery() as nursery:
            nursery.start_soon(forward, client, listener)
            async for data in listener:
                left = cuts[number] - passed[number] if number < len(cuts) else len(data)
                await client.send_all(data[:left])
                passed[number] += min(len(data), left)
                if left <= len(data) and number < len(cuts):
                    break
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}", passed
        nursery.cancel_scope.cancel()


async def forward(source: trio.SocketStream, target: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        async for data in source:
            await target.send_all(data)


UPGRADE_BYTES = 129
"""Length of the answer to an upgrade request: what comes after it is our handshake."""


@pytest.mark.parametrize(
    "cuts", [[0], [UPGRADE_BYTES // 2], [UPGRADE_BYTES], [0, UPGRADE_BYTES, UPGRADE_BYTES + 9]]
)
async def test_who_was_given_up_by_a_crowded_listener_tries_again(cuts: list[int]) -> None:
    network = Network(wire_codec, TOKEN, limits=PATIENT)
    async with listening(network, WEBSOCKET) as address, cutting(address, cuts) as (through, passed):
        with trio.fail_after(BOUND_S):
            async with network.connect(through, role="job", name="new", expect="rts") as new:
                assert await new.call(Done()) == Done()
    assert passed[:-1] == cuts


async def test_who_is_given_up_again_and_again_is_told_so() -> None:
    network = Network(wire_codec, TOKEN, limits=PATIENT)
    cuts = [UPGRADE_BYTES] * 9
    async with listening(network, WEBSOCKET) as address, cutting(address, cuts) as (through, passed):
        with trio.fail_after(BOUND_S), pytest.raises(HandshakeCut, match="during the handshake"):
            async with network.connect(through, role="job", name="new", expect="rts"):
                pass
    assert passed == cuts[: len(AGAIN_AFTER_S) + 1]


async def test_who_has_another_token_does_not_try_again() -> None:
    network, other = (
        Network(wire_codec, TOKEN, limits=PATIENT),
        Network(wire_codec, TOKEN[::-1], limits=PATIENT),
    )
    async with listening(network, WEBSOCKET) as address, cutting(address, []) as (through, passed):
        with trio.fail_after(BOUND_S), pytest.raises(AuthenticationFailed):
            async with other.connect(through, role="job", name="new", expect="rts"):
                pass
    assert len(passed) == 1


async def test_a_listener_out_of_descriptors_goes_on_when_there_are_some_again() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    me = psutil.Process()
    network = Network(wire_codec, TOKEN, limits=PATIENT)
    async with listening(network, WEBSOCKET) as address:
        async with network.connect(address, role="job", name="old", expect="rts") as old:
            with strangers(address, 200) as process:
                resource.setrlimit(resource.RLIMIT_NOFILE, (me.num_fds() + 10, hard))
                try:
                    with trio.fail_after(BOUND_S):
                        await until_done(process)
                    assert await old.call(Done()) == Done()
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            with trio.fail_after(BOUND_S):
                async with network.connect(address, role="job", name="new", expect="rts") as new:
                    assert await new.call(Done()) == Done()
