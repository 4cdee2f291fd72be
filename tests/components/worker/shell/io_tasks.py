"""Tasks that read and write."""

import os
import signal
from pathlib import Path
from subprocess import run

from gspc_trio.core.current import event

BYTES = 300_000


def write_and_read(folder: str) -> None:
    """Write a file and read it, and have a program do the same."""
    path = Path(folder, str(os.getpid()))
    path.write_bytes(b"x" * BYTES)
    path.read_bytes()
    run(["sh", "-c", f"cat {path} > {path}.copy"], check=True)


def write_and_stay(folder: str) -> None:
    """Write, say so, and end no more."""
    Path(folder, "there").write_bytes(b"x" * BYTES)
    event("written")
    signal.pause()


def speak(text: str) -> None:
    """Say something."""
    event(text)
