"""Tasks whose data is lost."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gspc_trio.iml.errors import DataLost

MIB = 1 << 20
HANG_S = 100.0


def note(path: str, what: str) -> None:
    with open(path, "a", encoding="ascii") as file:
        file.write(what + "\n")


def make(path: str) -> bytes:
    note(path, "make")
    return b"x" * MIB


def double(path: str, value: bytes) -> bytes:
    note(path, "double")
    return value + value


def wait_for(path: str) -> str:
    begun = time.monotonic()
    while not os.path.exists(path) and time.monotonic() < begun + HANG_S:
        time.sleep(0.01)
    return path


def measure(value: bytes, go: str) -> int:
    del go
    return len(value)


def lose(path: str, value: bytes) -> int:
    note(path, "begun")
    raise DataLost(f"data of {len(value)} bytes that the task looked for itself was lost")


def pid_in(_: str, gate: str) -> int:
    """Return the process to be killed, when it is known."""
    begun = time.monotonic()
    while not (found := Path(gate).read_text() if os.path.exists(gate) else ""):
        assert time.monotonic() < begun + HANG_S
        time.sleep(0.01)
    return int(found)


def size_and_ends(value: bytes | bytearray, go: str) -> tuple[int, bytes]:
    del go
    return len(value), bytes(value[:2] + value[-2:])
