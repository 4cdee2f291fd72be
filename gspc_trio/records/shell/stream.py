"""The record stream of one component: folded, written to a file, sent to watchers.

One stream has many readers and none of them slows the writer: a record is folded into the progress, appended
to what each watcher has not had yet, and that is all. A watcher that falls behind gets a summary of what it
missed; one that reads no more is dropped.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import trio

from gspc_trio.nursery.connections.rpc import Peer, PeerGone
from gspc_trio.records.backlog import TASKS_TOLD_MAX, Backlog
from gspc_trio.records.columns import facts_of
from gspc_trio.records.facts import FactColumns, Record, StreamOpened, TaskChanged
from gspc_trio.records.lines import encode_records
from gspc_trio.records.messages import RecordBatch
from gspc_trio.records.progress import Progress
from gspc_trio.records.shell.records_file import close_records_file, open_records_file

log: logging.Logger = logging.getLogger(__name__)

STALL_S = 30.0
"""Seconds without credit after which a watcher is dropped."""

SNAPSHOT_RECORDS_MAX = 5_000
"""Records in one batch of a snapshot."""

WATCH_INTERVAL_S = 0.1
"""Seconds between two batches to a watcher."""

FLUSH_INTERVAL_S = 0.5
"""Seconds after which records written to a file reach the disk's cache at the latest."""


WRITTEN_TOGETHER = 2_000
"""So many facts are written to a file at a time, or those of half a second; those that one line says by two
numbers count as one."""


class Watcher:
    """What one watcher has not had yet, and how many batches it may still be sent."""

    def __init__(self) -> None:
        self.credit: int = 0
        self.backlog: Backlog = Backlog()
        self.wanted: trio.Event = trio.Event()
        self.fed = False

    def add_credit(self, credit: int) -> None:
        """The watcher can take ``credit`` more batches."""
        self.credit = max(self.credit, credit)
        self.wanted.set()


