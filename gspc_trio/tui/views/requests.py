"""Requests of co-allocation: the tree of their stages, and what each job waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult

from gspc_trio.components.coallocation.agents.words import (
    CoJobEntry,
    RequestDetails,
    RequestsShown,
    ShowRequests,
)
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.palette import state_cell
from gspc_trio.tui.source import COALLOCATION
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import one_line, plural
from gspc_trio.tui.views.base import View

ASK_INTERVAL_S = 1.0
"""Seconds between two questions: records do not tell of requests."""

JOBS_MAX = 2000
"""Of so many jobs it is asked at a time."""

WAITS_MAX = 8
"""Of more jobs that one waits for the first ones are shown."""

Row = tuple[tuple[str, ...], list[Cell]]
"""The words of a row that a filter looks at, and its cells."""


class Requests(View):
    """Each request of the co-allocation service of the user, and below it its stages and jobs."""

    NAME: ClassVar[str] = "requests"
    KEY: ClassVar[str] = "o"
    HELP: ClassVar[str] = (
        "Each request that gspc-coallocate serve runs, the newest first: its stages as a tree (C1 is the "
        "service of the whole request; they are numbered breadth first), and its jobs: where each is, at "
        "which sites or by which service, and the jobs that it still waits for."
    )

    def __init__(self) -> None:
        super().__init__()
        self._told: RequestsShown | None = None
        self._why = ""
        self._asked_s = 0.0

    def parts(self) -> ComposeResult:
        """Return the title and the list."""
        yield Lines(id="requests-title")
        yield WindowTable(
            Column("request, stage or job", 34),
            Column("state", 11),
            Column("at", 22),
            Column("waits for", 22),
            Column("why"),
            empty="no co-allocation service of this user runs (gspc-coallocate serve), or it has no requests",
        )

    def entered(self) -> None:
        """Ask at once."""
        self._asked_s = 0.0

    def draw(self) -> None:
        """Show how things are now."""
        now_s = self.model.now_s
        if abs(now_s - self._asked_s) >= ASK_INTERVAL_S:
            self._asked_s = now_s
            self.run_worker(self._ask(), exclusive=True)
        told = self._told
        requests = told.requests if told is not None else ()
        rows = [row for request in requests for row in _rows(request)]
        shown = [row for row in rows if self.fits(row[0])]
        self.table.show([row[0][0] for row in shown], lambda at: shown[at][1])
        title = f" {self._why}"
        if told is not None:
            running = sum(not one.entry.is_over for one in requests)
            more = f", {told.more} more" if told.more else ""
            title = f" service {told.service}   {plural(len(requests), 'request')}, {running} running{more}"
        self.query_one("#requests-title", Lines).show(title)

    async def _ask(self) -> None:
        """Ask for what records do not tell."""
        self._told, self._why = await self.top.ask_quietly(COALLOCATION, ShowRequests(JOBS_MAX))
        self.top.draw()


def _rows(request: RequestDetails) -> Iterator[Row]:
    """Yield the row of a request, and those of its stages and jobs."""
    entry = request.entry
    states = ", ".join(f"{count} {state}" for state, count in sorted(entry.states.items()))
    good = entry.states.get("finished", 0) == entry.jobs
    state = ("finished" if good else "failed") if entry.is_over else "running"
    head: list[Cell] = [
        (entry.request_id, "bold"),
        state_cell(state),
        "",
        "",
        f"{states}   {one_line(entry.text)}",
    ]
    yield (entry.request_id, state), head
    ended = {job.number for job in request.jobs if job.state == "finished"}
    open_stages: tuple[int, ...] = ()
    for job in request.jobs:
        common = 0
        while common < min(len(open_stages), len(job.stages)) and open_stages[common] == job.stages[common]:
            common += 1
        for depth in range(common, len(job.stages)):
            stage = f"C{job.stages[depth]}"
            yield (entry.request_id, stage), [f"{'  ' * (depth + 1)}{stage} stage", "", "", "", ""]
        open_stages = job.stages
        yield _job_row(entry.request_id, job, ended)
    if len(request.jobs) < entry.jobs:
        yield (
            (entry.request_id, "more"),
            [f"  and {entry.jobs - len(request.jobs)} more jobs", "", "", "", ""],
        )


def _job_row(request_id: str, job: CoJobEntry, ended: set[int]) -> Row:
    waits = [number for number in job.waits if number not in ended] if job.state == "waiting" else []
    more = f" and {len(waits) - WAITS_MAX} more" if len(waits) > WAITS_MAX else ""
    cells: list[Cell] = [
        f"{'  ' * (len(job.stages) + 1)}{job.number} {one_line(job.name)}",
        state_cell(job.state),
        ", ".join(job.sites),
        ", ".join(map(str, waits[:WAITS_MAX])) + more,
        one_line(job.reason),
    ]
    return (request_id, str(job.number), job.name, job.state, *job.sites), cells
