"""What a host measures of itself, from files below another root."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gspc_trio.components.monitor.shell.probe import (
    KERNEL_THREAD,
    KernelLog,
    OwnProcesses,
    Probe,
)


def process(
    root: Path, pid: int, parent: int, ticks: int, *, command: str = "sh", moved: int = 0, flags: int = 0
) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    fields = [0] * 50
    fields[1], fields[11], fields[14], fields[19] = parent, ticks - 1, 1, 1
    fields[6] = flags
    (folder / "stat").write_text(f"{pid} (a) b) {' '.join(map(str, fields))}\n")
    (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (folder / "statm").write_text("1000 300 100 0 0 0 0\n")
    (folder / "io").write_text(f"rchar: 5\nread_bytes: {moved}\nwrite_bytes: {2 * moved}\n")


def test_what_is_below_a_rif_and_below_programs_of_the_project_is_explained(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 100, command="python -m gspc_trio.components.rif")
    process(tmp_path, 11, 10, 50, moved=7)  # a task
    process(tmp_path, 12, 1, 30, command="python /usr/bin/gspc-jobserver run")
    process(tmp_path, 13, 12, 5)
    process(tmp_path, 14, 1, 9000)  # another program
    process(tmp_path, 15, 1, 9000, command="python -m gspc_trio.testing.anomalies dial")
    own = OwnProcesses(tmp_path, 10)
    first = own.measure()
    assert first.counts == {"own_cpu_ms": 1850, "own_read_bytes": 7, "own_written_bytes": 14}
    page_bytes = first.levels["own_memory_bytes"] / 800
    assert page_bytes in (4096, 16384, 65536)
    for path in (tmp_path / "proc/11").iterdir():  # it ends, and its parent has its time
        path.unlink()
    process(tmp_path, 10, 1, 160, command="python -m gspc_trio.components.rif", moved=1)
    second = own.measure()
    assert second.counts == {"own_cpu_ms": 1950, "own_read_bytes": 8, "own_written_bytes": 16}


def test_whoever_ends_without_being_waited_for_takes_its_time_along(tmp_path: Path) -> None:
    rif, job = "python -m gspc_trio.components.rif", "python /usr/bin/gspc-jobserver run"
    process(tmp_path, 10, 1, 100, command=rif)
    process(tmp_path, 12, 1, 5000, command=job)
    process(tmp_path, 13, 12, 70)
    own = OwnProcesses(tmp_path, 10)
    assert own.measure().counts["own_cpu_ms"] == 51700
    process(tmp_path, 12, 1, 5090, command=job)  # it has waited for what it had started
    for path in (tmp_path / "proc/13").iterdir():
        path.unlink()
    assert own.measure().counts["own_cpu_ms"] == 51900
    for path in (tmp_path / "proc/12").iterdir():
        path.unlink()
    process(tmp_path, 10, 1, 130, command=rif)
    assert own.measure().counts["own_cpu_ms"] == 52200, "what others do goes on to count"
    process(tmp_path, 10, 1, 140, command=rif)
    assert own.measure().counts["own_cpu_ms"] == 52300


def test_threads_of_the_kernel_work_for_whoever_asks(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 100, command="python -m gspc_trio.components.rif")
    process(tmp_path, 2, 0, 1, command="", flags=KERNEL_THREAD)
    process(tmp_path, 9, 2, 40, command="", flags=KERNEL_THREAD)
    own = OwnProcesses(tmp_path, 10).measure()
    assert own.counts["own_cpu_ms"] == 1410
    assert own.levels["own_memory_bytes"] == 200 * os.sysconf("SC_PAGESIZE")


def test_a_host_that_shows_no_processes_tells_nothing_of_them(tmp_path: Path) -> None:
    assert OwnProcesses(tmp_path, 10).measure().counts == {}


def test_the_log_of_the_kernel_counts_from_now_on(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    file = tmp_path / "dev/kmsg"
    file.write_text("4,1,1;python: page allocation failure: order:5\n")
    log = KernelLog(tmp_path)
    assert log.counts() == {"allocation_failures": 0, "device_errors": 0}
    with file.open("a") as written:
        written.write("4,2,2;python: page allocation failure: order:5\n3,3,3;I/O error, dev sda, sector 8\n")
    assert log.counts() == {"allocation_failures": 1, "device_errors": 1}
    log.close()
    assert KernelLog(tmp_path / "nowhere").counts() == {}


def test_the_probe_measures_and_counts_failed_writes(tmp_path: Path) -> None:
    fails = [False]

    def write(_: int, data: bytes) -> int:
        if fails[0]:
            raise OSError(errno.EIO, "broken")
        return len(data)

    probe = Probe(str(tmp_path), write)
    first = probe.run()
    assert first.counts == {"probe_io_errors": 0}
    assert set(first.levels) == {f"probe_{name}_us" for name in ("arithmetic", "cache", "memory", "write")}
    assert min(first.levels.values()) > 0
    fails[0] = True
    second = probe.run()
    assert second.counts == {"probe_io_errors": 1}
    assert "probe_write_us" not in second.levels
    assert list(tmp_path.iterdir()) == []
