"""What tasks of foreign workflows and of pools run, in the processes that compute."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from gspc_trio.core.published import publish

BLOCK_BYTES = 1024 * 1024
_BURN_BYTES = 256 * 1024
"""hashlib lets go of the interpreter for so much at a time, so that threads run beside each other."""


class SyntheticFile(Struct, frozen=True):
    """A file that a task makes.

    Attributes:
        name: in the directory of the task.
        size_bytes: of the file, zeros.
    """

    name: str
    size_bytes: int


class RecordedWork(Struct, frozen=True):
    """Takes as long as the recorded task, and makes files of the recorded sizes.

    Attributes:
        seconds: how long.
        threads: that compute for so long; 0: it sleeps.
        files: that it makes.
    """

    seconds: float
    threads: int = 0
    files: tuple[SyntheticFile, ...] = ()

    def __call__(self) -> None:
        """Do it."""
        if self.threads:
            _burn(self.seconds, self.threads)
        elif self.seconds:
            time.sleep(self.seconds)
        for file in self.files:
            write_zeros(Path(file.name), file.size_bytes)


def write_zeros(path: Path, size_bytes: int) -> None:
    """Write a file of zeros, each of which takes room on the disk.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    block = bytes(min(size_bytes, BLOCK_BYTES))
    with path.open("wb") as file:
        left = size_bytes
        while left:
            left -= file.write(block[:left])


def _burn(seconds: float, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for ended in [pool.submit(_compute, seconds) for _ in range(threads)]:
            ended.result()


def _compute(seconds: float) -> None:
    """Compute for so many seconds of a processor."""
    data = bytes(_BURN_BYTES)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(data).digest()


THREADS_VARIABLE = "OMP_NUM_THREADS"


class NextToken(Struct, frozen=True):
    """Stands for the next token among the arguments of a task."""


class PoolTask(Struct, frozen=True):
    """Calls a function with tokens and values, and publishes what it returns.

    Attributes:
        function: what to call.
        arguments: of the function, in order; :class:`NextToken` for a token.
        threads: so many it may use; ``OMP_NUM_THREADS`` says so.
        publishes: name under which its result is published, or "".
        copies: of the published result, each on a host of its own.
    """

    function: Callable[..., object]
    arguments: tuple[object, ...] = ()
    threads: int = 1
    publishes: str = ""
    copies: int = 1

    def __call__(self, *tokens: object) -> object:
        """Call it."""
        left = iter(tokens)
        arguments = [
            next(left) if isinstance(argument, NextToken) else argument for argument in self.arguments
        ]
        with _threads(self.threads):
            result = self.function(*arguments)
        if self.publishes:
            publish(self.publishes, result, copies=self.copies)
        return result


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = os.environ.get(THREADS_VARIABLE)
    os.environ[THREADS_VARIABLE] = str(number)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS_VARIABLE]
        else:
            os.environ[THREADS_VARIABLE] = before
