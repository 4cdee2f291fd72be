"""Jobs of several kinds, one after the other: what a host is used for while ``anomalies.py`` watches it.

    python bench/real_work.py

Each job runs in a run-time system of its own. Together they compute for seconds, take and return memory,
write and read files, run thousands of short tasks, and start programs.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gspc_trio import Executor

MIB = 1 << 20
FILE_BYTES, BLOCK_BYTES = 200 * MIB, MIB


def compute(rounds: int) -> int:
    """Use a core for some seconds."""
    return sum(number * number % 7 for number in range(rounds * 1_000_000))


def take_memory(mib: int) -> int:
    """Fill memory step by step, and return it; of all hosts on this machine one does so at a time."""
    with open(__file__) as file:  # its own lock: all hosts here have it, and none leaves one
        fcntl.flock(file, fcntl.LOCK_EX)
        held = [bytes(os.urandom(4096)) * (MIB // 4096) for _ in range(mib)]
        return sum(map(len, held))


def use_file(number: int) -> int:
    """Write a file, have it stored, read it, and remove it."""
    path = Path(tempfile.gettempdir()) / f"real-work-{os.getpid()}-{number}"
    block = os.urandom(BLOCK_BYTES)
    with path.open("wb") as file:
        for _ in range(FILE_BYTES // BLOCK_BYTES):
            file.write(block)
        os.fsync(file.fileno())
    size_bytes = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            size_bytes += len(block)
    path.unlink()
    return size_bytes


def add(number: int) -> int:
    """Do next to nothing."""
    return number + 1


def run_program(seconds: float) -> int:
    """Start a program that computes."""
    words = f"import time; end = time.time() + {seconds}\nwhile time.time() < end: sum(range(1000))"
    return subprocess.run([sys.executable, "-c", words], check=True).returncode


def main() -> None:
    """Run each kind of job."""
    for function, arguments in (
        (compute, [3] * 12),
        (take_memory, [300, 600, 1200, 300, 600, 1200]),
        (use_file, list(range(4))),
        (add, list(range(100_000))),
        (run_program, [5.0] * 6),
    ):
        with Executor() as executor:
            for _ in executor.map(function, arguments):
                pass


if __name__ == "__main__":
    main()
