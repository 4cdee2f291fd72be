"""Plays the record file of a run: at any speed, with pause, step and seek."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import cast

from attrs import define

from gspc_trio.components.monitor.reports import GetIo, IoReport
from gspc_trio.core.ids import JobId
from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.records.facts import Record, StreamOpened, StudyRecord
from gspc_trio.records.lines import BadRecordLine, decode_records
from gspc_trio.tui.model import Model
from gspc_trio.tui.source import CannotAsk
from gspc_trio.tui.text import duration

CHECKPOINT_RECORDS = 50_000
"""Records between two states that are kept, so that going back does not begin at the beginning."""

ADVANCE_RECORDS_MAX = 20_000
"""Records that are taken at one time; a replay that cannot keep up is slower than it was told to be."""

TAIL_BYTES = 64 * 1024
"""End of the file in which its last record is looked for."""

SPEED_MIN, SPEED_MAX = 1 / 64, 4096.0


class BadRecordFile(ValueError):
    """The file is no record file; the message is one line for people."""


@define
class _Checkpoint:
    """A state of the fold, and where in the file it goes on: with which record of the line at an offset."""

    at_s: float
    offset: int
    index: int
    model: Model


class Player:
    """Folds a record file up to a time that can be moved.

    Times are seconds since the first record.

    Args:
        path: a file that ``--records`` has written; it may still be growing.

    Attributes:
        model: the fold up to ``position_s``.
        position_s, length_s: where it is, and how long the run was.
        speed: seconds of the run for each second.
        skipped: lines that were no records, e.g. a last one that was not written whole.

    Raises:
        OSError: the file cannot be read.
        BadRecordFile: there is no record in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model: Model = Model()
        self.position_s: float = 0.0
        self.speed: float = 1.0
        self.paused: bool = False
        self.skipped: int = 0
        self._file = path.open("rb")
        try:
            self._opened, first_s, last_s = self._find_ends()
        except BadRecordFile:
            self._file.close()
            raise
        self.of_study: bool = self._tells_of_study()
        self._begin_s = first_s
        self.length_s: float = max(0.0, last_s - first_s)
        self._checkpoints = [_Checkpoint(0.0, 0, 0, self.model.copy())]
        self._since_checkpoint = 0
        self._next: Record | None = None
        self._line: list[Record] = []  # the records of the line at the offset; the next one is at the index
        self._line_offset = self._index = 0
        self._restore(self._checkpoints[0])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def at_end(self) -> bool:
        """Whether there is nothing more in the file."""
        return self._next is None

    def faster(self, factor: float) -> None:
        """Multiply the speed."""
        self.speed = max(SPEED_MIN, min(SPEED_MAX, self.speed * factor))

    def advance(self, elapsed_s: float) -> None:
        """Play on for so many seconds of the viewer's time."""
        if not self.paused and not self.at_end:
            self._play_to(self.position_s + elapsed_s * self.speed, ADVANCE_RECORDS_MAX)

    def step(self, number: int = 1) -> None:
        """Pause, and take so many records."""
        self.paused = True
        for _ in range(number):
            if self._next is not None:
                self.position_s = max(self.position_s, self._time_of(self._next))
                self._take()
        self._tick()

    def seek(self, at_s: float) -> None:
        """Go to a time of the run."""
        at_s = max(0.0, min(self.length_s, at_s))
        if at_s < self.position_s:
            self._restore(max((it for it in self._checkpoints if it.at_s <= at_s), key=lambda it: it.at_s))
        self._play_to(at_s, None)

    def seek_text(self, text: str) -> None:
        """Go to a time as people write it: ``90``, ``1:30``, ``0:01:30`` or ``50%``.

        Raises:
            ValueError: it is no time; the message says what is.
        """
        text = text.strip()
        if re.fullmatch(r"\d+(\.\d+)?%", text):
            self.seek(self.length_s * float(text[:-1]) / 100)
        elif re.fullmatch(r"(\d+:){0,2}\d+(\.\d+)?", text):
            seconds = 0.0
            for part in text.split(":"):
                seconds = 60 * seconds + float(part)
            self.seek(seconds)
        else:
            raise ValueError(f"{text!r} is no time of this run: write 1:30, 90 or 50%")

    # Reading ------------------------------------------------------------------------------------------------

    def _find_ends(self) -> tuple[StreamOpened | None, float, float]:
        """Return the head of the stream and the times of the first and the last record."""
        first = next((record for line in self._file for record in self._decode(line)), None)
        if first is None:
            raise BadRecordFile(f"{self.path} is no record file: there is no record in it")
        size_bytes, tail_bytes = os.fstat(self._file.fileno()).st_size, TAIL_BYTES
        while True:
            self._file.seek(max(0, size_bytes - tail_bytes))
            times = [record.at_s for line in self._file for record in self._decode(line)]
            if times or tail_bytes >= size_bytes:
                break
            tail_bytes *= 8  # the last line is longer
        self._file.seek(0)
        self.skipped = 0
        return first if isinstance(first, StreamOpened) else None, first.at_s, max(first.at_s, *times)

    def _tells_of_study(self) -> bool:
        """Return whether the first records are those of a launcher."""
        first = [record for line in islice(self._file, 3) for record in self._decode(line)]
        self._file.seek(0)
        self.skipped = 0
        return any(isinstance(record, StudyRecord) for record in first)

    def _decode(self, line: bytes) -> list[Record]:
        try:
            return decode_records(line)
        except BadRecordLine:
            self.skipped += 1
            return []

    def _fetch(self) -> Record | None:
        self._index += 1
        while self._index >= len(self._line):
            self._line_offset, self._index = self._file.tell(), 0
            line = self._file.readline()
            if not line:
                return None
            self._line = self._decode(line)
        return self._line[self._index]

    def _time_of(self, record: Record) -> float:
        return record.at_s - self._begin_s

    # Folding ------------------------------------------------------------------------------------------------

    def _restore(self, checkpoint: _Checkpoint) -> None:
        self._file.seek(checkpoint.offset)
        self._line, self._since_checkpoint = [], 0
        self.model = checkpoint.model.copy()
        self.position_s = checkpoint.at_s
        self._next = self._fetch()
        if self._next is not None and checkpoint.index:
            self._index = checkpoint.index
            self._next = self._line[self._index]
        self._tick()

    def _take(self) -> None:
        assert self._next is not None
        self.model.apply_file(self._next)
        self._next = self._fetch()
        self._since_checkpoint += 1

    def _play_to(self, at_s: float, records_max: int | None) -> None:
        """Take the records up to a time, second by second, so that series have a value for each."""
        taken = 0
        while self._next is not None and self._time_of(self._next) <= at_s:
            self.position_s = max(self.position_s, self._time_of(self._next))
            self._tick()
            if self._since_checkpoint >= CHECKPOINT_RECORDS and self.position_s > self._checkpoints[-1].at_s:
                self._keep_checkpoint()
            self._take()
            taken += 1
            if records_max is not None and taken >= records_max:
                return
        self.position_s = max(self.position_s, min(at_s, self.length_s))
        if self._next is None:
            self.position_s = self.length_s
        self._tick()

    def _keep_checkpoint(self) -> None:
        """Keep the state before the next record."""
        self._checkpoints.append(
            _Checkpoint(self.position_s, self._line_offset, self._index, self.model.copy())
        )
        self._since_checkpoint = 0

    def _tick(self) -> None:
        offset_s = self._opened.wall_offset_s if self._opened is not None else 0.0
        self.model.tick(self._begin_s + self.position_s + offset_s)


