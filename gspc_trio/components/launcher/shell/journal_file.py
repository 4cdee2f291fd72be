"""Directory with the journal of a study, for the launcher that goes on when this one is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from gspc_trio.components.launcher.journal import (
    MAGIC,
    BadStudyJournal,
    StudyFile,
    payload_of,
    payloads_of,
    read_file,
)
from gspc_trio.components.launcher.options import BadOption
from gspc_trio.records.journal_frames import BadJournal, Framer, Frames
from gspc_trio.records.shell.durable_files import THIS_MACHINE
from gspc_trio.records.shell.journal_files import JournalFiles, journals_in
from gspc_trio.records.shell.own_directory import own_directory

_INCOMPLETE = "incomplete"

FILE_BYTES_MAX = 4 * 2**20
"""Size at which a file gives way to one with a new beginning; twice the size of its own, if more."""


class StudyJournal:
    """A journal that is open for one launcher: one file, which is replaced when it has grown large.

    Args:
        directory: in which it is.
        file_bytes_max: when to begin a new file.

    Attributes:
        kept: what the newest file says; None: there is none.
        age_s: how long ago the last of it was written.

    Raises:
        BadOption: it cannot be used, or another launcher has it.
    """

    def __init__(self, directory: Path, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self.kept: StudyFile | None = None
        self.age_s: float = 0.0
        self._directory = directory
        self._disk = JournalFiles(directory)
        self._framer = Framer(MAGIC)
        self._size_bytes = self._bound_bytes = 0
        self._file_bytes_max = file_bytes_max
        self._stack = ExitStack()
        self._stack.callback(self._disk.close)
        try:
            self._stack.enter_context(own_directory(directory, "journal: another launcher uses", _refuse))
            self._read()
        except OSError as error:
            self.close()
            raise BadOption(f"journal: {directory}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return self._disk.name

    def _read(self) -> None:
        if (incomplete := self._directory / _INCOMPLETE).exists():
            raise BadOption(
                f"journal: {incomplete} could not be written to its end: look for jobs of its study by hand, "
                "and name another directory"
            )
        problem = ""
        for name, read in self._disk.read():
            path = self._directory / name
            try:
                self.kept = read_file(Frames(read(), MAGIC))
                self.age_s = max(0.0, time.time() - path.stat().st_mtime)
                return
            except (BadJournal, BadStudyJournal):
                problem = problem or f"journal: {path} is no journal of a study"
        if problem:
            raise BadOption(problem)

    async def begin(self, make: Callable[[], StudyFile]) -> None:
        """Begin a new file in the place of the one before; durable on return.

        Args:
            make: returns what it begins with; called in a thread.

        Raises:
            OSError: the disk does not take it.
        """
        data = await self._disk.compute(self._first_bytes, make)
        await self._disk.replace(data)
        self._size_bytes = len(data)
        self._bound_bytes = max(self._file_bytes_max, 2 * len(data))

    def _first_bytes(self, make: Callable[[], StudyFile]) -> bytes:
        self._framer = Framer(MAGIC)
        return MAGIC + b"".join(map(self._framer.frame, payloads_of(make())))

    async def append(self, lines: list[str]) -> None:
        """Add lines; durable on return.

        Raises:
            OSError: the disk does not take it.
        """
        data = b"".join(self._framer.frame(payload_of(line)) for line in lines)
        await self._disk.append(data)
        self._size_bytes += len(data)

    @property
    def is_large(self) -> bool:
        """Whether it is time for a new file."""
        return self._size_bytes > self._bound_bytes

    def give_up(self) -> None:
        """Have no launcher go on with this: the study goes on without a journal."""
        with suppress(OSError):
            for name in journals_in(THIS_MACHINE, self._directory):
                (self._directory / name).rename(self._directory / _INCOMPLETE)

    def close(self) -> None:
        """Let another launcher have it."""
        self._stack.close()


def _refuse(line: str) -> BadOption:
    return BadOption(line if line.startswith("journal: ") else f"journal: {line}")
