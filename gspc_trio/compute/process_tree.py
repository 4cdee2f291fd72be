"""Finds and ends processes by their place in the tree, from /proc: no process can hide from that (WRK-4)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from time import monotonic, sleep

_HAS_CHILDREN_FILE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def children(pid: int) -> list[int]:
    """Return the pids of the direct children of a process, zombies included; none if it is gone."""
    if not _HAS_CHILDREN_FILE:
        return [child for child, parent in _parents() if parent == pid]
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    except OSError:
        pass
    return found


def state(pid: int) -> str:
    """Return the state letter of a process (``R``, ``T`` stopped, ``Z`` zombie, ...), "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return chr(file.read().rpartition(b")")[2][1])
    except (OSError, IndexError):
        return ""


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    return state(pid) not in ("", "Z", "X")


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone or not ours is left alone."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_descendants(pid: int) -> list[int]:
    """Stop and kill everything below a process, in one pass; return those that were alive.

    A process may appear behind the pass: call it until it finds none, best with the process itself stopped.
    """
    alive: list[int] = []
    pending = children(pid)
    for child in pending:  # grows as it goes
        if is_alive(child):
            kill(child, signal.SIGSTOP)  # so that it starts no more while we look at its children
            alive.append(child)
        pending.extend(children(child))
    for child in alive:
        kill(child, signal.SIGKILL)
    return alive


def kill_all_descendants(pid: int, within_s: float) -> bool:
    """Repeat :func:`kill_descendants` until nothing is left but zombies; return False if time runs out."""
    deadline = monotonic() + within_s
    killed: set[int] = set()
    passes = 0
    while passes < 2:  # twice, because a process may be missed while its parent dies
        killed.update(kill_descendants(pid))
        passes = 0 if any(map(is_alive, killed)) else passes + 1
        if monotonic() > deadline:
            return False
        if passes == 0:
            sleep(0.0005)
    return True


def kill_tree(pid: int, within_s: float) -> bool:
    """Kill a process with everything below it, and wait until all of that has died; return False if it takes
    longer.

    Whose child the process is has still to reap it.
    """
    deadline = monotonic() + within_s
    kill(pid, signal.SIGSTOP)
    gone = kill_all_descendants(pid, within_s)
    kill(pid, signal.SIGKILL)
    while is_alive(pid):
        if monotonic() > deadline:
            return False
        sleep(0.0005)
    return gone


def _parents() -> list[tuple[int, int]]:
    """(process, parent) of all processes, for kernels without the file of children."""
    found: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                found.append((int(name), int(file.read().rpartition(b")")[2].split()[1])))
    return found
