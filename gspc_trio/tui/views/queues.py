"""The queues: what is free of each class, who waits for what since when, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import frozen
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Static

from gspc_trio.components.rm.messages import ClassNeed, ClassStatus, GrantHolder, WaitingRequest
from gspc_trio.core.ids import JobId
from gspc_trio.core.task import TaskState
from gspc_trio.tui.model import RTS
from gspc_trio.tui.palette import style
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import bar, count, duration, printable
from gspc_trio.tui.views.base import View

USE = 5
"""Position of the bar among the columns of the classes."""


@frozen
class Request:
    """What a job waits for, and what it has.

    Attributes:
        job, name: which one.
        shape, credit: what it wants, and how often.
        held, share, weight: resources that it holds, the fraction of all, and the one that it is to have.
        reason: why it waits, "" if nobody has said so yet.
        told: what the resource manager explains, or None.
    """

    job: JobId
    name: str
    shape: str
    credit: int
    held: int
    share: float
    weight: float
    reason: str
    told: WaitingRequest | None = None

    @property
    def place(self) -> int:
        """Its place among those who wait, 0 if that is not known."""
        return self.told.place if self.told is not None else 0

    @property
    def since_s(self) -> float | None:
        """Since when it waits, in the time of the run-time system."""
        return self.told.since_s if self.told is not None else None

    @property
    def needs(self) -> Mapping[str, ClassNeed]:
        """Class -> what it needs of that."""
        return self.told.needs if self.told is not None else {}

    @property
    def held_by(self) -> tuple[GrantHolder, ...]:
        """Some of those who hold what it could use."""
        return self.told.held_by if self.told is not None else ()


class Queues(View):
    """Classes above, requests in the order in which they are served below, and why the selected one waits."""

    NAME: ClassVar[str] = "queues"
    KEY: ClassVar[str] = "3"
    HELP: ClassVar[str] = (
        "Above, the classes of resources. Below, the requests that wait: place in the queue, how many "
        "grants the job could use (its credit), since when the oldest waits. At the bottom, why the "
        "selected one waits."
    )

    def __init__(self) -> None:
        super().__init__()
        self._requests: list[Request] = []
        self._why = Text()
        self._class_height = 0

    def parts(self) -> ComposeResult:
        """Return the classes, the requests and the reason."""
        yield WindowTable(
            Column("class", 10),
            Column("total", 7, right=True),
            Column("free", 7, right=True),
            Column("held", 7, right=True),
            Column("blocked", 7, right=True),
            Column("use"),
            Column("waiting", 8, right=True),
            empty="there are no resources",
            id="class-table",
        )
        yield WindowTable(
            Column("place", 5, right=True),
            Column("job", 6),
            Column("name", 12, room=100),
            Column("wants"),
            Column("credit", 7, right=True),
            Column("oldest", 8, right=True),
            Column("why", heat=2),
            empty="nothing waits",
            id="requests",
        )
        yield Static(id="why")

    @property
    def table(self) -> WindowTable:
        """The requests."""
        return self.query_one("#requests", WindowTable)

    def draw(self) -> None:
        """Show how things are now."""
        model = self.model
        classes = {name: it for name, it in model.classes.items() if it.total}
        self._requests = [it for it in self._waiting() if self.fits((it.job, it.shape, it.reason))]
        wanted = {name: sum(_wants(it, name) for it in self._requests) for name in classes}
        names = list(classes)
        top = self.query_one("#class-table", WindowTable)
        width = max(20, min(60, top.width_of(USE)))
        top.show(names, lambda at: _class_cells(names[at], classes[names[at]], wanted[names[at]], width))
        height = min(8, len(names) + 1)
        if height != self._class_height:
            self._class_height = top.styles.height = height
        requests = self._requests
        keys = [f"{it.job} {it.shape}" for it in requests]
        self.table.show(keys, lambda at: self._cells(requests[at]))
        self._say_why()

    def job_under_cursor(self) -> JobId | None:
        """Return the job of the request on which the cursor is."""
        at = self.table.cursor
        return self._requests[at].job if at < len(self._requests) else self.top.job

    def on_window_table_moved(self) -> None:
        """Say why another one waits."""
        self._say_why()

    def _waiting(self) -> list[Request]:
        """Return all requests that wait, in the order of their places."""
        model = self.model
        found = []
        for job in model.registered:
            told = {it.shape: it for it in model.explanations.get(job.job, ())}
            for shape, credit in job.waiting.items():
                why = told.get(shape)
                reason = why.reason if why is not None else ""
                held = (job.held, job.share, job.weight)
                found.append(Request(job.job, job.name, shape, credit, *held, reason, why))
        if model.status is None:
            found += self._from_counts()
        return sorted(found, key=lambda it: (it.place or 10**9, it.since_s or 0.0))

    def _from_counts(self) -> list[Request]:
        """Return what a record file tells of requests: how many tasks of each job are ready."""
        reason = "the records do not tell why they wait"
        return [
            Request(job.job, job.name, "ready tasks", ready, job.held, 0.0, 1.0, reason)
            for job in self.model.jobs()
            if job.state == "running" and (ready := job.counts[TaskState.READY])
        ]

    def _cells(self, request: Request) -> list[Cell]:
        return [
            str(request.place or ""),
            request.job,
            request.name,
            request.shape,
            count(request.credit),
            duration(self._waits_s(request)),
            request.reason,
        ]

    def _waits_s(self, request: Request) -> float | None:
        since_s = request.since_s
        return None if since_s is None else max(0.0, self.model.now_s - self.model.wall_of(RTS, since_s))

    def _say_why(self) -> None:
        where, at = self.query_one("#why", Static), self.table.cursor
        if at >= len(self._requests):
            self._tell_why(where, Text())
            return
        request, dark = self._requests[at], self.table.is_dark
        text = Text()
        reason = printable(request.reason) or "no explanation yet"
        text.append(f" {request.job} waits for {request.shape}", style("bold", dark))
        share, weight = f"{request.share:.0%} of all that is held", f"{request.weight:g}"
        text.append(f"  it holds {request.held} ({share}), its weight is {weight}\n")
        text.append(f" {reason}\n", style("warning", dark))
        for name, need in request.needs.items():
            free, total = count(need.free), count(need.total)
            text.append(f" needs {need.needed} {name}: {free} of {total} free\n")
        holders = [f"{it.job}: {', '.join(it.resources)}" for it in request.held_by]
        if holders:
            text.append(" held by " + "; ".join(holders), style("held", dark))
        self._tell_why(where, text)

    def _tell_why(self, where: Static, text: Text) -> None:
        if text != self._why or text.spans != self._why.spans:
            self._why = text
            where.update(text)


def _wants(request: Request, name: str) -> int:
    need = request.needs.get(name)
    return request.credit * need.needed if need else 0


def _class_cells(name: str, entry: ClassStatus, wanted: int, width: int) -> list[Cell]:
    total = max(1, entry.total)
    held = bar(entry.held / total, width).rstrip()
    blocked = "▒" * min(width - len(held), round(width * entry.blocked / total))
    return [
        (name, "bold"),
        count(entry.total),
        (count(entry.free), "free"),
        (count(entry.held), "held"),
        (count(entry.blocked), "blocked"),
        [(held, "held"), (blocked, "blocked")],
        count(wanted) if wanted else ("·", "dim"),
    ]
