"""The sites: batch systems with their blocks, and the run-time systems of jobs that have several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, starmap
from typing import ClassVar

from textual.app import ComposeResult

from gspc_trio.components.job.locations.lines import describe_location
from gspc_trio.components.job.messages import GetJobStatus, LocationStatus
from gspc_trio.components.rts.site_lines import describe_site
from gspc_trio.components.rts.site_messages import BlockStatus, ListSites, SiteStatus
from gspc_trio.core.ids import JobId
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.model import RTS
from gspc_trio.tui.palette import state_cell
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import duration, plural
from gspc_trio.tui.views.base import View

ASKED_MAX = 8
"""So many jobs are asked for their run-time systems."""

ASK_INTERVAL_S = 2.0
"""Seconds between two questions for scores, throttles and use, of which records do not tell."""

Row = tuple[tuple[str, ...], list[Cell], str]
"""The words of a row that a filter looks at, its cells, and what Enter shows: a site, or a text."""


class Sites(View):
    """The run-time systems of jobs that have several; each batch system, and below it its blocks."""

    NAME: ClassVar[str] = "sites"
    KEY: ClassVar[str] = "h"
    HELP: ClassVar[str] = (
        "The run-time systems of each job that has several: how they are, what is there, how much of it the "
        "job holds and asks for, and how long a task and its data take there. Below them each batch system "
        "that is asked for hosts (a site): how it is, how many of its slots are used, its score, whether it "
        "is banned, its throttles. Below it its batch jobs (blocks): the number that the batch system gave, "
        "nodes and cores, the time left, tasks and cores that are busy, and why it waits. Enter shows all "
        "that is known of a site."
    )

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, SiteStatus] = {}
        self._locations: dict[JobId, tuple[LocationStatus, ...]] = {}
        self._asked_s = 0.0
        self._rows: list[Row] = []

    def parts(self) -> ComposeResult:
        """Return the title and the list."""
        yield Lines(id="sites-title")
        yield WindowTable(
            Column("site or block", 14),
            Column("state", 11),
            Column("job", 8),
            Column("shape", 14),
            Column("left", 7, right=True),
            Column("use/score", 9, right=True),
            Column("why"),
            empty="no job uses several run-time systems (gspc-jobserver run --rts NAME=FILE --rts ...), "
            "and no batch system is asked for hosts (gspc-rts site add)",
        )

    def entered(self) -> None:
        """Ask for the sites at once."""
        self._asked_s = 0.0

    def draw(self) -> None:
        """Show how things are now."""
        now_s, sites = self.model.now_s, self.model.rts.sites
        if abs(now_s - self._asked_s) >= ASK_INTERVAL_S and not self.top.source.why_not:
            self._asked_s = now_s
            self.run_worker(self._ask(), exclusive=True)
        rows = chain(
            chain.from_iterable(starmap(_of_job, self._locations.items())),
            chain.from_iterable((self._site(name), *self._blocks(name)) for name in sites),
        )
        self._rows = shown = [row for row in rows if self.fits(row[0])]
        self.table.show([" ".join(words[:1]) for words, _, _ in shown], lambda at: shown[at][1])
        blocks = self.model.rts.blocks.values()
        running = sum(block.up > 0 for block in blocks)
        title = f" {plural(len(sites), 'site')}   {plural(len(blocks), 'block')}, {running} with hosts"
        if self._locations:
            number = sum(map(len, self._locations.values()))
            title += f"   {plural(number, 'run-time system')} of {plural(len(self._locations), 'job')}"
        self.query_one("#sites-title", Lines).show(title)

    def on_window_table_chosen(self) -> None:
        """Show all that is known of what the row is about, or of the site of a block."""
        at = self.table.cursor
        chosen = self._rows[at][2] if at < len(self._rows) else ""
        told = self._told.get(chosen)
        if told is None and chosen not in self.model.rts.sites and chosen:
            self.top.show_text("run-time system", chosen.replace("; ", "\n"))
        elif told is not None:
            whys = [f"{block.block_id}: {block.why}" for block in told.blocks]
            self.top.show_text(f"site {told.site}", "\n".join([*describe_site(told), *whys]))

    async def _ask(self) -> None:
        """Ask for what records do not tell."""
        if self.model.rts.sites:
            listed, _ = await self.top.ask_quietly(None, ListSites())
            self._told = {} if listed is None else {site.site: site for site in listed.sites}
        locations: dict[JobId, tuple[LocationStatus, ...]] = {}
        for job in sorted(self.model.connected)[:ASKED_MAX]:
            status, _ = await self.top.ask_quietly(job, GetJobStatus())
            if status is not None and status.locations:
                locations[job] = status.locations
        self._locations = locations
        self.top.draw()

    def _site(self, name: str) -> Row:
        record, told = self.model.rts.sites[name], self._told.get(name)
        there = sum(block.site == name for block in self.model.rts.blocks.values())
        left = duration(told.retry_in_s) if told is not None else ""
        cells: list[Cell] = [
            (name, "bold"),
            state_cell(record.state),
            record.provider,
            f"{there}/{record.slots} slots",
            left,
            f"{told.score:.3g}" if told is not None else "",
            "; ".join(filter(None, (record.detail, *_standing(told)))),
        ]
        return (name, record.state, record.provider), cells, name

    def _blocks(self, name: str) -> Iterator[Row]:
        told = self._told.get(name)
        statuses = {block.block_id: block for block in told.blocks} if told is not None else {}
        for block in self.model.rts.blocks.values():
            if block.site != name:
                continue
            left_s = None
            if block.ends_at_s is not None:
                left_s = max(0.0, self.model.wall_of(RTS, block.ends_at_s) - self.model.now_s)
            cells: list[Cell] = [
                f"  {block.block_id}",
                state_cell(block.state),
                block.batch_id,
                f"{block.up}/{block.nodes}×{block.cores // max(1, block.nodes)} {duration(block.walltime_s)}",
                duration(left_s),
                _use(statuses.get(block.block_id)),
                block.detail,
            ]
            yield (block.block_id, block.state, block.batch_id, name), cells, name


def _of_job(job: JobId, locations: Iterable[LocationStatus]) -> Iterator[Row]:
    """Yield a row for each of the run-time systems of a job."""
    for at in locations:
        cores, busy = at.there.get("core", 0), at.held.get("core", 0)
        nodes = at.there.get("node", 0)
        whys = [at.detail, f"{at.asked} asked for" if at.asked else ""]
        if at.waited_s:
            whys.append(f"waited {at.waited_s:.1f} s")
        if at.run_s:
            whys.append(f"a task takes {duration(at.run_s)}, its data {at.transfer_s:.3g} s")
        cells: list[Cell] = [
            (at.name, "bold"),
            state_cell(at.state),
            job,
            f"{cores} core" + (f", {nodes} node" if nodes else ""),
            "",
            f"{busy}/{cores}",
            "; ".join(filter(None, whys)),
        ]
        yield (at.name, at.state, job), cells, describe_location(at)


def _standing(told: SiteStatus | None) -> Iterator[str]:
    """Yield what speaks against more blocks, and how much of throttles that limit is used."""
    if told is not None:
        yield told.ban
        for throttle in told.throttles:
            if throttle.used and throttle.limit is not None:
                yield f"{throttle.name} {throttle.used}/{throttle.limit}"


def _use(block: BlockStatus | None) -> str:
    """Return how many of its cores are busy."""
    return "" if block is None or not block.up else f"{block.busy_cores}/{block.cores}"
