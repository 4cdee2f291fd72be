"""Sub-allocation from one stretch of memory, with coalescing: the RM's memories (RM-8) and the IML's
arenas use it.

Best fit: the smallest free block that is large enough, at the lowest offset among those of one size. A
freed block is joined with its free neighbours at once, so that two free blocks never touch. Both
operations cost O(log n) comparisons in n free blocks.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class AllocatorError(ValueError):
    """A size that is not positive, or an offset at which nothing is allocated."""


class Allocator:
    """Hands out pieces of ``size_bytes`` bytes that start at multiples of ``alignment_bytes``.

    >>> memory = Allocator(100)
    >>> memory.allocate(60), memory.allocate(60), memory.allocate(40)
    (0, None, 60)
    >>> memory.free(0); memory.free(60); memory.largest_free
    100
    """

    __slots__ = ("_by_end", "_by_size", "_by_start", "_used", "alignment_bytes", "free_bytes", "size_bytes")

    def __init__(self, size_bytes: int, alignment_bytes: int = 1) -> None:
        """Make the whole stretch free.

        Raises:
            AllocatorError: a size or alignment below 1.
        """
        if size_bytes < 1 or alignment_bytes < 1:
            raise AllocatorError(
                f"cannot manage {size_bytes} bytes in steps of {alignment_bytes}: both must be 1 or more"
            )
        self.size_bytes: int = size_bytes
        self.alignment_bytes: int = alignment_bytes
        self.free_bytes: int = size_bytes
        self._used: dict[int, int] = {}
        self._by_start = {0: size_bytes}
        self._by_end = {size_bytes: 0}
        self._by_size = [(size_bytes, 0)]

    @property
    def largest_free(self) -> int:
        """Size of the largest free block."""
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def pieces(self) -> dict[int, int]:
        """What is allocated: offset -> size taken, rounded up to the alignment (a copy)."""
        return dict(self._used)

    def rounded(self, size_bytes: int) -> int:
        """Return how much an allocation of the size takes."""
        step = self.alignment_bytes
        return -(-size_bytes // step) * step

    def allocate(self, size_bytes: int) -> int | None:
        """Return the offset of a free piece of the size, or None if no free block is large enough.

        Raises:
            AllocatorError: the size is below 1.
        """
        if size_bytes < 1:
            raise AllocatorError(f"cannot allocate {size_bytes} bytes: ask for 1 or more")
        need = self.rounded(size_bytes)
        place = bisect_left(self._by_size, (need, 0))
        if place == len(self._by_size):
            return None
        block_bytes, offset = self._by_size[place]
        self._take_block(offset, block_bytes)
        if block_bytes > need:
            self._put_block(offset + need, block_bytes - need)
        self._used[offset] = need
        self.free_bytes -= need
        return offset

    def allocate_at(self, offset: int, size_bytes: int) -> bool:
        """Take the piece of the size at this offset; return False, and take nothing, if it is not free.

        It costs O(n) comparisons in n free blocks.

        Raises:
            AllocatorError: the size is below 1.
        """
        if size_bytes < 1:
            raise AllocatorError(f"cannot allocate {size_bytes} bytes: ask for 1 or more")
        need = self.rounded(size_bytes)
        for start, block_bytes in self._by_start.items():
            end = start + block_bytes
            if start <= offset and offset + need <= end:
                self._take_block(start, block_bytes)
                if start < offset:
                    self._put_block(start, offset - start)
                if offset + need < end:
                    self._put_block(offset + need, end - offset - need)
                self._used[offset] = need
                self.free_bytes -= need
                return True
        return False

    def free(self, offset: int) -> None:
        """Give the piece at the offset back.

        Raises:
            AllocatorError: nothing is allocated there.
        """
        size_bytes = self._used.pop(offset, None)
        if size_bytes is None:
            raise AllocatorError(f"nothing is allocated at offset {offset}")
        self.free_bytes += size_bytes
        start, end = offset, offset + size_bytes
        before = self._by_end.get(start)
        if before is not None:
            self._take_block(before, start - before)
            start = before
        after = self._by_start.get(end)
        if after is not None:
            self._take_block(end, after)
            end += after
        self._put_block(start, end - start)

    def check(self) -> None:
        """Assert that free and used pieces cover the stretch once, and that no two free ones touch."""
        spans = [(offset, size, True) for offset, size in self._used.items()]
        spans += [(offset, size, False) for offset, size in self._by_start.items()]
        position, last_used = 0, True
        for offset, size, used in sorted(spans):
            assert offset == position, f"gap or overlap at {position}"
            assert size > 0, f"an empty piece at {position}"
            assert used or last_used, f"two free blocks touch at {offset}"
            position, last_used = offset + size, used
        assert position == self.size_bytes
        assert self._by_end == {offset + size: offset for offset, size in self._by_start.items()}
        assert self._by_size == sorted((size, offset) for offset, size in self._by_start.items())
        assert self.free_bytes == sum(self._by_start.values())

    def _take_block(self, offset: int, size_bytes: int) -> None:
        del self._by_start[offset]
        del self._by_end[offset + size_bytes]
        del self._by_size[bisect_left(self._by_size, (size_bytes, offset))]

    def _put_block(self, offset: int, size_bytes: int) -> None:
        self._by_start[offset] = size_bytes
        self._by_end[offset + size_bytes] = offset
        insort(self._by_size, (size_bytes, offset))
