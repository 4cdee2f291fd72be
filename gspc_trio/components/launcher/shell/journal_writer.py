"""Writer of the journal of a study, off the launcher's loop; what follows from an event waits for it."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable

import trio

from gspc_trio.components.launcher.journal import StudyFile
from gspc_trio.components.launcher.shell.journal_file import StudyJournal
from gspc_trio.components.launcher.shell.turns import DrivenAction
from gspc_trio.nursery.scopes.news import News

log: logging.Logger = logging.getLogger(__name__)

HOLD_S = 2.0
"""Actions wait no longer for the disk; should the launcher be killed then, its journal lacks them."""

CHARACTERS_MAX = 64 << 20
"""Lines that may wait for a disk that does not answer; then the study goes on without a journal."""


class JournalWriter:
    """Notes what a launcher is told, and has what follows done when that is durable, in order.

    Lines gather while the disk is busy, and are made durable together.

    Args:
        journal: which has begun.
        perform: carries out an action.
        begin_file: called at once when a new file is to begin; returns what makes its beginning, in a thread.
    """

    def __init__(
        self,
        journal: StudyJournal,
        perform: Callable[[DrivenAction], None],
        begin_file: Callable[[], Callable[[], StudyFile]],
    ) -> None:
        self._journal = journal
        self._perform = perform
        self._begin_file = begin_file
        self._lines: list[str] = []
        self._characters = 0
        self._held: deque[DrivenAction] = deque()
        self._taken = self._done = 0
        """How many actions were taken, and done."""
        self._free = 0.0
        """How many may be done: those whose events are durable."""
        self._is_writing = self._is_late = self._is_open = self._is_given_up = self._is_performing = False
        self._problem = ""
        """Why the study goes on without a journal, "" while it has one."""
        self._news, self._idle = News(), News()

    def note(self, line: str) -> None:
        """Take the line of an event; the actions that follow from it come next."""
        if self._problem:
            return
        self._lines.append(line)
        self._characters += len(line)
        if self._characters > CHARACTERS_MAX:
            self._give_up("the disk does not answer")
        self._news.tell()

    def do(self, action: DrivenAction) -> None:
        """Have an action carried out when all that it follows from is durable."""
        self._held.append(action)
        self._taken += 1
        self._release()

    def open(self) -> None:
        """Hold nothing up any more: the study is stopped, and that is not to wait for a disk."""
        self._is_open = True
        self._release()

    @property
    def _has_unwritten(self) -> bool:
        return bool(self._lines) or self._is_writing or (self._problem != "" and not self._is_given_up)

    def _release(self) -> None:
        """Carry out what may be; an action may have others follow."""
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._held and self._done < self._limit():
                self._done += 1
                self._perform(self._held.popleft())
        finally:
            self._is_performing = False

    def _limit(self) -> float:
        is_free = self._is_open or self._is_late or self._problem or not self._has_unwritten
        return math.inf if is_free else self._free

    async def run(self) -> None:
        """Write until cancelled, or until the journal is given up."""
        while not self._problem:
            if not self._lines:
                self._idle.tell()
                await self._news.wait()
                continue
            lines, self._lines, self._characters = self._lines, [], 0
            upto, self._is_writing = self._taken, True
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._lose_patience)
                    upto = await self._write(lines, upto)
                    nursery.cancel_scope.cancel()
            finally:
                self._is_writing = self._is_late = False
            self._free = upto
            self._release()
        log.error("journal: %s: %s; no other launcher can go on", self._journal.name, self._problem)
        await trio.to_thread.run_sync(self._journal.give_up)
        self._is_given_up = True
        self._idle.tell()

    async def _write(self, lines: list[str], upto: int) -> int:
        """Make lines durable; return how many of the actions follow from what is durable."""
        try:
            await self._journal.append(lines)
            if self._journal.is_large and not self._problem:
                # What has come meanwhile is in what the launcher knows now.
                upto, self._lines, self._characters = self._taken, [], 0
                await self._journal.begin(self._begin_file())
        except OSError as error:
            self._give_up(str(error.strerror))
        return upto

    async def _lose_patience(self) -> None:
        await trio.sleep(HOLD_S)
        log.warning("journal: the disk of %s is slow: nothing waits for it meanwhile", self._journal.name)
        self._is_late = True
        self._release()

    def _give_up(self, reason: str) -> None:
        self._problem = reason
        self._lines.clear()
        self._release()

    async def finish(self) -> None:
        """Return when all lines are durable."""
        while self._has_unwritten:
            await self._idle.wait()
