"""Memory of the layer that a task fills itself: what it returns of it goes into the layer without a copy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gspc_trio.iml.errors import ImlError
from gspc_trio.iml.mapping import address_of, make_large_pages, make_private, map_segment
from gspc_trio.iml.segment import write_all
from gspc_trio.protocol.values import ALIGNMENT_BYTES, Reference, Spread, encode_reference

if TYPE_CHECKING:
    from gspc_trio.iml.local import LocalClient

REST_BYTES = 4096
"""So much room is behind the memory, for the rest of a value: its pickle and small buffers."""

USED_SHARE_MIN = 2
"""A value that has less than one part in so many of the memory is copied: the rest is not kept for it."""


class ResultMemory:
    """Memory of the layer on this host, which the task that asked for it may write.

    Nobody else sees it before a value that lies in it is committed. From then on, what this process writes
    there is seen by nobody else.

    Args:
        client: of the memory server.
        size_bytes: that the task wants.

    Attributes:
        view: of so many bytes, whatever they are; who has it has the memory.

    Raises:
        ImlError: there is no room, or no server.
        OSError: it cannot be mapped.
    """

    def __init__(self, client: LocalClient, size_bytes: int) -> None:
        self._client = client
        self._rest = _aligned(size_bytes)
        self._size_bytes = self._rest + REST_BYTES
        self._data_id, self._descriptor = client.begin(self._size_bytes)
        try:
            make_large_pages(self._descriptor, self._size_bytes)
            mapped = map_segment(self._descriptor, self._size_bytes, writable=True)
        except BaseException:
            self.give_up()
            raise
        self.view: memoryview = mapped[:size_bytes]
        self._begin = address_of(self.view)

    def used_by(self, buffers: Sequence[memoryview]) -> int:
        """Return how many bytes of these lie in it."""
        return sum(buffer.nbytes for buffer in buffers if self._offset_of(buffer) is not None)

    def commit(self, value: Spread, host: str) -> bytes | None:
        """Make a value whose buffers are here data of the layer; return what travels instead of it.

        What else the value has is copied behind the memory.

        Args:
            value: taken apart.
            host: the name of this host.

        Returns:
            None if too little of it is here, it does not fit or the server is gone: the value is as before.
        """
        if USED_SHARE_MIN * self.used_by(value.buffers) < len(self.view):
            return None
        ends, copied, end = [], [], self._rest
        for piece in (*value.buffers, value.pieces[-1]):
            offset = self._offset_of(piece)
            if offset is None:
                offset = _aligned(end)
                copied += [memoryview(bytes(offset - end)), piece]
                end = offset + piece.nbytes
            ends.append((offset, offset + piece.nbytes))
        if end > self._size_bytes:
            return None
        stream, _ = ends.pop()
        ends.append((stream, stream))  # the pickle is behind the last one
        copied.append(memoryview(bytes(self._size_bytes - end)))
        try:
            write_all(self._descriptor, copied, self._rest)
            make_private(self._begin, self._size_bytes, self._descriptor)
            self._client.promise(self._data_id)
        except (ImlError, OSError):
            return None
        self._close()
        places = ((host, self._size_bytes),)
        return encode_reference(Reference(self._data_id, self._size_bytes, places, value.kind, tuple(ends)))

    def give_up(self) -> None:
        """Give back what was not committed; the memory is free when nobody has the view."""
        if self._descriptor >= 0:
            self._close()
            with suppress(ImlError):  # the server has given it up when the connection ended
                self._client.abort(self._data_id)

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def _offset_of(self, buffer: memoryview) -> int | None:
        """Return where a buffer begins in the memory, None if it lies elsewhere."""
        if not buffer.nbytes:
            return None
        offset = address_of(buffer) - self._begin
        return offset if offset >= 0 and offset + buffer.nbytes <= len(self.view) else None


def _aligned(position: int) -> int:
    return position + -position % ALIGNMENT_BYTES
