"""Segments: anonymous shared memory that goes with the last process that has it, however that ends."""

from __future__ import annotations

import fcntl
import mmap
import os

POOLED_BYTES_MIN = 1 << 18
"""A smaller segment is made anew rather than kept: its pages cost less than the search."""


def open_again(descriptor: int, flags: int) -> int:
    """Return a descriptor of its own for the same memory, e.g. with ``os.O_RDONLY``."""
    return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)


def map_readonly(descriptor: int, size_bytes: int) -> mmap.mmap:
    """Return the memory behind a descriptor, mapped for reading."""
    return mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)


def write_all(descriptor: int, pieces: list[memoryview], offset: int) -> int:
    """Write the pieces one after another from ``offset``; return the offset behind them."""
    for piece in pieces:
        rest = piece.cast("B") if piece.nbytes else memoryview(b"")
        while rest:
            count = os.pwrite(descriptor, rest, offset)
            offset += count
            rest = rest[count:]
    return offset


class Segment:
    """Shared memory of a memory server.

    Attributes:
        size_bytes: its size.
        descriptor: of this process, for reading and writing.
    """

    __slots__ = ("_lent", "descriptor", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        """Make a segment of zeros.

        Raises:
            OSError: too many open files, or no memory.
        """
        self._lent = -1
        made = os.memfd_create("gspc-iml", os.MFD_CLOEXEC)
        try:
            os.ftruncate(made, size_bytes)
            # The kernel counts the openers of a file; the maker of one in memory is not counted.
            self.descriptor: int = open_again(made, os.O_RDWR)
        finally:
            os.close(made)
        self.size_bytes: int = size_bytes

    def reader(self) -> int:
        """Return a new descriptor that can only be read."""
        return open_again(self.descriptor, os.O_RDONLY)

    def lent(self) -> int:
        """Return a descriptor that can only be read, to be passed on; it stays that of the segment."""
        if self._lent < 0:
            self._lent = self.reader()
        return self._lent

    def writer(self) -> int:
        """Return a new descriptor that can be written, too."""
        return open_again(self.descriptor, os.O_RDWR)

    def is_shared(self) -> bool:
        """Return whether any other descriptor or mapping of it exists, in whatever process."""
        self._take_back()
        try:
            # The kernel gives a write lease only to the one opener of a file.
            fcntl.fcntl(self.descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(self.descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return True
        return False

    def resize(self, size_bytes: int) -> None:
        """Give it another size; bytes that are new are zeros."""
        os.ftruncate(self.descriptor, size_bytes)
        self.size_bytes = size_bytes

    def close(self) -> None:
        """Give it up; its memory is free when nobody maps it."""
        self._take_back()
        os.close(self.descriptor)

    def _take_back(self) -> None:
        if self._lent >= 0:
            os.close(self._lent)
            self._lent = -1


class SegmentPool:
    """Segments that nobody uses: their pages are there already, which makes writing several times as fast.

    Args:
        bytes_max: how much it keeps at most.
        pooled_bytes_min: what is smaller is not kept.
    """

    def __init__(self, bytes_max: int, pooled_bytes_min: int = POOLED_BYTES_MIN) -> None:
        self.bytes_max = bytes_max
        self._pooled_bytes_min = pooled_bytes_min
        self.size_bytes: int = 0
        self._idle: list[Segment] = []

    def make(self, size_bytes: int, *, overwritten: bool, spare_bytes: int) -> Segment:
        """Return a segment.

        Args:
            size_bytes: its size.
            overwritten: the caller writes every byte of it before anybody reads; else they are zeros.
            spare_bytes: memory that the pool may have beside it.

        Raises:
            OSError: too many open files, or no memory.
        """
        found = self._take(size_bytes) if overwritten and size_bytes >= self._pooled_bytes_min else None
        self._shrink(min(spare_bytes, self.bytes_max))
        if found is None:
            return self.new(size_bytes)
        found.resize(size_bytes)
        return found

    def new(self, size_bytes: int) -> Segment:
        """Return a segment of zeros.

        Raises:
            OSError: as :meth:`make`.
        """
        return Segment(size_bytes)

    def give(self, segment: Segment, spare_bytes: int) -> None:
        """Take back a segment that nobody else has; ``spare_bytes`` is what the pool may have."""
        if segment.size_bytes < self._pooled_bytes_min:
            segment.close()
            return
        self._idle.append(segment)
        self.size_bytes += segment.size_bytes
        self._shrink(min(spare_bytes, self.bytes_max))

    def close(self) -> None:
        """Give all of them up."""
        self._shrink(0)

    def _take(self, size_bytes: int) -> Segment | None:
        """Return the smallest that is large enough, and not much larger: the rest of it would be lost."""
        fitting = [s for s in self._idle if size_bytes <= s.size_bytes <= 2 * size_bytes]
        if not fitting:
            return None
        found = min(fitting, key=lambda segment: segment.size_bytes)
        self._idle.remove(found)
        self.size_bytes -= found.size_bytes
        return found

    def _shrink(self, bytes_max: int) -> None:
        while self.size_bytes > bytes_max:
            oldest = self._idle.pop(0)
            self.size_bytes -= oldest.size_bytes
            oldest.close()


class SpillFile:
    """A file without a name for what memory has no room for; it goes with its process.

    Args:
        directory: where; it must exist.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: str) -> None:
        try:
            self.descriptor: int = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:  # a file system that knows no files without a name
            name = os.path.join(directory, f"gspc-iml-spill-{os.getpid()}")
            self.descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.unlink(name)

    def write_from(self, segment: Segment, offset: int) -> None:
        """Write all of a segment at ``offset``."""
        with mmap.mmap(segment.descriptor, segment.size_bytes) as content, memoryview(content) as view:
            write_all(self.descriptor, [view], offset)

    def read_into(self, segment: Segment, offset: int) -> None:
        """Fill a segment from ``offset``."""
        with mmap.mmap(segment.descriptor, segment.size_bytes) as content, memoryview(content) as view:
            read_full(self.descriptor, view, offset)

    def close(self) -> None:
        """Give it up."""
        os.close(self.descriptor)


def read_full(descriptor: int, target: memoryview, offset: int) -> None:
    """Fill ``target`` from ``offset`` of a file.

    Raises:
        OSError: the file ends before.
    """
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done:]], offset + done)
        if count == 0:
            raise OSError(f"the file ends at {offset + done}, {len(target) - done} bytes too early")
        done += count
