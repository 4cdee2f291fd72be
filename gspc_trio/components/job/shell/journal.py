"""The journal of a job on disk: results are durable before the workflow takes them in.

A directory holds one file at a time, ``journal.000001`` and so on: a snapshot of the workflow, then what
happened since. When that has grown large, the next file begins with a new snapshot and the old one goes.
Results gather while the disk is busy, and are made durable together. A job that is resumed in time takes over
tasks that its earlier job server has given out, and whose workers still live: see :class:`Takeover`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import trio
from msgspec import Struct

from gspc_trio.components.job.journal import JournaledEngine, JournalRecord, Values, replay
from gspc_trio.components.job.journal_bytes import (
    MAGIC,
    About,
    BadJournal,
    Framer,
    Frames,
    decode_record,
    encode_outcomes,
    encode_record,
)
from gspc_trio.components.job.machine import Close, Look, TakenOver
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.journal_files import (
    JournalDirectory,
    JournalError,
    has_journal,
    locked,
)
from gspc_trio.components.rif.messages import Orphans
from gspc_trio.core.ids import JobId, RifId, TaskId
from gspc_trio.core.task import Reason, TaskState
from gspc_trio.protocol.plain import from_json, to_json
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.tokens import Plain

GATHER_S = 0.002
"""Pause between two writes to the disk, in which results gather."""

NOTED_S = 0.1
"""So long after it was handed out a task is noted, should no result be noted before."""

FILE_BYTES_MAX = 64 * 2**20
"""Size at which a file gives way to one with a new snapshot, or twice the size of its own if that is more."""


class NotedJob(Struct, frozen=True):
    """Which job this was to which run-time system."""

    job: JobId
    instance: str


class Journal:
    """A journal that is open for one job server; made by :func:`create_journal` and :func:`open_journal`.

    Args:
        disk: where it lies.
        about: whose it is.
        records: what was read from it; empty for a new one.
        file_bytes_max: when to begin a new file.

    Attributes:
        engine: of the job, once :meth:`recover` has made it.
        is_begun: whether the workflow is in it: there is something to go on from.
        finished_before: tasks that had finished by then.
        syncs: how often it has waited for the disk.
    """

    def __init__(
        self,
        disk: JournalDirectory,
        about: About,
        records: list[JournalRecord],
        file_bytes_max: int = FILE_BYTES_MAX,
    ) -> None:
        self.about = about
        self.engine: JournaledEngine | None = None
        self.is_begun = False
        self.finished_before = 0
        self.syncs = 0
        self._disk = disk
        self._records = records
        self._file_bytes_max = file_bytes_max
        self._rows: list[tuple[TaskId, Values]] = []
        self._written: deque[tuple[TaskId, Values]] = deque()
        self._taken_in = 0
        self._wake: trio.Event | None = None
        self._framer = Framer()
        self._size_bytes = self._bound_bytes = 0

    @property
    def name(self) -> str:
        """Where it lies, for people and for ``gspc-jobserver resume``."""
        return self._disk.name

    def note_job(self, job: JobId, instance: str) -> None:
        """Note which job this is to which run-time system, for who may go on for it.

        Raises:
            JournalError: the disk does not take it.
        """
        with self._refused():
            self._disk.note(to_json(NotedJob(job, instance)))

    def earlier_job(self, instance: str) -> JobId:
        """Return which job this was to that run-time system, "" if it was none there."""
        try:
            noted = from_json(self._disk.noted(), NotedJob)
        except (OSError, ValueError):
            return ""
        return noted.job if instance and noted.instance == instance else ""

    def read_again(self) -> None:
        """Forget the engine and what is not durable: :meth:`recover` goes on from what is on disk.

        Raises:
            JournalError: the directory cannot be read any more.
        """
        self._disk.close()
        _, self._records = read_journal(self._disk)
        self.engine, self._taken_in = None, 0
        self._rows.clear()
        self._written.clear()

    async def recover(self, net: Net, values: Mapping[str, Iterable[object]]) -> JournaledEngine:
        """Return the engine that goes on where the journal ends, or that of a new job with these values.

        Raises:
            JournalError: the journal cannot be written.
            JournalMismatch: the workflow does not do again what it did.
            WorkflowError: the journal is of another net, or the values do not fit.
        """
        if self._records:
            records, self._records = self._records, []

            def load(state: dict[str, Plain]) -> WorkflowEngine:
                return WorkflowEngine.load(net, state, dumps=dumps, loads=loads, join=join)

            engine = await self._disk.compute(replay, records, load)
        else:
            engine = WorkflowEngine(net, values, dumps=dumps, loads=loads, join=join)
        self.finished_before = engine.counts()[TaskState.FINISHED]
        self.engine = JournaledEngine(engine, self._wake_up)
        await self._begin_file(self.engine)
        self.is_begun = True
        return self.engine

    def keep(self, done: TaskDone) -> None:
        """Make the result of a task durable; :meth:`run` says when it is."""
        self._rows.append((done.task_id, done.outcome.values))
        self._wake_up()

    async def run(self, kept: Callable[[int], None]) -> None:
        """Write until cancelled.

        Args:
            kept: told how many more results are durable, in the order in which they were given.

        Raises:
            JournalError: the disk does not take more.
        """
        engine = self.engine
        assert engine is not None
        while True:
            while not (self._rows or (engine.has_pulled and engine.is_whole)):
                await self._woken()
            with trio.move_on_after(NOTED_S):
                while not self._rows:
                    await self._woken()
            rows, self._rows = self._rows, []
            if engine.is_whole:
                await self._write(engine, rows)
            if rows:
                kept(len(rows))
            await trio.sleep(GATHER_S)

    async def _woken(self) -> None:
        self._wake = trio.Event()
        await self._wake.wait()

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()
            self._wake = None

    async def _write(self, engine: JournaledEngine, rows: list[tuple[TaskId, Values]]) -> None:
        frames = [self._framer.frame(encode_record(step)) for step in engine.take_steps()]
        if rows:
            frames.append(self._framer.frame(encode_outcomes(rows)))
        data = b"".join(frames)
        self._written.extend(rows)
        await self._durably(self._disk.append(data))
        self.syncs += 1
        self._size_bytes += len(data)
        if self._size_bytes > self._bound_bytes:
            await self._begin_file(engine)

    async def _begin_file(self, engine: JournaledEngine) -> None:
        """Replace the file by one that begins with the state of now."""
        for _ in range(engine.injected - self._taken_in):
            self._written.popleft()
        self._taken_in = engine.injected
        self._framer = Framer()
        records = [encode_record(self.about), encode_record(engine.snapshot())]
        if self._written:
            records.append(encode_outcomes(list(self._written)))
        data = MAGIC + b"".join(map(self._framer.frame, records))
        await self._durably(self._disk.replace(data))
        self._size_bytes = len(data)
        self._bound_bytes = max(self._file_bytes_max, 2 * len(data))

    async def _durably(self, write: Awaitable[None]) -> None:
        with self._refused():
            await write

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Say what an error of the disk means."""
        try:
            yield
        except OSError as error:
            name = self._disk.name
            raise JournalError(
                f"the journal {name} cannot be written: {error.strerror}; what it has is safe: "
                f"gspc-jobserver resume {name}"
            ) from error


