"""What a host measures of itself once in a frame: the part of its own processes, and how fast it is.

Both run in a thread beside the loop of the RIF. The probe takes 3 ms of CPU time,
the look at 100 processes 1 ms.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gspc_trio.components.monitor.readings import TICK_MS, Reading

CACHE_BYTES = 256 << 10
"""Size of the copies that a cache holds."""

MEMORY_BYTES = 8 << 20
"""Size of the copy that few caches hold."""

WRITE_BYTES = 64 << 10
"""So much is written and synced."""

WRITES = 4
"""In so many writes: of a bad disk a part of them fails."""

ARITHMETIC_STEPS = 10_000
"""Steps of the arithmetic: less than 1 ms."""

CACHE_COPIES = 8
"""Copies of what a cache holds, after one that fills it."""

LOG_BYTES_MAX = 8192
"""The kernel hands out no longer record of its log."""

LOG_RECORDS_MAX = 1000
"""So many records are read at one time."""


class Probe:
    """Measures how fast this host is: arithmetic, copies, a write, and what a caller adds.

    Args:
        directory: in whose file system it writes.
        write: writes to a descriptor, so that tests can have it fail.
    """

    def __init__(self, directory: str, write: Callable[[int, bytes], int] = os.write) -> None:
        self._write = write
        self._directory = directory
        self._source = ctypes.create_string_buffer(MEMORY_BYTES)
        self._target = ctypes.create_string_buffer(MEMORY_BYTES)
        self._bytes = bytes(WRITE_BYTES // WRITES)
        self._errors = 0
        ctypes.memset(self._source, 1, MEMORY_BYTES)  # its pages are there from now on
        ctypes.memset(self._target, 1, MEMORY_BYTES)

    def run(self) -> Reading:
        """Return what it has measured; CPU time where other threads shall not count."""
        reading = Reading()
        levels = reading.levels
        levels["probe_arithmetic_us"] = _least_us(self._arithmetic, 2)
        self._copy(CACHE_BYTES)
        levels["probe_cache_us"] = _least_us(self._copy_in_cache, 2)
        levels["probe_memory_us"] = _least_us(lambda: self._copy(MEMORY_BYTES), 1)
        if (took_us := self._write_us()) is not None:
            levels["probe_write_us"] = took_us
        reading.counts["probe_io_errors"] = self._errors
        return reading

    def _arithmetic(self) -> None:
        value = 1
        for _ in range(ARITHMETIC_STEPS):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF

    def _copy(self, size_bytes: int) -> None:
        ctypes.memmove(self._target, self._source, size_bytes)

    def _copy_in_cache(self) -> None:
        for _ in range(CACHE_COPIES):
            self._copy(CACHE_BYTES)

    def _write_us(self) -> float | None:
        """Return how long a write and its sync take, None if they fail."""
        begin, waited_s = time.perf_counter(), waited_for_cpu_s()
        try:
            with tempfile.TemporaryFile(dir=self._directory, buffering=0) as file:
                for _ in range(WRITES):
                    self._write(file.fileno(), self._bytes)
                os.fsync(file.fileno())
        except OSError as error:
            self._errors += error.errno == errno.EIO
            return None
        return max(0.0, time.perf_counter() - begin - waited_for_cpu_s() + waited_s) * 1e6


def waited_for_cpu_s() -> float:
    """Return how long this thread has been ready and had no CPU, since it began; 0 if that is not told.

    Beside much work an answer is taken late, and that is no fault of a link or of a disk.
    """
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb", 0) as file:
        return int(file.read(100).split()[1]) / 1e9
    return 0.0


def _least_us(work: Callable[[], None], times: int) -> float:
    """Return how much CPU time of this thread work takes at least."""
    found = []
    for _ in range(times):
        begin = time.thread_time()
        work()
        found.append(time.thread_time() - begin)
    return min(found) * 1e6


PROGRAMS = (b"/gspc-", b"gspc_trio.")
"""What is in the command line of this project's programs."""

KERNEL_THREAD = 0x00200000
"""Flag of threads of the kernel: they store what tasks have written, for example, so they are no others."""

NOT_OURS = b"gspc_trio.testing"
"""What puts anomalies into a host counts as others."""


