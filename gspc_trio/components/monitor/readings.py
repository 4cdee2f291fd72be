"""Metrics of a host, read from the texts of files below ``/proc`` and ``/sys``.

What a kernel does not tell is absent, never 0. Counts only grow on a host; levels go up and down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct, field

TICK_MS = 10
"""The kernel counts the time of CPUs for programs in units of 10 ms on all machines (USER_HZ)."""

SECTOR_BYTES = 512
"""Unit of ``/proc/diskstats`` on all machines."""

COUNTS = (
    *("cpu_user_ms", "cpu_system_ms", "cpu_interrupts_ms", "cpu_idle_ms", "cpu_io_wait_ms", "cpu_stolen_ms"),
    *("context_switches", "processes_started", "throttles"),
    *("page_faults", "major_page_faults", "pages_swapped_in", "pages_swapped_out", "allocation_stalls"),
    "out_of_memory_kills",
    *("cpu_pressure_us", "memory_pressure_us", "memory_full_pressure_us"),
    *("io_pressure_us", "io_full_pressure_us"),
    *("disk_reads", "disk_read_bytes", "disk_read_ms", "disk_writes", "disk_written_bytes", "disk_write_ms"),
    *("disk_busy_ms", "disk_errors"),
    *("network_received_bytes", "network_sent_bytes", "network_received_packets", "network_sent_packets"),
    *("network_errors", "network_dropped", "tcp_segments_sent", "tcp_segments_sent_again"),
    *("usable_busy_ms", "own_cpu_ms", "own_read_bytes", "own_written_bytes"),
    *("allocation_failures", "device_errors", "probe_io_errors", "task_io_errors"),
)
"""Names of all counts: what happened since the host was started."""

LEVELS = (
    *("load", "processes_ready", "processes_blocked", "frequency_mhz", "busy_frequency_mhz", "busiest_core"),
    *("memory_bytes", "memory_available_bytes", "memory_free_bytes", "memory_cached_bytes"),
    *("memory_dirty_bytes", "swap_bytes", "swap_free_bytes", "disk_free_bytes", "disk_free_share"),
    *("gpu_busy", "gpu_memory_bytes", "gpu_memory_used_bytes"),
    *("shared_memory_bytes", "own_memory_bytes", "unexplained_memory_bytes", "disk_read_only"),
    *("probe_arithmetic_us", "probe_cache_us", "probe_memory_us", "probe_write_us", "probe_round_trip_us"),
)
"""Names of all levels.

