"""Tasks that tell of their process."""

from __future__ import annotations

import os
import signal
import time


def pid_and_cpus() -> tuple[int, list[int]]:
    return os.getpid(), sorted(os.sched_getaffinity(0))


def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
