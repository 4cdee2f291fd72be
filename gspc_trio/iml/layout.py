"""Layout of data over hosts: parts, stripes and copies; pure arithmetic on ranges.

Data consists of parts, each of which lies whole on every host that holds it. With ``block_bytes`` the blocks
of the data go round the parts in turn, and a part is the chain of its blocks; so what a contiguous range
takes of a part is contiguous, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from gspc_trio.iml.errors import BadLayout, BadRange, BadSize


class Layout(Struct, frozen=True):
    """Where data is to lie.

    Attributes:
        hosts: names of hosts in order of preference, each once; empty: the layer chooses.
        block_bytes: stripe over the hosts in blocks of so many bytes; 0: all of it on one host.
        copies: on how many hosts each byte lies.
    """

    hosts: tuple[str, ...] = ()
    block_bytes: int = 0
    copies: int = 1


ONE_HOST = Layout()
"""All bytes on one host that the layer chooses."""


def check_layout(layout: Layout) -> None:
    """Raise BadLayout if the layout contradicts itself."""
    if layout.block_bytes < 0:
        raise BadLayout(f"blocks of {layout.block_bytes} bytes: give 1 or more, or 0 for no stripes")
    if layout.copies < 1:
        raise BadLayout(f"{layout.copies} copies: give 1 or more")
    if len(set(layout.hosts)) != len(layout.hosts):
        raise BadLayout(f"a host is named twice: {', '.join(layout.hosts)}")
    if layout.hosts and layout.copies > len(layout.hosts):
        raise BadLayout(
            f"{layout.copies} copies do not go on {len(layout.hosts)} hosts: {', '.join(layout.hosts)}"
        )


def striped(block_bytes: int, hosts: tuple[str, ...] = ()) -> Layout:
    """Return the layout that goes round the hosts in blocks.

    Raises:
        BadLayout: blocks of less than 1 byte, or a host named twice.
    """
    if block_bytes < 1:
        raise BadLayout(f"blocks of {block_bytes} bytes: give 1 or more")
    layout = Layout(hosts, block_bytes)
    check_layout(layout)
    return layout


def replicated(copies: int, hosts: tuple[str, ...] = ()) -> Layout:
    """Return the layout that has all bytes on so many hosts.

    Raises:
        BadLayout: less than 1 copy, more copies than hosts named, or a host named twice.
    """
    layout = Layout(hosts, 0, copies)
    check_layout(layout)
    return layout


class Range(Struct, frozen=True):
    """A stretch of the global address space: ``size_bytes`` bytes of ``data_id`` from ``offset``."""

    data_id: str
    offset: int
    size_bytes: int


class Extent(Struct, frozen=True):
    """A piece of a range that lies contiguously in one part.

    Attributes:
        part: number of the part.
        part_offset: where the piece begins in the part.
        offset: where it begins in the data.
        size_bytes: its length.
    """

    part: int
    part_offset: int
    offset: int
    size_bytes: int


def check_size(size_bytes: int) -> None:
    """Raise BadSize if data cannot have so many bytes."""
    if type(size_bytes) is not int or size_bytes < 1:
        raise BadSize(f"data of {size_bytes} bytes: ask for 1 or more")


def check_range(data_id: str, data_bytes: int, offset: int, size_bytes: int) -> None:
    """Raise BadRange if the range does not lie within the data."""
    if offset < 0 or size_bytes < 1 or offset + size_bytes > data_bytes:
        raise BadRange(
            f"{size_bytes} bytes at offset {offset} of {data_id}, which has {data_bytes} bytes: no such range"
        )


def part_sizes(data_bytes: int, block_bytes: int, hosts: int) -> tuple[int, ...]:
    """Return the size of each part of data over so many hosts; no part is empty."""
    if not block_bytes:
        return (data_bytes,)
    blocks, rest = divmod(data_bytes, block_bytes)
    total = blocks + (rest > 0)
    sizes = []
    for part in range(min(hosts, total)):
        count = (total - part + hosts - 1) // hosts
        has_last = (total - 1) % hosts == part
        sizes.append(count * block_bytes - (block_bytes - rest if has_last and rest else 0))
    return tuple(sizes)


def extents(block_bytes: int, parts: int, offset: int, size_bytes: int) -> Iterator[Extent]:
    """Iterate over the pieces of a range, in order."""
    if not block_bytes or parts == 1:
        yield Extent(0, offset, offset, size_bytes)
        return
    end = offset + size_bytes
    while offset < end:
        block, within = divmod(offset, block_bytes)
        length = min(block_bytes - within, end - offset)
        yield Extent(block % parts, (block // parts) * block_bytes + within, offset, length)
        offset += length


def spans(block_bytes: int, parts: int, offset: int, size_bytes: int) -> dict[int, tuple[int, int]]:
    """Return part -> (offset in it, bytes) of what a range takes of each part."""
    found: dict[int, tuple[int, int]] = {}
    if not block_bytes or parts == 1:
        return {0: (offset, size_bytes)}
    for extent in extents(block_bytes, parts, offset, size_bytes):
        before = found.get(extent.part)
        if before is None:
            found[extent.part] = (extent.part_offset, extent.size_bytes)
        else:
            found[extent.part] = (before[0], before[1] + extent.size_bytes)
    return found
