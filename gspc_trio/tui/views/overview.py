"""The overview: how much is in use, how fast it goes, the jobs, and what is wrong."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.strip import Strip
from textual.widget import Widget

from gspc_trio.core.ids import JobId
from gspc_trio.core.task import TaskState
from gspc_trio.tui.facts import JobFacts
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.news import Level, alerts
from gspc_trio.tui.palette import LEVEL_SYMBOLS, level_name, state_cell, style
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import bar, count, duration, one_line, size
from gspc_trio.tui.views.base import View

ALERTS_SHOWN = 4
"""Alerts that are shown at most; the log has them all."""

PROGRESS = 3
"""Position of the progress bar among the columns."""

READY, SUBMITTED, RUNNING = TaskState.READY, TaskState.SUBMITTED, TaskState.RUNNING
FINISHED, FAILED = TaskState.FINISHED, TaskState.FAILED


_BLOCKS = " ▁▂▃▄▅▆▇█"


def columns(values: list[float], top: float, height: int) -> list[str]:
    """Return ``height`` lines, one character for each value; at least a trace of what is more than 0.

    >>> columns([0.0, 0.5, 1.0], 1.0, 2)
    ['  █', ' ██']
    """
    lines = []
    levels = [round(min(1.0, value / top) * height * 8) if top > 0 else 0 for value in values]
    levels = [max(1, level) if value > 0 else level for level, value in zip(levels, values, strict=True)]
    for line in range(height - 1, -1, -1):
        lines.append("".join(_BLOCKS[max(0, min(8, level - 8 * line))] for level in levels))
    return lines


class Graph(Widget):
    """A bar for each second.

    Args:
        name: what is shown.
        colour: name of a style.
    """

    DEFAULT_CSS: ClassVar[str] = """
    Graph { height: 5; border: round $panel-lighten-2; border-title-color: $foreground; padding: 0; }
    """

    def __init__(self, title: str, colour: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title, self._colour = title, colour
        self._values: list[float] = []
        self._top = 1.0

    def show(self, values: list[float], top: float | None, now: str) -> None:
        """Show other values.

        Args:
            values: the newest last; as many as fit are seen.
            top: the value of a full bar, None for the largest.
            now: the newest value, for the title.
        """
        width = max(1, self.content_size.width)
        values = values[-width:]
        highest = top if top is not None else max([1.0, *values])
        title = f"{self._title}  {now}"
        if (values, highest) != (self._values, self._top):
            self._values, self._top = values, highest
            self.refresh()
        subtitle = f"{'most' if top is None else 'of'} {count(highest)}"
        if self.border_title != title:
            self.border_title = title
        if self.border_subtitle != subtitle:
            self.border_subtitle = subtitle

    def render_line(self, y: int) -> Strip:
        """Return one line of the graph."""
        width, height = self.content_size.width, self.content_size.height
        dark = bool(self.app.current_theme.dark)
        line = columns(self._values, self._top, height)[y] if y < height else ""
        base = self.rich_style
        return Strip([Segment(line.rjust(width), base + style(self._colour, dark))], width)


class Overview(View):
    """Cores in use over time, tasks per second, jobs, alerts."""

    NAME: ClassVar[str] = "overview"
    KEY: ClassVar[str] = "1"
    HELP: ClassVar[str] = (
        "Cores in use, tasks that finish and tasks that wait, for each of the last seconds; the jobs "
        "with their tasks by state; below, from where tasks take data, and what is wrong now. "
        "Enter shows the tasks of a job."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "app.stop_job", "Stop job"),
        Binding("w", "app.weigh_job", "Weight"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._alerts_made: tuple[object, ...] = ()
        self._alerts_found: list[tuple[Level, str]] = []

    def parts(self) -> ComposeResult:
        """Return graphs, jobs, classes and alerts."""
        with Horizontal(classes="graphs"):
            yield Graph("cores", "running", id="cores")
            yield Graph("tasks/s", "finished", id="rate")
            yield Graph("ready", "ready", id="waiting")
        yield WindowTable(
            Column("job", 5),
            Column("name"),
            Column("state", 10),
            Column("progress", room=110, heat=2),
            Column("ready", 6, right=True),
            Column("sent", 6, right=True, room=100),
            Column("running", 7, right=True),
            Column("done", 6, right=True),
            Column("failed", 6, right=True),
            Column("per s", 6, right=True),
            Column("left", 6, right=True),
            Column("held", 5, right=True),
            Column("weight", 6, right=True, room=120),
            Column("time", 7, right=True, room=96),
            empty="no job is registered",
        )
        yield Lines(id="classes")
        yield Lines(id="locality")
        yield Lines(id="alerts")

    def draw(self) -> None:
        """Show how things are now."""
        model = self.model
        total = model.hierarchy.leaf_total
        seconds = 600
        cores, rate, waiting = model.cores, model.rate, model.waiting
        self.query_one("#cores", Graph).show(
            cores.last(seconds), float(total), f"{cores.now:.0f} of {total} in use"
        )
        self.query_one("#rate", Graph).show(rate.last(seconds), None, count(rate.now))
        self.query_one("#waiting", Graph).show(waiting.last(seconds), None, count(waiting.now))
        jobs = [job for job in model.jobs() if self.fits((job.job, job.name, job.state))]
        weights = {entry.job: entry.weight for entry in model.registered}
        width = max(4, self.table.width_of(PROGRESS) - 6)
        self.table.show(
            [job.job for job in jobs],
            lambda at: _job_cells(jobs[at], weights.get(jobs[at].job), width),
        )
        self.query_one("#classes", Lines).show(self._class_line())
        self.query_one("#locality", Lines).show(self._locality_line())
        self.query_one("#alerts", Lines).show(self._alerts())

    def job_under_cursor(self) -> JobId | None:
        """Return the job on whose row the cursor is."""
        return self.table.key

    async def on_window_table_chosen(self, event: WindowTable.Chosen) -> None:
        """Show the tasks of the job."""
        self.top.choose_job(event.key)
        await self.top.show_view("tasks")

    def _class_line(self) -> Text:
        dark, width = self.table.is_dark, self.size.width
        text, used = Text(), 0
        for name, entry in self.model.classes.items():
            if not entry.total:
                continue
            parts = [(f" {name} ", "bold"), (f"{count(entry.held)} held ", "held")]
            parts.append((f"{count(entry.free)} free ", "free"))
            if entry.blocked:
                parts.append((f"{count(entry.blocked)} blocked ", "blocked"))
            parts.append((f"of {count(entry.total)}  ", "dim"))
            length = sum(len(part) for part, _ in parts)
            if used and used + length > width:
                text.append("\n")
                used = 0
            used += length
            for part, its_style in parts:
                text.append(part, style(its_style, dark))
        return text

    def _locality_line(self) -> Text:
        """Return from where tasks have taken data, nothing if none has taken any."""
        dark, told = self.table.is_dark, self.model.rts.locality
        text = Text()
        total = 0 if told is None else told.node_bytes + told.rack_bytes + told.inter_rack_bytes
        if told is None or not total:
            return text
        text.append(f" data: {size(total)} ", style("bold", dark))
        for name, taken, usual in (
            ("node", told.node_bytes, "80-90"),
            ("rack", told.rack_bytes, "5-10"),
            ("other racks", told.inter_rack_bytes, "2-5"),
        ):
            text.append(f" {name} {taken / total:.1%}")
            text.append(f" (expected {usual} %)", style("dim", dark))
        return text

    def _alerts(self) -> Text:
        dark, model = self.table.is_dark, self.model
        made = (id(model), int(model.now_s), model.link, len(model.log) + model.log_dropped)
        if made != self._alerts_made:
            self._alerts_made, self._alerts_found = made, alerts(model)
        found = self._alerts_found
        text = Text(no_wrap=True, overflow="ellipsis")
        for level, what in found[:ALERTS_SHOWN]:
            if text:
                text.append("\n")
            text.append(f" {LEVEL_SYMBOLS[level]} {one_line(what)}", style(level_name(level), dark))
        if len(found) > ALERTS_SHOWN:
            text.append(f"\n … and {len(found) - ALERTS_SHOWN} more", style("dim", dark))
        return text


def _job_cells(job: JobFacts, weight: float | None, width: int) -> list[Cell]:
    counts, total = job.counts, job.total
    done = job.ended / total if total else 0.0
    known = job.connected or total > 0  # of a job that was over when we came there are no counts
    return [
        job.job,
        job.name,
        state_cell(job.state),
        [
            (bar(done, width), job.state if job.state in ("failed", "stopped") else "finished"),
            (f"{done:5.0%}" if total else "", ""),
        ],
        _number(counts[READY], "ready", known),
        _number(counts[SUBMITTED], "submitted", known),
        _number(counts[RUNNING], "running", known),
        _number(counts[FINISHED], "finished", known),
        _number(counts[FAILED], "failed", known),
        count(job.rate_per_s) if job.rate_per_s else "",
        duration(job.left_s),
        str(job.held or ""),
        f"{weight:g}" if weight is not None else "",
        duration(job.elapsed_s),
    ]


def _number(number: int, name: str, known: bool) -> Cell:
    return (count(number), name) if number else ("·", "dim") if known else ""
