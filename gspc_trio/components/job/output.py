"""Output of tasks: what each has printed is kept within bounds, and cut into lines for those who look.

A worker tells of a task that computes how many bytes it has printed and what is new of them; its outcome has
the last of all. Both are pieces of one stream, and may leave a gap or overlap.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from gspc_trio.core.ids import Attempt, TaskId
from gspc_trio.core.messages import OutputLine

PIECE_BYTES_MAX = 65536
"""An outcome has so much of the end of each stream: of one that is shorter it has all."""

TASK_BYTES_MAX = 1 << 20
"""Of each stream of a task the last so many bytes are kept."""

KEPT_BYTES_MAX = 32 << 20
KEPT_TASKS_MAX = 10_000
"""Of all tasks so much is kept; that of tasks that have failed goes last."""

LINE_CHARACTERS_MAX = 4_000
"""Of a longer line the beginning is shown."""

LINES_MAX = 5_000
"""So many of the last lines wait for those who look; who is slower misses some."""

WHY_CHARACTERS_MAX = 300
"""So much is said of why an attempt was followed by another one."""

JOB_SERVER: TaskId = 0
"""Stands for the job server among the tasks that print; theirs are numbered from 1."""

PROGRESS_INTERVAL_S = 2.0
"""A line that is overwritten again and again, as progress bars do it, is shown so often."""


class Printed(Struct, frozen=True):
    """What a task that has ended has printed."""

    task_id: TaskId
    name: str
    stdout: bytes
    stderr: bytes


class _Stream(Struct):
    """One stream of a task, of all its attempts.

    Attributes:
        total: bytes that the attempts have printed, as far as is known.
        before: of these, what was there when the present attempt began.
        kept: the last of what can be read: what is known of them, and lines that say what is missing.
        readable: bytes that could ever be read.
        open: the bytes of a line that has not ended.
        shown_s: when a line that is overwritten was last shown.
    """

    total: int = 0
    before: int = 0
    kept: bytearray = field(default_factory=bytearray)
    readable: int = 0
    open: bytes = b""
    shown_s: float = float("-inf")

    def take(self, total: int, piece: bytes) -> bytes:
        """Take the last of the ``total`` bytes of the present attempt.

        Returns:
            What is new of them, after a mark if some are missing.
        """
        total += self.before
        if total <= self.total:
            return b""
        missing = total - self.total - len(piece)
        new = piece[max(0, len(piece) - (total - self.total)) :]
        self.total = total
        if missing > 0:
            return self._keep_after_gap(new, missing)
        return self._keep(new)

    def take_end(self, tail: bytes) -> bytes:
        """Take the end of all that the present attempt has printed; return what is new of it."""
        if len(tail) < PIECE_BYTES_MAX:
            return self.take(len(tail), tail)
        # How much there was is not known: what was seen last tells where the new begins.
        known = self.total - self.before
        seen = bytes(self.kept[-min(1024, known) :]) if known else b""
        found = tail.rfind(seen) if seen else -1
        if found >= 0:
            return self.take(known + len(tail) - found - len(seen), tail)
        self.total += len(tail)
        return self._keep_after_gap(tail)

    def next_attempt(self, mark: str) -> bool:
        """Begin with another attempt, after a line that says why; return whether the last one had printed."""
        has_printed = self.total > self.before
        if has_printed:
            self._keep(self._as_line(mark))
        self.before = self.total
        return has_printed

    def since(self, seen: int) -> tuple[bytes, int]:
        """Return what can be read after so many bytes, and how many there were to read."""
        new = max(0, self.readable - seen)
        if new > len(self.kept):
            line, whole = _after_gap(bytes(self.kept), new - len(self.kept))
            return line.encode() + b"\n" + whole, self.readable
        return bytes(self.kept[-new:]) if new else b"", self.readable

    def _keep(self, new: bytes) -> bytes:
        self.kept += new
        self.readable += len(new)
        if len(self.kept) > TASK_BYTES_MAX:
            del self.kept[:-TASK_BYTES_MAX]
        return new

    def _keep_after_gap(self, piece: bytes, missing: int | None = None) -> bytes:
        line, whole = _after_gap(piece, missing)
        return self._keep(self._as_line(line) + whole)

    def _as_line(self, text: str) -> bytes:
        """Return a line of its own, for after what is kept."""
        begin = b"\n" if self.kept and not self.kept.endswith(b"\n") else b""
        return begin + text.encode() + b"\n"

    def cut(self, new: bytes, now: float, ended: bool) -> list[str]:
        """Return the lines that ``new`` completes."""
        *whole, self.open = (self.open + new).split(b"\n")
        if ended and self.open:
            whole.append(self.open)
            self.open = b""
        lines = [_shown(line) for line in whole]
        if len(self.open) > TASK_BYTES_MAX:
            self.open = self.open[-LINE_CHARACTERS_MAX:]
        if b"\r" in self.open and now - self.shown_s >= PROGRESS_INTERVAL_S:
            self.shown_s = now
            lines.append(_shown(self.open))
        return lines


def _after_gap(piece: bytes, missing: int | None = None) -> tuple[str, bytes]:
    """Return a line that says what is missing before a piece, and the piece from its first whole line on.

    Args:
        piece: if its first line is very long, it is taken as it is.
        missing: number of bytes before it; None if that is not known.
    """
    begin = piece.find(b"\n", 0, LINE_CHARACTERS_MAX) + 1
    number = "more" if missing is None else f"{missing + begin} bytes"
    return f"[... {number} left out ...]", piece[begin:]


def _shown(line: bytes) -> str:
    """Return a line as it stands in the end: what was overwritten is left out."""
    parts = [part for part in line.split(b"\r") if part.strip()]
    text = parts[-1].decode("utf-8", "replace") if parts else ""
    if len(text) > LINE_CHARACTERS_MAX:
        return f"{text[:LINE_CHARACTERS_MAX]}... ({len(text) - LINE_CHARACTERS_MAX} more characters)"
    return text


class _Entry(Struct):
    """What a task has printed.

    Attributes:
        name: of the task.
        attempt: that prints now, or was the last to do so.
        why: how that ended, or "".
    """

    name: str
    attempt: Attempt
    why: str = ""
    streams: tuple[_Stream, _Stream] = field(default_factory=lambda: (_Stream(), _Stream()))

    @property
    def size_bytes(self) -> int:
        return sum(len(stream.kept) + len(stream.open) for stream in self.streams)


class KeptOutput:
    """What the tasks of a job have printed: kept by task, and as lines in the order in which they came.

    Attributes:
        running: tasks that have printed something and have not ended.
        told: told each line, besides.
    """

    def __init__(self) -> None:
        self.told: Callable[[OutputLine], None] | None = None
        self.running: dict[TaskId, _Entry] = {}
        self._ended: OrderedDict[TaskId, _Entry] = OrderedDict()
        self._failed: OrderedDict[TaskId, _Entry] = OrderedDict()
        self._size_bytes = 0
        self._lines: deque[OutputLine] = deque(maxlen=LINES_MAX)
        self._number = 0

    # What it is told

    def seen(self, task_id: TaskId, attempt: Attempt) -> tuple[int, int]:
        """Return how many bytes of standard output and error of a running attempt are known."""
        entry = self.running.get(task_id)
        if entry is None or entry.attempt != attempt:
            return 0, 0
        stdout, stderr = entry.streams
        return stdout.total - stdout.before, stderr.total - stderr.before

    def printed(
        self,
        task_id: TaskId,
        name: str,
        attempt: Attempt,
        pieces: tuple[tuple[int, bytes], tuple[int, bytes]],
        now: float,
    ) -> None:
        """Take what a task that computes has printed.

        Args:
            task_id, name, attempt: of the task.
            pieces: of standard output and of standard error: bytes printed so far, and the last of them.
            now: the time, in seconds.
        """
        if pieces[0][0] or pieces[1][0]:
            entry = self._entry(task_id, name, attempt, now)
            for number, (total, piece) in enumerate(pieces):
                new = entry.streams[number].take(total, piece)
                self._put(task_id, entry, number, entry.streams[number].cut(new, now, ended=False))

    def ended(
        self,
        task_id: TaskId,
        name: str,
        attempt: Attempt,
        tails: tuple[bytes, bytes],
        now: float,
        *,
        failed: bool,
        why: str = "",
    ) -> None:
        """Take the end of what an attempt has printed that is over.

        Args:
            task_id, name, attempt: of the task.
            tails: the last of its standard output and error; all of it if that is less than PIECE_BYTES_MAX.
            now: the time, in seconds.
            failed: keep it longer than that of tasks that finished.
            why: how the attempt ended; said before what the next one prints, if there is one.
        """
        if not (tails[0] or tails[1] or task_id in self.running):
            return
        entry = self._entry(task_id, name, attempt, now)
        if why:
            entry.why = why
        for number, tail in enumerate(tails):
            new = entry.streams[number].take_end(tail)
            self._put(task_id, entry, number, entry.streams[number].cut(new, now, ended=True))
        self._end(task_id, entry, self._failed if failed else self._ended, now)

    def of_job_server(self, piece: bytes, now: float) -> None:
        """Take what the job server itself has printed, of which people read as of a task numbered 0."""
        total = self.seen(JOB_SERVER, 1)[0] + len(piece)
        self.printed(JOB_SERVER, "gspc-jobserver", 1, ((total, piece), (0, b"")), now)

    def _entry(self, task_id: TaskId, name: str, attempt: Attempt, now: float) -> _Entry:
        """Return the entry of a task, ready for what this attempt prints; earlier ones have failed."""
        entry = self.running.get(task_id)
        if entry is None:
            entry = self._failed.pop(task_id, None)
            if entry is None:
                entry = _Entry(name, attempt)
            else:
                self._size_bytes -= entry.size_bytes
            self.running[task_id] = entry
        if entry.attempt != attempt:
            self._next_attempt(task_id, entry, attempt, now)
        return entry

    def _next_attempt(self, task_id: TaskId, entry: _Entry, attempt: Attempt, now: float) -> None:
        why = entry.why.partition("\n")[0][:WHY_CHARACTERS_MAX]
        mark = f"[... {why or 'run again'} ...]"
        has_printed = False
        for number, stream in enumerate(entry.streams):
            self._put(task_id, entry, number, stream.cut(b"", now, ended=True))
            has_printed |= stream.next_attempt(mark)
        if has_printed:
            self._put(task_id, entry, 1, [mark])
        entry.attempt, entry.why = attempt, ""

    def _end(self, task_id: TaskId, entry: _Entry, kept: OrderedDict[TaskId, _Entry], now: float) -> None:
        del self.running[task_id]
        for number, stream in enumerate(entry.streams):
            self._put(task_id, entry, number, stream.cut(b"", now, ended=True))
        for others in (self._ended, self._failed):
            before = others.pop(task_id, None)
            if before is not None:
                self._size_bytes -= before.size_bytes
        kept[task_id] = entry
        self._size_bytes += entry.size_bytes
        while (
            self._size_bytes > KEPT_BYTES_MAX or len(self._ended) + len(self._failed) > KEPT_TASKS_MAX
        ) and len(self._ended) + len(self._failed) > 1:
            _, oldest = (self._ended or self._failed).popitem(last=False)
            self._size_bytes -= oldest.size_bytes

    def _put(self, task_id: TaskId, entry: _Entry, number: int, lines: Iterable[str]) -> None:
        for text in lines:
            line = OutputLine(task_id, entry.name, number == 1, text)
            self.put_line(line)
            if self.told is not None:
                self.told(line)

    def put_line(self, line: OutputLine) -> None:
        """Show a line among those of the tasks."""
        self._lines.append(line)
        self._number += 1

    # What it tells

    def streams_since(
        self, task_id: TaskId, seen: tuple[int, int]
    ) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
        """Return what can be read of both streams after so many bytes, and how many there were of each.

        That is what the task has printed, and lines that say what is missing. A reader gives the number back.
        """
        entry = self._find(task_id)
        if entry is None:
            return (b"", 0), (b"", 0)
        first, second = entry.streams
        return first.since(seen[0]), second.since(seen[1])

    def streams_of(self, task_id: TaskId) -> tuple[bytes, bytes]:
        """Return the last of standard output and error of a task, b"" if nothing is known."""
        entry = self._find(task_id)
        return (b"", b"") if entry is None else (entry.streams[0].since(0)[0], entry.streams[1].since(0)[0])

    def _find(self, task_id: TaskId) -> _Entry | None:
        kept = (self.running, self._failed, self._ended)
        return next((entries[task_id] for entries in kept if task_id in entries), None)

    def of(self, task_id: TaskId) -> tuple[str, str]:
        """Return the last of standard output and error of a task as text, "" if nothing is known."""
        stdout, stderr = self.streams_of(task_id)
        return stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")

    @property
    def number(self) -> int:
        """Number of lines that there ever were."""
        return self._number

    def lines_since(self, number: int, count_max: int) -> tuple[list[OutputLine], int, int]:
        """Return lines for one who has seen ``number`` of them.

        Returns:
            At most ``count_max`` lines; the number of those seen after them; how many are gone that were
            between.
        """
        first = self._number - len(self._lines)
        missed = max(0, first - number)
        begin = max(number, first)
        end = min(begin + count_max, self._number)
        lines = [self._lines[position - first] for position in range(begin, end)]
        return lines, end, missed
