"""The sampler of a host: reads its files once a second, and tells the frames that are over.

The files stay open: opening them anew would cost more than reading them.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

import trio

from gspc_trio.components.monitor.frames import FRAME_S
from gspc_trio.components.monitor.messages import Disk, HostHardware, MonitorTold
from gspc_trio.components.monitor.nodes import NodeFrames
from gspc_trio.components.monitor.readings import FILES, NO_DISK, PATTERNS, SECTOR_BYTES, Reading, read_texts
from gspc_trio.components.provision.shell.hardware import read_facts

log: logging.Logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""Seconds between two readings."""

FILE_BYTES_MAX = 1 << 20
"""No more is read of one file."""


class HostFiles:
    """The files of a host that tell its metrics, kept open.

    Args:
        root: of the file system.
        directory: in whose file system tasks keep their files.
    """

    def __init__(self, root: Path, directory: str) -> None:
        self._directory = directory
        self._fast = _opened(root, FILES)
        found = (os.path.relpath(path, root) for pattern in PATTERNS for path in glob(str(root / pattern)))
        self._slow = _opened(root, sorted(found))

    def read(self, slowly: bool) -> Reading:
        """Return what the files say now.

        Args:
            slowly: also those that take the kernel a while.
        """
        texts = dict(_texts(self._fast))
        if slowly:
            texts.update(_texts(self._slow))
        reading = read_texts(texts)
        with suppress(OSError):
            told = os.statvfs(self._directory)
            if told.f_blocks:
                reading.levels["disk_free_bytes"] = float(told.f_bavail * told.f_frsize)
                reading.levels["disk_free_share"] = told.f_bavail / told.f_blocks
        return reading

    def close(self) -> None:
        """Close the files."""
        for descriptor in (*self._fast.values(), *self._slow.values()):
            os.close(descriptor)
        self._fast, self._slow = {}, {}


def _opened(root: Path, paths: Iterator[str] | list[str] | tuple[str, ...]) -> dict[str, int]:
    found = {}
    for path in paths:
        with suppress(OSError):  # this host does not tell it
            found[path] = os.open(root / path, os.O_RDONLY | os.O_CLOEXEC)
    return found


def _texts(files: dict[str, int]) -> Iterator[tuple[str, str]]:
    for path, descriptor in list(files.items()):
        try:
            yield path, os.pread(descriptor, FILE_BYTES_MAX, 0).decode("utf-8", "replace")
        except OSError:  # its device is gone, or there is no pressure told after all
            os.close(files.pop(path))


@contextmanager
def host_files(root: Path, directory: str) -> Iterator[HostFiles]:
    """Keep the files of a host open while the block runs."""
    files = HostFiles(root, directory)
    try:
        yield files
    finally:
        files.close()


def read_hardware(root: Path = Path("/")) -> HostHardware:
    """Return what this host has.

    Args:
        root: of the file system.
    """
    facts = read_facts(root)
    disks = []
    for path in sorted(glob(str(root / "sys/block/*/size"))):
        name = Path(path).parent.name
        with suppress(OSError, ValueError):
            size_bytes = int(Path(path).read_text()) * SECTOR_BYTES
            if size_bytes and not NO_DISK.fullmatch(name):
                disks.append(Disk(name, size_bytes))
    return HostHardware(
        facts.cpus,
        facts.cores,
        len(set(facts.socket_of.values())),
        len(facts.numa) or None,
        facts.memory_bytes or None,
        facts.processor or None,
        tuple(disks),
        tuple(sorted(facts.gpus)),
        facts.features,
    )


async def sample(
    post: Callable[[MonitorTold], None],
    *,
    root: Path = Path("/"),
    wall: Callable[[], float] = time.time,
) -> None:
    """Read the metrics of this host once a second, and tell each frame when it is over, until cancelled.

    Args:
        post: takes what is told.
        root: of the file system.
        wall: returns the seconds since 1970.
    """
    post(MonitorTold(read_hardware(root)))
    frames, number = NodeFrames(), 0
    slow_each = round(FRAME_S / INTERVAL_S)
    with host_files(root, tempfile.gettempdir()) as files:
        slow: Reading | None = None
        try:
            while True:
                reading = files.read(slowly=number % slow_each == 0)
                slow = _with_slow(reading, slow)
                if over := frames.take(wall(), trio.current_time(), reading):
                    post(MonitorTold(nodes=tuple(over)))
                number += 1
                await trio.sleep(INTERVAL_S - wall() % INTERVAL_S)
        finally:
            if over := frames.close():
                post(MonitorTold(nodes=tuple(over)))


SLOW = ("throttles", "disk_errors")
"""Counts that are read once in a frame."""


def _with_slow(reading: Reading, before: Reading | None) -> Reading:
    """Give a reading the counts that it has left out, as they were last read; return it."""
    if before is not None:
        for name in SLOW:
            if name in before.counts:
                reading.counts.setdefault(name, before.counts[name])
    return reading
