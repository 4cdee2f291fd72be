"""What tasks read and write: over time, by job, task or host; sizes and durations of calls; events."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from gspc_trio.components.monitor.reports import BY, GetIo, IoReport, IoSum
from gspc_trio.core.ids import JobId
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.palette import style
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import clock, count, duration, one_line, size
from gspc_trio.tui.views.base import View
from gspc_trio.tui.views.overview import Graph, columns

ASK_INTERVAL_S = 5.0
"""Seconds between two questions: a frame has as many."""

EVENTS_SHOWN = 3
"""Events that are shown; Enter on the row of a task, and ``gspc-monitor events``, show all."""

VOLUME = 7
"""Position of the volume over time among the columns."""

SIZE_TITLES = ("100", "1K", "10K", "100K", "1M", "4M", "10M", "100M", "1G", "more")
DURATION_TITLES = ("1µs", "10µs", "100µs", "1ms", "10ms", "100ms", "more")


class Io(View):
    """Volume, operations and hits over time; those who read and write; histograms and events."""

    NAME: ClassVar[str] = "io"
    KEY: ClassVar[str] = "9"
    HELP: ClassVar[str] = (
        "What tasks have read and written in the last ten minutes (gspc-rts start --monitor DIR): bytes and "
        "calls per second, and the share of what was read that was in memory (a hit). The list is by job, "
        "task or host: b changes that, and Enter shows the tasks of a job. Below, of the row under the "
        "cursor, how many calls moved so much and took so long (--io calls), and what happened last."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("b", "by", "By job, task, host")]

    def __init__(self) -> None:
        super().__init__()
        self._by = "job"
        self._asked: tuple[str, JobId | None] | None = None
        self._asked_s = 0.0
        self._report: IoReport | None = None
        self._why_not = ""
        self._shown: list[IoSum] = []

    def parts(self) -> ComposeResult:
        """Return the graphs, the list, histograms and events."""
        with Horizontal(classes="graphs"):
            yield Graph("bytes/s", "running", id="io-volume")
            yield Graph("calls/s", "finished", id="io-calls")
            yield Graph("hits", "ready", id="io-hits")
        yield Lines(id="io-title")
        yield WindowTable(
            Column("job, task or host", 18),
            Column("reads", 6, right=True),
            Column("read", 9, right=True),
            Column("hit", 4, right=True),
            Column("writes", 6, right=True),
            Column("written", 9, right=True),
            Column("per call", 8, right=True, room=100),
            Column("bytes over time"),
            empty="nothing was read or written in these minutes",
        )
        yield Lines(id="io-calls-of")
        yield Lines(id="io-events")

    def entered(self) -> None:
        """Ask at once."""
        self._asked = None

    def draw(self) -> None:
        """Show how things are now."""
        now_s, wanted = self.model.now_s, (self._by, self.top.job)
        if wanted != self._asked or abs(now_s - self._asked_s) >= ASK_INTERVAL_S:
            self._asked, self._asked_s = wanted, now_s
            self.run_worker(self._ask(), exclusive=True)
        report = self._report
        if report is not None:
            self._draw_graphs(report)
        sums = report.sums if report is not None else ()
        self._shown = [one for one in sums if self.fits(one.keys)]
        shown, width = self._shown, max(4, self.table.width_of(VOLUME))
        self.table.show(["\0".join(_label(one)) for one in shown], lambda at: _cells(shown[at], width))
        whose = "all jobs" if self.top.job is None else f"job {self.top.job}"
        title = f" by {self._by}, of {whose}"
        if report is not None and report.more:
            title += f"; {count(report.more)} more have moved less"
        self.query_one("#io-title", Lines).show(f" {self._why_not}" if self._why_not else title)
        self._draw_calls()
        self._draw_events()

    async def _ask(self) -> None:
        """Ask for what records do not tell."""
        asked = GetIo(self._by, self.top.job or "")
        self._report, self._why_not = await self.top.ask_quietly(None, asked)
        self.top.draw()

    def action_by(self) -> None:
        """Add up by something else."""
        there = list(BY)
        self._by = there[(there.index(self._by) + 1) % len(there)]
        self.draw()

    def on_window_table_moved(self) -> None:
        """Show the calls of another row."""
        self._draw_calls()

    def on_window_table_chosen(self) -> None:
        """Show the tasks of a job, or everything about a task."""
        chosen = self._under_cursor()
        if chosen is None:
            return
        if self._by == "job":
            self._by = "task"
            self.top.choose_job(chosen.keys[0])
        else:
            lines = [f"{name:<28}{amount:>18,}" for name, amount in chosen.amounts.items()]
            self.top.show_text(" ".join((self._by, *_label(chosen))), "\n".join(lines))

    def job_under_cursor(self) -> JobId | None:
        """Return the job on whose row the cursor is."""
        chosen = self._under_cursor()
        return self.top.job if chosen is None or self._by == "host" else chosen.keys[0]

    def _under_cursor(self) -> IoSum | None:
        at = self.table.cursor
        return self._shown[at] if at < len(self._shown) else None

    # Parts --------------------------------------------------------------------------------------------------

    def _draw_graphs(self, report: IoReport) -> None:
        volume = report.series("read_bytes", "write_bytes")
        calls = report.series("read_calls", "write_calls")
        hits = report.hits()
        known = [share for share in hits if share is not None]
        hit = f"{known[-1]:.0%}" if known else "-"
        for name, values, top, now in (
            ("#io-volume", volume, None, f"{size(volume[-1] if volume else 0)}/s"),
            ("#io-calls", calls, None, count(calls[-1] if calls else 0)),
            ("#io-hits", [100 * (share or 0.0) for share in hits], 100.0, hit),
        ):
            self.query_one(name, Graph).show(values, top, now)

    def _draw_calls(self) -> None:
        chosen, text, dark = self._under_cursor(), Text(), self.table.is_dark
        if chosen is not None:
            sizes = {way: chosen.sizes(way) for way in ("read", "write")}
            durations = {"read": chosen.read_durations, "write": chosen.write_durations}
            if any(map(sum, sizes.values())):
                _histogram(text, "bytes", SIZE_TITLES, sizes, dark)
                text.append("\n")
                _histogram(text, "time", DURATION_TITLES, durations, dark)
                text.append(f"\n {_patterns(chosen)}", style("dim", dark))
            else:
                text.append(" sizes and durations of calls are counted with --io calls", style("dim", dark))
        self.query_one("#io-calls-of", Lines).show(text)

    def _draw_events(self) -> None:
        dark, text = self.table.is_dark, Text()
        for event in self._report.events[-EVENTS_SHOWN:] if self._report is not None else ():
            whose = " ".join(filter(None, (event.host, event.job, str(event.task or ""))))
            told = f" {clock(event.at_s)} {event.kind} {whose}: {one_line(event.detail)}"
            colour = "" if event.kind == "user" else "warning"
            text.append("\n" if text else "").append(told, style(colour, dark))
        self.query_one("#io-events", Lines).show(text)


def _label(one: IoSum) -> tuple[str, ...]:
    """Return the keys of a sum for people: the number of an attempt only if it is not the first."""
    run = (f"(run {one.run})",) if one.run else ()
    if len(one.keys) == 3:
        job, task, attempt = one.keys
        if task == "0":
            return job, "between tasks", *run
        return (job, task, *run) if attempt in ("0", "1") else (job, task, f"attempt {attempt}", *run)
    return (*one.keys, *run)


def _cells(one: IoSum, width: int) -> list[Cell]:
    amounts, hit = one.amounts, one.hit_share
    calls = sum(one.sizes("read")) + sum(one.sizes("write"))
    spent_s = (amounts.get("file_read_ns", 0) + amounts.get("file_write_ns", 0)) / 1e9
    volume = [float(moved) for moved in one.moved_bytes]
    return [
        (" ".join(_label(one)), "bold"),
        count(amounts.get("read_calls", 0)),
        size(amounts.get("read_bytes", 0)),
        "" if hit is None else (f"{hit:.0%}", "warning" if hit < 0.5 else ""),
        count(amounts.get("write_calls", 0)),
        size(amounts.get("write_bytes", 0)),
        _short(spent_s / calls) if calls else "",
        (columns(volume[-width:], max([1.0, *volume]), 1)[0].rjust(width), "running"),
    ]


def _short(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 0.001 else duration(seconds)


def _histogram(
    text: Text, what: str, titles: tuple[str, ...], counts: dict[str, tuple[int, ...]], dark: bool
) -> None:
    """Add three lines: the upper ends of ranges, and how many reads and writes were in each."""
    text.append(f" {what:<8}" + "".join(f"{title:>7}" for title in titles), style("dim", dark))
    for way, found in counts.items():
        text.append(f"\n {way + 's':<8}")
        bars = columns([float(number) for number in found], float(max(1, *found)), 1)[0]
        for number, level in zip(found, bars, strict=True):
            told = count(number) if number else "·"
            text.append(f"{level}{told}".rjust(7), style("running" if number else "dim", dark))


def _patterns(one: IoSum) -> str:
    """Return how calls follow each other, and how many files there were."""
    told = []
    for way in ("read", "write"):
        total = sum(one.sizes(way))
        if total:
            names = ("consecutive", "forward", "random")
            parts = (f"{one.amounts.get(f'file_{way}_{name}', 0) / total:.0%} {name}" for name in names)
            files = one.amounts.get(f"file_{way}_files", 0)
            told.append(f"{way}s: {', '.join(parts)}; {count(files)} files")
    return "   ".join(told)
