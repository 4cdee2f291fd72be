"""Sub-allocation with coalescing (RM-8)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gspc_trio.core.allocator import Allocator, AllocatorError


def test_pieces_are_cut_from_the_smallest_block_that_fits() -> None:
    memory = Allocator(100)
    first, second, third = memory.allocate(30), memory.allocate(10), memory.allocate(40)
    assert (first, second, third) == (0, 30, 40)
    memory.free(0)
    assert memory.allocate(15) == 80, "20 bytes at the end fit better than 30 at the start"
    assert memory.allocate(25) == 0


def test_freed_neighbours_become_one_block_from_either_side_and_from_both() -> None:
    memory = Allocator(90)
    for offset in (0, 30, 60):
        assert memory.allocate(30) == offset
    memory.free(0)
    memory.free(60)
    assert memory.largest_free == 30
    memory.free(30)
    assert memory.largest_free == 90
    assert memory.allocate(90) == 0


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    memory = Allocator(100, alignment_bytes=16)
    assert [memory.allocate(1), memory.allocate(17), memory.allocate(16)] == [0, 16, 48]
    assert memory.pieces == {0: 16, 16: 32, 48: 16}
    assert memory.free_bytes == 36
    assert memory.allocate(36) is None, "36 bytes are free, but take 48"


@pytest.mark.parametrize("size_bytes", [0, -1])
def test_a_size_that_is_not_positive_is_an_error(size_bytes: int) -> None:
    memory = Allocator(10)
    with pytest.raises(AllocatorError, match=f"cannot allocate {size_bytes} bytes"):
        memory.allocate(size_bytes)
    with pytest.raises(AllocatorError, match="both must be 1 or more"):
        Allocator(size_bytes)


def test_freeing_what_is_not_allocated_is_an_error_and_changes_nothing() -> None:
    memory = Allocator(10)
    memory.allocate(5)
    memory.free(0)
    with pytest.raises(AllocatorError, match="nothing is allocated at offset 0"):
        memory.free(0)
    memory.check()
    assert memory.free_bytes == 10


class AllocatorAgainstBytes(RuleBasedStateMachine):
    """The allocator against a list that says for every byte whose it is."""

    @initialize(size_bytes=st.integers(1, 60), alignment_bytes=st.integers(1, 5))
    def start(self, size_bytes: int, alignment_bytes: int) -> None:
        self.memory = Allocator(size_bytes, alignment_bytes)
        self.owner: list[int | None] = [None] * size_bytes

    @rule(size_bytes=st.integers(1, 20))
    def allocate(self, size_bytes: int) -> None:
        need = self.memory.rounded(size_bytes)
        offset = self.memory.allocate(size_bytes)
        if offset is None:
            assert self.longest_gap() < need
            return
        assert offset % self.memory.alignment_bytes == 0
        assert self.owner[offset : offset + need] == [None] * need
        self.owner[offset : offset + need] = [offset] * need

    @precondition(lambda self: hasattr(self, "memory"))
    @rule(data=st.data())
    def allocate_at(self, data: st.DataObject) -> None:
        step = self.memory.alignment_bytes
        offset = data.draw(st.integers(0, len(self.owner) // step)) * step
        size = data.draw(st.integers(1, 20))
        need = self.memory.rounded(size)
        there = self.owner[offset : offset + need]
        is_free = there == [None] * need
        assert self.memory.allocate_at(offset, size) == is_free
        if is_free:
            self.owner[offset : offset + need] = [offset] * need

    @precondition(lambda self: hasattr(self, "memory") and self.memory.pieces)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.memory.pieces)))
        self.memory.free(offset)
        self.owner = [None if owner == offset else owner for owner in self.owner]

    def longest_gap(self) -> int:
        longest = run = 0
        for owner in self.owner:
            run = run + 1 if owner is None else 0
            longest = max(longest, run)
        return longest

    @invariant()
    def adds_up(self) -> None:
        if hasattr(self, "memory"):
            self.memory.check()
            assert self.memory.free_bytes == self.owner.count(None)
            assert self.memory.largest_free == self.longest_gap()


TestAllocatorAgainstBytes = AllocatorAgainstBytes.TestCase
TestAllocatorAgainstBytes.settings = settings(max_examples=50, stateful_step_count=40)
