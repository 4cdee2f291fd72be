"""The texts and bytes inside of an encoded list or mapping: where they lie, without opening them."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
from msgspec import Struct

from gspc_trio.protocol.values import BadValue

DEPTH_MAX = 8
"""Lists and mappings may be nested so deep."""

_TUPLE = 1

_SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_COUNTS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class Piece(Struct, frozen=True):
    """A text or bytes inside of an encoded value.

    Attributes:
        name: the key that it has in a mapping; "" in a list.
            In mappings inside of mappings the keys have slashes between them.
        begin, end: where it lies.
    """

    name: str
    begin: int
    end: int


def pieces_of(data: memoryview, pieces_max: int) -> list[Piece]:
    """Return the texts and bytes of a value: itself, or those in its lists and mappings, in order.

    Args:
        data: the encoded value.
        pieces_max: there may be no more.

    Raises:
        BadValue: there is something else in it, or too much; or it is no plain value.
    """
    found: list[Piece] = []

    def put(piece: Piece) -> None:
        found.append(piece)
        if len(found) > pieces_max:
            raise BadValue(f"it stands for more than {pieces_max} files")

    try:
        end = _Scan(data, put).value(0, "", 0)
    except (IndexError, UnicodeDecodeError) as error:
        raise BadValue(f"these {len(data)} bytes are not an encoded value: {error}") from None
    if end != len(data) or any(piece.end > end for piece in found):
        raise BadValue(f"these {len(data)} bytes are not an encoded value")
    return found


def header(size_bytes: int) -> bytes:
    """Return what is before so many bytes in an encoded value."""
    if size_bytes < 1 << 8:
        return bytes((0xC4, size_bytes))
    if size_bytes < 1 << 16:
        return b"\xc5" + size_bytes.to_bytes(2, "big")
    if size_bytes < 1 << 32:
        return b"\xc6" + size_bytes.to_bytes(4, "big")
    raise BadValue(f"{size_bytes} bytes are too many for one value")


def list_header(count: int) -> bytes:
    """Return what is before the elements of a list."""
    made: bytes = msgpack.Packer().pack_array_header(count)
    return made


def mapping_header(count: int) -> bytes:
    """Return what is before the keys and values of a mapping."""
    made: bytes = msgpack.Packer().pack_map_header(count)
    return made


class _Scan:
    def __init__(self, data: memoryview, put: Callable[[Piece], None]) -> None:
        self._data = data
        self._put = put

    def value(self, at: int, name: str, depth: int) -> int:
        """Note what begins here; return where it ends."""
        kind = self._data[at]
        text = self._bytes_at(at)
        if text is not None:
            self._put(Piece(name, *text))
            return text[1]
        if depth >= DEPTH_MAX:
            raise BadValue("it is nested too deep")
        inner = self._extension_at(at)
        if inner is not None:
            return self.value(inner, name, depth + 1)
        is_mapping = kind >> 4 == 0x8 or kind in (0xDE, 0xDF)
        if not is_mapping and kind >> 4 != 0x9 and kind not in _COUNTS:
            raise BadValue("it is neither bytes nor text, nor a list or mapping of these")
        count, at = (kind & 0xF, at + 1) if kind < 0xA0 else self._number(at + 1, _COUNTS[kind])
        for _ in range(count):
            key = name
            if is_mapping:
                found = self._bytes_at(at)
                if found is None or self._data[at] in (0xC4, 0xC5, 0xC6):
                    raise BadValue("it is a mapping with keys that are no names")
                key, at = name + bytes(self._data[found[0] : found[1]]).decode(), found[1]
            if is_mapping and self._bytes_at(at) is None:
                key += "/"
            at = self.value(at, key, depth + 1)
        return at

    def _bytes_at(self, at: int) -> tuple[int, int] | None:
        """Return begin and end of a text or bytes, None if it is something else."""
        kind = self._data[at]
        if kind >> 5 == 0b101:
            return at + 1, at + 1 + (kind & 0x1F)
        if kind not in _SIZES:
            return None
        size_bytes, begin = self._number(at + 1, _SIZES[kind])
        return begin, begin + size_bytes

    def _extension_at(self, at: int) -> int | None:
        """Return where the list begins that a tuple is, None if it is none."""
        kind = self._data[at]
        if kind in _FIXED_EXTENSIONS:
            begin = at + 2
        elif kind in _EXTENSIONS:
            begin = at + 2 + _EXTENSIONS[kind]
        else:
            return None
        if self._data[begin - 1] != _TUPLE:
            raise BadValue(f"unknown extension type {self._data[begin - 1]}")
        return begin

    def _number(self, at: int, size_bytes: int) -> tuple[int, int]:
        """Return a number and what is behind it."""
        if at + size_bytes > len(self._data):
            raise IndexError("it ends too early")
        return int.from_bytes(self._data[at : at + size_bytes], "big"), at + size_bytes
