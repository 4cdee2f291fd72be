"""Files of the journal of a job: those of any journal, large values, and a note beside them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from gspc_trio.records.shell.durable_files import THIS_MACHINE, put_in_place
from gspc_trio.records.shell.journal_files import JournalFiles, journals_in, names_of
from gspc_trio.records.shell.own_directory import own_directory

_VALUE = "value."
_NOTE = "job"


class JournalError(ValueError):
    """The journal cannot be used; one line says why, and what to do."""


class JournalDirectory(JournalFiles):
    """Where the journal of a job lies; its name is for ``gspc-jobserver resume``, too.

    Files of before stay as long as they have results that are nowhere else: a changed workflow may want them.
    """

    def note(self, text: str) -> None:
        """Keep a small text beside the journal, in place of the one before; durable on return.

        Raises:
            OSError: the disk does not take it.
        """
        self._files.close(put_in_place(self._files, self._directory / _NOTE, text.encode()))

    def noted(self) -> str:
        """Return that text. Raises OSError if there is none."""
        return self._files.read(self._directory / _NOTE).decode()

    def values(self) -> list[str]:
        """Return the names of the files that are large values."""
        return names_of(self._files, self._directory, _VALUE)

    def put_value(self, name: str, data: bytes | memoryview) -> None:
        """Keep a large value under a name; durable on return. Raises OSError if the disk does not take it."""
        self._files.close(put_in_place(self._files, self._directory / name, data))

    def read_value(self, name: str) -> bytes:
        """Return it. Raises OSError if it is not there."""
        return self._files.read(self._directory / name)

    def remove_value(self, name: str) -> None:
        """Remove it, if it is there. Raises OSError if that cannot be."""
        self._files.remove(self._directory / name)


def has_journal(directory: Path) -> bool:
    """Whether there is a journal in a directory."""
    return bool(journals_in(THIS_MACHINE, directory))


def locked(directory: Path) -> AbstractContextManager[None]:
    """Keep other users and job servers out of a journal's directory for the time of a block.

    Raises:
        JournalError: others can look into it, or another job server uses it.
    """
    return own_directory(directory, "a job server that runs uses the journal", JournalError)
