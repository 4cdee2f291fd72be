"""The address and settings of the memory layer that a job keeps its large values in."""

from __future__ import annotations

from typing import ClassVar

from gspc_trio.core.ids import Count
from gspc_trio.protocol.hidden import HidesFields


class DataLayer(HidesFields, frozen=True):
    """The memory layer that a job keeps large values in.

    Attributes:
        address: of its coordinator.
        token: its secret.
        credentials: for TLS, or "".
        job: to which the data there belongs.
        bytes_min: values of so many bytes or more go there.
        copies: on how many hosts each of them is to lie.
        local_address, host: of the memory server of this host; set by the RIF.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "credentials"})

    address: str
    token: bytes = b""
    job: str = ""
    bytes_min: Count = 1 << 16
    copies: Count = 1
    local_address: str = ""
    host: str = ""
    credentials: str = ""
