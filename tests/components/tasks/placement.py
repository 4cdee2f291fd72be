"""Tasks that tell where they run."""

from __future__ import annotations

import os
import time
from pathlib import Path

HANG_S = 100.0


def hold(gate: str) -> str:
    """Keep the core busy until the gate is open."""
    Path(f"{gate}.{os.getpid()}").touch()
    begun = time.monotonic()
    while not os.path.exists(gate) and time.monotonic() < begun + HANG_S:
        time.sleep(0.01)
    return where(gate)


def where(_: object) -> str:
    from gspc_trio.compute import data

    return data.serializer.host


def reverse() -> dict[str, str]:
    Path("out").write_bytes(Path("in").read_bytes()[::-1])
    return {"host": where(None)}
