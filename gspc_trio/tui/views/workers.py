"""The workers: for each the lanes in, compute and out, over the last seconds."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import TaskChanged
from gspc_trio.tui.lanes import LANES, Span, busy_share, draw
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.palette import SYMBOLS
from gspc_trio.tui.table import Cell, Column, Part, WindowTable
from gspc_trio.tui.text import duration
from gspc_trio.tui.views.base import View

WINDOWS_S = (60.0, 600.0, 5.0, 15.0)
"""Seconds that are shown; one key goes through them."""

MANY = 1_000
"""Workers with tasks from which on what they have is looked up once a second only."""

TIMELINE = 2
"""Position of the timeline among the columns."""

_CHARACTERS = {0: "▄", 1: "█", 2: "▀"}
_WAITING = {0: "▁", 2: "▔"}
"""What a span looks like in a lane: while data is fetched, computed, stored; while it only waits."""


class Workers(View):
    """A timeline for each worker."""

    NAME: ClassVar[str] = "workers"
    KEY: ClassVar[str] = "5"
    HELP: ClassVar[str] = (
        "For each worker what was on its way in (▁ waiting there, ▄ fetching data), in compute, and on its "
        "way out (▀ storing data, ▔ reporting), the newest at the right. z changes the time that is shown, "
        "n how many lanes."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z", "zoom", "Zoom"),
        Binding("n", "lanes", "Lanes"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._window = 0
        self._lanes = 3
        self._now: dict[str, list[TaskChanged]] = {}
        self._now_s = 0.0
        self._workers: dict[str, None] = {}
        self._rows: list[tuple[str, int]] = []
        self._keys: list[str] = []
        self._made: tuple[str, int, int] = ("", 0, 0)

    def parts(self) -> ComposeResult:
        """Return the legend and the timelines."""
        yield Lines(id="legend")
        yield WindowTable(
            Column("worker", 14),
            Column("lane", 7),
            Column("timeline", heat=3),
            Column("busy", 5, right=True),
            Column("now", 24, room=96),
            empty="no worker has done anything yet",
        )

    def draw(self) -> None:
        """Show how things are now."""
        model = self.model
        if len(self._now) < MANY or abs(model.now_s - self._now_s) >= 1.0:
            self._now, self._now_s = model.live_at_workers(), model.now_s
        self._workers = dict.fromkeys((*model.rts.workers, *model.lanes.workers, *self._now))
        made = (self.text, self._lanes, len(self._workers))
        if made != self._made:
            self._made = made
            self._make_rows()
        rows, first = self._rows, 0 if self._lanes == 3 else 1
        self.table.show(self._keys, lambda at: self._cells(*rows[at], first))
        self.query_one("#legend", Lines).show(
            f" the last {duration(WINDOWS_S[self._window])}   "
            f"{SYMBOLS['running']} running  {SYMBOLS['finished']} finished  {SYMBOLS['failed']} failed   "
            f"{len(self._now)} of {len(self._workers)} workers have tasks"
        )

    def _make_rows(self) -> None:
        model, lanes = self.model, range(3) if self._lanes == 3 else (1,)
        fitting = (name for name in self._workers if self.fits((name, model.host_of(name))))
        self._rows = [(name, lane) for name in sorted(fitting, key=_in_order) for lane in lanes]
        self._keys = [f"{name} {lane}" for name, lane in self._rows]

    def action_zoom(self) -> None:
        """Show another length of time."""
        self._window = (self._window + 1) % len(WINDOWS_S)
        self.draw()

    def action_lanes(self) -> None:
        """Show all lanes, or compute only."""
        self._lanes = 1 if self._lanes == 3 else 3
        self.draw()

    def _cells(self, name: str, lane: int, first: int) -> list[Cell]:
        model, now_s = self.model, self.model.now_s
        begin_s = now_s - WINDOWS_S[self._window]
        worker = model.lanes.workers.get(name)
        live = model.spans_of(self._now.get(name, ()))
        running = [span for span in live if span.state is TaskState.RUNNING]
        queued = [span for span in live if span.state is TaskState.SUBMITTED]
        spans = [*(worker.spans[lane] if worker is not None else ()), *(queued, running, [])[lane]]
        width = self.table.width_of(TIMELINE)
        texts = (
            f"{len(queued)} queued" if queued else "",
            f"{running[0].task_id} {running[0].name}" if running else "",
            "",
        )
        return [
            name if lane == first else "",
            LANES[lane],
            _timeline(draw(spans, begin_s, now_s, width), lane),
            f"{busy_share(spans, begin_s, now_s):.0%}" if lane == 1 else "",
            (texts[lane], "running"),
        ]


def _timeline(columns: list[Span | None], lane: int) -> list[Part]:
    parts: list[Part] = []
    previous: Span | None = None
    odd = False
    for span, group in groupby(columns):
        length = len(list(group))
        if span is None:
            parts.append(("·" * length if lane == 1 else " " * length, "dim"))
            previous = None
            continue
        # Neighbours of one colour are told apart by a lighter first column.
        odd = previous is not None and previous.state is span.state and not odd
        character = _CHARACTERS[lane] if span.staging or lane == 1 else _WAITING[lane]
        state = span.state.value if lane == 1 else "submitted" if lane == 0 else "cancelled"
        mark = SYMBOLS["failed"] if span.state is TaskState.FAILED and lane == 1 else character
        first = "▌" if odd and lane == 1 and mark == character else mark
        parts.append((first + character * (length - 1), state))
        previous = span
    return parts


@lru_cache(50_000)
def _in_order(name: str) -> list[tuple[int, str]]:
    """Return a key by which ``r2.core10`` comes after ``r2.core9``."""
    parts = ("".join(group) for _, group in groupby(name, str.isdigit))
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
