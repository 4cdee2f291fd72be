"""Ends every process that carries a tree's marker in its environment, with all below it: for when a template
has died.
"""

from __future__ import annotations

import os
import signal
import sys
from time import monotonic, sleep

from gspc_trio.compute import process_tree
from gspc_trio.compute.channel import MARKER

SWEEP_S = 5.0
"""Bound on the sweep."""


def marked(marker: str) -> list[int]:
    """Return the pids of this user's live processes whose environment names the tree ``marker``."""
    prefix = f"{MARKER}=".encode()
    wanted = marker.encode()
    user = os.getuid()
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != user:
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        for variable in environment.split(b"\0"):
            if variable.startswith(prefix) and wanted in variable[len(prefix) :].split(b":"):
                found.append(int(name))
    return found


def sweep(marker: str) -> bool:
    """End all marked processes and what is below them; return whether nothing is left."""
    deadline = monotonic() + SWEEP_S
    killed: set[int] = set()
    while found := [*marked(marker), *filter(process_tree.is_alive, killed)]:
        for pid in found:
            process_tree.kill(pid, signal.SIGSTOP)
        for pid in found:
            killed.update(process_tree.kill_descendants(pid))
        for pid in found:
            process_tree.kill(pid, signal.SIGKILL)
        killed.update(found)
        if monotonic() > deadline:
            return False
        sleep(0.001)
    return True


def main() -> None:
    """Run as a program: its argument is the marker; it exits with 0 when nothing is left."""
    sys.exit(0 if sweep(sys.argv[1]) else 1)
