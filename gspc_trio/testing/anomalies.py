"""Anomalies put into this host for real, for tests of what finds them (ASP-9; the loads are those of ASPIDE).

    python -m gspc_trio.testing.anomalies leak --for-s 90

``leak`` takes memory and keeps it, ``memeater`` takes some in ten steps and rests, ``dial`` computes,
``ddot`` moves more memory than a cache holds, ``copy`` writes and reads a file. Slow processors, failing
memory and failing disks need rights that a test does not have: they are series of frames in the tests of the
detector.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gspc_trio.workflow.formats.in_tasks.native import c_library

MIB = 1 << 20
LEAK_BYTES, LEAK_EACH_S = 160 * MIB, 2.0
STEPS, STEP_BYTES, STEP_EACH_S = 10, 35 * MIB, 2.0
CACHE_BYTES = 8 * MIB
COPY_BYTES, COPY_PAUSE_S = 500 * MIB, 2.0


def leak(until_s: float, room_bytes: int, each_bytes: int = LEAK_BYTES) -> None:
    """Take memory every 2 s, and give none of it back.

    Args:
        until_s: on the monotonic clock.
        room_bytes: no more than this.
        each_bytes: so much each time.
    """
    taken: list[bytearray] = []
    while time.monotonic() < until_s:
        if (len(taken) + 1) * each_bytes <= room_bytes:
            taken.append(bytearray(b"\1") * each_bytes)
        time.sleep(LEAK_EACH_S)


def memeater(until_s: float, room_bytes: int) -> None:
    """Take memory in ten steps, then rest: 35 MiB each, or 1 % of the memory if that is more."""
    step = max(STEP_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 100)
    taken: list[bytearray] = []
    while time.monotonic() < until_s:
        if len(taken) < STEPS and (len(taken) + 1) * step <= room_bytes:
            taken.append(bytearray(b"\1") * step)
        time.sleep(STEP_EACH_S)


def dial(until_s: float, _: int) -> None:
    """Compute ``pow``, ``sqrt``, ``log`` and ``exp`` on one core, with what its registers hold."""
    value = 1.5
    while time.monotonic() < until_s:
        for _number in range(10_000):
            value = math.exp(math.log(math.sqrt(math.pow(value, 2.0)))) % 100.0 + 1.0


PRODUCT = """
void product(double *to, const double *left, const double *right, long size, long begin, long end) {
    for (long row = begin; row < end; row++)
        for (long middle = 0; middle < size; middle++) {
            double value = left[row * size + middle];
            for (long column = 0; column < size; column++)
                to[row * size + column] += value * right[middle * size + column];
        }
}
"""
ROWS = 16
"""Of a product so many rows are computed before the time is looked at."""


def ddot(until_s: float, _: int, caches: float = 5.0) -> None:
    """Multiply matrices on one core, again and again.

    Args:
        until_s: on the monotonic clock.
        caches: three matrices take so many times the room of the last cache: 0.9, 5 or 10.
    """
    product = ctypes.CDLL(str(c_library(PRODUCT))).product
    size = int(math.sqrt(caches * cache_bytes() / 3 / 8))
    to, left, right = matrices = [(ctypes.c_double * (size * size))() for _number in range(3)]
    for one in matrices:
        ctypes.memset(one, 1, ctypes.sizeof(one))  # memory that nobody has written to is not there yet
    sizes = tuple(map(ctypes.c_long, (size,)))
    while time.monotonic() < until_s:
        for begin in range(0, size, ROWS):
            end = min(size, begin + ROWS)
            product(to, left, right, *sizes, ctypes.c_long(begin), ctypes.c_long(end))
            if time.monotonic() >= until_s:
                break


def cache_bytes() -> int:
    """Return the size of the last cache, as the kernel says; 8 MiB if it does not."""
    found = CACHE_BYTES
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with suppress(OSError, ValueError):
            text = (folder / "size").read_text().strip()
            found = int(text[:-1]) * {"K": 1 << 10, "M": MIB}[text[-1]]
    return found


def copy(until_s: float, room_bytes: int) -> None:
    """Write a file, wait 2 s, and read it."""
    size = min(COPY_BYTES, room_bytes)
    block = bytes(MIB)
    with tempfile.TemporaryFile(buffering=0) as file:
        while time.monotonic() < until_s:
            file.seek(0)
            for _number in range(size // MIB):
                file.write(block)
            os.fsync(file.fileno())
            time.sleep(COPY_PAUSE_S)
            file.seek(0)
            while file.read(MIB):
                pass


def failing_io() -> Path:
    """Return a library to be loaded first (``LD_PRELOAD``) by processes whose reads and writes are to fail.

    ``GSPC_FAILING`` names a file that says how many percent of the calls fail, and below which directory:
    ``25 /tmp``. As long as it is not there, or empty, none fails.

    Raises:
        CompileError: there is no compiler.
    """
    text = Path(__file__).with_name("failing_io.c").read_text(encoding="utf-8")
    return c_library(text, ("-ldl",))


KINDS: dict[str, Callable[[float, int], None]] = {
    "leak": leak,
    "memeater": memeater,
    "dial": dial,
    "ddot": ddot,
    "copy": copy,
}
"""What can be put into a host."""


def main() -> None:
    """Put one anomaly into this host for a while."""
    parser = argparse.ArgumentParser(prog="python -m gspc_trio.testing.anomalies")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--for-s", type=float, default=60.0, help="seconds")
    parser.add_argument("--room-mib", type=int, default=12_000, help="no more memory or disk than this")
    parser.add_argument("--caches", type=float, default=5.0, help="of ddot: room of its matrices in caches")
    parser.add_argument("--each-mib", type=int, default=LEAK_BYTES // MIB, help="of leak: memory every 2 s")
    chosen = parser.parse_args()
    until_s = time.monotonic() + chosen.for_s
    if chosen.kind == "ddot":
        ddot(until_s, 0, chosen.caches)
    elif chosen.kind == "leak":
        leak(until_s, chosen.room_mib * MIB, chosen.each_mib * MIB)
    else:
        KINDS[chosen.kind](until_s, chosen.room_mib * MIB)


if __name__ == "__main__":
    main()
