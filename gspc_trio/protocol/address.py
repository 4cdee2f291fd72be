"""Addresses: ``memory:NAME`` inside a process, ``ws://HOST:PORT`` outside, ``wss://HOST:PORT`` encrypted."""

from __future__ import annotations

import ipaddress
import re

from msgspec import Struct

_WEBSOCKET = re.compile(
    r"ws(?P<secure>s?)://(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/@?#\s]+)):(?P<port>[0-9]{1,5})/?\Z"
)


class BadAddress(ValueError):
    """Not an address of ours."""


class MemoryAddress(Struct, frozen=True):
    """A listener in the same process."""

    name: str

    def __str__(self) -> str:
        return f"memory:{self.name}"


class WebSocketAddress(Struct, frozen=True):
    """A listener on a network, with TLS or without; port 0 stands for any free one."""

    host: str
    port: int
    secure: bool = False

    def __str__(self) -> str:
        return f"{'wss' if self.secure else 'ws'}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port as they stand in an address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> MemoryAddress | WebSocketAddress:
    """Read an address.

    Raises:
        BadAddress: it has neither of the two forms.
    """
    if text.startswith("memory:") and len(text) > len("memory:"):
        return MemoryAddress(text.removeprefix("memory:"))
    match = _WEBSOCKET.match(text)
    if match is None or int(match["port"]) > 65535:
        raise BadAddress(f"{text!r} is no address: give ws://HOST:PORT or memory:NAME")
    return WebSocketAddress(match["six"] or match["host"], int(match["port"]), bool(match["secure"]))
