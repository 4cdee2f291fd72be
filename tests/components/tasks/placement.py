"""Tasks that tell where they run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from gspc_trio.compute.results.stream import stream

MIB = 1 << 20
HANG_S = 100.0


def hold(gate: str) -> str:
    """Keep the core busy until the gate is open."""
    Path(f"{gate}.{os.getpid()}").touch()
    begun = time.monotonic()
    while not os.path.exists(gate) and time.monotonic() < begun + HANG_S:
        time.sleep(0.01)
    return where(gate)


def make(gate: str, size: int) -> bytes:
    """Make data that stays where this runs."""
    return hold(gate)[:1].encode() * size


def after(function: Callable[..., object], _: object, *arguments: object) -> object:
    """Call a function once something else has ended."""
    return function(*arguments)


def write(near: bytes, gate: str, chunks: int, killed: str) -> object:
    """Write chunks to a stream while the gate is closed; be killed then if no file says that it has been."""
    with stream("rows") as file:
        for number in range(chunks):
            file.write(bytes([number]) * MIB)
        hold(gate)
        if killed and not os.path.exists(killed):
            Path(killed).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        file.write(near[:1])
    return file


def read(rows: bytes, far: bytes) -> tuple[bytes, str]:
    """Return what is written, and where it is read."""
    return rows, f"{where(None)} with data of {far[:1].decode()}"


def where(_: object) -> str:
    from gspc_trio.compute import data

    return data.serializer.host


def reverse() -> dict[str, str]:
    Path("out").write_bytes(Path("in").read_bytes()[::-1])
    return {"host": where(None)}
