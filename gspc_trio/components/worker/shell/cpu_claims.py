"""Which CPUs the compute of this backend may be pinned to: those that no other system of this user pins to.

Two run-time systems on one host (two executors in a program, two programs, two RIFs) do not know of each
other, and each begins with its first core. Were both to pin there, their tasks would share that core while
others are idle. So who pins to a CPU claims it first: by the name of a socket, which only one can have, which
leaves no file, and which the kernel gives back when its owner ends in whatever way.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

GROUP_VARIABLE = "GSPC_PINNING_GROUP"
"""Run-time systems in whose environment it differs do not heed each other's pinning."""


class CpuClaims:
    """The CPUs that one backend has claimed."""

    def __init__(self) -> None:
        group = os.environ.get(GROUP_VARIABLE, "")
        self._prefix = f"\0gspc-trio/{os.getuid()}/{group}/cpu"
        self._held: dict[int, socket.socket] = {}
        self._closed = False

    def take(self, cpus: Iterable[int]) -> bool:
        """Claim these CPUs; return whether all are ours now. If not, nothing has changed."""
        new: dict[int, socket.socket] = {}
        if self._closed:
            return False
        for cpu in cpus:
            if cpu in self._held or cpu in new:
                continue
            claim = _claim(f"{self._prefix}{cpu}")
            if claim is None:
                for taken in new.values():
                    taken.close()
                return False
            new[cpu] = claim
        self._held.update(new)
        return True

    def close(self) -> None:
        """Give all of them back, and take no more."""
        self._closed = True
        for claim in self._held.values():
            claim.close()
        self._held.clear()


def _claim(name: str) -> socket.socket | None:
    """Return the socket that has this name, None if another has it or there can be none."""
    try:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        claim.bind(name)
    except OSError:
        claim.close()
        return None
    return claim
