from __future__ import annotations

import pytest

from gspc_trio.protocol.address import BadAddress, MemoryAddress, WebSocketAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("ws://127.0.0.1:4242", WebSocketAddress("127.0.0.1", 4242), True),
        ("ws://localhost:0/", WebSocketAddress("localhost", 0), True),
        ("ws://[::1]:80", WebSocketAddress("::1", 80), True),
        ("ws://0.0.0.0:1", WebSocketAddress("0.0.0.0", 1), False),
        ("ws://node7.cluster:65535", WebSocketAddress("node7.cluster", 65535), False),
    ],
)
def test_websocket_addresses(text: str, address: WebSocketAddress, loopback: bool) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address
    assert address.is_loopback is loopback


def test_memory_addresses() -> None:
    assert parse_address("memory:rif-r1") == MemoryAddress("rif-r1")
    assert str(MemoryAddress("rif-r1")) == "memory:rif-r1"


@pytest.mark.parametrize(
    "text",
    ["", "memory:", "127.0.0.1:5", "ws://127.0.0.1", "ws://127.0.0.1:99999", "https://a:1", "ws://a:1/path", "ws://u@a:1",
     "ws://a b:1", "ws://a:1\n"],
)  # fmt: skip
def test_other_texts_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadAddress, match="give ws://HOST:PORT or memory:NAME"):
        parse_address(text)
