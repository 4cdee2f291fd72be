"""Directory with the journal of a co-allocation service."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from gspc_trio.components.coallocation.journal import (
    MAGIC,
    CoallocationRecord,
    NotedRequests,
    frames_of,
    read_records,
)
from gspc_trio.records.journal_frames import BadJournal, Framer
from gspc_trio.records.shell.journal_files import JournalFiles
from gspc_trio.records.shell.own_directory import own_directory

FILE_BYTES_MAX = 4 << 20
"""Size at which a file gives way to a new one, or twice the size that it began with, if that is more."""


class CoallocationJournal:
    """A journal that is open for one service.

    Args:
        directory: in which it is.

    Attributes:
        noted: what it says.

    Raises:
        BadJournal: it cannot be used, or another service has it.
    """

    def __init__(self, directory: Path) -> None:
        self.noted: NotedRequests = NotedRequests()
        self._disk = JournalFiles(directory)
        self._framer = Framer(MAGIC)
        self._size_bytes = self._bound_bytes = 0
        self._stack = ExitStack()
        self._stack.callback(self._disk.close)
        try:
            self._stack.enter_context(own_directory(directory, "another service uses", BadJournal))
            for _, read in self._disk.read():
                self.noted = read_records(read())
                break
            self._begin_file()
        except OSError as error:
            self.close()
            raise BadJournal(f"{directory}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def append(self, records: Iterable[CoallocationRecord]) -> None:
        """Add records; durable on return.

        Raises:
            OSError: the disk does not take it.
        """
        records = tuple(records)
        for record in records:
            self.noted.take(record)
        data = frames_of(self._framer, records)
        self._disk.append_now(data)
        self._size_bytes += len(data)
        if self._size_bytes > self._bound_bytes:
            self._begin_file()

    def _begin_file(self) -> None:
        self._framer = Framer(MAGIC)
        data = MAGIC + frames_of(self._framer, self.noted.records())
        self._disk.replace_now(data)
        self._size_bytes, self._bound_bytes = len(data), max(FILE_BYTES_MAX, 2 * len(data))

    def close(self) -> None:
        """Let another service have it."""
        self._stack.close()