class RecordStream:
    """The records of one component.

    Args:
        version: of this package, for the head of the stream.
        on_look: called when readers come or go, and before each look at what to send; told whether there is
            a file and whether there are watchers. Returns whether to call it again though nothing was
            appended.

    Attributes:
        folds_tasks: records of single tasks are folded, and watchers are told of them; else they are for the
            file alone, and :meth:`renew` tells of tasks.
        more: asked for more records for the file each time it is written, or None.
    """

    def __init__(self, version: str, on_look: Callable[[bool, bool], bool] | None = None) -> None:
        self.progress: Progress = Progress()
        self._on_look = on_look
        self._watchers: dict[Watcher, Peer] = {}
        self._file: BinaryIO | None = None
        self._unwritten: list[Record | FactColumns] = []
        self._unwritten_values = 0
        self._told_rows = 0  # of columns, since it has looked for these
        self.folds_tasks: bool = True
        self.more: Callable[[], Sequence[Record | FactColumns]] | None = None
        self._news: trio.Event | None = None
        now = trio.current_time()
        self.opened: StreamOpened = StreamOpened(now, time.time() - now, version)

    def append(self, record: Record | FactColumns) -> None:
        """Take one record; never blocks on a watcher."""
        if self._file is not None:
            self.write(record)
        if type(record) is FactColumns:
            self._append_columns(record)
        elif self.folds_tasks or type(record) is not TaskChanged:
            self.progress.apply(record)
            if self._watchers or self._news is not None:  # two records come with each grant, mostly to nobody
                self._tell(record)

    def _append_columns(self, columns: FactColumns) -> None:
        """Fold and tell of each task, if they are not too many to."""
        if not self.folds_tasks:
            return
        self._told_rows += columns.rows
        if self._watchers and self._told_rows > TASKS_TOLD_MAX:
            self._told_rows = 0
            self._look()
        if self.folds_tasks:
            for fact in facts_of(columns):
                self.progress.apply(fact)
                self._tell(fact)

    def _tell(self, record: Record) -> None:
        """Tell watchers of a record."""
        for watcher in self._watchers:
            watcher.backlog.append(record)
        if self._news is not None:
            self._news.set()
            self._news = None

    def write(self, record: Record | FactColumns) -> None:
        """Write a record to the file, if there is one; watchers are not told."""
        if self._file is not None:
            self._unwritten.append(record)
            self._unwritten_values += record.values if type(record) is FactColumns else 1
            if self._unwritten_values >= WRITTEN_TOGETHER:
                self._write_out()

    def _write_out(self) -> bool:
        """Give the file what waits for it; return False if that fails."""
        if self._file is None:
            if self.more is not None:
                self.more()  # what it has noted is forgotten
            return False
        records, self._unwritten, self._unwritten_values = self._unwritten, [], 0
        if self.more is not None:
            records += self.more()
        return not records or self._try(self._file.write, encode_records(records))

    def open_file(self, path: Path) -> None:
        """Write all records from now on to ``path``, lines of JSON, in place of those of an earlier run.

        When the disk is full later, the file ends there with a warning: what it tells of goes on.

        Raises:
            OSError: the file cannot be opened, another run writes to it, or it holds something else.
        """
        self._file = open_records_file(path)
        self.write(self.opened)
        self._look()

    def close_file(self) -> None:
        """Write what is still buffered and close the file."""
        if self._write_out() and self._file is not None and self._try(self._file.flush):
            close_records_file(self._file)
            self._file = None
            self._look()

    def _try(self, write: Callable[..., object], *args: bytes) -> bool:
        """Write to the file; if that fails, write no more and return False."""
        try:
            write(*args)
        except OSError as error:
            assert self._file is not None
            file, self._file = self._file, None
            with suppress(OSError):
                close_records_file(file)
            log.warning("the file of records %s ends here: %s", file.name, error.strerror or error)
            self._look()
            return False
        return True

    async def flush_regularly(self) -> None:
        """Keep the file at most :data:`FLUSH_INTERVAL_S` behind, until cancelled."""
        while True:
            await trio.sleep(FLUSH_INTERVAL_S)
            if self._write_out() and self._file is not None:
                self._try(self._file.flush)

    async def feed(self, peer: Peer, watcher: Watcher) -> None:
        """Send a snapshot, then what happens, to a watcher as its credit allows, until it is gone.

        A watcher that gives no credit for :data:`STALL_S` loses its connection.
        """
        watcher.fed = True
        self._watchers[watcher] = peer
        self._look()
        try:
            first: tuple[Record, ...] = (self.opened, *watcher.backlog.begin(self.progress))
            for start in range(0, len(first), SNAPSHOT_RECORDS_MAX):
                end = start + SNAPSHOT_RECORDS_MAX
                peer.post(RecordBatch(first[start:end], snapshot=start == 0, more=end < len(first)))
            watcher.credit -= 1
            while not peer.lost.is_set():
                await trio.sleep(WATCH_INTERVAL_S)
                if watcher.credit <= 0 and not await self._wait_for_credit(watcher):
                    peer.drop(f"it watched, and read nothing for {STALL_S:g} s")
                    return
                await self._wait_for_news(watcher)
                watcher.credit -= 1
                peer.post(RecordBatch(watcher.backlog.take(self.progress)))
        except PeerGone:
            pass
        finally:
            self._watchers.pop(watcher, None)
            self._look()

    async def _wait_for_news(self, watcher: Watcher) -> None:
        while True:
            again = self._look()
            if watcher.backlog.has_news:
                return
            if self._news is None:
                self._news = trio.Event()
            news = self._news
            with trio.move_on_after(WATCH_INTERVAL_S if again else math.inf):
                await news.wait()

    def _look(self) -> bool:
        return self._on_look is not None and self._on_look(self._file is not None, bool(self._watchers))

    def renew(self, records: Sequence[Record]) -> None:
        """Take records that say all there is of tasks in place of what was known; watchers get a summary."""
        for record in records:
            self.progress.apply(record)
        for watcher in self._watchers if records else ():
            watcher.backlog.renew()

    def send_the_rest(self) -> None:
        """Post to all watchers what they have not had yet, at the end of what there is to record."""
        for watcher, peer in self._watchers.items():
            if watcher.backlog.has_news:
                peer.post(RecordBatch(watcher.backlog.take(self.progress)))

    async def _wait_for_credit(self, watcher: Watcher) -> bool:
        watcher.wanted = trio.Event()
        with trio.move_on_after(STALL_S):
            await watcher.wanted.wait()
        return watcher.credit > 0
