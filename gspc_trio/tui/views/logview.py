"""The log: what happened, the newest last."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gspc_trio.tui.news import Level, LogLine
from gspc_trio.tui.palette import LEVEL_SYMBOLS, level_name
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import clock
from gspc_trio.tui.views.base import View

LEAST = (Level.INFO, Level.WARNING, Level.ERROR)
"""Levels from which on lines are shown; one key goes through them."""


class Log(View):
    """Lines with time and source."""

    NAME: ClassVar[str] = "log"
    KEY: ClassVar[str] = "8"
    HELP: ClassVar[str] = (
        "What happened since this terminal was opened: hosts, jobs, failures, retries. f follows new lines, "
        "e hides what is no warning or no error, Enter shows a line whole."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow"),
        Binding("e", "least", "Level"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[LogLine] = []
        self._least = 0

    def parts(self) -> ComposeResult:
        """Return the list."""
        yield WindowTable(
            Column("time", 8), Column("", 1), Column("source", 10), Column("what"), empty="nothing yet"
        )

    def on_mount(self) -> None:
        """Follow new lines until the cursor is moved."""
        self.table.follow = True

    def draw(self) -> None:
        """Show how things are now."""
        least = LEAST[self._least]
        lines = [it for it in self.model.log if it.level >= least and self.fits((it.source, it.text))]
        self._lines = lines
        first = self.model.log_dropped
        self.table.show([str(first + n) for n in range(len(lines))], lambda at: _cells(lines[at]))

    def action_follow(self) -> None:
        """Show the newest line, and those that come."""
        self.draw()
        self.table.action_end(1)
        self.table.follow = True

    def action_least(self) -> None:
        """Show only warnings, or only errors, or everything."""
        self._least = (self._least + 1) % len(LEAST)
        self.draw()

    def on_window_table_chosen(self) -> None:
        """Show the line whole."""
        at = self.table.cursor
        if at < len(self._lines):
            line = self._lines[at]
            self.top.show_text(f"{clock(line.at_s)} {line.source}", line.text)


def _cells(line: LogLine) -> list[Cell]:
    name = level_name(line.level)
    text = line.text if line.level <= Level.GOOD else (line.text, name)
    return [clock(line.at_s), (LEVEL_SYMBOLS[line.level], name), line.source, text]
