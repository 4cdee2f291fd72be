"""Values that lie in a memory layer: what travels instead, how they are taken apart and put together.

A reference is the byte that begins a pickled value, then 0, where a pickled value goes on with 128; then
msgpack data. The bytes in the layer are the value's buffers (pickle protocol 5, out of band), then its
pickle; or the plain bytes of a ``bytes`` object; or any other encoded value; or what a view is to be of.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

import msgpack
from msgspec import Struct

from gspc_trio.protocol import values

ALIGNMENT_BYTES = 64
"""Buffers begin at multiples of this: arrays want it."""

_MARK = b"\xc1\x00"
_RAW, _PICKLE, _ENCODED, _VIEW = range(4)


class Reference(Struct, frozen=True):
    """Where a value lies.

    Attributes:
        data_id: of the data in the layer.
        size_bytes: of the data.
        places: (host, bytes) where it lay when the reference was made.
        kind: what the bytes are.
        ends: where each buffer begins and ends; the pickle is behind the last one.
    """

    data_id: str
    size_bytes: int
    places: tuple[tuple[str, int], ...]
    kind: int
    ends: tuple[tuple[int, int], ...] = ()


class TrackedReference(bytes):
    """A reference in the process of the job server: as long as it lives, so does the data.

    Attributes:
        reference: what it says.
        keep: what lets the data go when nobody has it any more.
        open_data: returns the memory of data, mapped for reading; blocks.
    """

    reference: Reference
    keep: values.Value
    open_data: Callable[[str], memoryview]


def is_reference(data: bytes) -> bool:
    """Return whether an encoded value is a reference."""
    return data[:2] == _MARK


def encode_reference(reference: Reference) -> bytes:
    """Return what travels instead of a value."""
    fields = (reference.data_id, reference.size_bytes, reference.places, reference.kind, reference.ends)
    packed: bytes = msgpack.packb(fields)
    return _MARK + packed


def decode_reference(data: bytes | bytearray | memoryview) -> Reference:
    """Return what :func:`encode_reference` was given.

    Raises:
        BadValue: the bytes are no reference.
    """
    try:
        data_id, size_bytes, places, kind, ends = msgpack.unpackb(memoryview(data)[2:], use_list=False)
        return Reference(data_id, size_bytes, places, kind, ends)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise values.BadValue(f"these {len(data)} bytes are not a reference: {error}") from error


def bytes_reference(data_id: str, size_bytes: int, host: str) -> bytes:
    """Return what travels instead of a ``bytes`` object whose bytes are the data."""
    return encode_reference(Reference(data_id, size_bytes, ((host, size_bytes),), _RAW))


def is_range(reference: Reference) -> bool:
    """Return whether it stands for a range of data that somebody else keeps."""
    return reference.kind == _VIEW


def plain_range(reference: Reference) -> tuple[int, int]:
    """Return (offset, size) of what a reference to a ``bytes`` object or a range stands for.

    Raises:
        BadValue: it stands for another value.
    """
    if reference.kind == _RAW:
        return 0, reference.size_bytes
    if reference.kind == _VIEW:
        ((begin, end),) = reference.ends
        return begin, end - begin
    raise values.BadValue("it is neither bytes nor a range of data")


class Spread(Struct, frozen=True):
    """A value taken apart: the pieces to be written one after another."""

    kind: int
    pieces: list[memoryview]
    ends: tuple[tuple[int, int], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)

    def reference(self, data_id: str, host: str) -> bytes:
        """Return what travels, once the pieces lie in the layer."""
        places = ((host, self.size_bytes),)
        return encode_reference(Reference(data_id, self.size_bytes, places, self.kind, self.ends))


class Placed(Struct, frozen=True):
    """A range of data in a memory layer as a value: a task that is given it sees read-only memory.

    Attributes:
        data_id, offset, size_bytes: the range.
        data_bytes: the size of the data.
        places: (host, bytes of the range there).
    """

    data_id: str
    offset: int
    size_bytes: int
    data_bytes: int
    places: tuple[tuple[str, int], ...] = ()

    def encoded(self) -> bytes:
        """Return what travels."""
        ends = ((self.offset, self.offset + self.size_bytes),)
        return encode_reference(Reference(self.data_id, self.data_bytes, self.places, _VIEW, ends))


def spread(value: object, bytes_min: int) -> Spread | bytes:
    """Take a large value apart without copying its buffers; return a small one encoded.

    Raises:
        BadValue: it cannot be sent to another process.
    """
    if type(value) is memoryview:
        if value.nbytes >= bytes_min and value.c_contiguous:
            return Spread(_RAW, [value.cast("B")])
        value = bytes(value)
    if type(value) is bytes:
        return Spread(_RAW, [memoryview(value)]) if len(value) >= bytes_min else values.dumps(value)
    data = values.dumps_plain(value)
    if data is not None:
        return Spread(_ENCODED, [memoryview(data)]) if len(data) >= bytes_min else data
    buffers: list[memoryview] = []
    stream = values.pickle_with(value, buffers)
    if not buffers and len(stream) < bytes_min:
        return values.pickled(stream)
    if sum(buffer.nbytes for buffer in buffers) + len(stream) < bytes_min:
        return values.dumps(value)
    pieces: list[memoryview] = []
    ends = []
    position = 0
    for buffer in buffers:
        padding = -position % ALIGNMENT_BYTES
        if padding:
            pieces.append(memoryview(bytes(padding)))
        begin = position + padding
        position = begin + buffer.nbytes
        ends.append((begin, position))
        pieces.append(buffer)
    pieces.append(memoryview(stream))
    return Spread(_PICKLE, pieces, tuple(ends))


def gather(reference: Reference, view: memoryview) -> values.Value:
    """Return the value whose data is ``view``; its buffers are parts of that, not copies.

    Raises:
        BadValue: the data is not what the reference says.
        Exception: whatever opening a pickled value raises.
    """
    if len(view) != reference.size_bytes:
        raise values.BadValue(f"{len(view)} bytes of data for a reference to {reference.size_bytes}")
    if reference.kind == _RAW:
        return bytes(view)
    if reference.kind == _ENCODED:
        return values.loads(view)
    if reference.kind == _VIEW:
        ((begin, end),) = reference.ends
        return view[begin:end]
    if reference.kind != _PICKLE:
        raise values.BadValue(f"a reference of a kind ({reference.kind}) that does not exist")
    end = reference.ends[-1][1] if reference.ends else 0
    return pickle.loads(view[end:], buffers=[view[begin:end] for begin, end in reference.ends])
