"""From the files of a host to its store, and to who asks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from gspc_trio import open_rts
from gspc_trio.cli.monitor.commands import fold
from gspc_trio.components.monitor.detector import Detector
from gspc_trio.components.monitor.io_frames import LOST_PROCESS, IoTold, TaskEvent
from gspc_trio.components.monitor.messages import (
    Disk,
    GetHardware,
    GetNodeStats,
    HardwareReport,
    HostHardware,
    MonitorTold,
    NodeFrame,
    NoMetrics,
)
from gspc_trio.components.monitor.shell.anomalies import GROUP, plug_ins
from gspc_trio.components.monitor.shell.collector import Collector, open_collector, told_before
from gspc_trio.components.monitor.shell.sampling import sample
from gspc_trio.components.monitor.shell.store import STORE_FILE, Store, query
from gspc_trio.core.task import DataUse
from gspc_trio.nursery.connections.rpc import CLOSED_THERE, Peer, RemoteError
from gspc_trio.protocol.listening import BadSetting

HARDWARE = HostHardware((0, 1), 2, 1, disks=(Disk("sda", 100),))


class Rif:
    """The end of a connection to a RIF."""

    def __init__(self) -> None:
        self.name, self.role, self.remote, self.reason = "r1", "rif", "here", ""

    def post(self, message: object) -> None:
        """Nobody looks at what it is told."""

    def drop(self, reason: str) -> None:
        self.reason = reason


def heard(collector: Collector, host: str, told: MonitorTold) -> str:
    rif = Rif()
    collector.heard(cast("Peer", rif), host, told)
    return rif.reason


async def test_frames_are_told_when_they_are_over(autojump_clock: MockClock, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/loadavg").write_text("1.5 0 0")
    told: list[MonitorTold] = []
    begin = autojump_clock.current_time()
    with trio.move_on_after(12.25):
        await sample(told.append, root=tmp_path, wall=lambda: 1003.0 + autojump_clock.current_time() - begin)
    frames = [frame for one in told for frame in one.nodes]
    assert told[0].hardware is not None
    assert [(frame.begin_s, frame.covered_s) for frame in frames] == [(1000, 2.0), (1005, 5.0), (1010, 5.0)]
    assert {frame.levels["load"] for frame in frames} == {1.5}


def test_who_asks_is_told_the_last_frame() -> None:
    collector = Collector(None)
    with pytest.raises(NoMetrics, match="no host 'a'; monitored: none"):
        collector.answer(GetNodeStats("a"))
    heard(collector, "alpha", MonitorTold(HARDWARE))
    with pytest.raises(NoMetrics, match="no metrics yet"):
        collector.answer(GetNodeStats("alpha"))
    frames = [NodeFrame(5, 4.0, {"cpu_user_ms": 2000}), NodeFrame(10, 5.0, {"cpu_user_ms": 5000})]
    heard(collector, "alpha", MonitorTold(nodes=tuple(frames)))
    heard(collector, "beta", MonitorTold(HARDWARE, (NodeFrame(10, 5.0, {}, {"memory_bytes": 7.0}),)))
    assert collector.answer(GetNodeStats("alpha")) == frames[1]
    assert collector.answer(GetHardware("alpha")) == HardwareReport({"alpha": HARDWARE})
    system = collector.system()
    assert (system.cores, system.busy_cores, system.memory_bytes) == (4, 1.0, 7.0)
    assert system.memory_available_bytes is None
    with pytest.raises(NoMetrics, match="did you mean 'alpha'"):
        collector.answer(GetHardware("alhpa"))
    collector.gone("alpha")
    assert collector.system().cores == 2


@pytest.mark.parametrize(
    "frame",
    [
        NodeFrame(5, 5.0, {"nonsense": 1}),
        NodeFrame(5, 5.0, {"disk_reads": 2**63}),
        NodeFrame(5, 5.0, {}, {"load": float("nan")}),
        NodeFrame(5, float("inf")),
        NodeFrame(2**63, 5.0),
    ],
)
def test_a_rif_that_tells_nonsense_is_dropped(frame: NodeFrame) -> None:
    collector = Collector(None)
    assert "no host has such metrics" in heard(collector, "a", MonitorTold(HARDWARE, (frame,)))
    assert collector.system().hosts == {}


async def test_processes_that_are_lost_are_events_and_those_that_leave_are_none(tmp_path: Path) -> None:
    async with open_collector(tmp_path, 1 << 30) as collector:
        for host in ("a", "b", "c"):
            heard(collector, host, MonitorTold(HARDWARE))
        killed = TaskEvent(7.0, "j1", "r1.core0", 3, 1, "it was killed by SIGKILL", LOST_PROCESS)
        rif = Rif()
        collector.heard_io(cast("Peer", rif), "a", IoTold((), (killed,)))
        collector.gone("a", "the connection was cut")
        collector.gone("b", CLOSED_THERE)
        collector.gone("c")
        collector.heard_io(cast("Peer", rif), "a", IoTold((), (replace(killed, kind="anomaly_on"),)))
        assert "tells anomaly_on" in rif.reason
    assert query(tmp_path, "SELECT kind, host, job, task, detail FROM events ORDER BY id").rows == [
        ("lost_process", "a", "j1", 3, "it was killed by SIGKILL"),
        ("lost_process", "a", None, None, "RIF: the connection was cut"),
    ]


async def test_what_is_told_is_stored_also_at_the_end(tmp_path: Path) -> None:
    short = NodeFrame(5, 5.0, {"disk_reads": 1, "out_of_memory_kills": 2})
    async with open_collector(tmp_path, 1 << 30) as collector:
        heard(collector, "a", MonitorTold(HARDWARE, (short,)))
        with pytest.raises(BadSetting, match="another run-time system"):
            async with open_collector(tmp_path, 1 << 30):
                pass
    assert query(tmp_path, "SELECT host, out_of_memory_kills FROM nodes").rows == [("a", 2)]
    assert query(tmp_path, "SELECT kind, host FROM events").rows == [("out_of_memory_kill", "a")]


def torn(path: Path) -> None:
    (path / STORE_FILE).write_bytes(b"no database" * 1000)


def full(path: Path) -> None:
    store = Store(path, 1 << 30)
    store._database.execute("DROP TABLE nodes_frames")
    store._database.execute("CREATE VIEW nodes_frames AS SELECT 1 AS begin_s")  # nothing can be written to it
    store.close()


@pytest.mark.parametrize("spoil", [torn, full])
async def test_a_store_that_cannot_be_written_ends_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path)
    async with open_collector(tmp_path, 1 << 30) as collector:
        heard(collector, "a", MonitorTold(HARDWARE, (NodeFrame(5, 5.0),)))
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "all else goes on" in line] == lines
    assert len(lines) == 1
    assert collector.system().store == ""
    assert set(collector.system().hosts) == {"a"}


async def test_an_embedded_system_measures_its_host(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_rts(cores=1, host="here", monitor=tmp_path / "metrics") as rts:
            with pytest.raises(RemoteError, match="no host 'there'"):
                await rts.hw_info("there")
            while True:
                try:
                    hardware = await rts.hw_info("here")
                    break
                except RemoteError:
                    await trio.lowlevel.checkpoint()
            assert hardware.cores >= 1
            assert (await rts.sys_stats()).store == str(tmp_path / "metrics" / STORE_FILE)
    assert query(tmp_path / "metrics", "SELECT count(*) FROM events").rows == [(0,)]


async def test_without_monitor_nobody_is_measured() -> None:
    async with open_rts(cores=1) as rts:
        with pytest.raises(RemoteError, match="start --monitor DIR"):
            await rts.sys_stats()


def busy(number: int) -> NodeFrame:
    return NodeFrame(5 * number, 5.0, {"usable_busy_ms": 9000, "own_cpu_ms": 1000})


class Hosts:
    def __init__(self) -> None:
        self.told: list[str] = []

    def avoid(self, host: str, reason: str, *, evacuate: bool, uses: tuple[DataUse, ...] = ()) -> None:
        whom = f" for {', '.join(uses)}" if uses else ""
        self.told.append(f"{'evacuate' if evacuate else 'avoid'} {host}{whom}: {reason}")

    def use(self, host: str) -> None:
        self.told.append(f"use {host}")


async def test_anomalies_are_kept_and_acted_on(autojump_clock: MockClock, tmp_path: Path) -> None:
    hosts, begin = Hosts(), autojump_clock.current_time()
    async with open_collector(tmp_path, 1 << 24, "act") as collector:
        assert collector.anomalies is not None
        collector.anomalies.hosts = hosts
        for host in ("a", "b"):
            heard(collector, host, MonitorTold(HARDWARE))
        heard(collector, "a", MonitorTold(nodes=tuple(map(busy, range(3)))))
        assert hosts.told == ["avoid a: anomaly: dial"]
        heard(collector, "a", MonitorTold(nodes=tuple(NodeFrame(5 * n, 5.0) for n in range(3, 9))))
        await trio.sleep_until(begin + 61)
        assert hosts.told[1:] == ["use a"]
    rows = query(tmp_path, "SELECT at_s, kind, host, detail, run FROM events ORDER BY id").rows
    assert [row[1] for row in rows] == ["anomaly_on", "host_held", "anomaly_off", "host_used"]
    shown = [(one.host, one.kind, one.end_s is None, one.evidence) for one in fold(rows)]
    assert shown == [
        ("a", "dial", False, "1.6 cores work for others"),
        ("a", "held", False, "dial: nothing new for 60 s at least"),
    ]


def test_anomalies_end_with_the_run_unless_the_next_one_says_that_they_go_on() -> None:
    rows: list[tuple[object, ...]] = [
        (10.0, "anomaly_on", "a", "dial: 1 core", 1),
        (11.0, "anomaly_on", "b", "leak: 2%/min", 1),
        (12.0, "anomaly_on", "b", "leak: 9% of the memory is left", 1),
        (13.0, "anomaly_on", "c", "ioerr: 1", 1),
        (13.0, "anomaly_on", "d", "copy: much", 1),
        (10.0, "anomaly_on", "a", "dial: 1 core", 2),  # of before the run: it goes on
        (40.0, "anomaly_on", "c", "ioerr: 2", 2),  # it is found anew
        (50.0, "anomaly_off", "a", "dial", 2),
    ]
    shown = [(one.host, one.begin_s, one.end_s, one.evidence) for one in fold(rows, {1: 0.0, 2: 30.0})]
    assert shown == [
        ("a", 10.0, 50.0, "1 core"),
        ("b", 11.0, 30.0, "9% of the memory is left"),
        ("c", 13.0, 30.0, "1"),
        ("d", 13.0, 30.0, "much"),
        ("c", 40.0, None, "2"),
    ]


async def test_an_anomaly_goes_on_when_the_run_time_system_is_started_again(tmp_path: Path) -> None:
    usual = {"probe_arithmetic_us": 1000.0, "memory_bytes": 2.0**34, "load": 0.125}
    counts = {"usable_busy_ms": 1000, "own_cpu_ms": 1000}
    slow = {**usual, "probe_arithmetic_us": 1500.0}
    begin_s = 4_000_000_000  # not so old that it becomes minutes
    frames = [NodeFrame(begin_s + 5 * n, 5.0, counts, usual if n < 20 else slow) for n in range(24)]
    async with open_collector(tmp_path, 1 << 24, "watch") as collector:
        for host in ("a", "b"):
            heard(collector, host, MonitorTold(HARDWARE))
        heard(collector, "a", MonitorTold(nodes=tuple(frames)))
    assert told_before(tmp_path, begin_s + 130.0) == {"a": frames}
    assert told_before(tmp_path, begin_s + 300.0) == told_before(tmp_path / "nowhere", begin_s) == {}
    hosts = Hosts()
    again = Collector(None, "act", past=told_before(tmp_path, begin_s + 130.0))
    assert again.anomalies is not None
    again.anomalies.hosts = hosts
    for host in ("b", "a"):
        heard(again, host, MonitorTold(HARDWARE))
    assert hosts.told == ["avoid a: anomaly: cpufreq"]  # what is usual is known, too


async def test_those_who_watch_only_tell() -> None:
    hosts, collector = Hosts(), Collector(None, "watch")
    assert collector.anomalies is not None
    collector.anomalies.hosts = hosts
    for host in ("a", "b"):
        heard(collector, host, MonitorTold(HARDWARE))
    heard(collector, "a", MonitorTold(nodes=tuple(map(busy, range(3)))))
    assert hosts.told == []


def test_detectors_of_packages_are_used_and_broken_ones_left_out(caplog: pytest.LogCaptureFixture) -> None:
    good = EntryPoint("good", "gspc_trio.components.monitor.detector:Detector", GROUP)
    bad = EntryPoint("bad", "gspc_trio.nowhere:Detector", GROUP)
    assert [type(one) for one in plug_ins([bad, good])] == [Detector]
    assert "the detector bad cannot be used" in caplog.text
