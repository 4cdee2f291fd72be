"""The resources: the hierarchy as a tree, who holds what since when, and the load of each host."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gspc_trio.core.ids import ResourceId, RifId
from gspc_trio.tui.hierarchy import OPEN_MAX, Hierarchy, Row, Use
from gspc_trio.tui.news import named
from gspc_trio.tui.palette import state_cell
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import bar, duration, plural
from gspc_trio.tui.views.base import View


class Resources(View):
    """The tree of hosts and their resources."""

    NAME: ClassVar[str] = "resources"
    KEY: ClassVar[str] = "2"
    HELP: ClassVar[str] = (
        "Every host with its anomalies, its load and memory, and below it what it offers: free, held (by "
        "which job, since when, and how much waits in its queue) or blocked (by which relative). Enter or "
        "← → close and open; with many resources hosts are closed at first."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "fold(True)", "Close", show=False),
        Binding("right,l", "fold(False)", "Open", show=False),
        Binding("delete,minus", "app.remove_resource", "Remove"),
        Binding("plus", "app.add_back", "Add back"),
        Binding("d", "app.drain_host", "Drain host"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._folded: set[str] = set()
        self._unfolded: set[str] = set()
        self._rows: list[Row] = []
        self._tree_rows: list[Row] = []
        self._made: tuple[object, ...] = ()
        self._keys_of: list[Row] | None = None
        self._keys: list[str] = []

    def parts(self) -> ComposeResult:
        """Return the tree."""
        yield WindowTable(
            Column("resource"),
            Column("class", 8),
            Column("use", 10),
            Column("by", heat=2),
            Column("worker", 8, room=100),
            Column("process", 8, right=True, room=100),
            empty="there are no resources",
        )

    def draw(self) -> None:
        """Show how things are now."""
        tree = self.model.hierarchy
        made = (id(tree), frozenset(self._folded), frozenset(self._unfolded), self.text)
        if made != self._made:
            self._made = made
            self._tree_rows = tree.rows(made[1], made[2], self.text)
        rows = self._tree_rows
        hosts_down = [
            Row(f"host {host}", 0, host, None, 0, False)
            for host, rif in self.model.rifs.items()
            if rif.state != "up" and host not in tree.hosts and self.fits((host, rif.state))
        ]
        self._rows = [*rows, *hosts_down] if hosts_down else rows
        if self._rows is not self._keys_of:
            self._keys_of, self._keys = self._rows, [row.key for row in self._rows]
        self.table.show(self._keys, lambda at: self._cells(tree, self._rows[at]))

    def _cells(self, tree: Hierarchy, row: Row) -> list[Cell]:
        sign = ("▾ " if row.is_open else "▸ ") if row.children else "  "
        label = "  " * row.depth + sign
        if row.resource is None:
            return self._host_cells(label, row.host)
        resource_id = row.resource.resource_id
        held = self.model.held
        use, relative = tree.use(resource_id, held)
        by: Cell = ""
        if use is Use.HELD:
            holder = held[resource_id]
            by = f"{holder.job} for {duration(self.model.held_for_s(holder))}"
            queue = self.model.queue_of(holder.job, resource_id)
            if queue is not None:
                by += f", {plural(queue.tasks, 'task')} queued ({duration(queue.backlog_s)} of work)"
        elif use is Use.BLOCKED and relative is not None:
            by = f"{relative}, held by {held[relative].job}"
        worker = self.model.rts.workers.get(resource_id)
        return [
            label + resource_id,
            row.resource.resource_class,
            state_cell(use.value),
            by,
            (worker.state, worker.state) if worker is not None else "",
            str(worker.pid) if worker is not None and worker.pid else "",
        ]

    def _host_cells(self, label: str, host: str) -> list[Cell]:
        rif = self.model.rifs.get(host)
        load = self.model.rts.loads.get(rif.rif_id) if rif is not None else None
        state = state_cell(rif.state) if rif is not None else ""
        told: Cell = rif.detail if rif is not None else ""
        if load is not None:
            share = load.memory_used_bytes / max(1, load.memory_total_bytes)
            cpu = "running" if load.cpu_share < 0.95 else "warning"
            told = [
                ("cpu ", "dim"),
                (bar(load.cpu_share, 4), cpu),
                (f"{load.cpu_share:5.0%} ", ""),
                ("load ", "dim"),
                (f"{load.load:<5.1f}", ""),
                ("mem ", "dim"),
                (bar(share, 4), "ready" if share < 0.9 else "error"),
                (f"{share:4.0%}", ""),
            ]
        odd = [named(one) for one in self.model.rts.anomalies.values() if one.host == host]
        if odd:
            told = [(f"{', '.join(odd)}  ", "warning"), *(told if isinstance(told, list) else [(told, "")])]
        ends_in_s = self.model.ends_in_s(rif) if rif is not None else None
        if ends_in_s is not None:
            ends = (f"ends in {duration(ends_in_s)}  ", "warning")
            told = [ends, *(told if isinstance(told, list) else [(told, "")])]
        number = len(self.model.hierarchy.hosts.get(host, ()))
        return [[(label + host, "bold")], "host", state, told, "", "" if number else plural(0, "resource")]

    # What the cursor is on ----------------------------------------------------------------------------------

    def row_under_cursor(self) -> Row | None:
        """Return the row on which the cursor is."""
        at = self.table.cursor
        return self._rows[at] if at < len(self._rows) else None

    def rif_of(self, row: Row) -> RifId | None:
        """Return the RIF of a row's host."""
        rif = self.model.rifs.get(row.host)
        return rif.rif_id if rif is not None else None

    def resources_of(self, row: Row) -> tuple[ResourceId, ...]:
        """Return the resource of a row, or those at the top of its host."""
        if row.resource is not None:
            return (row.resource.resource_id,)
        return tuple(self.model.hierarchy.hosts.get(row.host, ()))

    # Folding ------------------------------------------------------------------------------------------------

    def action_fold(self, close: bool) -> None:
        """Close or open what the cursor is on; to the left again goes up."""
        row = self.row_under_cursor()
        if row is None:
            return
        if row.is_open == close and row.children:
            self._toggle(row.key)
        elif close:
            depth, at = row.depth, self.table.cursor
            while at > 0 and self._rows[at].depth >= depth:
                at -= 1
            self.table.move_to(at)

    def on_window_table_chosen(self, event: WindowTable.Chosen) -> None:
        """Open or close."""
        if event.key is not None:
            self._toggle(event.key)

    def _toggle(self, key: str) -> None:
        few = len(self.model.hierarchy.resources) <= OPEN_MAX
        known = self._folded if few else self._unfolded
        known.symmetric_difference_update({key})
        self.draw()
