"""Records of a journal on disk: framed, so that whatever cuts a file leaves a shorter journal.

A file begins with some bytes that say what it is; then come frames: length of the payload and a checksum
(both 32 bits, big endian), payload. The checksum of a frame covers length and payload, and goes on from that
of the frame before: only an unbroken row of frames is believed. What is after the first bad one is not read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

PAYLOAD_BYTES_MAX = 2**31
"""Longest payload; a snapshot of a large workflow is one."""

_HEAD = struct.Struct(">II")


def _checksum(payload: bytes | memoryview, before: int) -> int:
    """Continue a checksum; with the length in it, bytes that are all ones do not pass for a frame."""
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "big"), before))


class BadJournal(ValueError):
    """This is no journal of ours; one line says why."""


class Framer:
    """Frames the payloads of one file, in order.

    Args:
        magic: the first bytes of the file.
    """

    def __init__(self, magic: bytes) -> None:
        self._checksum = zlib.crc32(magic)

    def frame(self, payload: bytes) -> bytes:
        """Return the next frame.

        Raises:
            ValueError: the payload is empty or too long.
        """
        if not 0 < len(payload) <= PAYLOAD_BYTES_MAX:
            raise ValueError(f"a payload has 1 to {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}")
        self._checksum = _checksum(payload, self._checksum)
        return _HEAD.pack(len(payload), self._checksum) + payload


class Frames:
    """The frames of a file that are whole.

    Args:
        data: the file.
        magic: its first bytes.

    Attributes:
        valid_bytes: length of what has been read so far and is good.

    Raises:
        BadJournal: the file does not begin like one of ours. One that is cut in its first bytes is empty.
    """

    def __init__(self, data: bytes, magic: bytes) -> None:
        if data[: len(magic)] != magic[: len(data)]:
            raise BadJournal("this is not a journal, or one of another format")
        self._data = memoryview(data)
        self.valid_bytes: int = min(len(magic), len(data))
        self._checksum = zlib.crc32(magic)

    def __iter__(self) -> Iterator[bytes]:
        checksum, data = self._checksum, self._data
        while len(data) - self.valid_bytes >= _HEAD.size:
            length, expected = _HEAD.unpack_from(data, self.valid_bytes)
            start = self.valid_bytes + _HEAD.size
            if not 0 < length <= len(data) - start:
                return
            payload = data[start : start + length]
            checksum = _checksum(payload, checksum)
            if checksum != expected:
                return
            self.valid_bytes = start + length
            yield bytes(payload)
