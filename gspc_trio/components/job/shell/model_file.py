"""Files of performance models: read at the start, written while a job runs and when it ends.

A file is replaced by rename, under its own lock; what other jobs have written meanwhile is merged.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import trio

from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.model_text import BadModel, model_text, read_model
from gspc_trio.policies.performance_model import PerformanceModel, merged

log: logging.Logger = logging.getLogger(__name__)

SAVE_INTERVAL_S = 60.0
"""So often what was learned is written."""

LOCK_TIMEOUT_S = 2.0
LOCK_RETRY_S = 0.02
"""How long others may take to write the file."""

BYTES_MAX = 1 << 28
"""A larger file is no model."""


class ModelFile:
    """A performance model that is kept in a file.

    Args:
        path: of the file; it is made if it is not there.

    Attributes:
        path: what it is after links were followed.
        model: what is known; whoever learns changes it.

    Raises:
        BadModel: the file holds something else.
        OSError: it cannot be read or written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path: Path = Path(os.path.realpath(path) if os.path.islink(path) else path)
        change_file(self.path, lambda model: model)
        self.model: PerformanceModel = read_file(self.path)
        self._base = self.model.copy()

    async def save_regularly(self) -> None:
        """Write what was learned from time to time until this is cancelled."""
        while True:
            await trio.sleep(SAVE_INTERVAL_S)
            await self.save()

    async def save(self) -> None:
        """Write what was learned since the last time, if anything; what keeps it from that is logged."""
        own, base = self.model.copy(), self._base
        if own == base:
            return
        try:
            kept = await trio.to_thread.run_sync(
                change_file, self.path, lambda others: merged(base, own, others)
            )
        except (BadModel, OSError) as error:
            log.warning("what was learned of run times was not written: %s", error)
            return
        now = merged(own, self.model, kept)  # it may have learned more meanwhile
        self.model.curves, self.model.stated = now.curves, now.stated
        self._base = kept


@asynccontextmanager
async def open_model_file(path: Path | str) -> AsyncIterator[ModelFile]:
    """Read a performance model, write what is learned in the block from time to time, and at its end.

    Raises:
        BadModel, OSError: it cannot be used.
    """
    file = await trio.to_thread.run_sync(ModelFile, path)
    async with open_scope() as nursery:
        nursery.start_soon(file.save_regularly)
        try:
            yield file
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await file.save()


def read_file(path: Path) -> PerformanceModel:
    """Return the model in a file.

    Raises:
        BadModel: there is something else in it; the message names the file and the line.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would not open
    try:
        return _read(path, descriptor)
    finally:
        os.close(descriptor)


def change_file(path: Path, change: Callable[[PerformanceModel], PerformanceModel]) -> PerformanceModel:
    """Replace the model in a file, which is made if it is not there, by what becomes of it; return that.

    Raises:
        BadModel: there is something else in the file; it stays as it is.
        OSError: it cannot be read or written, or others are at it.
    """
    with _locked(path) as descriptor:
        before = _read(path, descriptor)
        after = change(before.copy())
        if after != before or not os.fstat(descriptor).st_size:
            _replace(path, model_text(after), os.fstat(descriptor).st_mode & 0o777)
        return after


def _read(path: Path, descriptor: int) -> PerformanceModel:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise BadModel(f"{path} is no regular file")
    if status.st_size > BYTES_MAX:
        raise BadModel(f"{path} has more than {BYTES_MAX} bytes, which no performance model has")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        data = file.read()
    if not data:  # it is new
        return PerformanceModel()
    try:
        return read_model(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadModel(f"{path}, line {line}: this is no text in UTF-8") from None
    except BadModel as error:
        raise BadModel(f"{path}, {error}") from None


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file, and keep others from replacing it."""
    until_s = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            if _lock(descriptor) and _is_still(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > until_s:
            raise BlockingIOError(f"{path} is being written by others for {LOCK_TIMEOUT_S:g} s")
        time.sleep(LOCK_RETRY_S)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Return whether the file was not replaced before it was locked."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _replace(path: Path, text: str, mode: int) -> None:
    new = path.with_name(f".{path.name}.new")  # one that was left behind is overwritten
    try:
        with new.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
