"""What tasks have read and written, in frames: told by their processes, seen while long ones run (ASP-8).

Every amount is in one frame of one task, whoever has seen it first. So sums by task, node and job agree
exactly, and what was seen of a task that is killed stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gspc_trio.components.monitor.frames import FRAME_S, OpenFrames, add_up, frame_of
from gspc_trio.components.monitor.tables import Row, Table
from gspc_trio.compute.io.area import CALLS, COUNTS, OTHERS, Reading
from gspc_trio.core.ids import Attempt, Count, JobId, ResourceId, TaskId


class IoFrame(Struct, frozen=True):
    """What one attempt of a task has read and written in one frame.

    Attributes:
        begin_s: when the frame began, in seconds since 1970.
        job, resource_id: whose task, and where it ran.
        task_id, attempt: 0 for what processes did when no task ran there.
        covered_s: so many seconds of the frame were looked at for it, together with what ran beside it.
        amounts: name -> amount; see ``docs/monitoring.md``. What is 0 is absent.
    """

    begin_s: int
    job: JobId
    resource_id: ResourceId
    task_id: TaskId
    attempt: Attempt
    covered_s: float
    amounts: dict[str, Count]


USER, LOST_PROCESS = "user", "lost_process"
"""Kinds of events: a task has told it; a process has ended that nobody has ended."""


class TaskEvent(Struct, frozen=True):
    """A task has said that something happened, or its process is gone.

    Attributes:
        at_s: when, in seconds since 1970.
        job, resource_id: whose task, and where it ran.
        task_id, attempt: which it is.
        text: what it said, or why the process is gone.
        kind: :data:`USER` or :data:`LOST_PROCESS`.
    """

    at_s: float
    job: JobId
    resource_id: ResourceId
    task_id: TaskId
    attempt: Attempt
    text: str
    kind: str = USER


class IoTold(Struct, frozen=True):
    """RIF to RTS: frames of tasks that are over, each is told once; and what tasks say.

    Attributes:
        frames: of tasks that have read or written something.
        events: that tasks have told, in their order.
    """

    frames: tuple[IoFrame, ...] = ()
    events: tuple[TaskEvent, ...] = ()


MODES = ("off", "counts", "calls")
"""What can be told of the reading and writing of tasks."""

IO = Table("io", ("host", "job"), ("task", "attempt"), (*COUNTS, *OTHERS, *CALLS), of_run=("job",))
"""What tasks have read and written."""

NUMBER_MAX = 1 << 62
"""Larger numbers fit into no column, and no task has moved so much."""


def checked_mode(mode: str) -> str:
    """Return what is to be told of the reading and writing of tasks.

    Raises:
        ValueError: there is no such thing.
    """
    if mode not in MODES:
        raise ValueError(f"io={mode}: there are {', '.join(MODES)}")
    return mode


def rows_of(host: str, told: IoTold) -> list[Row]:
    """Return frames as the store keeps them.

    Args:
        host: that has told them.
        told: what it has told.

    Raises:
        ValueError: no host can have told this.
    """
    for frame in told.frames:
        known = frame.amounts.keys() <= _NAMES and max(frame.amounts.values(), default=0) < NUMBER_MAX
        numbers = (frame.begin_s, frame.task_id, frame.attempt)
        if not known or not all(0 <= n < NUMBER_MAX for n in numbers) or not 0 <= frame.covered_s <= FRAME_S:
            raise ValueError(f"no task of {host} has read or written so")
    for event in told.events:
        if event.kind not in (USER, LOST_PROCESS):
            raise ValueError(f"no task of {host} tells {event.kind}")
    return [
        Row(one.begin_s, (host, one.job, one.task_id, one.attempt), one.covered_s, one.amounts)
        for one in told.frames
    ]


_NAMES = frozenset(IO.counts)

Key = tuple[JobId, ResourceId, TaskId, Attempt]
"""Of whom a frame of a host tells."""


class _Process:
    """A compute process: what is told of it already."""

    def __init__(self, pid: int, at_s: float) -> None:
        self.pid = pid
        self.since_s = at_s
        self._counts: tuple[int, ...] = ()  # where they stood at its last reading
        self._ahead = [0] * len(COUNTS)  # told since then
        self._sums = [0] * (len(OTHERS) + 2 * len(CALLS))

    def grew(self, reading: Reading) -> list[int]:
        """Return what a reading has in counts that is not told yet."""
        new = [max(0, grown - ahead) for grown, ahead in zip(reading.grown, self._ahead, strict=True)]
        self._ahead = [max(0, ahead - grown) for grown, ahead in zip(reading.grown, self._ahead, strict=True)]
        self._counts = reading.counts
        return new

    def looked(self, counts: tuple[int, ...]) -> list[int]:
        """Return what counts show that is not told yet."""
        if not counts or not self._counts:
            return [0] * len(COUNTS)
        rows = zip(counts, self._counts, self._ahead, strict=True)
        new = [max(0, now - before - ahead) for now, before, ahead in rows]
        self._ahead = [ahead + more for ahead, more in zip(self._ahead, new, strict=True)]
        return new

    def called(self, sums: Sequence[int]) -> list[int]:
        """Return what sums of an area have that is not told yet."""
        new = [max(0, now - before) for now, before in zip(sums, self._sums, strict=False)]
        self._sums[: len(sums)] = [max(now, before) for now, before in zip(sums, self._sums, strict=False)]
        return new


class HostIo:
    """The frames of the tasks of one host."""

    def __init__(self) -> None:
        self._frames: OpenFrames[Key] = OpenFrames()
        self._processes: dict[tuple[JobId, ResourceId], _Process] = {}

    def told(self, job: JobId, resource_id: ResourceId, reading: Reading, at_s: float) -> None:
        """A compute process has told what its tasks have done.

        Args:
            job, resource_id: whose tasks, and where they ran.
            reading: what it says.
            at_s: the time for frames.
        """
        process = self._process(job, resource_id, reading.pid, at_s)
        keys = [(job, resource_id, *task) for task in reading.tasks] or [(job, resource_id, 0, 0)]
        self._add(keys, process, process.grew(reading), process.called(reading.sums), at_s)

    def looked(
        self,
        key: Key,
        pid: int,
        counts: tuple[int, ...],
        sums: Sequence[int],
        at_s: float,
    ) -> None:
        """A host has looked at the process of a task that runs.

        Args:
            key: the task.
            pid: the process.
            counts: what the kernel says of it.
            sums: what its area says; () without one.
            at_s: the time for frames.
        """
        process = self._process(key[0], key[1], pid, at_s)
        self._add([key], process, process.looked(counts), process.called(sums), at_s)

    def gone(self, job: JobId, resource_id: ResourceId) -> None:
        """A compute process is gone; what it has done stays."""
        self._processes.pop((job, resource_id), None)

    def close(self, at_s: float) -> tuple[IoFrame, ...]:
        """Return the frames that are over; each is returned once.

        Args:
            at_s: the time for frames; ``math.inf`` closes all.
        """
        return tuple(
            IoFrame(frame.begin_s, *frame.key, frame.covered_s, frame.amounts)
            for frame in self._frames.close(at_s)
            if frame.amounts
        )

    def _process(self, job: JobId, resource_id: ResourceId, pid: int, at_s: float) -> _Process:
        known = self._processes.get((job, resource_id))
        if known is None or known.pid != pid:
            known = self._processes[job, resource_id] = _Process(pid, at_s)
        return known

    def _add(
        self, keys: Sequence[Key], process: _Process, counts: Sequence[int], sums: Sequence[int], at_s: float
    ) -> None:
        since_s, process.since_s = process.since_s, at_s
        first, second = len(OTHERS), len(OTHERS) + len(CALLS)
        even, odd = _named(CALLS, sums[first:second]), _named(CALLS, sums[second:])
        now = frame_of(at_s)
        present, past = (odd, even) if now // FRAME_S % 2 else (even, odd)
        grown = _named(COUNTS, counts)
        before = earlier(grown, past, present)
        rest = {name: left for name, amount in grown.items() if (left := amount - before.get(name, 0))}
        past = add_up((past, before))
        present = add_up((present, rest, _named(OTHERS, sums[:first])))
        seen: dict[Key, None] = {}
        for amounts, ended_s in ((past, now - 1.0), (present, at_s)):
            if not amounts:
                continue
            for key, share in zip(keys, shares(amounts, len(keys)), strict=True):
                if share:
                    self._frames.add(key, ended_s, share)
                    seen[key] = None
        for key in seen:
            self._frames.cover(key, since_s, at_s)


def shares(amounts: Mapping[str, int], count: int) -> Iterable[dict[str, int]]:
    """Return so many shares, as equal as whole numbers can be; together they are the amounts."""
    if count == 1:
        return [dict(amounts)]
    return [
        {
            name: share
            for name, amount in amounts.items()
            if (share := amount // count + (number < amount % count))
        }
        for number in range(count)
    ]


def earlier(grown: Mapping[str, int], past: Mapping[str, int], present: Mapping[str, int]) -> dict[str, int]:
    """Return how much of what the kernel has counted belongs to the frame before.

    The kernel does not say when. The library does: so much of it as of the calls that it has seen.

    Args:
        grown: what the kernel has counted in both frames.
        past, present: what the library has in each of them.
    """
    before, now = (sum(each.get(name, 0) for name in _SIZED) for each in (past, present))
    if not before:
        return {}
    return {name: part for name, amount in grown.items() if (part := amount * before // (before + now))}


_SIZED = tuple(name for name in CALLS if "_to_" in name)
"""Each call that the library has seen is in one of these."""


def coverage(amounts: Mapping[str, int]) -> float | None:
    """Return which share of the bytes the library has seen, 0 to 1; None where nothing was moved.

    Args:
        amounts: of any frames, added up.
    """
    total = amounts.get("read_bytes", 0) + amounts.get("write_bytes", 0)
    names = ("file_read_bytes", "file_write_bytes", *OTHERS)
    return min(1.0, sum(amounts.get(name, 0) for name in names) / total) if total else None


def _named(names: Sequence[str], amounts: Sequence[int]) -> dict[str, int]:
    return {name: amount for name, amount in zip(names, amounts, strict=False) if amount}