@contextmanager
def create_journal(directory: Path, about: About, file_bytes_max: int = FILE_BYTES_MAX) -> Iterator[Journal]:
    """A new journal for the time of a block.

    Raises:
        JournalError: there is one in the directory, or others can look into it.
        OSError: the directory cannot be made.
    """
    with locked(directory):
        if has_journal(directory):
            raise JournalError(
                f"{directory} has the journal of an earlier run: go on with it by gspc-jobserver resume "
                f"{directory}, or name another directory"
            )
        disk = JournalDirectory(directory)
        try:
            yield Journal(disk, about, [], file_bytes_max)
        finally:
            disk.close()


@contextmanager
def open_journal(directory: Path, file_bytes_max: int = FILE_BYTES_MAX) -> Iterator[Journal]:
    """The journal of an earlier run for the time of a block.

    Raises:
        JournalError: there is none, it cannot be read, or another job server uses it.
    """
    if not directory.is_dir():
        raise JournalError(f"there is no journal {directory}: name the directory that was given to --journal")
    with locked(directory):
        disk = JournalDirectory(directory)
        about, records = read_journal(disk)
        try:
            yield Journal(disk, about, records, file_bytes_max)
        finally:
            disk.close()


def read_journal(disk: JournalDirectory) -> tuple[About, list[JournalRecord]]:
    """Return what the newest whole file says.

    Raises:
        JournalError: there is none.
    """
    problem = "it has no file"
    for name, read in disk.read():
        try:
            about, *records = map(decode_record, Frames(read()))
            if isinstance(about, About) and records:
                return about, records  # type: ignore[return-value]
            problem = f"{name} has no beginning"
        except (BadJournal, ValueError) as error:
            problem = f"{name}: {error}"
        except OSError as error:
            problem = f"{name}: {error.strerror}"
    raise JournalError(f"{disk.name} is no journal to go on with: {problem}")


WAIT_S = 60.0
"""How long RIFs may take to say what they have; what none has spoken of by then is run again.

The run-time system tells sooner of those that are lost, unless it has gone and has forgotten them."""


class Takeover:
    """Takes over from an earlier job server.

    Args:
        engine: of the job; it hands out nothing that was under way until it is known to be lost.
        orphan: the job that the earlier job server had.
        rifs: that may have something of it, each of which will say so, or be said to be gone.
        put: takes an event for the job's machine.
    """

    def __init__(
        self,
        engine: JournaledEngine,
        orphan: JobId,
        rifs: Iterable[RifId],
        put: Callable[[Close | Look | TakenOver], None],
    ) -> None:
        self.orphan = orphan
        self._engine = engine
        self._put = put
        self._unheard = set(rifs)
        self._out: dict[RifId, set[TaskId]] = {}
        self._taken: set[TaskId] = set()
        self._heard, self._over = trio.Event(), trio.Event()
        engine.hold_back()

    def report(self, rif_id: RifId, orphans: Orphans | None) -> None:
        """A RIF says what it has, or is gone (None)."""
        self._unheard.discard(rif_id)
        if orphans is None or orphans.over:
            self._out.pop(rif_id, None)
        else:
            out = self._out.setdefault(rif_id, set())
            out.update(orphans.outstanding)
            out.difference_update(outcome.task_id for outcome in orphans.outcomes)
            good = tuple(one for one in orphans.outcomes if one.reason is Reason.FINISHED)
            if good:
                self._taken.update(outcome.task_id for outcome in good)
                self._put(TakenOver(good))
        self._settle()

    def _settle(self) -> None:
        """Hand out what is known to be lost; the takeover ends with the last RIF."""
        if not self._unheard:
            self._heard.set()
            self._engine.release(self._taken.union(*self._out.values()))
            self._put(Look())
            if not self._out:
                self._over.set()

    async def run(self, leave: Callable[[JobId], Awaitable[None]]) -> None:
        """See it through.

        Args:
            leave: tells the run-time system that the earlier job is needed no more.
        """
        if self._unheard:
            with trio.move_on_after(WAIT_S):
                await self._heard.wait()
        self._unheard.clear()
        self._settle()
        await self._over.wait()
        self._put(Close())
        await leave(self.orphan)
