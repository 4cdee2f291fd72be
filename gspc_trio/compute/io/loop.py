"""The loop of a compute process that says what its tasks have read and written."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from time import perf_counter, time
from typing import Any

import msgspec

from gspc_trio.compute import system
from gspc_trio.compute.channel import RUN, pack
from gspc_trio.compute.io.area import COUNTS, EVENT_CHARS_MAX, VARIABLE, Area, Reading, counts_in, flat
from gspc_trio.compute.loop import QUICK_S, Item, Loop, Received

SHORT_S = 0.001
"""Tasks that take less share with those beside them: to read the counts takes as long as a quick task."""

SHARE_S = 0.01
"""While there is more to do, those share that have ended in so long."""

_NOTHING = (0,) * len(COUNTS)


class Meter:
    """What this process, and those that it has reaped, have read and written.

    Args:
        calls: whether the library counts, too, if this process has loaded it.
    """

    def __init__(self, calls: bool) -> None:
        self.pid: int = os.getpid()
        self._area: Area | None = None
        self._area_file = -1
        self._file = -1
        with suppress(OSError):  # the kernel does not count
            self._file = os.open("/proc/self/io", os.O_RDONLY)
        if calls:
            self._attach()
        self._last = self._counts()[1]
        self._own = tuple(system.own_reads)
        self._sums: tuple[int, ...] = ()

    def _attach(self) -> None:
        attach = getattr(ctypes.CDLL(None), "gspc_io_attach", None)
        if attach is None:  # it could not be loaded
            return
        self._area_file = os.memfd_create("gspc-io")
        self._area = Area.make(self._area_file)
        path = f"/proc/{self.pid}/fd/{self._area_file}"
        if attach(path.encode()) == 0:
            os.environ[VARIABLE] = path

    def _counts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the counts, and where they are when this reading is counted, too."""
        if self._file < 0:
            return _NOTHING, _NOTHING
        content = os.pread(self._file, 512, 0)
        counts = counts_in(content)
        return counts, (counts[0] + 1, counts[1], counts[2] + len(content), *counts[3:])

    def read(self, tasks: tuple[tuple[int, int], ...]) -> Reading | None:
        """Return what these tasks have done since the last reading; None: nothing at all.

        Args:
            tasks: that have ended since then; without one where it stands is told in any case.
        """
        counts, after = self._counts()
        reads, writes, size, *others = (now - then for now, then in zip(counts, self._last, strict=True))
        calls, own_bytes = system.own_reads
        grown = reads - (calls - self._own[0]), writes, size - (own_bytes - self._own[1]), *others
        self._last, self._own = after, (calls, own_bytes)
        sums = self._sums
        if self._area is not None:
            sums = flat(self._area.sums())
            self._area.next_task()
        if tasks and grown == _NOTHING and sums == self._sums:
            return None
        self._sums = sums
        return Reading(tasks, grown, after, sums, self.pid, self._area_file)


class CountingLoop(Loop):
    """A loop that adds to the results what their tasks have read and written.

    Attributes:
        calls: whether the library counts in its processes.
    """

    calls: bool = False
    _meter: Meter | None = None
    _pid = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._place.tell_event = self._tell_event
        self._ended: list[tuple[int, int]] = []  # tasks since the last reading
        self._short: set[int] = set()  # codes whose last run was shorter than SHORT_S
        self._read_s = 0.0
        self._all_short = False  # those of the last packet

    def begin(self) -> None:
        """Note where this process stands."""
        self._meter = Meter(self.calls)
        self._pid = os.getpid()
        self._keep_changes()

    def receive(self) -> list[Item] | None:
        """Return the items of the next packet; if one may take long, look at the counts before it.

        What was read a moment ago still holds: a reading of its own would be sent before the task begins.
        """
        items = super().receive()
        short = self._short
        self._all_short = items is not None and all(it[0] != RUN or it[3] in short for it in items)
        is_old = bool(self._ended) or perf_counter() - self._read_s > SHARE_S
        if is_old and items is not None and not self._all_short:
            self._read()  # whoever watches knows then where it stood
        return items

    def _receive_later(self) -> Received:
        if self._ended:
            self._read()
        return super()._receive_later()

    def _learn(self, code_id: int, duration_s: float) -> None:
        place = self._place
        self._ended.append((place.task_id, place.attempt))
        if duration_s < QUICK_S and self._all_short and code_id in self._quick and not place.sends_results:
            return  # all of it is known: this is the way of each quick task
        super()._learn(code_id, duration_s)
        if duration_s < SHORT_S:
            self._short.add(code_id)
        else:
            self._short.discard(code_id)
            self._all_short = False
            self._read()

    def send(self) -> None:
        """Send the results that have gathered, and what their tasks have read and written."""
        if self._ended and not (self._all_short and perf_counter() - self._read_s < SHARE_S):
            self._read()
        super().send()

    def finish(self) -> None:
        """Send all there is: this process ends."""
        if self._ended:
            self._read()
        super().finish()

    def _tell_event(self, text: str) -> None:
        """Send at once what a task says."""
        if threading.current_thread() is not threading.main_thread() or os.getpid() != self._pid:
            raise RuntimeError("event() belongs to the process and the thread that a task runs in")
        place = self._place
        told = [None, place.task_id, place.attempt, time(), text[:EVENT_CHARS_MAX]]
        self._unsent.add(pack(told), perf_counter())
        super().send()

    def _read(self) -> None:
        assert self._meter is not None
        self._read_s = perf_counter()
        reading = self._meter.read(tuple(self._ended))
        self._ended.clear()
        if reading is not None:
            self._unsent.add(pack([None, *msgspec.to_builtins(reading)]), self._read_s)
