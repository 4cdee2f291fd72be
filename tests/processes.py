"""Processes that tests and their tasks look for, kill and wait for; compute processes load it, too."""

from __future__ import annotations

import os
import signal
import time

import psutil

HANG_S = 100.0


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not collected yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid: int) -> int:
    """Kill a process; return its id when it has ended, which takes a while on a loaded machine."""
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    while is_alive(pid):
        assert time.monotonic() < begun + HANG_S
        time.sleep(0.001)
    return pid


def children_with(what: str) -> list[psutil.Process]:
    """Return the processes below this one with such a word in their command, not those that end just now."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if what in " ".join(child.cmdline()):
                found.append(child)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found