class OwnProcesses:
    """What processes of this project use: RIFs, run-time systems, jobs, and all that they have started.

    Times of processes that have ended are in those of who has waited for them; so nothing short is missed.

    Args:
        root: of the file system.
        pid: of the RIF.
    """

    def __init__(self, root: Path, pid: int) -> None:
        self._root = root / "proc"
        self._pid = pid
        self._is_program: dict[tuple[int, int], bool] = {}
        self._moved: dict[tuple[int, int], tuple[int, int]] = {}
        self._ticks: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._read = self._written = self._cpu_ms = 0
        self._page_bytes = os.sysconf("SC_PAGESIZE")

    def measure(self) -> Reading:
        """Return time, memory and storage of these processes, {} if the host does not tell."""
        there = self._processes()
        reading = Reading()
        if self._pid not in there:
            return reading
        children: dict[int, list[int]] = {}
        for pid, (parent, *_) in there.items():
            children.setdefault(parent, []).append(pid)
        programs = {(pid, begun): self._is_known(pid, begun) for pid, (_, begun, *_) in there.items()}
        self._is_program = programs
        waiting = [pid for (pid, _), is_program in programs.items() if is_program] + [self._pid]
        own: dict[int, None] = {}
        while waiting:
            pid = waiting.pop()
            if pid not in own:
                own[pid] = None
                waiting += children.get(pid, ())
        kernel = (pid for pid, (_, _, _, flags) in there.items() if flags & KERNEL_THREAD)
        self._count_time({(pid, there[pid][1]): there[pid][:3] for pid in {*own, *kernel}})
        reading.counts["own_cpu_ms"] = self._cpu_ms
        reading.levels["own_memory_bytes"] = float(sum(map(self._memory_bytes, own)))
        self._count_storage({(pid, there[pid][1]) for pid in own})
        reading.counts["own_read_bytes"] = self._read
        reading.counts["own_written_bytes"] = self._written
        return reading

    def _processes(self) -> dict[int, tuple[int, int, int, int]]:
        """Return pid -> parent, when it was begun, its time in ticks with that of its children, and flags."""
        found = {}
        with suppress(OSError):
            for name in os.listdir(self._root):
                if name.isdecimal():
                    with suppress(OSError, ValueError, IndexError):
                        fields = self._text(name, "stat").rpartition(b")")[2].split()
                        ticks = sum(map(int, fields[11:15]))
                        found[int(name)] = int(fields[1]), int(fields[19]), ticks, int(fields[6])
        return found

    def _text(self, pid: int | str, name: str) -> bytes:
        with open(self._root / str(pid) / name, "rb", buffering=0) as file:
            return file.read(4096)

    def _is_known(self, pid: int, begun: int) -> bool:
        """Return whether a process is a program of ours."""
        if (known := self._is_program.get((pid, begun))) is not None:
            return known
        with suppress(OSError):
            words = self._text(pid, "cmdline").split(b"\0")[:3]
            return any(one in word and NOT_OURS not in word for word in words for one in PROGRAMS)
        return False

    def _memory_bytes(self, pid: int) -> int:
        """Return memory of its own; what it shares with others counts elsewhere."""
        with suppress(OSError, ValueError, IndexError):
            _, resident, shared, *_ = map(int, self._text(pid, "statm").split())
            return max(0, resident - shared) * self._page_bytes
        return 0

    def _count_time(self, own: dict[tuple[int, int], tuple[int, int, int]]) -> None:
        """Add the time since the last look.

        Who was waited for by one of ours has left its time there. All others have taken theirs along.
        """
        parents = {pid for pid, _ in self._ticks}
        gone = [told for key, told in self._ticks.items() if key not in own and told[0] not in parents]
        before = sum(ticks for *_, ticks in self._ticks.values()) - sum(ticks for *_, ticks in gone)
        self._cpu_ms += max(0, sum(ticks for *_, ticks in own.values()) - before) * TICK_MS
        self._ticks = own

    def _count_storage(self, own: set[tuple[int, int]]) -> None:
        before, self._moved = self._moved, {}
        for key in own:
            with suppress(OSError, ValueError):
                told = dict(line.split(b": ") for line in self._text(key[0], "io").splitlines())
                now = int(told[b"read_bytes"]), int(told[b"write_bytes"])
                self._moved[key] = now
                # What a process has moved before it was first seen is new, too.
                then = before.get(key, (0, 0))
                self._read += max(0, now[0] - then[0])
                self._written += max(0, now[1] - then[1])


class KernelLog:
    """Counts what the kernel says of failures since this was opened, where it may be read.

    Args:
        root: of the file system.
    """

    def __init__(self, root: Path) -> None:
        self._descriptor = -1
        self._counts = {"allocation_failures": 0, "device_errors": 0}
        with suppress(OSError):
            self._descriptor = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def counts(self) -> dict[str, int]:
        """Return how often something has failed, {} if the log may not be read."""
        if self._descriptor < 0:
            return {}
        with suppress(OSError):  # nothing more is there, or records were dropped
            for _ in range(LOG_RECORDS_MAX):
                if not (text := os.read(self._descriptor, LOG_BYTES_MAX)):
                    break
                self._counts["allocation_failures"] += text.count(b"page allocation failure")
                self._counts["device_errors"] += text.count(b"I/O error, dev ")
        return dict(self._counts)

    def close(self) -> None:
        """Close it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
