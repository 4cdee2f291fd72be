"""Segments as a process sees them: of whatever size, with all that others have written."""

from __future__ import annotations

import os

import pytest

from gspc_trio.iml.mapping import LARGE_PAGE_BYTES, address_of, make_large_pages, make_private, map_segment
from gspc_trio.iml.segment import Segment, write_all

SIZES = (1, 4096, LARGE_PAGE_BYTES - 1, LARGE_PAGE_BYTES, 2 * LARGE_PAGE_BYTES + 4097)


@pytest.mark.parametrize("size_bytes", SIZES)
def test_what_is_written_in_one_mapping_is_seen_in_the_others(size_bytes: int) -> None:
    segment = Segment(size_bytes)
    reading = map_segment(segment.descriptor, size_bytes)
    writing = map_segment(segment.descriptor, size_bytes, writable=True)
    writing[-1] = 7
    assert len(reading) == size_bytes
    assert reading.readonly
    assert reading[-1] == 7
    segment.close()


def test_a_large_mapping_begins_where_a_large_page_may() -> None:
    segment = Segment(LARGE_PAGE_BYTES + 1)
    mapped = [map_segment(segment.descriptor, segment.size_bytes) for _ in range(3)]
    assert [address_of(each) % LARGE_PAGE_BYTES for each in mapped] == [0, 0, 0]
    segment.close()


@pytest.mark.parametrize("size_bytes", SIZES)
def test_large_pages_are_zeros_at_first_and_keep_what_is_written(size_bytes: int) -> None:
    segment = Segment(size_bytes)
    make_large_pages(segment.descriptor, size_bytes)
    assert bytes(map_segment(segment.descriptor, size_bytes)) == bytes(size_bytes)
    written = os.urandom(size_bytes)
    write_all(segment.descriptor, [memoryview(written)], 0)
    make_large_pages(segment.descriptor, size_bytes)
    assert bytes(map_segment(segment.descriptor, size_bytes)) == written
    segment.close()


@pytest.mark.parametrize("size_bytes", SIZES)
def test_nobody_sees_what_is_written_in_a_private_mapping(size_bytes: int) -> None:
    segment = Segment(size_bytes)
    make_large_pages(segment.descriptor, size_bytes)
    mine = map_segment(segment.descriptor, size_bytes, writable=True)
    mine[0] = 1
    make_private(address_of(mine), size_bytes, segment.descriptor)
    assert mine[0] == 1
    mine[0] = 2
    assert map_segment(segment.descriptor, size_bytes)[0] == 1
    segment.close()


@pytest.mark.parametrize("size_bytes", [1000, LARGE_PAGE_BYTES])
def test_a_mapping_is_the_use_of_a_segment_until_its_last_view_is_gone(size_bytes: int) -> None:
    segment = Segment(size_bytes)
    assert not segment.is_shared()
    reader = segment.reader()
    part = map_segment(reader, size_bytes)[10:20]
    os.close(reader)
    assert segment.is_shared()
    del part
    assert not segment.is_shared()
    segment.close()


@pytest.mark.parametrize("size_bytes", [1001, LARGE_PAGE_BYTES + 1])
def test_no_more_is_mapped_than_there_is(size_bytes: int) -> None:
    segment = Segment(1000)
    with pytest.raises(ValueError, match=r"mmap length|of a segment that has 1000"):
        map_segment(segment.descriptor, size_bytes)
    segment.close()
