"""The collector beside the run-time system: takes what RIFs tell, answers clients, and fills the store."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import trio
from msgspec import convert

from gspc_trio.components.monitor.frames import FRAME_S
from gspc_trio.components.monitor.io_frames import IO, LOST_PROCESS, IoTold, rows_of
from gspc_trio.components.monitor.locality import LOCALITY, read_topology, rows_of_reads
from gspc_trio.components.monitor.messages import (
    GetHardware,
    GetNodeStats,
    GetSystemStats,
    HardwareReport,
    HostHardware,
    MonitorTold,
    NodeFrame,
    NoMetrics,
    StartMonitoring,
    SystemStats,
)
from gspc_trio.components.monitor.nodes import Shortages
from gspc_trio.components.monitor.readings import COUNTS, LEVELS
from gspc_trio.components.monitor.reports import GetIo
from gspc_trio.components.monitor.shell.anomalies import AnomalyWatch
from gspc_trio.components.monitor.shell.reports import read_io
from gspc_trio.components.monitor.shell.store import (
    Store,
    StoreBusy,
    StoredEvent,
    StoreError,
    checked_directory,
    query,
)
from gspc_trio.components.monitor.tables import NODES, Row
from gspc_trio.core.similar import did_you_mean
from gspc_trio.nursery.connections.rpc import CLOSED_HERE, CLOSED_THERE, IncomingCall, Peer, drop_offender
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.listening import BadSetting
from gspc_trio.records.facts import LocalityChanged, Record

log: logging.Logger = logging.getLogger(__name__)

GATHER_S = 0.2
"""Frames of many hosts come at the same time: so long after the first of them they are written together."""

ROWS_MAX = 100_000
"""So many rows may wait to be written; more are lost, and an event says how many."""

CLOSE_S = 3.0
"""What waits may take so long to be written at the end."""

NUMBER_MAX = 1 << 62
"""Larger numbers fit into no column, and no host has them."""

PAST_S = 900.0
"""What hosts have told in so many seconds is looked at again when a run-time system starts, ..."""

SILENT_S = 120.0
"""... if the last of it is not older than this."""

PAST_FRAMES_MAX = 20_000
"""The newest of them."""

NO_RACKS: Mapping[str, str] = {}


class Collector:
    """What is known of hosts that are monitored.

    Args:
        store: keeps it; None: nothing is kept.
        anomalies: ``off``, ``watch`` or ``act``.
        racks: host -> its rack, as far as it is known before the hosts are there.
        past: host -> what it has told an earlier run-time system in the last minutes.
    """

    def __init__(
        self,
        store: Store | None,
        anomalies: str = "off",
        racks: Mapping[str, str] = NO_RACKS,
        past: dict[str, list[NodeFrame]] | None = None,
    ) -> None:
        self._racks = dict(racks)
        self._store = store
        self._hardware: dict[str, HostHardware] = {}
        self._frames: dict[str, NodeFrame] = {}
        self._shortages = Shortages()
        self._rows: dict[str, list[Row]] = {}
        self._events: list[StoredEvent] = []
        self._lost = 0
        self.record: Callable[[Record], None] | None = None
        self._came = trio.Event()
        self._taken = [0, 0, 0]
        self._one_reader = trio.CapacityLimiter(1)
        self._past = {} if past is None else past
        self.anomalies: AnomalyWatch | None = None
        if anomalies != "off":
            self.anomalies = AnomalyWatch(anomalies == "act", self.add_event, record=self._note)

    # What RIFs tell -----------------------------------------------------------------------------------------

    def greet(self, rif: Peer, host: str = "", rack: str = "") -> None:
        """Have a RIF that has joined measure its host.

        Args:
            rif: the connection to it.
            host: its host.
            rack: in which that is, "" if nobody has said so.
        """
        if rack:
            self._racks[host] = rack
        rif.post(StartMonitoring(self.anomalies is not None))

    def heard(self, rif: Peer, host: str, told: MonitorTold) -> None:
        """Take what a RIF tells of its host."""
        try:
            taken = list(rows_of_reads(host, told.reads, self._racks))
        except ValueError as error:
            drop_offender(rif, str(error))
            return
        if not all(map(_is_possible, told.nodes)):
            drop_offender(rif, "no host has such metrics")
            return
        self.add_rows(LOCALITY.name, taken)
        if taken:
            for at, name in enumerate(LOCALITY.counts):
                self._taken[at] += sum(int(row.values.get(name, 0)) for row in taken)
            self._note(LocalityChanged(trio.current_time(), *self._taken))
        if told.hardware is not None:
            self._hardware[host] = told.hardware
            if self.anomalies is not None:
                self.anomalies.joined(host, len(told.hardware.cpus))
                self.anomalies.recall(host, self._past.pop(host, ()))
        for frame in told.nodes:
            self._frames[host] = frame
            row = Row(frame.begin_s, (host,), frame.covered_s, {**frame.counts, **frame.levels})
            self.add_rows(NODES.name, (row,))
            for shortage in self._shortages.take(host, frame):
                at_s = float(shortage.begin_s)
                self.add_event(StoredEvent(at_s, shortage.kind, shortage.detail, host))
            if self.anomalies is not None:
                self.anomalies.take(host, frame)

    def _note(self, record: Record) -> None:
        """Tell those who watch the run-time system."""
        if self.record is not None:
            self.record(record)

    def heard_io(self, rif: Peer, host: str, told: IoTold) -> None:
        """Take what the tasks of a host have read, written and said."""
        try:
            rows = rows_of(host, told)
        except ValueError as error:
            drop_offender(rif, str(error))
            return
        self.add_rows(IO.name, rows)
        for event in told.events:
            self.add_event(StoredEvent(event.at_s, event.kind, event.text, host, event.job, event.task_id))

    def gone(self, host: str, why: str = "") -> None:
        """Forget a host whose RIF is gone; what it was stays in the store.

        Args:
            host: which one.
            why: its connection is over.
        """
        if why not in ("", CLOSED_HERE, CLOSED_THERE) and host in self._hardware:
            self.add_event(StoredEvent(time.time(), LOST_PROCESS, f"RIF: {why}", host))
        self._hardware.pop(host, None)
        self._frames.pop(host, None)
        if self.anomalies is not None:
            self.anomalies.gone(host)

    def add_rows(self, table: str, rows: Iterable[Row]) -> None:
        """Have frames stored.

        Args:
            table: name of their table.
            rows: the frames.
        """
        if self._store is None:
            return
        self._came.set()
        waiting = self._rows.setdefault(table, [])
        for row in rows:
            if len(waiting) < ROWS_MAX:
                waiting.append(row)
            else:
                self._lost += 1

    def add_event(self, event: StoredEvent) -> None:
        """Have an event stored."""
        if self._store is None:
            return
        self._came.set()
        if len(self._events) < ROWS_MAX:
            self._events.append(event)
        else:
            self._lost += 1

    # What clients ask ---------------------------------------------------------------------------------------

    def answer(
        self, question: GetHardware | GetNodeStats | GetSystemStats
    ) -> HardwareReport | NodeFrame | SystemStats:
        """Return the answer to a question.

        Raises:
            NoMetrics: there is no such host, or it has not told anything yet.
        """
        if isinstance(question, GetSystemStats):
            return self.system()
        if isinstance(question, GetNodeStats):
            if question.host in self._hardware and question.host not in self._frames:
                raise NoMetrics(f"host {question.host} has told no metrics yet: ask again in 5 s")
            return self._frames[self._known(question.host)]
        if not question.host:
            return HardwareReport(dict(self._hardware))
        host = self._known(question.host)
        return HardwareReport({host: self._hardware[host]})

    async def answer_io(self, call: IncomingCall, asked: GetIo) -> None:
        """Look up in the store what was read and written; one look at a time, beside everything else.

        Args:
            call: is answered.
            asked: what it asks.
        """
        store = self._store
        if store is None:
            call.fail(NoMetrics("this run-time system does not keep metrics any more; its log says why"))
            return
        look = partial(read_io, store.path.parent, asked, time.time(), store.run)
        try:
            call.reply(await trio.to_thread.run_sync(look, limiter=self._one_reader))
        except StoreError as error:
            call.fail(error)

    def _known(self, host: str) -> str:
        if host in self._hardware:
            return host
        there = ", ".join(sorted(self._hardware)) or "none"
        hint = did_you_mean(host, self._hardware)
        raise NoMetrics(f"there is no host {host!r}{hint}; monitored: {there}")

    def system(self) -> SystemStats:
        """Return how all hosts are."""
        busy = [frame.busy_cores for frame in self._frames.values()]
        told = [number for number in busy if number is not None]
        memory = (self._sum(name) for name in ("memory_bytes", "memory_available_bytes"))
        cores = sum(hardware.cores for host, hardware in self._hardware.items())
        path = "" if self._store is None else str(self._store.path.absolute())
        return SystemStats(path, dict(self._frames), cores, sum(told) if told else None, *memory)

    def _sum(self, level: str) -> float | None:
        told = [frame.levels[level] for frame in self._frames.values() if level in frame.levels]
        return sum(told) if told else None

    # Storing ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write to the store what comes, soon after, until cancelled; then what is left."""
        try:
            while self._store is not None:
                await self._came.wait()
                await trio.sleep(GATHER_S)
                self._came = trio.Event()
                await self._write(self._store)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_S):
                if self._store is not None:
                    await self._write(self._store)

    async def _write(self, store: Store) -> None:
        rows, self._rows = self._rows, {}
        events, self._events = self._events, []
        lost, self._lost = self._lost, 0
        if lost:
            events.append(StoredEvent(_last(rows), "lost_records", f"{lost} records were not stored"))
        if not rows and not events:
            return
        try:
            await trio.to_thread.run_sync(partial(store.write, rows, events))
        except StoreError as error:
            log.warning("metrics are not stored any more: %s; all else goes on", error)
            self._store = None
            store.close()

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()


