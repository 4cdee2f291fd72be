"""Frames of a host, made of readings once a second; and when it is short of something."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gspc_trio.components.monitor.frames import FrameClock, frame_of
from gspc_trio.components.monitor.messages import NodeFrame
from gspc_trio.components.monitor.readings import Reading


class NodeFrames:
    """Makes frames of readings.

    What was counted between two readings belongs to the frame in which the middle between them lies, as does
    the time between them: so amounts over ``covered_s`` are right, though no reading is made at the very
    moment at which a frame ends.
    """

    def __init__(self) -> None:
        self._clock = FrameClock()
        self._last: tuple[float, float, Reading] | None = None
        self._begin = 0
        self._covered_s = 0.0
        self._counts: dict[str, int] = {}
        self._levels: dict[str, tuple[float, int]] = {}

    def take(self, wall_s: float, now: float, reading: Reading) -> list[NodeFrame]:
        """Take in a reading; return the frames that are over.

        Args:
            wall_s: what the clock of the host shows, in seconds since 1970.
            now: seconds on a clock that nobody sets.
            reading: made at that moment.
        """
        at_s = self._clock.read(wall_s, now)
        last, self._last = self._last, (at_s, now, reading)
        if last is None:
            return []
        begin = frame_of((last[0] + at_s) / 2)
        over = self.close() if begin > self._begin else []
        self._begin = begin
        self._covered_s += now - last[1]
        before = last[2]
        for name, count in reading.counts.items():
            # Less than before: a device is gone, or a counter began anew. What it was is not known.
            if count >= before.counts.get(name, count + 1):
                self._counts[name] = self._counts.get(name, 0) + count - before.counts[name]
        shares = _shares(before, reading)
        levels = dict(reading.levels)
        if shares:
            levels["busiest_core"] = max(shares.values())
        at_work = [mhz for cpu, mhz in reading.frequencies.items() if shares.get(cpu, 0.0) > WORKING_SHARE]
        if at_work:
            levels["busy_frequency_mhz"] = sum(at_work) / len(at_work)
        for name, level in levels.items():
            total, number = self._levels.get(name, (0.0, 0))
            self._levels[name] = total + level, number + 1
        return over

    def close(self) -> list[NodeFrame]:
        """End the frame that is open, and return it if anything was measured in it."""
        covered_s, counts, levels = self._covered_s, self._counts, self._levels
        self._covered_s, self._counts, self._levels = 0.0, {}, {}
        if not covered_s:
            return []
        means = {name: total / number for name, (total, number) in levels.items()}
        return [NodeFrame(self._begin, round(covered_s, 3), counts, means)]


WORKING_SHARE = 0.5
"""A CPU that was at work for more of the time shows its frequency under load."""


def _shares(before: Reading, after: Reading) -> dict[str, float]:
    """Return CPU -> the share of the time that it was at work; one that does not tell is absent."""
    shares = {}
    for name, (busy, total) in after.cores.items():
        busy_before, total_before = before.cores.get(name, (busy, total))
        if total > total_before:
            shares[name] = max(0.0, min(1.0, (busy - busy_before) / (total - total_before)))
    return shares


class Shortage(Struct, frozen=True):
    """A host is short of something from this frame on.

    Attributes:
        begin_s: of the frame.
        kind: ``memory_full``, ``disk_full``, ``swapping`` or ``out_of_memory_kill``.
        detail: one line for people.
    """

    begin_s: int
    kind: str
    detail: str


MEMORY_AVAILABLE_SHARE_MIN = 0.05
"""With less memory than this share of it a host is short."""

DISK_FREE_SHARE_MIN = 0.02
"""With less room than this share its disk is full; file systems keep some for the administrator."""


class Shortages:
    """Says when hosts become short of something, once until they are not any more."""

    def __init__(self) -> None:
        self._on: dict[str, set[str]] = {}

    def take(self, host: str, frame: NodeFrame) -> list[Shortage]:
        """Return what a host is short of since this frame."""
        now = shortages(frame)
        before = self._on.get(host, set())
        self._on[host] = set(now)
        return [
            Shortage(frame.begin_s, kind, detail)
            for kind, detail in now.items()
            if kind not in before or kind == "out_of_memory_kill"
        ]


def shortages(frame: NodeFrame) -> Mapping[str, str]:
    """Return of what a host is short in a frame: kind -> one line for people."""
    found: dict[str, str] = {}
    counts, levels = frame.counts, frame.levels
    total, available = levels.get("memory_bytes"), levels.get("memory_available_bytes")
    if total and available is not None and available < MEMORY_AVAILABLE_SHARE_MIN * total:
        found["memory_full"] = f"{available / total:.1%} of the memory is available"
    free = levels.get("disk_free_share")
    if free is not None and free < DISK_FREE_SHARE_MIN:
        found["disk_full"] = f"{free:.1%} of the disk for temporary files is free"
    if swapped := counts.get("pages_swapped_out", 0):
        found["swapping"] = f"{swapped} pages were written to the swap space"
    if killed := counts.get("out_of_memory_kills", 0):
        found["out_of_memory_kill"] = f"the kernel killed {killed} processes for their memory"
    return found
