"""The journal of a job on disk: results are durable before the workflow takes them in.

A directory holds one current file, ``journal.000001`` and so on: a snapshot of the workflow, then what
happened since. When that has grown large, the next file begins with a new snapshot. The old one stays, under
another name, for the results in it: should the code change, those of tasks that are the same are kept.
Results gather while the disk is busy, and are made durable together. A job that is resumed in time takes over
tasks that its earlier job server has given out, and whose workers still live: see :class:`Takeover`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from secrets import token_bytes

import trio
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.credentials import open_settings
from gspc_trio.components.job.journal import (
    JournaledEngine,
    JournalRecord,
    Reusable,
    Values,
    replay,
)
from gspc_trio.components.job.journal_bytes import (
    MAGIC,
    About,
    encode_outcomes,
    encode_record,
)
from gspc_trio.components.job.machine import Close, Look, TakenOver
from gspc_trio.components.job.reuse import Results, Reuse, rest_in, result_of, results_in, reuse
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.identities import TaskFiles, identities_of
from gspc_trio.components.job.shell.journal_files import (
    JournalDirectory,
    JournalError,
    has_journal,
    has_results,
    locked,
    read_earlier,
    read_journal,
)
from gspc_trio.components.job.shell.recovery import FIRST_TASK_ID
from gspc_trio.components.job.shell.stored_values import OpenData, StoredValues
from gspc_trio.components.job.task_key import Key, Noted, TaskKeys, files_read, files_stored, key_of
from gspc_trio.components.rif.messages import Orphans
from gspc_trio.core.ids import JobId, RifId, TaskId
from gspc_trio.core.task import Outcome, Reason, Task, TaskState
from gspc_trio.iml.errors import ImlError
from gspc_trio.protocol.plain import from_json, to_json
from gspc_trio.protocol.values import dumps, is_reference, join, loads
from gspc_trio.records.journal_frames import Framer
from gspc_trio.workflow.activities import engine_of, loaded_engine
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.tokens import Plain

SALT_BYTES = 16

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
        changed: see below.

    Attributes:
        engine: of the job, once :meth:`recover` has made it.
        changed: whether the workflow is another one than that of the journal: its tasks take those results
            that suit, and the others are run.
        files: of the job's host, which its tasks fetch and store.
        takes_over: whether what an earlier job server has at work is of this workflow; otherwise it is ended.
        is_begun: whether the workflow is in it: there is something to go on from.
        finished_before: tasks that had finished by then.
        syncs: how often it has waited for the disk.
        stored: large values, each in a file of its own.
        open_data: returns the bytes of data in the memory layer of the job; None: it has none.
    """

    def __init__(
        self,
        disk: JournalDirectory,
        about: About,
        records: list[JournalRecord],
        file_bytes_max: int = FILE_BYTES_MAX,
        changed: bool = False,
    ) -> None:
        self.about: About = about
        self.changed: bool = changed
        self.files: TaskFiles = TaskFiles()
        self.engine: JournaledEngine | None = None
        self.is_begun: bool = False
        self.finished_before: int = 0
        self.syncs: int = 0
        self._disk = disk
        self._records = records
        self._was_there = bool(records)
        self._file_bytes_max = file_bytes_max
        self.takes_over: bool = True
        self._noted = ""
        self._reuse: Reuse | None = None
        self._rest = Results()
        self._has_results = False
        self._rows: list[tuple[TaskId, Values]] = []
        self._written: deque[tuple[tuple[TaskId, Values], Key]] = deque()
        self._taken_in = 0
        self._wake: trio.Event | None = None
        self._waiting: list[trio.Event] = []
        self._noting: list[trio.Event] = []
        self._is_written = False
        self._framer = Framer(MAGIC)
        self._size_bytes = self._bound_bytes = 0
        self.stored: StoredValues = StoredValues(disk)
        self.open_data: OpenData | None = None

    @property
    def name(self) -> str:
        """Where it lies, for people and for ``gspc-jobserver resume``."""
        return self._disk.name

    def settings_are(self, settings: Sequence[str]) -> None:
        """Note other settings from now on, ``name=value``; their credentials are not written."""
        self._disk.given = settings
        self.about, self._disk.pairs = self.about.with_settings(settings, token_bytes(SALT_BYTES))

    def _frame(self, payload: bytes, uris: bool = True) -> bytes:
        with self._refused():
            return self._framer.frame(bytes(self._disk.sealed(payload, uris=uris)))

    def files_are_below(self, directory: str, files_max: int) -> None:
        """Say where the files of the job's tasks are, "" for the working directory, and how many in a set."""
        self.files = TaskFiles(directory, files_max)

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
            noted = from_json(self._noted or self._disk.noted(), NotedJob)
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
        self.takes_over, self._noted = True, ""
        self.engine, self._taken_in = None, 0
        self._rows.clear()
        self._written.clear()

    async def recover(self, net: Net, values: Mapping[str, Iterable[object]]) -> JournaledEngine:
        """Return the engine that goes on where the journal ends, or that of a new job with these values.

        That of a workflow that has changed begins anew, with those results that suit.

        Raises:
            JournalError: the journal cannot be written.
            JournalMismatch: the workflow does not do again what it did.
            WorkflowError: the journal is of another net, or the values do not fit.
        """
        if self.changed:
            return await self._recover_changed(self._reuse or await self.compare(net, values))
        self.about = replace(self.about, identities=await self._disk.compute(identities_of, net))
        if self._records:
            records, self._records = self.stored.restored(self._records), []
            self._rest = rest_in(records)
            self._has_results = has_results(records)

            def load(state: dict[str, Plain]) -> WorkflowEngine:
                return loaded_engine(net, state, dumps=dumps, loads=loads, join=join)

            engine = await self._disk.compute(replay, records, load)
        else:
            engine = engine_of(net, values, dumps=dumps, loads=loads, join=join)
        return await self._begin(engine)

    async def compare(self, net: Net, values: Mapping[str, Iterable[object]]) -> Reuse:
        """Return which results suit a workflow that has changed; :meth:`recover` goes on with it.

        Nothing is written.

        Raises:
            WorkflowError: the values do not fit, or a condition or an inline transition raised.
        """
        number, records = self.about.version_number, self._records
        engine = engine_of(net, values, dumps=dumps, loads=loads, join=join)

        def look() -> Reuse:
            files = [*read_earlier(self._disk, number), records]
            results = results_in(map(self.stored.still_there, files))
            return reuse(engine, identities_of(net), self.about.identities, results, self.files.digest)

        self._reuse = await self._disk.compute(look)
        return self._reuse

    async def _recover_changed(self, found: Reuse) -> JournaledEngine:
        """Begin anew with what suits. Nobody takes over what still runs: it is of the earlier version.

        So the note of which job that was goes first, and stays in memory only.
        """
        self.changed, self._reuse, self._records, self._rest = False, None, [], found.rest
        number = self.about.version_number + 1
        self.about = replace(self.about, identities=dict(found.identities), version_number=number)
        with suppress(OSError):  # it never came so far
            self._noted = self._disk.noted()
        self.takes_over = False
        with self._refused():
            self._disk.note("")
        engine = await self._begin(found.engine, found.taken)
        with self._refused():
            self._disk.drop_earlier()
        return engine

    async def _begin(self, engine: WorkflowEngine, taken: Reusable | None = None) -> JournaledEngine:
        self.finished_before = engine.counts()[TaskState.FINISHED]
        keys = TaskKeys(self.about.identities, self.files.mark)
        self.engine = JournaledEngine(engine, self._wake_up, keys)
        if self.stored.has_some:
            extract, with_values = self.engine.extract, self.stored.with_values
            self.engine.extract = lambda task_id: with_values(extract(task_id))
        await self._begin_file(self.engine, taken)
        self.is_begun = True
        return self.engine

    @property
    def has_rest(self) -> bool:
        """Whether there are results of an earlier version whose tasks have not come yet."""
        return bool(self._rest)

    async def recall(self, tasks: Sequence[Task]) -> list[Outcome]:
        """Take the results of those of these tasks that were the same in an earlier version."""
        assert self.engine is not None
        noted = [(task.task_id, self.engine.keys.of(task)) for task in tasks] if self._rest else []
        plans = [one.plan for _, one in noted if one is not None and one.plan is not None]
        content: dict[str, bytes | None] = {}

        def look() -> None:
            for path in chain.from_iterable((*files_read(plan), *files_stored(plan)) for plan in plans):
                if path not in content:
                    content[path] = self.files.digest(path)

        if plans:
            await self._disk.compute(look)
        found = ((task_id, result_of(one, self._rest, content.get)) for task_id, one in noted)
        return [
            Outcome(task_id, 0, Reason.FINISHED, result.values)
            for task_id, result in found
            if result is not None
        ]

    def keep(self, done: TaskDone) -> None:
        """Make the result of a task durable; :meth:`run` says when it is."""
        self._rows.append((done.task_id, done.outcome.values))
        self._wake_up()

    async def wait_noted(self) -> None:
        """Wait until all is on disk that has come to open ports so far, or was taken off."""
        if self._is_written:
            noted = trio.Event()
            self._waiting.append(noted)
            self._wake_up()
            await noted.wait()

    async def run(self, kept: Callable[[int], None]) -> None:
        """Write until cancelled.

        Args:
            kept: told how many more results are durable, in the order in which they were given.

        Raises:
            JournalError: the disk does not take more.
        """
        self._is_written = True
        try:
            await self._write_on(kept)
        finally:
            self._is_written = False
            self._tell()  # the job ends, and says why

    async def _write_on(self, kept: Callable[[int], None]) -> None:
        engine = self.engine
        assert engine is not None
        while True:
            while not (self._rows or self._waiting or (engine.has_pulled and engine.is_whole)):
                await self._woken()
            with trio.move_on_after(NOTED_S):
                while not (self._rows or self._waiting):
                    await self._woken()
            rows, self._rows = self._rows, []
            self._noting, self._waiting = self._waiting, []
            if engine.is_whole:
                noted = [row for row in rows if row[0] < FIRST_TASK_ID]  # others only make lost data again
                await self._write(engine, noted, await self._keys_of(engine, noted))
            if rows:
                kept(len(rows))
            self._tell()
            await trio.sleep(GATHER_S)

    def _tell(self) -> None:
        """Tell who waits until what has come so far is noted."""
        noting, self._noting = self._noting, []
        for noted in noting if self._is_written else (*noting, *self._waiting):
            noted.set()

    async def _woken(self) -> None:
        self._wake = trio.Event()
        await self._wake.wait()

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()
            self._wake = None

    async def _keys_of(self, engine: JournaledEngine, rows: list[tuple[TaskId, Values]]) -> list[Key]:
        """Return what tasks were that have ended; the content of their files is looked at now."""
        found = engine.keys_of(rows)
        keys = [one for one in found if not isinstance(one, Noted)]
        if len(keys) == len(found):
            return keys

        def with_files() -> list[Key]:
            is_same, digest = self.files.is_same, self.files.digest
            return [key_of(one, is_same, digest) if isinstance(one, Noted) else one for one in found]

        return await self._disk.compute(with_files)

    async def _write(
        self, engine: JournaledEngine, rows: list[tuple[TaskId, Values]], keys: list[Key]
    ) -> None:
        rows = await self._stored(rows)
        frames = [self._frame(encode_record(step)) for step in engine.take_steps()]
        if rows:
            frames.append(self._frame(encode_outcomes(rows, keys)))
            self._has_results = True
        data = b"".join(frames)
        self._written.extend(zip(rows, keys, strict=True))
        await self._durably(self._disk.append(data))
        self.syncs += 1
        self._size_bytes += len(data)
        if self._size_bytes > self._bound_bytes:
            await self._begin_file(engine)

    async def _stored(self, rows: list[tuple[TaskId, Values]]) -> list[tuple[TaskId, Values]]:
        """Return results as they are noted; what lies in the memory layer is durable then."""
        open_data = self.open_data
        if open_data is None or not any(is_reference(one) for _, values in rows for one in chain(*values)):
            return rows
        try:
            with self._refused():
                return await self._disk.compute(self.stored.store, rows, open_data)
        except ImlError as error:
            again = f"gspc-jobserver resume {self._disk.name}"
            why = f"a result was lost before the journal had it: {error}; go on with {again}"
            raise JournalError(why) from error

    async def _begin_file(self, engine: JournaledEngine, taken: Reusable | None = None) -> None:
        """Replace the file by one that begins with the state of now; that of before stays for its results.

        Args:
            engine: of the job.
            taken: results of an earlier version that are in that state; then nothing of before is needed.
        """
        for _ in range(engine.injected - self._taken_in):
            self._written.popleft()
        self._taken_in = engine.injected
        self._framer = Framer(MAGIC)
        records = [encode_record(self.about)]
        if taken is not None:
            records.append(encode_record(taken))
        if self._rest:
            records.append(encode_record(self._rest.record()))
        records.append(encode_record(self.stored.written(engine.snapshot())))
        if self._written:
            rows, keys = zip(*self._written, strict=True)
            records.append(encode_outcomes(rows, keys))
        about, *records = records
        data = MAGIC + self._frame(about, uris=False) + b"".join(map(self._frame, records))
        await self._durably(self._disk.replace(data, keep=self._has_results and taken is None))
        with self._refused():
            self.stored.sweep()
        self._has_results = bool(self._written) or taken is not None
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
            has = self.is_begun or self._was_there
            safe = f"; what it has is safe: gspc-jobserver resume {name}" if has else ""
            raise JournalError(f"the journal {name} cannot be written: {error.strerror}{safe}") from error


