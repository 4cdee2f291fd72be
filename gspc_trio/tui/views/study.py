"""The study: its server, its clients by state, and the jobs in which they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult

from gspc_trio.records.facts import StudyClientChanged, StudyJobChanged
from gspc_trio.records.study import CLIENT_STATES, StudyProgress
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.model import RTS
from gspc_trio.tui.palette import SYMBOLS, state_cell, style
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import duration, plural
from gspc_trio.tui.views.base import View

IDS_SHOWN = 4
"""Ids of clients that are named in a row."""


class Study(View):
    """The server of a study, its clients by state, and each job."""

    NAME: ClassVar[str] = "study"
    KEY: ClassVar[str] = "u"
    HELP: ClassVar[str] = (
        "A study that gspc-launcher runs: the number of its server (0 is the first), how it is, and when it "
        "has said something last. Then the clients by state, how many wait below the limit of jobs, how "
        "often the server was replaced, and how many connections were refused. Below that each job, the "
        "newest first. Enter shows all that is known of a job and its clients."
    )

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[StudyJobChanged | StudyClientChanged] = []

    def parts(self) -> ComposeResult:
        """Return the title and the list."""
        yield Lines(id="study-title")
        yield WindowTable(
            Column("uid", 6, right=True),
            Column("job", 10),
            Column("state", 13),
            Column("for", 7, right=True),
            Column("who", 22),
            Column("clients", 26, room=100),
            Column("why"),
            empty="no study is looked at (gspc-top --study DIR)",
        )

    @property
    def study(self) -> StudyProgress:
        """What is shown: the first study that is known."""
        return next(iter(self.model.rts.studies.values()), StudyProgress())

    def draw(self) -> None:
        """Show how things are now."""
        study, dark = self.study, bool(self.top.current_theme.dark)
        self._rows = rows = [row for row in _rows(study) if self.fits(_words(study, row))]
        self.table.show([_key(row) for row in rows], lambda at: self._cells(rows[at]))
        self.query_one("#study-title", Lines).show(Text("\n").join(self._title(study, dark)))

    def on_window_table_chosen(self) -> None:
        """Show all that is known of the job on whose row the cursor is."""
        at = self.table.cursor
        row = self._rows[at] if at < len(self._rows) else None
        if isinstance(row, StudyJobChanged):
            self.top.show_text(f"job {row.uid}", "\n".join(_details(self.study, row)))

    def _title(self, study: StudyProgress, dark: bool) -> Iterator[Text]:
        changed = study.changed
        if changed is None:
            yield Text(" no study")
            return
        line = Text(" study ").append(changed.study, style("bold", dark)).append(" is ")
        line.append(changed.state, style(changed.state, dark))
        yield line.append(f": {changed.detail}" if changed.detail else "")
        server = study.server_job()
        line = Text(f" server {changed.incarnation}")
        if server is not None:
            line.append(" is ").append(server.state, style(server.state, dark))
            line.append(f"  job {server.job_id}" if server.job_id else "")
        if changed.heard_at_s is not None:
            ago_s = self.model.now_s - self.model.wall_of(RTS, changed.heard_at_s)
            line.append(f"  last word: {changed.word}, {duration(max(0.0, ago_s))} ago")
        else:
            line.append("  it has said nothing yet")
        yield line
        counts = study.by_state()
        line = Text(f" {plural(sum(counts.values()), 'client')}")
        for state in CLIENT_STATES:
            if state in counts:
                line.append(f"  {SYMBOLS.get(state, '?')} {counts[state]} {state}", style(state, dark))
        yield line
        line = Text(f" {len(study.jobs)} of at most {plural(changed.job_limit, 'job')}")
        line.append(f"  {plural(changed.incarnation, 'restart')}")
        yield line.append(f"  {plural(changed.refusals, 'refused connection')}")
        if changed.stale:
            yield Text(f" the states may be old: {changed.stale}", style("warning", dark))

    def _cells(self, row: StudyJobChanged | StudyClientChanged) -> list[Cell]:
        since_s = max(0.0, self.model.now_s - self.model.wall_of(RTS, row.at_s))
        if isinstance(row, StudyClientChanged):
            who, states, uid = f"client {row.client_id}", "", ""
        else:
            who, states, uid = _who(row), _states(self.study, row), str(row.uid)
        return [uid, row.job_id, state_cell(row.state), duration(since_s), who, states, row.detail]


def _rows(study: StudyProgress) -> Iterator[StudyJobChanged | StudyClientChanged]:
    """Yield what is worth a row: jobs that are there, clients that wait, jobs that are gone."""
    yield from reversed(study.jobs.values())
    yield from (client for client in study.clients.values() if client.uid is None)
    yield from reversed(study.gone.values())


def _key(row: StudyJobChanged | StudyClientChanged) -> str:
    return f"job {row.uid}" if isinstance(row, StudyJobChanged) else f"client {row.client_id}"


def _words(study: StudyProgress, row: StudyJobChanged | StudyClientChanged) -> tuple[object, ...]:
    if isinstance(row, StudyClientChanged):
        return (f"client {row.client_id}", row.state)
    return (row.name, row.job_id, row.state, _who(row), _states(study, row), row.detail)


def _who(job: StudyJobChanged) -> str:
    if not job.client_ids:
        return f"server {job.incarnation}"
    ids = ", ".join(map(str, job.client_ids[:IDS_SHOWN]))
    more = " …" if len(job.client_ids) > IDS_SHOWN else ""
    return f"client{'' if len(job.client_ids) == 1 else 's'} {ids}{more}"


def _states(study: StudyProgress, job: StudyJobChanged) -> str:
    counts = Counter(client.state for client in study.clients_of(job))
    return ", ".join(f"{counts[state]} {state}" for state in CLIENT_STATES if counts[state])


def _details(study: StudyProgress, job: StudyJobChanged) -> Iterator[str]:
    yield f"name         {job.name}"
    yield f"state        {job.state}"
    yield f"job id       {job.job_id or 'not known yet'}"
    yield f"server       {job.incarnation}"
    if job.detail:
        yield f"why          {job.detail}"
    for client in study.clients_of(job):
        why = f": {client.detail}" if client.detail else ""
        yield f"client {client.client_id:<6}{client.state}{why}"
    yield ""
    yield f"what it has printed: gspc-launcher log --uid {job.uid}"
