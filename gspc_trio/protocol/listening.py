"""Where a service may listen, and the error that says which setting cannot be used."""

from __future__ import annotations

from gspc_trio.protocol.address import BadAddress, WebSocketAddress, parse_address


class BadSetting(ValueError):
    """A setting cannot be used: its name and value, and why."""

    def __init__(self, name: str, value: object, why: str) -> None:
        super().__init__(f"{name}={value!r}: {why}")
        self.name = name
        self.value = value
        self.why = why


def check_bytes(name: str, size_bytes: object) -> None:
    """Raise BadSetting if a setting is no number of bytes, 0 or more."""
    if not isinstance(size_bytes, int) or size_bytes < 0:
        raise BadSetting(name, size_bytes, "this is no number of bytes, 0 or more")


def listen_address(host: str, port: int, tls: bool) -> WebSocketAddress:
    """Return where to listen.

    Raises:
        BadSetting: others could read along, or this is no single address.
    """
    try:
        where = parse_address(str(WebSocketAddress(host.strip("[]"), port, tls)))
    except BadAddress as error:
        raise BadSetting("listen", host, "this is no address of this host") from error
    assert isinstance(where, WebSocketAddress)
    if where.host in ("0.0.0.0", "::"):
        raise BadSetting("listen", host, "this stands for many addresses: name the one for other hosts")
    if not (tls or where.is_loopback):
        raise BadSetting(
            "listen", host, "others can reach it, and nothing would be encrypted: add --tls (tls=True)"
        )
    return where
