"""The memory of hosts, and of the memory layers: how much there is, what lies where, what is being copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from textual.app import ComposeResult

from gspc_trio.components.job.messages import GetMemory
from gspc_trio.iml.layout import extents
from gspc_trio.iml.messages import (
    DataState,
    DataStatus,
    GetLayerStatus,
    LayerStatus,
    PartStatus,
    TransferStatus,
)
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.source import LAYER
from gspc_trio.tui.table import Cell, Column, Part, WindowTable
from gspc_trio.tui.text import bar, plural, size
from gspc_trio.tui.views.base import View

ASK_INTERVAL_S = 2.0
"""Seconds between two questions for the memory layers; more if much lies in them."""

ASKED_PER_S = 10_000
"""Pieces of data that are asked for in each second, so that looking stays cheap."""

ASKED_MAX = 8
"""Jobs that are asked for the layer in which their data is."""

STATE_STYLES = {DataState.READY: "finished", DataState.LOST: "failed", DataState.GONE: "dim"}
"""State of data -> name of a style; the other states are those of data under way."""

ROWS_MAX = 2_000
"""Data that are listed; a filter finds the others."""

MAP_CELLS = 24
"""Most width of the picture that says on which hosts the ranges of some data lie."""

RANGES_MAX = 500
"""Ranges that are listed of some data."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HOST_STYLES = ("running", "ready", "finished", "submitted", "warning")
"""Hosts of a layer are told apart in the picture by a letter, and by a colour."""

Row = tuple[tuple[str, ...], list[Cell], str]
"""The words of a row that a filter looks at, its cells, and what Enter shows."""


