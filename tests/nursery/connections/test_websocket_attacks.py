"""Unauthenticated connections to a real listener on the loopback interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgpack
import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, serve_websocket, wrap_client_stream

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.network import (
    AuthenticationFailed,
    ConnectFailed,
    Network,
    VersionMismatch,
)
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, drop_offender
from gspc_trio.protocol import handshake as shake
from gspc_trio.protocol.address import BadAddress
from gspc_trio.protocol.limits import Limits
from tests.nursery.connections.support import (
    TOKEN,
    WEBSOCKET,
    connected,
    echo,
    listening,
    raw_connection,
    reply_of,
    until_closed,
    upgrade_request,
)

SHORT = Limits(handshake_s=0.2)
BOUND_S = 60
"""Against hanging tests only: nothing here depends on how long things take."""

PATIENT = Limits(handshake_s=BOUND_S)
"""Of listeners whose answer is looked at, however busy the machine is."""


async def never(peer: Peer) -> None:
    raise AssertionError(f"let in: {peer}")


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[str]:
    """A listener whose handler must not be reached."""
    network = Network(wire_codec, TOKEN, **{"limits": PATIENT, **options})
    async with listening(network, WEBSOCKET, never) as address:
        yield address


@asynccontextmanager
async def stranger_at(
    address: str, extra_headers: list[tuple[bytes, bytes]] | None = None
) -> AsyncIterator[WebSocketConnection]:
    """Open a websocket without our handshake."""
    async with await raw_connection(address) as stream, trio.open_nursery() as nursery:
        yield await wrap_client_stream(nursery, stream, "127.0.0.1", "/", extra_headers=extra_headers)
        nursery.cancel_scope.cancel()


def hello(first: int = 1, last: int = 1) -> bytes:
    return shake.encode_hello(shake.Hello(first, last, "job", "mallory", b"m" * 32, "i", "rts", 5))


async def last_word(websocket: WebSocketConnection) -> list[object]:
    """Return the refusal, and see that the connection is closed after it."""
    data = await websocket.get_message()
    with pytest.raises(ConnectionClosed):
        await websocket.get_message()
    fields: list[object] = msgpack.unpackb(data)
    return fields


async def test_a_dialer_with_another_token_is_told_so_and_so_is_the_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="gspc_trio")
    async with served() as address:
        with pytest.raises(AuthenticationFailed) as caught:
            async with Network(wire_codec, b"x" * 32).connect(address, role="job", name="j1", expect="rts"):
                raise AssertionError
        assert str(caught.value) == f"{address}: dialer and listener have different tokens"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("rts 'main' let nobody in from 127.0.0.1:")
    assert line.endswith("dialer and listener have different tokens")


async def test_the_listeners_own_proof_sent_back_to_it_is_no_proof() -> None:
    async with served() as address, stranger_at(address) as websocket:
        await websocket.send_message(hello())
        welcome = shake.decode_handshake(await websocket.get_message(), Limits())
        assert isinstance(welcome, shake.Welcome)
        await websocket.send_message(shake.encode_proof(welcome.proof))
        refused = await last_word(websocket)
    assert refused[1:4] == ["refused", "token", "dialer and listener have different tokens"]


async def test_a_message_before_the_proof_is_not_taken() -> None:
    async with served() as address, stranger_at(address) as websocket:
        await websocket.send_message(wire_codec().encode_batch([Done()]))
        assert (await last_word(websocket))[1:3] == ["refused", "protocol"]


async def test_a_dialer_of_another_version_is_told_what_is_spoken() -> None:
    async with served() as address, stranger_at(address) as websocket:
        await websocket.send_message(hello(7, 9))
        refused = await last_word(websocket)
    assert refused[1:3] == ["refused", "version"]
    assert refused[3:] == ["the dialer speaks versions 7 to 9, the listener version 1", 1, 1]


async def test_a_listener_of_another_version_is_named_so(nursery: trio.Nursery) -> None:
    async def from_the_future(request: Any) -> None:
        websocket = await request.accept()
        await websocket.get_message()
        await websocket.send_message(shake.encode_refused(shake.Refused("version", "we speak 2 now", 2, 2)))

    server = await nursery.start(serve_websocket, from_the_future, "127.0.0.1", 0, None)
    address = f"ws://127.0.0.1:{server.port}"
    with pytest.raises(VersionMismatch, match="we speak 2 now"):
        async with Network(wire_codec, TOKEN).connect(address, role="job", name="j", expect="rts"):
            raise AssertionError


MALFORMED = {
    "bytes": b"\x00\x01\x02\x03\r\n\r\n",
    "plain http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "post": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    "host that is no text": upgrade_request(host="\xff\xfe.example"),
    "host that is no name": upgrade_request(host="xn--\x7f"),
    "long host": upgrade_request(host="a" * 300),
    "bytes after": upgrade_request() + b"\xff" * 50,
    "huge frame": upgrade_request() + b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    "frame without a mask": upgrade_request() + b"\x82\x05hello",
    "endless line": b"GET /" + b"a" * 100_000,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_request_ends_its_own_connection_only(name: str) -> None:
    async with served(limits=Limits(handshake_s=0.5)) as address:
        async with await raw_connection(address) as stream:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(MALFORMED[name])
            with trio.fail_after(BOUND_S):
                await until_closed(stream)
        answer = b""
        with trio.fail_after(BOUND_S):
            while b"web pages" not in answer:  # the deadline of a handshake may pass on a busy machine
                async with await raw_connection(address) as stream:
                    await stream.send_all(upgrade_request("Origin: x"))
                    answer = await until_closed(stream)


HALVES = [b"", upgrade_request()[:50], upgrade_request(), upgrade_request() + b"\x82"]


@pytest.mark.parametrize("part", HALVES, ids=["nothing", "half a request", "a request", "a byte of a frame"])
async def test_a_half_written_handshake_is_cut_at_the_deadline(part: bytes) -> None:
    async with served(limits=SHORT) as address, await raw_connection(address) as stream:
        with suppress(trio.BrokenResourceError):  # on a busy machine it may be cut before that
            if part:
                await stream.send_all(part)
        with trio.fail_after(BOUND_S):
            await until_closed(stream)


async def test_of_too_many_strangers_the_oldest_goes(nursery: trio.Nursery) -> None:
    closed = [trio.Event() for _ in range(66)]

    async def stranger(number: int, task_status: trio.TaskStatus[None]) -> None:
        async with await raw_connection(address) as stream:
            task_status.started()
            await until_closed(stream)
            closed[number].set()

    def gone() -> list[int]:
        return [number for number, event in enumerate(closed) if event.is_set()]

    network = Network(wire_codec, TOKEN, limits=PATIENT)
    async with listening(network, WEBSOCKET) as address:
        for number in range(64):
            await nursery.start(stranger, number)
            await trio.testing.wait_all_tasks_blocked()
        assert gone() == []
        async with network.connect(address, role="job", name="j", expect="rts") as peer:
            assert await peer.call(Done()) == Done()
            with trio.fail_after(BOUND_S):
                await closed[0].wait()
            assert gone() == [0]
            # Those who have proved themselves take no place: there is one free again.
            for number in range(64, 66):
                await nursery.start(stranger, number)
            with trio.fail_after(BOUND_S):
                await closed[1].wait()
            assert gone() == [0, 1]
            assert await peer.call(Done()) == Done()


async def test_a_stranger_cannot_make_us_read_more_than_a_handshake() -> None:
    sent = 0

    async def flood(stream: trio.SocketStream) -> None:
        nonlocal sent
        await stream.send_all(upgrade_request())
        await stream.send_all(b"\x82\xff" + (2**31).to_bytes(8, "big") + b"mask")
        while sent < 2**25:
            await stream.send_all(bytes(100_000))
            sent += 100_000

    async with (
        served(limits=Limits(handshake_s=0.5)) as address,
        await raw_connection(address) as stream,
    ):
        with pytest.raises(trio.BrokenResourceError):
            await flood(stream)
    assert sent < 2**24, "more than the kernel keeps in its buffers"


@pytest.mark.parametrize(
    ("headers", "host", "reason"),
    [
        (["Origin: http://evil.example"], "127.0.0.1", b"web pages may not connect here"),
        (["Origin: null"], "127.0.0.1", b"web pages may not connect here"),
        ([], "evil.example", b"this is not 'evil.example'"),
        ([], "evil.example:80", b"this is not 'evil.example'"),
    ],
    ids=["page", "page without origin", "name", "name and port"],
)
async def test_web_pages_are_kept_out(headers: list[str], host: str, reason: bytes) -> None:
    async with served() as address, await raw_connection(address) as stream:
        await stream.send_all(upgrade_request(*headers, host=host))
        answer = await until_closed(stream)
    assert answer.startswith(b"HTTP/1.1 403")
    assert answer.endswith(reason)


async def test_a_web_page_that_is_named_may_knock() -> None:
    headers = [(b"Origin", b"http://dashboard.example")]
    async with served(origins=["http://dashboard.example"]) as address:
        async with stranger_at(address, extra_headers=headers) as websocket:
            await websocket.send_message(b"?")
            assert (await last_word(websocket))[1:3] == ["refused", "protocol"]


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("close", "closed the connection or does not speak websocket"),
        ("silent", "does not answer"),
        ("nonsense", "closed the connection or does not speak websocket"),
        ("forbidden", "refused the connection: no entry"),
    ],
)
async def test_a_listener_that_is_none_of_ours_is_recognised(
    behaviour: str, says: str, nursery: trio.Nursery
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            if behaviour == "silent":
                await trio.sleep_forever()
            if behaviour == "nonsense":
                await stream.send_all(b"220 smtp.example ESMTP\r\n")
            if behaviour == "forbidden":
                await stream.send_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 8\r\n\r\nno entry")

    listeners = await nursery.start(trio.serve_tcp, serve, 0)
    address = f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    network = Network(wire_codec, TOKEN, limits=SHORT if behaviour == "silent" else Limits())
    with trio.fail_after(BOUND_S), pytest.raises(ConnectFailed) as caught:
        async with network.connect(address, role="job", name="j", expect="rts"):
            raise AssertionError
    assert str(caught.value) == f"{address} {says}"
    nursery.cancel_scope.cancel()


async def test_a_peer_that_sends_nonsense_is_cut_off_with_the_reason() -> None:
    async with connected(WEBSOCKET) as peer:
        peer._link._outbox.append(b"\xc1")  # type: ignore[attr-defined]
        peer.post(Done())
        with pytest.raises(PeerGone, match=r"closed by the other side: .* a frame that is not msgpack"):
            await peer.receive()


async def test_a_reason_with_words_of_the_other_side_that_are_no_utf_8_can_be_told() -> None:
    async def serve(peer: Peer) -> None:
        await peer.receive()
        drop_offender(peer, "Submit of job \udcff instead of j1")
        await peer.lost.wait()

    async with connected(WEBSOCKET, serve) as peer:
        peer.post(Done())
        with pytest.raises(PeerGone, match=r"closed by the other side: Submit of job \\udcff instead of j1"):
            await peer.receive()


async def test_a_frame_larger_than_allowed_is_refused() -> None:
    network = Network(wire_codec, TOKEN, limits=Limits(message_bytes_max=10_000, frame_bytes_gather=1000))
    async with listening(network, WEBSOCKET) as address:
        async with Network(wire_codec, TOKEN).connect(address, role="job", name="j", expect="rts") as peer:
            peer.post(reply_of(50_000))
            with pytest.raises(PeerGone, match="closed by the other side: Exceeded maximum message size"):
                await peer.receive()


async def test_a_peer_killed_in_the_middle_of_a_frame_is_lost() -> None:
    over = trio.Event()
    reasons: list[str] = []

    async def note(peer: Peer) -> None:
        try:
            await echo(peer)
        finally:
            reasons.append(peer.reason)
            over.set()

    network = Network(wire_codec, TOKEN)
    async with listening(network, WEBSOCKET, note) as address:
        async with network.connect(address, role="job", name="j", expect="rts") as peer:
            await peer.call(Done())
            stream = peer._link._limited._stream  # type: ignore[attr-defined]
            await stream.send_all(b"\x82\xfe\x01\x00half a frame")
            await trio.aclose_forcefully(stream)
        with trio.fail_after(BOUND_S):
            await over.wait()
    assert reasons == ["the connection was cut"]


@pytest.mark.parametrize("address", ["ws://0.0.0.0:0", "ws://192.0.2.1:0"])
async def test_other_hosts_are_kept_out_unless_asked_for(address: str) -> None:
    with pytest.raises(BadAddress, match="can be reached from other hosts"):
        await Network(wire_codec, TOKEN).listen(address, echo, role="rts", name="main")


async def test_all_interfaces_may_be_asked_for() -> None:
    network = Network(wire_codec, TOKEN, allow_remote=True)
    async with listening(network, "ws://0.0.0.0:0") as address:
        port = address.rsplit(":", 1)[1]
        async with network.connect(f"ws://127.0.0.1:{port}", role="job", name="j", expect="rts") as peer:
            assert await peer.call(Done()) == Done()


@pytest.mark.parametrize("token", [b"", b"short"])
async def test_there_is_no_websocket_without_a_token(token: bytes) -> None:
    with pytest.raises(ValueError, match="needs a token of at least 16 bytes"):
        await Network(wire_codec, token).listen(WEBSOCKET, echo, role="rts", name="main")
    with pytest.raises(ValueError, match="needs a token of at least 16 bytes"):
        async with Network(wire_codec, token).connect("ws://127.0.0.1:1", role="job", name="j", expect="rts"):
            raise AssertionError
