"""Encrypted connections on the loopback interface, and who is kept out of them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.certificates import Authority, CertificateError
from gspc_trio.nursery.connections.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectionProblem,
    TlsFailed,
)
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.nursery.connections.tls import BadCredentials, make_context
from gspc_trio.protocol.address import BadAddress
from gspc_trio.protocol.limits import Limits
from tests.nursery.connections.support import (
    TOKEN,
    Done,
    echo,
    listening,
    receive_count,
    reply_of,
    until_closed,
)

SECURE = "wss://127.0.0.1:0"
BOUND_S = 60

HASTY = Limits(handshake_s=0.2)
"""Of a listener that is to give up soon what does not say anything that it understands."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def never(peer: Peer) -> None:
    raise AssertionError(f"let in: {peer}")


@asynccontextmanager
async def secure_door(authority: Authority, **options: object) -> AsyncIterator[str]:
    network = Network(wire_codec, TOKEN, credentials=authority.issue("rts"), **options)  # type: ignore[arg-type]
    async with listening(network, SECURE, never) as address:
        yield address


async def knock(network: Network, address: str) -> None:
    async with network.connect(address, role="job", name="j1", expect="rts"):
        raise AssertionError("let in")


async def test_messages_and_calls_travel_encrypted(authority: Authority) -> None:
    network = Network(wire_codec, TOKEN, credentials=authority.issue("rts"))
    async with listening(network, SECURE, echo) as address:
        assert address.startswith("wss://127.0.0.1:")
        mine = Network(wire_codec, TOKEN, credentials=authority.issue("job"))
        async with mine.connect(address, role="job", name="j1", expect="rts") as peer:
            assert await peer.call(Done()) == Done()
            sent = [reply_of(size) for size in (1, 100_000, 3_000_000)]
            for message in sent:
                peer.post(message)
            assert await receive_count(peer, 3) == sent


async def test_what_travels_cannot_be_read(authority: Authority, nursery: trio.Nursery) -> None:
    seen = bytearray()
    network = Network(wire_codec, TOKEN, credentials=authority.issue("rts"))
    async with listening(network, SECURE, echo) as address:

        async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
            async for data in source:
                seen.extend(data)
                await sink.send_all(data)

        async def relay(client: trio.SocketStream) -> None:
            host, port = address.removeprefix("wss://").split(":")
            async with await trio.open_tcp_stream(host, int(port)) as server, trio.open_nursery() as both:
                both.start_soon(copy, client, server)
                await copy(server, client)
                both.cancel_scope.cancel()

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, relay, [listener])
        port = listener.socket.getsockname()[1]
        async with network.connect(f"wss://127.0.0.1:{port}", role="job", name="j", expect="rts") as peer:
            peer.post(reply_of(5_000))
            await receive_count(peer, 1)
    nursery.cancel_scope.cancel()
    assert len(seen) > 10_000
    assert bytes(1_000) not in seen
    assert b"gspc" not in seen
    assert b"Sec-WebSocket" not in seen


async def test_who_has_no_certificate_stays_out(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gspc_trio")
    async with secure_door(authority) as address:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, port = address.removeprefix("wss://").split(":")
        raw = await trio.open_tcp_stream(host, int(port))
        stream = trio.SSLStream(raw, context, https_compatible=True)
        await stream.do_handshake()  # the listener looks at what it was shown after that
        with trio.fail_after(BOUND_S):
            with suppress(trio.BrokenResourceError):
                assert await stream.receive_some(1) == b""
        await trio.aclose_forcefully(stream)
    assert "peer did not return a certificate" in caplog.records[-1].getMessage()


async def test_another_authority_vouches_for_nobody(authority: Authority, tmp_path: Path) -> None:
    stranger = Network(wire_codec, TOKEN, credentials=Authority(tmp_path).issue("rts"))
    async with secure_door(authority) as address:
        with pytest.raises(TlsFailed, match="certificate verify failed"):
            await knock(stranger, address)
    async with listening(stranger, SECURE, never) as address:
        with pytest.raises(TlsFailed, match="certificate verify failed"):
            await knock(Network(wire_codec, TOKEN, credentials=authority.issue("job")), address)


async def test_a_certificate_does_not_stand_for_the_token(authority: Authority) -> None:
    async with secure_door(authority) as address:
        with pytest.raises(AuthenticationFailed):
            await knock(Network(wire_codec, b"x" * 32, credentials=authority.issue("job")), address)


async def test_plain_and_encrypted_do_not_meet(authority: Authority) -> None:
    async with secure_door(authority, limits=HASTY) as address:
        with pytest.raises(ConnectFailed):
            await knock(Network(wire_codec, TOKEN), address.replace("wss:", "ws:"))
        with pytest.raises(ConnectFailed, match="needs credentials"):
            await knock(Network(wire_codec, TOKEN), address)
    async with listening(Network(wire_codec, TOKEN, limits=HASTY), "ws://127.0.0.1:0", never) as address:
        with pytest.raises(ConnectionProblem):
            await knock(
                Network(wire_codec, TOKEN, credentials=authority.issue("job")), address.replace("ws:", "wss:")
            )


async def test_older_tls_is_not_spoken(authority: Authority) -> None:
    async with secure_door(authority) as address:
        context = make_context(authority.issue("job"), server=False)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        host, port = address.removeprefix("wss://").split(":")
        raw = await trio.open_tcp_stream(host, int(port))
        stream = trio.SSLStream(raw, context, https_compatible=True)
        with pytest.raises(trio.BrokenResourceError):
            await stream.do_handshake()
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01", b"\xff" * 50, b"GET / HTTP/1.1\r\n\r\n"])
async def test_a_tls_handshake_that_never_ends_is_cut(authority: Authority, said: bytes) -> None:
    async with secure_door(authority, limits=Limits(handshake_s=0.2)) as address:
        host, port = address.removeprefix("wss://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            with suppress(trio.BrokenResourceError):  # on a busy machine it may be cut before that
                await stream.send_all(said)
            with trio.fail_after(BOUND_S):
                await until_closed(stream)


async def test_other_hosts_may_come_only_encrypted(authority: Authority) -> None:
    network = Network(wire_codec, TOKEN, credentials=authority.issue("rts"))
    with pytest.raises(BadAddress, match=r"with TLS at wss://0\.0\.0\.0:0"):
        await network.listen("ws://0.0.0.0:0", never, role="rts", name="rts")
    async with listening(network, "wss://0.0.0.0:0", echo) as address:
        port = address.rpartition(":")[2]
        async with network.connect(f"wss://127.0.0.1:{port}", role="job", name="j", expect="rts") as peer:
            assert await peer.call(Done()) == Done()


def test_the_authority_stays_the_same_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    first, again = Authority(tmp_path / "tls"), Authority(tmp_path / "tls")
    last = "-----BEGIN CERTIFICATE-----"
    assert first.issue("a").rpartition(last)[2] == again.issue("b").rpartition(last)[2]
    (path,) = (tmp_path / "tls").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(CertificateError, match="others can read"):
        Authority(tmp_path / "tls")
    path.chmod(0o600)
    path.write_text("nothing")
    with pytest.raises(CertificateError, match="damaged"):
        Authority(tmp_path / "tls")


def test_what_are_no_credentials_is_said_in_one_line() -> None:
    for text in ("", "nonsense", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
        with pytest.raises(BadCredentials, match="cannot be used for TLS"):
            make_context(text, server=True)
