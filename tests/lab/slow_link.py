"""A link between two network namespaces that can be slow: frames are passed on by this program.

    slow_link.py NAMESPACE OUTSIDE

One end is ``eth0`` in the namespace, the other is called OUTSIDE here. A line on standard input is the delay
in seconds from then on, in each direction. Says ``ready`` when both ends are there.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES_MAX = 1 << 16


def enter(path: str) -> None:
    """Enter a network namespace."""
    descriptor = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {path}")
    os.close(descriptor)


def open_end(name: str) -> int:
    """Make one end of the link in the namespace of this process."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def relay(here: int, there: int) -> None:
    """Pass frames on until standard input ends."""
    delay_s = 0.0
    waiting: deque[tuple[float, int, bytes]] = deque()
    other = {here: there, there: here}
    while True:
        pause_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([here, there, 0], [], [], pause_s)[0]:
            if source == 0:
                line = sys.stdin.readline()
                if not line:
                    return
                delay_s = float(line)
                continue
            try:
                waiting.append((time.monotonic() + delay_s, other[source], os.read(source, FRAME_BYTES_MAX)))
            except BlockingIOError:
                continue
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, frame = waiting.popleft()
            with contextlib.suppress(OSError):  # the end is down: a lost frame
                os.write(target, frame)


def main() -> None:
    """Make the link and pass frames on."""
    namespace, outside = sys.argv[1:]
    here = open_end(outside)
    enter(f"/var/run/netns/{namespace}")
    there = open_end("eth0")
    print("ready", flush=True)
    relay(here, there)


if __name__ == "__main__":
    main()
