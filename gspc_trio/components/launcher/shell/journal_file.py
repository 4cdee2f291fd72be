"""Directory with the journal of a study, for the launcher that goes on when this one is killed."""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from gspc_trio.components.launcher.journal import StudyHead
from gspc_trio.components.launcher.options import BadOption
from gspc_trio.protocol.plain import BadPlainData, from_json, to_json
from gspc_trio.records.shell.own_directory import own_directory

log = logging.getLogger(__name__)

_FILE, _INCOMPLETE = "study.journal", "incomplete"


class StudyJournal:
    """A journal that is open for one launcher.

    It is written for a launcher that is killed: what it has written is with the operating system by then.

    Args:
        directory: in which it is.

    Attributes:
        head: of the study in it; None: there is none yet.
        lines: of its events.
        age_s: how long ago the last was written.

    Raises:
        BadOption: it cannot be used, or another launcher has it.
    """

    def __init__(self, directory: Path) -> None:
        self.head: StudyHead | None = None
        self.lines: list[str] = []
        self.age_s = 0.0
        self._path = directory / _FILE
        self._file: int | None = None
        self._stack = ExitStack()
        try:
            self._stack.enter_context(own_directory(directory, "journal: another launcher uses", _refuse))
            self._read()
        except OSError as error:
            self.close()
            raise BadOption(f"journal: {self._path}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        if (incomplete := self._path.with_name(_INCOMPLETE)).exists():
            raise BadOption(
                f"journal: {incomplete} could not be written to its end: look for jobs of its study by hand, "
                "and name another directory"
            )
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except ValueError as error:
            raise BadOption(f"journal: {self._path} is no journal of a study") from error
        whole = text[: text.rfind("\n") + 1]  # the launcher may have been killed while it wrote
        head, *self.lines = whole.splitlines() or [""]
        try:
            self.head = from_json(head, StudyHead)
        except BadPlainData as error:
            raise BadOption(f"journal: {self._path} is no journal of a study") from error
        self.age_s = max(0.0, time.time() - self._path.stat().st_mtime)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.ftruncate(self._file, len(whole.encode("utf-8")))

    def begin(self, head: StudyHead) -> None:
        """Begin the journal of a new study.

        Raises:
            BadOption: it cannot be written.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.open(self._path, flags, 0o600)
            _write(self._file, to_json(head) + "\n")
        except OSError as error:
            raise BadOption(f"journal: {self._path}: {error.strerror}") from error

    def note(self, line: str) -> None:
        """Write a line; when the disk does not take it, the study goes on without a journal."""
        if self._file is None:
            return
        try:
            _write(self._file, line)
        except OSError as error:
            log.error("%s: %s; no other launcher can go on with this study", self._path, error.strerror)
            os.close(self._file)
            self._file = None
            with suppress(OSError):
                self._path.rename(self._path.with_name(_INCOMPLETE))

    def close(self) -> None:
        """Let another launcher have it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._stack.close()


def _write(descriptor: int, text: str) -> None:
    data = memoryview(text.encode("utf-8"))
    while data:
        data = data[os.write(descriptor, data) :]


def _refuse(line: str) -> BadOption:
    return BadOption(line if line.startswith("journal: ") else f"journal: {line}")
