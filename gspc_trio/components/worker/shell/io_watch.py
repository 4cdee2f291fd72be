"""Watches what the tasks of a host read and write: hears its compute processes, and looks at long tasks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from gspc_trio.components.monitor.frames import FrameClock, frame_of
from gspc_trio.components.monitor.io_frames import LOST_PROCESS, HostIo, IoTold, TaskEvent
from gspc_trio.compute.io.area import EVENT_FIELDS, FLAGS, SOURCE, Area, Reading, counts_in, flat
from gspc_trio.core.ids import Attempt, JobId, ResourceId, TaskId
from gspc_trio.workflow.formats.in_tasks.native import CompileError, c_library

log: logging.Logger = logging.getLogger(__name__)

TICK_S = 0.5
"""Seconds between two looks at which tasks run; at processes only once in a frame."""

FRAMES_MAX = 500
"""So many frames travel in one message."""


_FIRST = itemgetter(0)


class Watched(Protocol):
    """The compute of a worker."""

    @property
    def running(self) -> tuple[TaskId, Attempt] | None:
        """The attempt that runs, as far as is known."""
        ...


class IoWatch:
    """Watches the compute processes of one host.

    Args:
        mode: ``counts`` or ``calls``.
        library: that processes load first, None for none.
    """

    def __init__(self, mode: str, library: Path | None = None) -> None:
        self.mode: str = mode
        self.library: Path | None = library
        self.post: Callable[[IoTold], None] | None = None
        self._clock = FrameClock()
        self._io = HostIo()
        self._watched: dict[ProcessWatch, None] = {}

    def of(self, job: JobId, resource_id: ResourceId, compute: Watched) -> ProcessWatch:
        """Return who hears the process of a worker."""
        watch = ProcessWatch(self, job, resource_id, compute)
        self._watched[watch] = None
        return watch

    def now(self) -> float:
        """Return the time for frames."""
        return self._clock.read(time.time(), trio.current_time())

    def told(self, watch: ProcessWatch, reading: Reading) -> None:
        """A process has told what its tasks have done."""
        self._io.told(watch.job, watch.resource_id, reading, self.now())

    def happened(self, event: TaskEvent) -> None:
        """A task has said that something happened."""
        if self.post is not None:
            self.post(IoTold((), (event,)))

    def ended(self, watch: ProcessWatch) -> None:
        """A process is gone; what its area still says is taken."""
        if self._watched.pop(watch, watch) is None:
            watch.look(self._io, self.now())
            watch.close()
            self._io.gone(watch.job, watch.resource_id)

    async def run(self) -> None:
        """Look at long tasks in each frame, and tell frames that are over, until cancelled; then all."""
        frame = frame_of(self.now())
        try:
            while True:
                await trio.sleep(TICK_S)
                at_s = self.now()
                is_next, frame = frame_of(at_s) != frame, frame_of(at_s)
                for watch in self._watched:
                    watch.tick(self._io, at_s, is_next, self._wall_ns(at_s))
                self._tell(at_s)
        finally:
            for watch in tuple(self._watched):
                self.ended(watch)
            self._tell(math.inf)

    @staticmethod
    def _wall_ns(at_s: float) -> int:
        return int(at_s * 1e9) - time.monotonic_ns()

    def _tell(self, at_s: float) -> None:
        frames = self._io.close(at_s)
        if self.post is not None:
            for begin in range(0, len(frames), FRAMES_MAX):
                self.post(IoTold(frames[begin : begin + FRAMES_MAX]))


class ProcessWatch:
    """Hears and looks at one compute process.

    Args:
        host: of the host.
        job, resource_id: whose tasks, and where they run.
        compute: what is known of the process.
    """

    def __init__(self, host: IoWatch, job: JobId, resource_id: ResourceId, compute: Watched) -> None:
        self.job: JobId = job
        self.resource_id: ResourceId = resource_id
        self._host = host
        self._compute = compute
        self._pid = 0
        self._area: Area | None = None
        self._running: tuple[int, int] | None = None  # at the last tick

    def taken(self, results: tuple[tuple[Any, ...], ...]) -> list[tuple[Any, ...]]:
        """Take readings and events out of what a process has sent; return the rest."""
        if None not in map(_FIRST, results):
            return list(results)
        rest = []
        for fields in results:
            if fields[0] is not None:
                rest.append(fields)
                continue
            if len(fields) == EVENT_FIELDS:
                self._host.happened(
                    TaskEvent(fields[3], self.job, self.resource_id, fields[1], fields[2], fields[4])
                )
                continue
            reading = msgspec.convert(fields[1:], Reading)
            if reading.pid != self._pid:
                self._open(reading)
            self._host.told(self, reading)
        return rest

    def _open(self, reading: Reading) -> None:
        self.close()
        self._pid = reading.pid
        if reading.descriptor >= 0:
            with (
                suppress(OSError, ValueError),
                open(f"/proc/{reading.pid}/fd/{reading.descriptor}", "r+b", buffering=0) as file,
            ):
                self._area = Area(file.fileno())

    def tick(self, io: HostIo, at_s: float, is_next: bool, wall_ns: int) -> None:
        """Look, in a new frame, at a task that ran already at the last tick."""
        running, before = self._compute.running, self._running
        self._running = running
        if self._area is not None:
            self._area.set_clock(wall_ns)
        if is_next and running is not None and running == before:
            self.look(io, at_s)

    def look(self, io: HostIo, at_s: float) -> None:
        """Take what the process of the task that runs has done so far."""
        running = self._compute.running or self._running
        if running is None or not self._pid:
            return
        counts: tuple[int, ...] = ()
        with suppress(OSError, ValueError), open(f"/proc/{self._pid}/io", "rb") as file:
            counts = counts_in(file.read())
        sums = flat(self._area.sums()) if self._area is not None else ()
        io.looked((self.job, self.resource_id, *running), self._pid, counts, sums, at_s)

    def close(self) -> None:
        """Let go of the memory."""
        if self._area is not None:
            self._area.close()
            self._area = None

    def gone(self, why: str = "") -> None:
        """The process is gone.

        Args:
            why: it is, if nobody has ended it; else "".
        """
        if why:
            running = self._compute.running or self._running or (0, 0)
            self._host.happened(
                TaskEvent(self._host.now(), self.job, self.resource_id, *running, why, LOST_PROCESS)
            )
        self._host.ended(self)


async def open_watch(mode: str) -> IoWatch | None:
    """Return who watches in a mode, None for ``off``; without a compiler for ``calls`` it counts.

    Args:
        mode: one of :data:`~gspc_trio.components.monitor.io_frames.MODES`.
    """
    if mode == "off":
        return None
    if mode == "counts":
        return IoWatch(mode)
    try:
        text = await trio.Path(SOURCE).read_text(encoding="utf-8")
        return IoWatch(mode, await trio.to_thread.run_sync(c_library, text, FLAGS))
    except (CompileError, OSError) as error:
        log.warning(
            "calls of tasks are not counted, only what the kernel counts: %s", str(error).splitlines()[0]
        )
        return IoWatch("counts")
