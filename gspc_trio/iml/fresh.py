"""Bytes that are filled before anybody sees them, as fast as memory takes them."""

from __future__ import annotations

import io
import mmap

HUGE_BYTES_MIN = 1 << 22
"""From here on the kernel is asked for huge pages: to make small ones takes as long as to fill them."""


class FreshBytes:
    """Bytes to be filled: not copied afterwards, nor zeroed before.

    To zero 64 MiB takes longer than to receive them. ``bytes(n)`` is memory that the kernel zeroes page by
    page when it is first touched, and a ``BytesIO`` that has the only reference to it lends it for writing.

    Args:
        size_bytes: how many.

    Attributes:
        view: where to write them.
    """

    def __init__(self, size_bytes: int) -> None:
        self._file = io.BytesIO(bytes(size_bytes))
        self.view = self._file.getbuffer()
        if size_bytes >= HUGE_BYTES_MIN:
            _ask_for_huge_pages(self.view)

    def take(self) -> bytes:
        """Return them; nothing is to be written from then on."""
        self.view.release()
        return self._file.getvalue()


def _ask_for_huge_pages(view: memoryview) -> None:
    """Do as NumPy does with its large arrays; a kernel that has none goes on with small ones."""
    import ctypes

    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    size_bytes = (address + len(view) - begin) // mmap.PAGESIZE * mmap.PAGESIZE
    madvise = ctypes.CDLL(None).madvise
    madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size_bytes), mmap.MADV_HUGEPAGE)