@contextmanager
def create_journal(directory: Path, about: About, file_bytes_max: int = FILE_BYTES_MAX) -> Iterator[Journal]:
    """A new journal for the time of a block.

    Raises:
        JournalError: there is one in the directory, others can look into it, or it cannot be made.
    """
    with locked(directory):
        if has_journal(directory):
            raise JournalError(
                f"{directory} has the journal of an earlier run: go on with it by gspc-jobserver resume "
                f"{directory}, or name another directory"
            )
        disk = JournalDirectory(directory)
        journal = Journal(disk, about, [], file_bytes_max)
        journal.settings_are(about.settings)
        try:
            yield journal
        finally:
            disk.close()


@contextmanager
def open_journal(
    directory: Path,
    file_bytes_max: int = FILE_BYTES_MAX,
    *,
    changed: bool = False,
    given: Sequence[str] = (),
) -> Iterator[Journal]:
    """The journal of an earlier run for the time of a block.

    Args:
        directory: that was given to ``create_journal``.
        file_bytes_max: when to begin a new file.
        changed: whether the workflow is another one than then: results of tasks that are the same are kept.
        given: settings with the credentials that the journal does not have.

    Raises:
        JournalError: there is none, it cannot be read, or another job server uses it.
    """
    _expect_journal(directory)  # before anything is written there
    with locked(directory):
        disk = JournalDirectory(directory)
        disk.given = given
        about, records = read_journal(disk)
        _, disk.pairs, _ = open_settings(about.sealed, given)
        try:
            yield Journal(disk, about, records, file_bytes_max, changed)
        finally:
            disk.close()


def _expect_journal(directory: Path) -> None:
    if directory.is_dir():
        if has_journal(directory):
            return
        found = f"{directory} has no journal"
    elif directory.exists():
        found = f"{directory} is a file, and no journal"
    else:
        found = f"there is no journal {directory}"
    raise JournalError(f"{found}: name the directory that was given to --journal")


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
