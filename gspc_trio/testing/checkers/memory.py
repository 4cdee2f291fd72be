"""Checker of a memory layer: what clients put is what they get (invariant 8)."""

from __future__ import annotations

import re
from math import inf

from attrs import define, field

from gspc_trio.iml.store_parts import PAGE_BYTES
from gspc_trio.testing.checkers.base import Broken

CELLS = 8
"""Data is put in so many pieces of the same size."""


@define(eq=False)
class Put:
    """One put of some cells: ``stamp`` is each of its bytes; ``end_s`` is inf until it is acknowledged."""

    stamp: int
    cells: range
    begin_s: float
    end_s: float = inf
    undone: bool = False


@define(eq=False)
class Entry:
    """Some data as its clients know it.

    Attributes:
        cell_bytes: size of each of its cells.
        is_whole: whether it lies in one part.
        puts: in the order of their begin; the first is the content that it was made with.
        freed_s: when a free was acknowledged.
        lost: whether somebody was told that it was lost.
    """

    data_id: str
    cell_bytes: int
    is_whole: bool
    puts: list[Put] = field(factory=list)
    freed_s: float = inf
    lost: bool = False


_REFUSAL = re.compile(
    r"host (\S+) has no room for (\d+) bytes: "
    r"(?:(\d+) of \d+ bytes of its memory \(data_bytes, --memory\) are free, "
    r"(?:it may not spill \(spill_bytes, --spill\)|\d+ of \d+ bytes of its spill file)"
    r"|it cannot be made: .+)"
    r"|part \d+ of data \S+ cannot be read back: .+"
)


def check_refusal(text: str) -> None:
    """Somebody was told that there is no room.

    Raises:
        Broken: it does not say where and how much there is, or it fits.
    """
    found = _REFUSAL.fullmatch(text)
    if found is None:
        raise Broken(f"a refusal does not say what there is: {text}")
    if found[3] is not None and int(found[3]) >= int(found[2]) + PAGE_BYTES:
        raise Broken(f"it fits, and was refused: {text}")


class Memory:
    """The data of one layer's clients: a get returns the last acknowledged put, or an error."""

    def check(self, entry: Entry, cells: range, data: bytes, begin_s: float, end_s: float) -> None:
        """A get of some cells has returned.

        Raises:
            Broken: it returned something else than what was put last, or data that was freed or lost.
        """
        words = f"data {entry.data_id}"
        if entry.freed_s < begin_s:
            raise Broken(f"{words} was read after it had been freed", entry.data_id)
        if entry.lost:
            raise Broken(f"{words} was read after it had been lost", entry.data_id)
        if len(data) != len(cells) * entry.cell_bytes:
            raise Broken(f"a get of {words} returned {len(data)} bytes", entry.data_id)
        shown: dict[int, int] = {}
        for index, cell in enumerate(cells):
            content = data[index * entry.cell_bytes : (index + 1) * entry.cell_bytes]
            allowed = {put.stamp for put in self._allowed(entry, cell, begin_s, end_s)}
            if not allowed.issuperset(content):
                found = sorted(set(content) - allowed)
                raise Broken(
                    f"a get of {words} returned {found} in cell {cell}, not {sorted(allowed)}", entry.data_id
                )
            shown[cell] = content[0]
            if entry.is_whole and len(set(content)) > 1:
                raise Broken(f"a get of {words} returned half of a put in cell {cell}", entry.data_id)
        if entry.is_whole:
            self._check_halves(entry, shown, begin_s, end_s)

    def _allowed(self, entry: Entry, cell: int, begin_s: float, end_s: float) -> list[Put]:
        puts = [p for p in entry.puts if cell in p.cells and p.begin_s <= end_s and not p.undone]
        return [
            put
            for put in puts
            if not any(other.begin_s > put.end_s and other.end_s < begin_s for other in puts)
        ]

    def _check_halves(self, entry: Entry, shown: dict[int, int], begin_s: float, end_s: float) -> None:
        """Of a put that was under way, alone, what lies in one part is seen whole or not at all."""
        under_way = [p for p in entry.puts if p.begin_s <= end_s and p.end_s >= begin_s and not p.undone]
        if len(under_way) != 1:
            return
        (put,) = under_way
        seen = {shown[cell] == put.stamp for cell in put.cells if cell in shown}
        if len(seen) > 1:
            raise Broken(f"a get of data {entry.data_id} returned a part of a put", entry.data_id)