class Memory(View):
    """Main memory of each host; below it the memory servers of layers, and the data in them."""

    NAME: ClassVar[str] = "memory"
    KEY: ClassVar[str] = "7"
    HELP: ClassVar[str] = (
        "The main memory of each host, and the memory servers (IML) there, each with a letter. Below, the "
        "data in the memory layers: of which job, how large, whether it is there or under way; the picture "
        "shows from its first to its last byte on which host it lies, in capitals where there are several "
        "copies. ↳ is a part that is being copied. Enter lists the ranges."
    )

    def __init__(self) -> None:
        super().__init__()
        self._layers: dict[str, LayerStatus] = {}
        self._asked_s = 0.0
        self._interval_s = ASK_INTERVAL_S
        self._data_rows: list[Row] = []
        self._cells = 0
        self._rows: list[Row] = []

    def parts(self) -> ComposeResult:
        """Return the title and the list."""
        yield Lines(id="memory-title")
        yield WindowTable(
            Column("host or data", 20),
            Column("what", 13),
            Column("size", 9, right=True),
            Column("of", 9, right=True),
            Column("share, or where it lies"),
            empty="no host has told of its memory",
        )

    def entered(self) -> None:
        """Ask for the layers at once."""
        self._asked_s = 0.0

    def draw(self) -> None:
        """Show how things are now."""
        now_s = self.model.now_s
        if abs(now_s - self._asked_s) >= self._interval_s and not self.source_is_file:
            self._asked_s = now_s
            self.run_worker(self._ask(), exclusive=True)
        width = max(8, self.table.width_of(4) - 6)
        if self._cells != max(4, min(MAP_CELLS, width // 2)):
            self._make_data_rows(width)
        rows = (*self._hosts(width), *self._servers(width), *self._data_rows)
        self._rows = [row for row in rows if self.fits(row[0])][:ROWS_MAX]
        shown = self._rows
        self.table.show([" ".join(words) for words, _, _ in shown], lambda at: shown[at][1])
        number = sum(len(layer.data) for layer in self._layers.values())
        told = f"   {plural(number, 'piece')} of data in {plural(len(self._layers), 'memory layer')}"
        under_way = sum(len(layer.transfers) for layer in self._layers.values())
        if under_way:
            told += f", {plural(under_way, 'transfer')} under way"
        if not self._layers:
            told = "   no memory layer (IML) holds data: values travel with their tasks"
        self.query_one("#memory-title", Lines).show(
            f" memory of {plural(len(self.model.rts.loads), 'host')}{told}"
        )

    def on_window_table_chosen(self) -> None:
        """List the ranges of the data on whose row the cursor is."""
        at = self.table.cursor
        if at < len(self._rows) and self._rows[at][2]:
            self.top.show_text(f"data {self._rows[at][0][0]}", self._rows[at][2])

    @property
    def source_is_file(self) -> bool:
        """Whether there is nobody to ask."""
        return bool(self.top.source.why_not)

    async def _ask(self) -> None:
        """Ask the layer that stands alone, and jobs for theirs; several may have the same."""
        alone, _ = await self.top.ask_quietly(LAYER, GetLayerStatus())
        layers = [alone]
        for job in sorted(self.model.connected)[:ASKED_MAX]:
            memory, _ = await self.top.ask_quietly(job, GetMemory())
            layers.append(memory.layer if memory is not None else None)
        self._layers = {layer.instance: layer for layer in layers if layer is not None and layer.servers}
        number = sum(len(layer.data) for layer in self._layers.values())
        self._interval_s = max(ASK_INTERVAL_S, number / ASKED_PER_S)
        self._cells = 0
        self.top.draw()

    def _make_data_rows(self, width: int) -> None:
        self._cells = max(4, min(MAP_CELLS, width // 2))
        self._data_rows = [row for it in self._layers.values() for row in _data_rows(it, self._cells)]

    def _hosts(self, width: int) -> Iterator[Row]:
        for load in self.model.rts.loads.values():
            used, total = load.memory_used_bytes, load.memory_total_bytes
            share = _share(used, total, width)
            cells: list[Cell] = [(load.host, "bold"), "main memory", size(used), size(total), share]
            yield (load.host, load.rif_id), cells, ""

    def _servers(self, width: int) -> Iterator[Row]:
        for instance, layer in self._layers.items():
            marks = _marks(layer)
            for server in layer.servers:
                held, total = server.held_bytes, server.memory_bytes
                what = "memory server" if not server.spill_bytes else "memory + disk"
                letter, style = marks[server.host]
                name: list[Part] = [(f"{letter} ", style), (server.host, "bold")]
                cells: list[Cell] = [name, what, size(held), size(total), _share(held, total, width)]
                yield (server.host, instance, "server"), cells, ""


def _data_rows(layer: LayerStatus, map_cells: int) -> Iterator[Row]:
    """Yield the rows of the data in a layer, and of the copies that are being made of it."""
    marks = _marks(layer)
    copies: dict[str, list[TransferStatus]] = {}
    for copy in layer.transfers:
        copies.setdefault(copy.data_id, []).append(copy)
    for entry in layer.data:
        state = entry.state
        name = f"  {entry.data_id} {entry.name}".rstrip()
        job = entry.job.partition("@")[0]
        where: list[Part] = [*picture(entry, marks, map_cells), (f"  {', '.join(entry.hosts)}", "")]
        shown_state = (state.value, STATE_STYLES.get(state, "ready"))
        cells: list[Cell] = [name, shown_state, size(entry.size_bytes), job]
        yield (entry.data_id, job, state, *entry.hosts), [*cells, where], ranges_of(entry)
        for copy in copies.get(entry.data_id, ()):
            words = (entry.data_id, job, "copying", str(copy.part), copy.source, copy.host)
            label = f"    ↳ part {copy.part}"
            told = f"{copy.source} → {copy.host}"
            yield words, [label, ("copying", "running"), size(copy.size_bytes), job, told], ""


def _marks(layer: LayerStatus) -> dict[str, tuple[str, str]]:
    """Return letter and style of each host of a layer."""
    return {
        server.host: (LETTERS[rank % len(LETTERS)], HOST_STYLES[rank % len(HOST_STYLES)])
        for rank, server in enumerate(layer.servers)
    }


def picture(entry: DataStatus, marks: Mapping[str, tuple[str, str]], cells: int) -> list[Part]:
    """Return where the bytes of some data lie, from the first to the last: a letter for each cell.

    Args:
        entry: the data, as its layer tells of it.
        marks: host -> letter and style.
        cells: width of the picture.
    """
    parts, total = entry.parts, entry.size_bytes
    shown: list[tuple[str, str]] = []
    for cell in range(cells if parts else 0):
        part = _part_at(entry, cell * total // cells)
        holders = [*part.hosts, *part.cached]
        letter, style = marks.get(holders[0], ("?", "dim")) if holders else ("·", "dim")
        shown.append((letter.upper() if len(holders) > 1 else letter, style))
    return shown


def _part_at(entry: DataStatus, offset: int) -> PartStatus:
    parts, block_bytes = entry.parts, entry.block_bytes
    return parts[offset // block_bytes % len(parts)] if block_bytes else parts[0]


def ranges_of(entry: DataStatus) -> str:
    """Return the ranges of some data as lines: from where to where, how many bytes, on which hosts."""
    parts = entry.parts
    if not parts:
        return ""
    lines = [f"{size(entry.size_bytes)}, {entry.state}", ""]
    lines.append(f"{'FROM':>16}{'BYTES':>16}  HOSTS")
    for number, extent in enumerate(extents(entry.block_bytes, len(parts), 0, entry.size_bytes)):
        if number == RANGES_MAX:
            lines.append("… and more")
            break
        part = parts[extent.part]
        cached = [f"{host} (cached)" for host in part.cached]
        where = ", ".join([*part.hosts, *cached]) or "being made"
        lines.append(f"{extent.offset:>16}{extent.size_bytes:>16}  {where}")
    return "\n".join(lines)


def _share(used: int, total: int, width: int) -> Cell:
    share = used / max(1, total)
    return [(bar(share, width), "running" if share < 0.9 else "error"), (f" {share:.0%}", "")]
