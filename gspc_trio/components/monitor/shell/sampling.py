"""The sampler of a host: reads its files once a second, and tells the frames that are over.

The files stay open: opening them anew would cost more than reading them.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

import trio

from gspc_trio.components.monitor.frames import FrameClock, frame_of
from gspc_trio.components.monitor.locality import DataReads
from gspc_trio.components.monitor.messages import Disk, HostHardware, MonitorTold
from gspc_trio.components.monitor.nodes import NodeFrames
from gspc_trio.components.monitor.readings import (
    FILES,
    NO_DISK,
    PATTERNS,
    SECTOR_BYTES,
    TICK_MS,
    Reading,
    read_texts,
)
from gspc_trio.components.monitor.shell.probe import KernelLog, OwnProcesses, Probe, waited_for_cpu_s
from gspc_trio.components.provision.shell.hardware import read_facts
from gspc_trio.nursery.scopes.scope import open_scope

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
            reading.levels["disk_read_only"] = float(bool(told.f_flag & os.ST_RDONLY))
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


class Measures:
    """What a host measures of itself once in a frame.

    Args:
        root: of the file system.
        directory: in whose file system a write is tried.
        waited: returns how many seconds this thread has waited for a CPU.
    """

    def __init__(self, root: Path, directory: str, waited: Callable[[], float] = waited_for_cpu_s) -> None:
        self._waited = waited
        self._processes = OwnProcesses(root, os.getpid())
        self._log = KernelLog(root)
        self._probe = Probe(directory)
        self._counts: dict[str, int] = {}
        self._levels: dict[str, float] = {}

    async def own(self) -> None:
        """Look at the processes of this project."""
        found = await trio.to_thread.run_sync(self._processes.measure, abandon_on_cancel=True)
        self._counts.update(found.counts)
        self._levels.update(found.levels)

    async def probe(self, round_trip: Callable[[], Awaitable[bool]]) -> None:
        """Measure how fast this host is; what it waits for makes nobody else wait."""
        begin = trio.current_time() - self._waited()
        if await round_trip():
            took_s = trio.current_time() - self._waited() - begin
            self._levels["probe_round_trip_us"] = max(0.0, took_s) * 1e6
        found = await trio.to_thread.run_sync(self._probe.run, abandon_on_cancel=True)
        self._counts.update(found.counts)
        self._levels.update(found.levels)

    def give(self, reading: Reading) -> Reading:
        """Give a reading what was measured since the last one, and counts as they are; return it."""
        for name, number in self._log.counts().items():
            reading.counts[name] = reading.counts.get(name, 0) + number
        reading.counts.update(self._counts)
        levels, self._levels = self._levels, {}
        reading.levels.update(levels)
        names = ("memory_bytes", "memory_available_bytes", "own_memory_bytes")
        if all(name in reading.levels for name in names):
            total, available, own = (reading.levels[name] for name in names)
            shared = reading.levels.get("shared_memory_bytes", 0.0)
            reading.levels["unexplained_memory_bytes"] = total - available - own - shared
        return reading

    def close(self) -> None:
        """Close what is open."""
        self._log.close()


PROBE_AFTER_S = 2
"""So long after the begin of a frame a host is probed: not when all read their files."""


async def sample(
    post: Callable[[MonitorTold], None],
    reads: DataReads | None = None,
    *,
    root: Path = Path("/"),
    wall: Callable[[], float] = time.time,
    round_trip: Callable[[], Awaitable[bool]] | None = None,
    waited: Callable[[], float] = waited_for_cpu_s,
) -> None:
    """Read the metrics of this host once a second, and tell each frame when it is over, until cancelled.

    Args:
        post: takes what is told.
        reads: what tasks of this host take from memory layers; None: that is not known.
        root: of the file system.
        wall: returns the seconds since 1970.
        round_trip: asks the run-time system something; then the host also looks at its processes and probes
            how fast it is.
        waited: returns how many seconds this thread has waited for a CPU, which no round trip takes.
    """
    post(MonitorTold(read_hardware(root)))
    if reads is not None:
        reads.is_wanted = True
    frames, cpus, kept = NodeFrames(), os.sched_getaffinity(0), dict[str, int]()
    clock = FrameClock()
    directory = tempfile.gettempdir()
    last, number = -1, 0
    with host_files(root, directory) as files:
        measures = None if round_trip is None else Measures(root, directory, waited)
        try:
            async with open_scope() as nursery:
                while True:
                    frame = frame_of(wall())
                    number, is_new, last = (0 if frame != last else number + 1), frame != last, frame
                    if is_new and measures is not None:
                        await measures.own()
                    reading = _with_kept(files.read(slowly=is_new), kept)
                    busy = [ticks for cpu, ticks in reading.programs.items() if int(cpu[3:]) in cpus]
                    if busy:
                        reading.counts["usable_busy_ms"] = sum(busy) * TICK_MS
                    for cpu in [one for one in reading.frequencies if int(one[3:]) not in cpus]:
                        del reading.frequencies[cpu]
                    if measures is not None:
                        measures.give(reading)
                    if reads is not None:
                        reading.counts["task_io_errors"] = reads.io_errors
                    over = frames.take(wall(), trio.current_time(), reading)
                    at_s = clock.read(wall(), trio.current_time())
                    taken = reads.close(at_s) if reads is not None else ()
                    if over or taken:
                        post(MonitorTold(nodes=tuple(over), reads=taken))
                    if number == PROBE_AFTER_S and measures is not None and round_trip is not None:
                        nursery.start_soon(measures.probe, round_trip)
                    await trio.sleep(INTERVAL_S - wall() % INTERVAL_S)
        finally:
            if measures is not None:
                measures.close()
            if over := frames.close():
                post(MonitorTold(nodes=tuple(over)))


SLOW = ("throttles", "disk_errors")
"""Counts that are read once in a frame."""


def _with_kept(reading: Reading, kept: dict[str, int]) -> Reading:
    """Give a reading the counts that it has left out, as they were last read; return it."""
    for name in SLOW:
        if name in reading.counts:
            kept[name] = reading.counts[name]
        elif name in kept:
            reading.counts[name] = kept[name]
    return reading
