"""Every limit of the protocol, by name; nothing that a peer sends may make us take more."""

from __future__ import annotations

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB

NUMBER_MAX = 1 << 53
"""No number in a message is larger: sums of such numbers can travel, too, and are exact as floats."""


class Limits(Struct, frozen=True):
    """What one connection may take.

    Attributes:
        handshake_bytes_max: one message before the other side has proved that it knows the token.
        handshake_s: seconds until both sides must have proved it.
        message_bytes_max: one encoded message or envelope.
        frame_bytes_gather: a frame takes no further message once it has this many bytes.
        frame_items_max: messages and envelopes in one frame.
        string_bytes_max: one text, in UTF-8.
        array_items_max, map_items_max: elements of one array, pairs of one map.
        outbox_items_max, outbox_bytes_max: what may wait for the writer before the connection is dropped.
        inbox_items_max, inbox_bytes_max: what may wait for the receiver before no more is read from the
            network.
        calls_max: unanswered calls that the other side may have here: its credit.
        calls_waiting_max: calls that may wait here for credit.
        unproved_max: connections of a listener whose other side has not proved the token; one more drops the
            oldest.
        flush_s: seconds that what is queued may take when a connection is closed.
        heartbeat_s: something is sent at least this often.
        lease_s: silence after which the other side counts as gone.
    """

    handshake_bytes_max: int = 4 * KIB
    handshake_s: float = 5.0
    message_bytes_max: int = 64 * MIB
    frame_bytes_gather: int = MIB
    frame_items_max: int = 1024
    string_bytes_max: int = 16 * MIB
    array_items_max: int = 256 * KIB
    map_items_max: int = 128 * KIB
    outbox_items_max: int = 100_000
    outbox_bytes_max: int = 512 * MIB
    inbox_items_max: int = 16_384
    inbox_bytes_max: int = 256 * MIB
    calls_max: int = 1024
    calls_waiting_max: int = 16_384
    unproved_max: int = 64
    flush_s: float = 1.0
    heartbeat_s: float = 2.0
    lease_s: float = 6.0

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame: one message more than what had gathered."""
        return self.message_bytes_max + self.frame_bytes_gather + KIB


DEFAULT_LIMITS = Limits()
