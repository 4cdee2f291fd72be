"""What the tasks of a recorded run do when it is run again."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

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
