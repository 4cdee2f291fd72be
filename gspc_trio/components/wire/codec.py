"""The codec of all messages between components, as networks are handed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from gspc_trio.protocol.codec import Codec


def wire_codec(limits: Limits = DEFAULT_LIMITS) -> Codec:
    """Return a codec; what it needs is loaded here, since all that talks in memory does without."""
    from gspc_trio.components.wire.registry import REGISTRY
    from gspc_trio.protocol.codec import Codec

    return Codec(REGISTRY, limits)
