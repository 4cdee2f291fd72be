"""Records of a journal as bytes: framed, so that whatever cuts the file leaves a shorter journal.

A file begins with :data:`MAGIC`; then come frames: length of the payload and a checksum (both 32 bits, big
endian), payload. The checksum of a frame covers length and payload and goes on from that of the frame before,
so that only an unbroken row of frames is believed. What follows the first bad frame is not read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import msgpack
from msgspec import Struct

from gspc_trio.components.job.journal import JournalRecord, Outcomes, Reusable, Snapshot, Step, Values
from gspc_trio.components.job.task_key import Key
from gspc_trio.core.ids import TaskId
from gspc_trio.workflow.tokens import Plain

MAGIC = b"GSPCJ1\r\n"

PAYLOAD_BYTES_MAX = 2**31
"""Longest payload; a snapshot of a large workflow is one."""

_HEAD = struct.Struct(">II")
_SNAPSHOT, _OUTCOMES, _STEP, _ABOUT, _REUSABLE = range(5)


_FIRST = zlib.crc32(MAGIC)


def _checksum(payload: bytes | memoryview, before: int) -> int:
    """Continue a checksum; with the length in it, bytes that are all ones do not pass for a frame."""
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "big"), before))


class BadJournal(ValueError):
    """This is no journal of ours; one line says why."""


class Framer:
    """Frames the payloads of one file, in order."""

    def __init__(self) -> None:
        self._checksum = _FIRST

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

    Attributes:
        valid_bytes: length of what has been read so far and is good.

    Raises:
        BadJournal: the file does not begin like one of ours. One that is cut in its first bytes is empty.
    """

    def __init__(self, data: bytes) -> None:
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            raise BadJournal("this is not a journal, or one of another format")
        self._data = memoryview(data)
        self.valid_bytes = min(len(MAGIC), len(data))

    def __iter__(self) -> Iterator[bytes]:
        checksum, data = _FIRST, self._data
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


class About(Struct, frozen=True):
    """Whose journal it is: the first record of each file.

    Attributes:
        version: of the package that wrote it.
        file: path of the workflow file.
        fingerprint: of the workflow file and of the sources that it imports from its directory.
        settings: texts ``name=value`` for ``workflow()``.
        options: of the run: plain data.
        identities: of the code of its transitions; empty if nobody has noted it.
        version_number: how often the workflow has changed.
    """

    version: str
    file: str
    fingerprint: str
    settings: tuple[str, ...]
    options: dict[str, Plain]
    identities: dict[str, bytes] = {}
    version_number: int = 0


def encode_outcomes(rows: Sequence[tuple[TaskId, Values]], keys: Sequence[Key]) -> bytes:
    """Return the payload of :class:`~gspc_trio.components.job.journal.Outcomes` with these rows and keys."""
    return bytes(msgpack.packb((_OUTCOMES, rows, keys), unicode_errors="surrogatepass"))


def encode_record(record: JournalRecord | About) -> bytes:
    """Return the payload of a record."""
    if isinstance(record, Outcomes):
        return encode_outcomes(record.rows, record.keys)
    if isinstance(record, Step):
        step = (_STEP, record.injected, record.pulled, record.exhausted)
        if record.turned:
            return bytes(msgpack.packb((*step, record.fired, record.turned)))
        return bytes(msgpack.packb((*step, record.fired) if record.fired else step))
    if isinstance(record, Snapshot):
        return bytes(msgpack.packb((_SNAPSHOT, record.state)))
    if isinstance(record, Reusable):
        reusable = (_REUSABLE, record.rows, record.keys, record.taken)
        return bytes(msgpack.packb(reusable, unicode_errors="surrogatepass"))
    fields = (
        *(record.version, record.file, record.fingerprint, record.settings, record.options),
        *(record.identities, record.version_number),
    )
    return bytes(msgpack.packb((_ABOUT, *fields), unicode_errors="surrogatepass"))


def decode_record(payload: bytes) -> JournalRecord | About:
    """Return the record of a payload.

    Raises:
        BadJournal: it has none.
    """
    size = len(payload)
    try:
        kind, *fields = msgpack.unpackb(
            payload,
            use_list=False,
            strict_map_key=False,
            unicode_errors="surrogatepass",
            max_str_len=size,
            max_bin_len=size,
            max_array_len=size,
            max_map_len=size,
            max_ext_len=0,
        )
        if kind == _OUTCOMES:
            return Outcomes(*fields)
        if kind == _STEP:
            return Step(*fields)
        if kind == _SNAPSHOT:
            return Snapshot(*fields)
        if kind == _ABOUT:
            return About(*fields)
        if kind == _REUSABLE:
            return Reusable(*fields)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadJournal(f"a record that is none: {error}") from error
    raise BadJournal(f"a record of an unknown kind: {kind!r}")