``busiest_core`` and ``gpu_busy`` are shares of the time, from 0 to 1. ``busy_frequency_mhz`` is the
mean of the CPUs that work.
"""


class Reading(Struct):
    """What the files of a host say at one moment.

    Attributes:
        counts: name -> number since the host was started.
        levels: name -> value now.
        cores: CPU -> its time at work, and all its time, in ticks.
        programs: CPU -> its time at work for programs, in ticks: not for interrupts, and not for other
            machines on the same hardware.
        frequencies: CPU -> its frequency in MHz, in readings that have it.
    """

    counts: dict[str, int] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)
    cores: dict[str, tuple[int, int]] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)
    frequencies: dict[str, float] = field(default_factory=dict)


def read_texts(texts: Mapping[str, str]) -> Reading:
    """Return what these files say.

    Args:
        texts: path of a file below ``/`` -> what it holds. Files that are missing, or have another form than
            the kernel's, say nothing.
    """
    found = Reading()
    for path, text in texts.items():
        for pattern, parse in _PARSERS:
            if pattern.fullmatch(path):
                with suppress(ValueError, IndexError):  # of another kernel
                    parse(text, found)
                break
    with suppress(ValueError, IndexError):
        _devices(texts, found)
    return found


def _add(found: Reading, name: str, amount: int) -> None:
    found.counts[name] = found.counts.get(name, 0) + amount


def _stat(text: str, found: Reading) -> None:
    for line in text.splitlines():
        name, *values = line.split()
        if name == "cpu":
            # A guest's time is in that of the user already.
            user, nice, system, idle, io_wait, hard, soft, *more = map(int, values)
            found.counts["cpu_user_ms"] = (user + nice) * TICK_MS
            found.counts["cpu_system_ms"] = system * TICK_MS
            found.counts["cpu_interrupts_ms"] = (hard + soft) * TICK_MS
            found.counts["cpu_idle_ms"] = idle * TICK_MS
            found.counts["cpu_io_wait_ms"] = io_wait * TICK_MS
            if more:
                found.counts["cpu_stolen_ms"] = more[0] * TICK_MS
        elif name.startswith("cpu"):
            ticks = [int(value) for value in values[:8]]
            found.cores[name] = sum(ticks) - ticks[3] - ticks[4], sum(ticks)
            found.programs[name] = sum(ticks[:3])
        elif name in _OF_STAT:
            found.counts[_OF_STAT[name]] = int(values[0])
        elif name == "procs_running":
            found.levels["processes_ready"] = float(values[0])
        elif name == "procs_blocked":
            found.levels["processes_blocked"] = float(values[0])


_OF_STAT = {"ctxt": "context_switches", "processes": "processes_started"}

_OF_MEMORY = {
    "MemTotal": "memory_bytes",
    "MemAvailable": "memory_available_bytes",
    "MemFree": "memory_free_bytes",
    "Cached": "memory_cached_bytes",
    "Dirty": "memory_dirty_bytes",
    "Shmem": "shared_memory_bytes",
    "SwapTotal": "swap_bytes",
    "SwapFree": "swap_free_bytes",
}


def _memory(text: str, found: Reading) -> None:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in _OF_MEMORY:
            found.levels[_OF_MEMORY[name]] = int(value.split()[0]) * 1024.0


_OF_VM = {
    "pgfault": "page_faults",
    "pgmajfault": "major_page_faults",
    "pswpin": "pages_swapped_in",
    "pswpout": "pages_swapped_out",
    "oom_kill": "out_of_memory_kills",
}


def _vm(text: str, found: Reading) -> None:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in _OF_VM:
            found.counts[_OF_VM[name]] = int(value)
        elif name.startswith("allocstall"):  # one for each zone of memory
            _add(found, "allocation_stalls", int(value))


def _pressure(what: str) -> Callable[[str, Reading], None]:
    def parse(text: str, found: Reading) -> None:
        for line in text.splitlines():
            kind, *values = line.split()
            name = f"{what}_pressure_us" if kind == "some" else f"{what}_full_pressure_us"
            if name in COUNTS:  # nobody is told when all CPUs are short of themselves
                found.counts[name] = int(values[-1].removeprefix("total="))

    return parse


def _load(text: str, found: Reading) -> None:
    found.levels["load"] = float(text.split()[0])


def _tcp(text: str, found: Reading) -> None:
    rows = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    told = dict(zip(*rows, strict=True)) if len(rows) == 2 else {}
    for name, ours in (("OutSegs", "tcp_segments_sent"), ("RetransSegs", "tcp_segments_sent_again")):
        if name in told:
            found.counts[ours] = int(told[name])


def _throttles(text: str, found: Reading) -> None:
    _add(found, "throttles", int(text))


def _limit_reached(text: str, found: Reading) -> None:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom":  # the group of processes had reached its limit, and an allocation was to fail
            found.counts["allocation_failures"] = int(value)


def _disk_errors(text: str, found: Reading) -> None:
    _add(found, "disk_errors", int(text, 0))


_PARSERS: tuple[tuple[re.Pattern[str], Callable[[str, Reading], None]], ...] = tuple(
    (re.compile(pattern), parse)
    for pattern, parse in (
        ("proc/stat", _stat),
        ("proc/meminfo", _memory),
        ("proc/vmstat", _vm),
        ("proc/loadavg", _load),
        ("proc/net/snmp", _tcp),
        ("proc/pressure/cpu", _pressure("cpu")),
        ("proc/pressure/memory", _pressure("memory")),
        ("proc/pressure/io", _pressure("io")),
        (r"sys/devices/system/cpu/cpu\d+/thermal_throttle/core_throttle_count", _throttles),
        (r"sys/block/.*/device/ioerr_cnt", _disk_errors),
        ("sys/fs/cgroup/memory.events", _limit_reached),
    )
)

NO_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d+")
"""Not disks, or what lies upon disks, whose work would count twice."""


def _disks(text: str) -> Iterator[list[str]]:
    """Yield the columns of whole disks: a partition of ``sda`` is called ``sda1``."""
    rows = [line.split() for line in text.splitlines()]
    names = [row[2] for row in rows if len(row) > 13]
    for row in rows:
        parts = (re.fullmatch(rf"{re.escape(other)}p?\d+", row[2]) for other in names)
        if len(row) > 13 and not NO_DISK.fullmatch(row[2]) and not any(parts):
            yield row


def _devices(texts: Mapping[str, str], found: Reading) -> None:
    """Read what is told by device: disks, networks, frequencies, GPUs."""
    for row in _disks(texts.get("proc/diskstats", "")):
        reads, _, read, read_ms, writes, _, written, write_ms, _, busy_ms = map(int, row[3:13])
        _add(found, "disk_reads", reads)
        _add(found, "disk_read_bytes", read * SECTOR_BYTES)
        _add(found, "disk_read_ms", read_ms)
        _add(found, "disk_writes", writes)
        _add(found, "disk_written_bytes", written * SECTOR_BYTES)
        _add(found, "disk_write_ms", write_ms)
        _add(found, "disk_busy_ms", busy_ms)
    for line in texts.get("proc/net/dev", "").splitlines()[2:]:
        name, _, rest = line.partition(":")
        if not NO_NETWORK.fullmatch(name.strip()):
            values = list(map(int, rest.split()))
            for place, ours in _OF_NETWORK:
                _add(found, ours, values[place])
    for path, text in texts.items():
        if (told_by := _FREQUENCY.fullmatch(path)) and text.strip().isdecimal():
            found.frequencies[told_by[1]] = int(text) / 1000
    if found.frequencies:
        found.levels["frequency_mhz"] = sum(found.frequencies.values()) / len(found.frequencies)
    busy, total, used = (_numbers(texts, pattern) for pattern in _GPU)
    if busy:
        found.levels["gpu_busy"] = sum(busy) / len(busy) / 100
    if total:
        found.levels["gpu_memory_bytes"] = sum(total)
    if used:
        found.levels["gpu_memory_used_bytes"] = sum(used)


NO_NETWORK = re.compile(r"lo|(ifb|veth|docker|br-|virbr|bond|dummy|tun|tap|vlan|cni|flannel).*")
"""Not networks to other hosts, or what lies upon them."""

_OF_NETWORK = (
    (0, "network_received_bytes"),
    (1, "network_received_packets"),
    (2, "network_errors"),
    (3, "network_dropped"),
    (8, "network_sent_bytes"),
    (9, "network_sent_packets"),
    (10, "network_errors"),
    (11, "network_dropped"),
)
_FREQUENCY = re.compile(r"sys/devices/system/cpu/(cpu\d+)/cpufreq/scaling_cur_freq")
_GPU = tuple(
    re.compile(rf"sys/class/drm/card\d+/device/{name}")
    for name in ("gpu_busy_percent", "mem_info_vram_total", "mem_info_vram_used")
)


def _numbers(texts: Mapping[str, str], pattern: re.Pattern[str]) -> list[float]:
    """Return what files hold that hold one number each."""
    found = [text.strip() for path, text in texts.items() if pattern.fullmatch(path)]
    return [float(text) for text in found if text.isdecimal()]


FILES = (
    *("proc/stat", "proc/meminfo", "proc/vmstat", "proc/loadavg", "proc/diskstats", "proc/net/dev"),
    *("proc/net/snmp", "proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io"),
    "sys/fs/cgroup/memory.events",
)
"""Files that are read once a second, below the root."""

PATTERNS = (
    "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq",
    "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count",
    "sys/class/drm/card[0-9]*/device/gpu_busy_percent",
    "sys/class/drm/card[0-9]*/device/mem_info_vram_total",
    "sys/class/drm/card[0-9]*/device/mem_info_vram_used",
    "sys/block/*/device/ioerr_cnt",
)
"""Further files, one for each device: read once in a frame, for some of them take the kernel a while."""
