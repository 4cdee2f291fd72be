"""The memory of hosts, and of the memory layers: how much there is, and what lies where."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.widgets import Static

from gspc_trio.protocol.messages import GetMemory, GetStatus
from gspc_trio.tui.source import LAYER
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import bar, plural, size
from gspc_trio.tui.views.base import View

ASK_INTERVAL_S = 2.0
"""Seconds between two questions for the memory layers."""

ASKED_MAX = 8
"""Jobs that are asked for the layer in which their data is."""

STATE_STYLES = {"ready": "finished", "lost": "failed", "gone": "dim"}
"""State of data -> name of a style; the other states are those of data under way."""

ROWS_MAX = 2_000
"""Data that are listed; a filter finds the others."""


class Memory(View):
    """Main memory of each host; below it the memory servers of layers, and the data in them."""

    NAME = "memory"
    KEY = "7"
    HELP = (
        "The main memory of each host, and the memory servers (IML) there. Below, the data in the memory "
        "layers: of which job, how large, whether it is there or under way, and on which hosts it lies."
    )

    def __init__(self) -> None:
        super().__init__()
        self._layers: dict[str, dict[str, Any]] = {}
        self._asked_s = 0.0

    def parts(self) -> ComposeResult:
        """Return the title and the list."""
        yield Static(id="memory-title")
        yield WindowTable(
            Column("host or data", 26),
            Column("what", 14),
            Column("size", 10, right=True),
            Column("of", 10, right=True),
            Column("share, or where it lies"),
            empty="no host has told of its memory",
        )

    def entered(self) -> None:
        """Ask for the layers at once."""
        self._asked_s = 0.0

    def draw(self) -> None:
        """Show how things are now."""
        now_s = self.model.now_s
        if abs(now_s - self._asked_s) >= ASK_INTERVAL_S and not self.source_is_file:
            self._asked_s = now_s
            self.run_worker(self._ask(), exclusive=True)
        width = max(8, self.table.width_of(4) - 6)
        rows = [
            row for row in (*self._hosts(width), *self._servers(width), *self._data()) if self.fits(row[0])
        ]
        shown = rows[:ROWS_MAX]
        self.table.show([" ".join(words) for words, _ in shown], lambda at: shown[at][1])
        number = sum(len(layer["data"]) for layer in self._layers.values())
        told = f"   {plural(number, 'piece')} of data in {plural(len(self._layers), 'memory layer')}"
        if not self._layers:
            told = "   no memory layer (IML) holds data: values travel with their tasks"
        self.query_one("#memory-title", Static).update(
            f" memory of {plural(len(self.model.rts.loads), 'host')}{told}"
        )

    @property
    def source_is_file(self) -> bool:
        """Whether there is nobody to ask."""
        return bool(self.top.source.why_not)

    async def _ask(self) -> None:
        """Ask the layer that stands alone, and jobs for theirs; several may have the same."""
        found: dict[str, dict[str, Any]] = {}
        questions: list[tuple[str, Any]] = [(LAYER, GetStatus())]
        questions += [(job, GetMemory()) for job in sorted(self.model.connected)[:ASKED_MAX]]
        for who, question in questions:
            answer, _ = await self.top.ask_quietly(who, question)
            if answer is not None and answer.data.get("servers"):
                found[answer.data["instance"]] = answer.data
        self._layers = found

    def _hosts(self, width: int) -> list[tuple[tuple[str, ...], list[Cell]]]:
        rows: list[tuple[tuple[str, ...], list[Cell]]] = []
        for load in self.model.rts.loads.values():
            used, total = load.memory_used_bytes, load.memory_total_bytes
            cells = [(load.host, "bold"), "main memory", size(used), size(total), _share(used, total, width)]
            rows.append(((load.host, load.rif_id), cells))
        return rows

    def _servers(self, width: int) -> list[tuple[tuple[str, ...], list[Cell]]]:
        rows: list[tuple[tuple[str, ...], list[Cell]]] = []
        for instance, layer in self._layers.items():
            for server in layer["servers"]:
                held, total = server["held_bytes"], server["memory_bytes"]
                what = "memory server" if not server["spill_bytes"] else "memory + disk"
                cells = [(server["host"], "bold"), what, size(held), size(total), _share(held, total, width)]
                rows.append(((server["host"], instance, "server"), cells))
        return rows

    def _data(self) -> list[tuple[tuple[str, ...], list[Cell]]]:
        rows: list[tuple[tuple[str, ...], list[Cell]]] = []
        for layer in self._layers.values():
            for entry in layer["data"]:
                state = str(entry["state"])
                name = f"  {entry['data_id']} {entry['name'] or ''}".rstrip()
                where = ", ".join(entry["hosts"])
                job = str(entry["job"]).partition("@")[0]
                cells: list[Cell] = [
                    name,
                    (state, STATE_STYLES.get(state, "ready")),
                    size(entry["size_bytes"]),
                ]
                rows.append(((entry["data_id"], job, state), [*cells, job, where]))
        return rows


def _share(used: int, total: int, width: int) -> Cell:
    share = used / max(1, total)
    return [(bar(share, width), "running" if share < 0.9 else "error"), (f" {share:.0%}", "")]
