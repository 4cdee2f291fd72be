"""Ranges over parts, against a naive picture of every byte; and where new data is placed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.iml.directory import Server, owner_of, place
from gspc_trio.iml.errors import BadLayout, BadRange, BadSize, UnknownHost, error_of
from gspc_trio.iml.layout import (
    Layout,
    check_range,
    check_size,
    extents,
    part_sizes,
    replicated,
    spans,
    striped,
)
from gspc_trio.iml.messages import ServerEntry


def servers(*hosts: str) -> dict[int, Server]:
    entries = [ServerEntry(rank, host, "", "", 100) for rank, host in enumerate(hosts)]
    return {entry.rank: Server(entry, 0) for entry in entries}


def picture(size_bytes: int, block_bytes: int, hosts: int) -> list[list[int]]:
    """For each part the offsets of its bytes, in order."""
    parts: list[list[int]] = [[] for _ in range(hosts)]
    for offset in range(size_bytes):
        parts[(offset // block_bytes) % hosts if block_bytes else 0].append(offset)
    return [part for part in parts if part]


@given(st.integers(1, 60), st.integers(0, 9), st.integers(1, 5), st.data())
def test_every_byte_of_a_range_is_where_the_picture_has_it(
    size_bytes: int, block_bytes: int, hosts: int, data: st.DataObject
) -> None:
    parts = picture(size_bytes, block_bytes, hosts)
    assert part_sizes(size_bytes, block_bytes, hosts) == tuple(map(len, parts))
    offset = data.draw(st.integers(0, size_bytes - 1))
    length = data.draw(st.integers(1, size_bytes - offset))
    covered = []
    for extent in extents(block_bytes, len(parts), offset, length):
        piece = parts[extent.part][extent.part_offset : extent.part_offset + extent.size_bytes]
        assert piece == list(range(extent.offset, extent.offset + extent.size_bytes))
        covered += piece
    assert covered == list(range(offset, offset + length))
    for part, (begin, count) in spans(block_bytes, len(parts), offset, length).items():
        wanted = [byte for byte in parts[part] if offset <= byte < offset + length]
        assert parts[part][begin : begin + count] == wanted
        covered = [byte for byte in covered if byte not in wanted]
    assert covered == []


@pytest.mark.parametrize(("offset", "size_bytes"), [(-1, 2), (0, 0), (0, -1), (0, 11), (10, 1), (5, 6)])
def test_a_range_outside_is_refused(offset: int, size_bytes: int) -> None:
    with pytest.raises(BadRange, match="of d1, which has 10 bytes"):
        check_range("d1", 10, offset, size_bytes)


@pytest.mark.parametrize("size_bytes", [0, -1, True, 1.5])
def test_a_size_below_one_is_refused(size_bytes: int) -> None:
    with pytest.raises(BadSize, match="ask for 1 or more"):
        check_size(size_bytes)


def test_layouts_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(BadLayout, match="blocks of 0 bytes"):
        striped(0)
    with pytest.raises(BadLayout, match="0 copies"):
        replicated(0)
    with pytest.raises(BadLayout, match="named twice: a, a"):
        replicated(1, ("a", "a"))
    with pytest.raises(BadLayout, match="2 copies do not go on 1 hosts: a"):
        replicated(2, ("a",))
    with pytest.raises(BadLayout, match="blocks of -1 bytes"):
        place(servers("a"), Layout(block_bytes=-1), 10, None)


def test_data_goes_to_the_hosts_named_or_to_where_there_is_most_room() -> None:
    three = servers("a", "b", "c")
    three[0].held_bytes = 50
    assert place(three, Layout(("c", "a"), 4), 10, None) == [[2], [0]]
    assert place(three, Layout(copies=2), 10, None) == [[1, 2]]
    assert place(three, Layout(), 10, 0) == [[0]]
    assert place(three, Layout(block_bytes=4, copies=2), 10, None) == [[1, 2], [2, 0], [0, 1]]
    with pytest.raises(UnknownHost, match="no memory server on host 'd'; there are: a, b, c"):
        place(three, Layout(("d",)), 10, None)
    with pytest.raises(BadLayout, match="4 copies were asked for, but the layer has 3 hosts"):
        place(three, replicated(4), 10, None)
    with pytest.raises(UnknownHost, match="has no server"):
        place({}, Layout(), 10, None)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=30), st.integers(2, 6))
def test_the_owner_of_a_name_changes_only_when_its_server_goes(names: list[str], count: int) -> None:
    before = {name: owner_of(name, range(count)) for name in names}
    for name, rank in before.items():
        after = owner_of(name, [other for other in range(count) if other != 0])
        assert after == rank or rank == 0


def test_names_are_spread_over_the_servers() -> None:
    owners = [owner_of(f"file{number}", range(4)) for number in range(400)]
    assert all(60 < owners.count(rank) < 140 for rank in range(4))


def test_an_error_comes_back_by_its_name() -> None:
    assert isinstance(error_of("BadSize", "x"), BadSize)
    assert type(error_of("SomethingElse", "x")).__name__ == "ImlError"
