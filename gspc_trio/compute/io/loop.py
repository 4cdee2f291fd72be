"""The loop of a compute process that says what its tasks have read and written."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from time import perf_counter, time
from typing import Any

import msgspec

from gspc_trio.compute.channel import RUN, pack
from gspc_trio.compute.io.area import COUNTS, EVENT_CHARS_MAX, VARIABLE, Area, Reading, counts_in, flat
from gspc_trio.compute.loop import Item, Loop

SHORT_S = 0.001
"""Tasks that take less share with those beside them: to read the counts takes as long as a quick task."""

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
        grown = tuple(now - before for now, before in zip(counts, self._last, strict=True))
        self._last = after
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

    def handle(self, item: Item) -> None:
        """Do what an item says; before what may take long, look at the counts."""
        if self._meter is None:
            self._meter = Meter(self.calls)
            self._pid = os.getpid()
            self._keep_changes()
        if item[0] == RUN and item[3] not in self._short:
            self._read()
        super().handle(item)

    def _learn(self, code_id: int, duration_s: float) -> None:
        super()._learn(code_id, duration_s)
        self._ended.append((self._place.task_id, self._place.attempt))
        if duration_s < SHORT_S:
            self._short.add(code_id)
        else:
            self._short.discard(code_id)
            self._read()

    def send(self) -> None:
        """Send the results that have gathered, and what their tasks have read and written."""
        if self._ended:
            self._read()
        super().send()

    def _tell_event(self, text: str) -> None:
        """Send at once what a task says."""
        if threading.current_thread() is not threading.main_thread() or os.getpid() != self._pid:
            raise RuntimeError("event() belongs to the process and the thread that a task runs in")
        place = self._place
        self._add(pack([None, place.task_id, place.attempt, time(), text[:EVENT_CHARS_MAX]]))
        super().send()

    def _add(self, packed: bytes) -> None:
        if not self._unsent:
            self._oldest_unsent = perf_counter()
        self._unsent.append(packed)
        self._unsent_bytes += len(packed)

    def _read(self) -> None:
        assert self._meter is not None
        reading = self._meter.read(tuple(self._ended))
        self._ended.clear()
        if reading is not None:
            self._add(pack([None, *msgspec.to_builtins(reading)]))
