"""The memory of hosts, and what tasks and the memory layer have of it."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.widgets import Static

from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import bar, size
from gspc_trio.tui.views.base import View


class Memory(View):
    """Main memory of each host; allocations of the memory layer where there is one."""

    NAME = "memory"
    KEY = "7"
    HELP = (
        "The main memory of each host. Where a memory layer (IML) runs, below each host its allocations, "
        "the ranges of them that lie there, and transfers under way."
    )

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[tuple[str, list[Cell]]] = []

    def parts(self) -> ComposeResult:
        """Return the title and the list."""
        yield Static(id="memory-title")
        yield WindowTable(
            Column("host", 20),
            Column("what", 18),
            Column("used", 10, right=True),
            Column("of", 10, right=True),
            Column("share"),
            empty="no host has told of its memory",
        )

    def draw(self) -> None:
        """Show how things are now."""
        layer: dict[str, Any] = self.model.status.get("iml") or {}
        allocations = layer.get("hosts", {})
        rows: list[tuple[str, list[Cell]]] = []
        width = max(8, self.table.width_of(4) - 6)
        for load in self.model.rts.loads.values():
            if not self.fits((load.host,)):
                continue
            share = load.memory_used_bytes / max(1, load.memory_total_bytes)
            name = "running" if share < 0.9 else "error"
            rows.append(
                (
                    load.rif_id,
                    [
                        (load.host, "bold"),
                        "main memory",
                        size(load.memory_used_bytes),
                        size(load.memory_total_bytes),
                        [(bar(share, width), name), (f" {share:.0%}", "")],
                    ],
                )
            )
            for number, entry in enumerate(allocations.get(load.host, ())):
                cells: list[Cell] = ["", str(entry["name"]), size(entry["bytes"]), "", str(entry["detail"])]
                rows.append((f"{load.rif_id} {number}", cells))
        self._rows = rows
        self.table.show([key for key, _ in rows], lambda at: rows[at][1])
        told = "" if layer else "   no memory layer (IML) runs here: values travel with their tasks"
        self.query_one("#memory-title", Static).update(f" memory of {len(rows)} hosts{told}")
