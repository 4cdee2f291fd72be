"""Metrics from the texts of a kernel; what it does not tell is absent, and odd files say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.monitor.messages import NodeFrame
from gspc_trio.components.monitor.nodes import NodeFrames, Shortage, Shortages
from gspc_trio.components.monitor.readings import COUNTS, FILES, LEVELS, Reading, read_texts
from gspc_trio.components.monitor.shell.sampling import host_files, read_hardware

TEXTS = {
    "proc/stat": "cpu  100 10 50 1000 30 2 3 7 0 0\ncpu0 60 0 20 500 10 1 1 1 0 0\n"
    "cpu1 40 10 30 500 20 1 2 6 0 0\nctxt 12345\nprocesses 99\nprocs_running 2\nprocs_blocked 1\n",
    "proc/meminfo": "MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nDirty: 0 kB\nHuge: 0\n",
    "proc/vmstat": "pgfault 500\npgmajfault 5\nallocstall_dma 1\nallocstall_normal 2\noom_kill 0\n",
    "proc/loadavg": "0.50 0.40 0.30 1/100 123\n",
    "proc/diskstats": "8 0 sda 10 0 200 30 40 0 500 60 0 70 80\n8 1 sda1 10 0 200 30 40 0 500 60 0 70 80\n"
    "7 0 loop0 9 0 9 9 9 0 9 9 0 9 9\n259 0 nvme0n1 1 0 8 1 1 0 8 1 0 1 1\n"
    "259 1 nvme0n1p1 1 0 8 1 1 0 8 1 0 1 1\n",
    "proc/net/dev": "Inter-| Receive\n face |bytes\n    lo: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n"
    "  eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n",
    "proc/net/snmp": "Tcp: InSegs OutSegs RetransSegs\nTcp: 5 100 2\n",
    "proc/pressure/memory": "some avg10=0.00 total=11\nfull avg10=0.00 total=7\n",
    "proc/pressure/cpu": "some avg10=0.00 total=13\nfull avg10=0.00 total=0\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2000000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3000000\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4\n",
    "sys/class/drm/card0/device/gpu_busy_percent": "25\n",
    "sys/block/sda/device/ioerr_cnt": "0x3\n",
}

COUNTED = {
    "cpu_user_ms": 1100,
    "cpu_system_ms": 500,
    "cpu_idle_ms": 10000,
    "cpu_io_wait_ms": 300,
    "cpu_interrupts_ms": 50,
    "cpu_stolen_ms": 70,
    "context_switches": 12345,
    "processes_started": 99,
    "page_faults": 500,
    "major_page_faults": 5,
    "allocation_stalls": 3,
    "out_of_memory_kills": 0,
    "disk_reads": 11,
    "disk_read_bytes": 208 * 512,
    "disk_read_ms": 31,
    "disk_writes": 41,
    "disk_written_bytes": 508 * 512,
    "disk_write_ms": 61,
    "disk_busy_ms": 71,
    "disk_errors": 3,
    "network_received_bytes": 1000,
    "network_received_packets": 10,
    "network_errors": 4,
    "network_dropped": 6,
    "network_sent_bytes": 2000,
    "network_sent_packets": 20,
    "tcp_segments_sent": 100,
    "tcp_segments_sent_again": 2,
    "throttles": 4,
    "memory_pressure_us": 11,
    "memory_full_pressure_us": 7,
    "cpu_pressure_us": 13,
}

LEVEL = {
    "load": 0.5,
    "processes_ready": 2.0,
    "processes_blocked": 1.0,
    "frequency_mhz": 2500.0,
    "memory_bytes": 1024000.0,
    "memory_free_bytes": 102400.0,
    "memory_available_bytes": 409600.0,
    "memory_dirty_bytes": 0.0,
    "gpu_busy": 0.25,
}


def test_texts_of_a_kernel_are_read() -> None:
    found = read_texts(TEXTS)
    assert found.counts == COUNTED
    assert found.levels == LEVEL
    assert found.frequencies == {"cpu0": 2000.0, "cpu1": 3000.0}
    assert found.cores == {"cpu0": (83, 593), "cpu1": (89, 609)}
    assert set(found.counts) <= set(COUNTS)
    assert set(found.levels) <= set(LEVELS)


@given(st.dictionaries(st.sampled_from([*FILES, *TEXTS]), st.text()))
def test_odd_texts_do_no_harm(texts: dict[str, str]) -> None:
    found = read_texts(texts)
    assert set(found.counts) <= set(COUNTS)


def write_tree(root: Path, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_files_below_another_root_are_kept_open_and_read_again(tmp_path: Path) -> None:
    write_tree(tmp_path, TEXTS | {"sys/block/sda/size": "100\n", "sys/block/loop0/size": "9\n"})
    with host_files(tmp_path, str(tmp_path)) as files:
        first = files.read(slowly=True)
        assert first.counts == COUNTED
        assert set(first.levels) - set(LEVEL) == {"disk_free_bytes", "disk_free_share", "disk_read_only"}
        with open(tmp_path / "proc/loadavg", "w") as file:
            file.write("1.50 0 0")
        again = files.read(slowly=False)
        assert again.levels["load"] == 1.5
        assert not {"throttles", "disk_errors", "gpu_busy"} & {*again.counts, *again.levels}
    assert [(disk.name, disk.size_bytes) for disk in read_hardware(tmp_path).disks] == [("sda", 51200)]


def test_what_was_counted_belongs_to_the_frame_of_the_middle() -> None:
    frames = NodeFrames()
    assert frames.take(102.0, 2.0, Reading({"reads": 5, "gone": 7}, {"load": 9.0})) == []
    cores = {"cpu0": (0, 0), "cpu1": (0, 0)}
    assert frames.take(104.0, 4.0, Reading({"reads": 8, "gone": 1}, {"load": 1.0}, cores)) == []
    cores = {"cpu0": (3, 4), "cpu1": (0, 4)}
    assert frames.take(105.5, 5.5, Reading({"reads": 9, "new": 3}, {"load": 3.0}, cores)) == []
    assert frames.take(107.0, 7.0, Reading({"reads": 11, "new": 4})) == [
        NodeFrame(100, 3.5, {"reads": 4}, {"load": 2.0, "busiest_core": 0.75})
    ]
    assert frames.take(107.5, 9.0, Reading({"reads": 12})) == []  # the clock was set back
    assert frames.close() == [NodeFrame(105, 3.5, {"reads": 3, "new": 1})]
    assert frames.close() == []


def test_the_frequency_under_load_is_that_of_cpus_that_work() -> None:
    frames = NodeFrames()
    frames.take(100.0, 0.0, Reading(cores={"cpu0": (0, 0), "cpu1": (0, 0)}))
    mhz = {"cpu0": 3000.0, "cpu1": 800.0, "cpu2": 900.0}
    frames.take(101.0, 1.0, Reading(cores={"cpu0": (90, 100), "cpu1": (50, 100)}, frequencies=mhz))
    frames.take(102.0, 2.0, Reading(cores={"cpu0": (190, 200), "cpu1": (60, 200)}))
    assert frames.close()[0].levels == {"busiest_core": 0.95, "busy_frequency_mhz": 3000.0}
    frames.take(103.0, 3.0, Reading(cores={"cpu0": (190, 300), "cpu1": (60, 300)}, frequencies=mhz))
    assert frames.close()[0].levels == {"busiest_core": 0.0}


def test_rates_are_over_the_time_that_was_measured() -> None:
    frame = NodeFrame(100, 2.5, {"cpu_user_ms": 4000, "cpu_system_ms": 1000, "disk_reads": 5})
    assert (frame.busy_cores, frame.per_s("disk_reads"), frame.per_s("disk_writes")) == (2.0, 2.0, None)
    assert NodeFrame(100, 2.5).busy_cores is None


def test_a_host_that_is_short_of_something_is_told_once() -> None:
    short = NodeFrame(
        5,
        5.0,
        {"pages_swapped_out": 3, "out_of_memory_kills": 1},
        {"memory_bytes": 100.0, "memory_available_bytes": 4.0, "disk_free_share": 0.01},
    )
    shortages = Shortages()
    found = shortages.take("a", short)
    assert found[0] == Shortage(5, "memory_full", "4.0% of the memory is available")
    assert [one.kind for one in found[1:]] == ["disk_full", "swapping", "out_of_memory_kill"]
    assert [one.kind for one in shortages.take("a", short)] == ["out_of_memory_kill"]
    assert shortages.take("a", NodeFrame(15, 5.0)) == []
    assert len(shortages.take("a", short)) == 4


@pytest.mark.parametrize("frame", [NodeFrame(5, 5.0), NodeFrame(5, 5.0, {"out_of_memory_kills": 0})])
def test_a_host_that_does_not_tell_is_short_of_nothing(frame: NodeFrame) -> None:
    assert Shortages().take("a", frame) == []