def _is_possible(frame: NodeFrame) -> bool:
    """Return whether a host can have said so."""
    return (
        frame.begin_s < NUMBER_MAX
        and math.isfinite(frame.covered_s)
        and all(name in COUNTS and count < NUMBER_MAX for name, count in frame.counts.items())
        and all(name in LEVELS and abs(level) < NUMBER_MAX for name, level in frame.levels.items())
    )


def told_before(directory: Path, now_s: float) -> dict[str, list[NodeFrame]]:
    """Return host -> the frames that are in a store, in order; nothing if they cannot be read.

    Args:
        directory: of the store.
        now_s: seconds since 1970.
    """
    names = (*COUNTS, *LEVELS)
    sql = f"SELECT host, begin_s, covered_s, {', '.join(names)} FROM nodes WHERE begin_s >= ? AND seconds = ?"
    found: dict[str, list[NodeFrame]] = {}
    with suppress(StoreError):
        arguments = (now_s - PAST_S, FRAME_S, PAST_FRAMES_MAX)
        answer = query(directory, f"{sql} ORDER BY begin_s DESC LIMIT ?", arguments)
        for host, begin_s, covered_s, *values in reversed(answer.rows):
            told = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            counts = {name: told[name] for name in COUNTS if name in told}
            levels = {name: told[name] for name in LEVELS if name in told}
            frame = convert((begin_s, covered_s, counts, levels), _FrameFields)
            found.setdefault(str(host), []).append(NodeFrame(*frame))
    return {host: frames for host, frames in found.items() if frames[-1].begin_s >= now_s - SILENT_S}


