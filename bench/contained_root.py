"""A root of files as of a host on which only some processes run: what LXCFS shows in a container.

On a machine that others use, what these do is unexplained for whoever measures it. Below this root a sampler
sees the processes of one tree alone: their CPU time, memory and storage are real, all else is idle. Failures
that need rights are written into it, too.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
MEMORY_KIB = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES // 1024
USED_KIB = MEMORY_KIB // 8
"""Memory that is in use before anything runs."""

SECTOR_BYTES = 512
FREQUENCY_KHZ = 3_000_000


class Use(Struct):
    """What a process has used until it was last seen: ticks, faults, and sectors read and written."""

    ticks: int = 0
    faults: int = 0
    read: int = 0
    written: int = 0


class ContainedRoot:
    """Files below a directory, written anew by :meth:`update`.

    Args:
        root: an empty directory.
        members: process ids whose trees are on this host; more may be added.
        cpus: numbers of the CPUs that it has.

    Attributes:
        speed: frequency over the usual one.
        failures: how often an allocation of memory has failed.
        throttles: how often processors were throttled.
        disk_errors: of its disk.
    """

    def __init__(self, root: Path, members: set[int], cpus: tuple[int, ...]) -> None:
        self.members: set[int] = members
        self.speed: float = 1.0
        self.failures: int = 0
        self.throttles: int = 0
        self.disk_errors: int = 0
        self._root = root
        self._cpus = cpus
        self._ticks = dict.fromkeys(cpus, 0)
        self._begun_s = time.monotonic()
        self._uses: dict[tuple[int, int], Use] = {}
        self._resident: dict[tuple[int, int], int] = {}
        self._shown: set[int] = set()
        for folder in ("proc/pressure", "sys/fs/cgroup", "sys/block/vda/device"):
            (root / folder).mkdir(parents=True)
        for cpu in cpus:
            (root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq").mkdir(parents=True)
            (root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle").mkdir()
        self.update()

    def update(self) -> None:
        """Look at the processes, and write the files."""
        self._look()
        passed = int((time.monotonic() - self._begun_s) * TICKS)
        idle = {cpu: max(0, passed - ticks) for cpu, ticks in self._ticks.items()}
        cores = "".join(
            f"cpu{cpu} {ticks} 0 0 {idle[cpu]} 0 0 0 0 0 0\n" for cpu, ticks in self._ticks.items()
        )
        total = f"cpu {sum(self._ticks.values())} 0 0 {sum(idle.values())} 0 0 0 0 0 0\n"
        self._write("proc/stat", f"{total}{cores}ctxt 0\nprocesses 0\n")
        used = USED_KIB + sum(self._resident.values()) * PAGE_BYTES // 1024
        free = MEMORY_KIB - used
        memory = {"MemTotal": MEMORY_KIB, "MemFree": free, "MemAvailable": free, "Cached": 0, "Shmem": 0}
        self._write("proc/meminfo", "".join(f"{name}: {kib} kB\n" for name, kib in memory.items()))
        faults = sum(use.faults for use in self._uses.values())
        self._write("proc/vmstat", f"pgfault {faults}\n")
        read, written = (
            sum(getattr(use, name) for use in self._uses.values()) for name in ("read", "written")
        )
        sectors = f"{read // SECTOR_BYTES} 0 0 0 {written // SECTOR_BYTES}"
        self._write("proc/diskstats", f"8 0 vda 0 0 {sectors} 0 0 0 0\n")
        self._write("sys/fs/cgroup/memory.events", f"low 0\nhigh 0\nmax 0\noom {self.failures}\n")
        self._write("sys/block/vda/device/ioerr_cnt", f"{self.disk_errors:#x}\n")
        for cpu in self._cpus:
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            self._write(f"{folder}/cpufreq/scaling_cur_freq", f"{int(FREQUENCY_KHZ * self.speed)}\n")
            self._write(f"{folder}/thermal_throttle/core_throttle_count", f"{self.throttles}\n")

    def _look(self) -> None:
        """See what the processes have used; what one has used that is gone stays."""
        waiting, found = list(self.members), dict[int, list[bytes]]()
        while waiting:
            pid = waiting.pop()
            if pid in found:
                continue
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                found[pid] = fields
                for task in os.listdir(f"/proc/{pid}/task"):
                    waiting += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
        self._resident.clear()
        for pid, fields in found.items():
            self._take(pid, fields)
        self._show(set(found))

    def _take(self, pid: int, fields: list[bytes]) -> None:
        key = pid, int(fields[19])
        use = self._uses.setdefault(key, Use())
        ticks, cpu = sum(map(int, fields[11:13])), int(fields[36])
        self._ticks[cpu if cpu in self._ticks else self._cpus[0]] += max(0, ticks - use.ticks)
        use.ticks = max(use.ticks, ticks)
        use.faults = max(use.faults, int(fields[7]) + int(fields[9]))
        with suppress(OSError, ValueError):
            told = dict(line.split(b": ") for line in Path(f"/proc/{pid}/io").read_bytes().splitlines())
            use.read, use.written = int(told[b"read_bytes"]), int(told[b"write_bytes"])
        with suppress(OSError, ValueError):
            _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_bytes().split())
            self._resident[key] = max(0, resident - shared)

    def _show(self, pids: set[int]) -> None:
        """Let the directories of these processes be seen, and of no others."""
        for pid in self._shown - pids:
            (self._root / "proc" / str(pid)).unlink(missing_ok=True)
        for pid in pids - self._shown:
            (self._root / "proc" / str(pid)).symlink_to(f"/proc/{pid}")
        self._shown = pids

    def _write(self, path: str, text: str) -> None:
        """Write a file in place: who reads it has it open."""
        descriptor = os.open(self._root / path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            size_bytes = os.pwrite(descriptor, text.encode(), 0)
            os.ftruncate(descriptor, size_bytes)
        finally:
            os.close(descriptor)
