"""Directory of a study: in a file system that the nodes see, too, slow at times, and so for threads."""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.launcher.shell.http_file import SECRETS
from gspc_trio.components.launcher.study_job import JobProcess, StudyJob
from gspc_trio.components.provision.batch import CommandResult
from gspc_trio.components.provision.shell.block_folders import last_lines, open_regular

log: logging.Logger = logging.getLogger(__name__)

STATUS_BYTES_MAX = 64

LINES_MAX = 10
"""So many of the last lines of a file are shown."""


class StudyFolder:
    """The directory of all files of one study, for as long as its launcher runs.

    Attributes:
        path: absolute path.
        secrets: the directory in it that its owner alone can read.
    """

    def __init__(self, path: Path, lock: int, *, had_study: bool = False) -> None:
        self.path = path
        self.secrets: Path = path / SECRETS
        self._lock = lock
        self._had_study = had_study
        self._is_full = False

    @classmethod
    def make(cls, options: LauncherOptions, work_dir: Path) -> StudyFolder:
        """Return the directory that the options name, which is made if it is not there.

        Args:
            options: of the study.
            work_dir: the directory to which its name is relative.

        Raises:
            BadOption: it cannot be used, or another study has it.
        """
        path = work_dir / options.output_dir
        try:
            if options.output_dir:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path = _new_directory(work_dir / time.strftime("study-%Y%m%dT%H%M%S"))
            had_study = (path / SECRETS).exists()
            (path / SECRETS).mkdir(mode=0o700, exist_ok=True)
            lock = os.open(path / SECRETS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise BadOption(f"output_dir: {path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise BadOption(f"output_dir: {path}: another launcher runs there") from None
        except OSError:  # some file systems have no locks
            pass
        if had_study and not options.load_from_checkpoint:
            os.close(lock)
            raise BadOption(
                f"output_dir: {path} has the files of a study already: name another directory, or say "
                "load_from_checkpoint = true to go on there"
            )
        return cls(path, lock, had_study=had_study)

    def close(self) -> None:
        """Let another launcher have it; where no server was submitted, nothing of the study is left."""
        os.close(self._lock)
        if not self._had_study and not any(self.secrets.glob("server.*.json")):
            shutil.rmtree(self.secrets, ignore_errors=True)
            with suppress(OSError):  # it has other files
                self.path.rmdir()

    def server_file(self, incarnation: int) -> Path:
        """Return the file with the address of the launcher, and with the secret of a server."""
        return self.secrets / f"server.{incarnation}.json"

    def prepare(self, job: StudyJob, files: Mapping[str, str]) -> None:
        """Write the files of a job; what another study has left by their names is removed.

        Raises:
            OSError: they cannot be written.
        """
        for process in job.processes:
            Path(process.status).unlink(missing_ok=True)
            Path(process.cancel).unlink(missing_ok=True)
        for path, content in files.items():
            try:
                Path(path).write_text(content, encoding="utf-8")
            except OSError as error:  # the error of a full disk does not say which file it is
                raise OSError(error.errno, error.strerror, path) from error

    def save(self, kind: str, uid: int, result: CommandResult, with_empty: bool) -> None:
        """Write what a call of the engine has printed.

        Args:
            kind: of engine.
            uid: number of the call.
            result: of it.
            with_empty: whether to write empty files, too.
        """
        for ending, text in (("out", result.output), ("err", result.errors)):
            if text or with_empty:
                self._write(f"{kind}.{uid}.{ending}", text)

    def _write(self, name: str, text: str) -> None:
        """Write a file that nothing depends on."""
        try:
            (self.path / name).write_text(text, encoding="utf-8")
        except OSError as error:
            if not self._is_full:  # said once, not for each file
                log.warning("cannot write %s: %s", self.path / name, error.strerror)
            self._is_full = True
        else:
            self._is_full = False

    def ask_to_end(self, process: JobProcess) -> None:
        """Have the script of a job end one of its clients."""
        self._write(Path(process.cancel).name, "")

    def statuses(self, processes: Sequence[JobProcess]) -> dict[str, int]:
        """Return the exit statuses of those of the processes that have ended, by their paths."""
        found = {}
        for process in processes:
            with suppress(OSError, ValueError):
                with open_regular(process.status) as file:
                    found[process.path] = int(file.read(STATUS_BYTES_MAX))
        return found

    def statuses_anew(self, processes: Sequence[JobProcess]) -> dict[str, int]:
        """Return what nodes have written until now; see :meth:`statuses`.

        A network file system may show a directory as it was a minute ago. It asks anew when this host has
        changed the directory.
        """
        with suppress(OSError):
            path = self.path / ".look"
            path.touch()
            path.unlink()
        return self.statuses(processes)

    def last_lines(self, uid: int) -> list[str]:
        """Return the last lines that a job has printed, or the command that submits it."""
        names = sorted(path.name for path in self.path.glob(f"*.{uid}.*"))
        for ending in (".err", ".out"):
            lines = [line for name in names if name.endswith(ending) for line in self._last_lines(name)]
            if lines:
                return lines
        return []

    def _last_lines(self, name: str) -> list[str]:
        return last_lines(str(self.path / name))[-LINES_MAX:]


def _new_directory(path: Path) -> Path:
    """Make a directory, and return its path, which gets a number if there is one of this name.

    Raises:
        OSError: it cannot be made.
    """
    for number in itertools.count(1):
        one = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            one.mkdir(parents=True)
            break
    return one
