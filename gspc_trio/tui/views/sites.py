"""The sites and their blocks: what batch systems were asked for, and what has come of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

from textual.app import ComposeResult

from gspc_trio.components.rts.site_lines import describe_site
from gspc_trio.components.rts.site_messages import BlockStatus, ListSites, SiteStatus
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.model import RTS
from gspc_trio.tui.palette import state_cell
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import duration, plural
from gspc_trio.tui.views.base import View

ASK_INTERVAL_S = 2.0
"""Seconds between two questions for scores, throttles and use, of which records do not tell."""

Row = tuple[tuple[str, ...], list[Cell], str]
"""The words of a row that a filter looks at, its cells, and the site that Enter shows."""


class Sites(View):
    """Each site, and below it its blocks."""

    NAME: ClassVar[str] = "sites"
    KEY: ClassVar[str] = "h"
    HELP: ClassVar[str] = (
        "Each batch system that is asked for hosts (a site): how it is, how many of its slots are used, its "
        "score, whether it is banned, its throttles. Below it its batch jobs (blocks): the number that the "
        "batch system gave, nodes and cores, the time left, tasks and cores that are busy, and why it waits. "
        "Enter shows all that is known of a site."
    )

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, SiteStatus] = {}
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
            empty="no batch system is asked for hosts (gspc-rts site add)",
        )

    def entered(self) -> None:
        """Ask for the sites at once."""
        self._asked_s = 0.0

    def draw(self) -> None:
        """Show how things are now."""
        now_s, sites = self.model.now_s, self.model.rts.sites
        if abs(now_s - self._asked_s) >= ASK_INTERVAL_S and sites and not self.top.source.why_not:
            self._asked_s = now_s
            self.run_worker(self._ask(), exclusive=True)
        rows = chain.from_iterable((self._site(name), *self._blocks(name)) for name in sites)
        self._rows = shown = [row for row in rows if self.fits(row[0])]
        self.table.show([" ".join(words[:1]) for words, _, _ in shown], lambda at: shown[at][1])
        blocks = self.model.rts.blocks.values()
        running = sum(block.up > 0 for block in blocks)
        self.query_one("#sites-title", Lines).show(
            f" {plural(len(sites), 'site')}   {plural(len(blocks), 'block')}, {running} with hosts"
        )

    def on_window_table_chosen(self) -> None:
        """Show all that is known of the site on whose row, or on a row of whose blocks, the cursor is."""
        at = self.table.cursor
        told = self._told.get(self._rows[at][2]) if at < len(self._rows) else None
        if told is not None:
            whys = [f"{block.block_id}: {block.why}" for block in told.blocks]
            self.top.show_text(f"site {told.site}", "\n".join([*describe_site(told), *whys]))

    async def _ask(self) -> None:
        """Ask for what records do not tell."""
        listed, _ = await self.top.ask_quietly(None, ListSites())
        self._told = {} if listed is None else {site.site: site for site in listed.sites}
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