class ReplaySource:
    """A record file as the source of a terminal.

    Args:
        player: of the file.
        look: returns what a store of metrics knows up to a moment, in seconds since 1970; None: there is
            no store.

    Raises:
        CannotAsk: by ``look``, the store cannot be read.
    """

    why_not = "this is a replay: there is nothing to change"

    def __init__(self, player: Player, look: Callable[[GetIo, float], IoReport] | None = None) -> None:
        self.player = player
        self._look = look

    @property
    def model(self) -> Model:
        """The fold up to where the replay is."""
        return self.player.model

    @model.setter
    def model(self, _: Model) -> None:
        raise AttributeError("a replay makes its model itself")

    def start(self) -> None:
        """Nothing is to be started."""

    async def stop(self) -> None:
        """Close the file."""
        self.player.close()

    def beat(self, elapsed_s: float) -> None:
        """Play on."""
        self.player.advance(elapsed_s)

    def title(self) -> tuple[str, str]:
        """Return where the replay is, and how fast it goes."""
        player = self.player
        state = "paused" if player.paused else "end" if player.at_end else f"{player.speed:g}x"
        share = player.position_s / player.length_s if player.length_s else 1.0
        done = round(10 * share)
        where = f"{duration(player.position_s)} of {duration(player.length_s)}"
        bad = f"  {player.skipped} lines could not be read" if player.skipped else ""
        return f"replay {state} {'━' * done}{'─' * (10 - done)} {where}{bad}", "ready"

    async def ask(self, job: JobId | None, message: Question[AnswerT]) -> AnswerT:
        """Return what the store knows; refuse all else: nobody can be asked."""
        if job is None and isinstance(message, GetIo):
            if self._look is None:
                raise CannotAsk("a file of records does not tell this: add --store DIR of --monitor")
            report = await asyncio.to_thread(self._look, message, self.model.now_s)
            return cast("AnswerT", report)
        raise CannotAsk(self.why_not)