_FrameFields = tuple[int, float, dict[str, int], dict[str, float]]


def _last(rows: dict[str, list[Row]]) -> float:
    return float(max((row.begin_s for found in rows.values() for row in found), default=0))


MONITOR_BYTES_MIN = 1 << 20
"""A store of metrics with less room keeps next to nothing."""


def check_monitor(directory: Path, bytes_max: int, topology: Path | str | None) -> None:
    """Refuse metrics that cannot be kept.

    Args:
        directory: of the store.
        bytes_max: room for it.
        topology: file that says which hosts are in which rack, or None.

    Raises:
        BadSetting: there is no room for them, or not there, or the file says something else.
    """
    if bytes_max < MONITOR_BYTES_MIN:
        raise BadSetting("monitor_bytes", str(bytes_max), f"it is at least {MONITOR_BYTES_MIN}")
    checked_directory(directory)
    if topology is not None:
        racks_in(topology)


def racks_in(topology: Path | str) -> dict[str, str]:
    """Return the rack of each host that a file names.

    Raises:
        BadSetting: it cannot be read.
    """
    try:
        return read_topology(Path(topology).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BadSetting("topology", str(topology), why) from error


@asynccontextmanager
async def open_collector(
    directory: Path, bytes_max: int, anomalies: str = "off", racks: Mapping[str, str] = NO_RACKS
) -> AsyncIterator[Collector]:
    """A collector for as long as the block runs.

    A store that is torn is left alone: metrics are not kept then, and one line says so.

    Args:
        directory: of the store.
        bytes_max: the store is kept below this size.
        anomalies: ``off``, ``watch`` or ``act``.
        racks: host -> its rack.

    Raises:
        BadSetting: another process writes this store.
    """
    try:
        store = await trio.to_thread.run_sync(Store, directory, bytes_max)
    except StoreBusy as error:
        raise BadSetting("monitor", str(directory), str(error)) from error
    except StoreError as error:
        log.warning("metrics are not stored: %s; all else goes on", error)
        store = None
    past = None
    if store is not None and anomalies != "off":
        past = await trio.to_thread.run_sync(told_before, directory, time.time())
    collector = Collector(store, anomalies, racks, past)
    try:
        async with open_scope() as nursery:
            nursery.start_soon(collector.run)
            if collector.anomalies is not None:
                nursery.start_soon(collector.anomalies.run)
            yield collector
            nursery.cancel_scope.cancel()
    finally:
        collector.close()
