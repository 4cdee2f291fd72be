"""The record stream of one component: folded, written to a file, sent to watchers.

One stream has many readers and none of them slows the writer: a record is folded into the progress, appended to what each
watcher has not had yet, and that is all. A watcher that falls behind gets a snapshot instead of what it missed.
"""

from __future__ import annotations

import json
import time
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

import attrs
import trio

from gspc_trio.core.progress import Progress
from gspc_trio.core.records import Record, StreamOpened
from gspc_trio.nursery.rpc import Peer, PeerGone
from gspc_trio.protocol.messages import RecordBatch

BACKLOG_MAX = 10_000
"""Records kept for a watcher; one that is further behind gets a snapshot."""

WATCH_INTERVAL_S = 0.1
"""Seconds between two batches to a watcher."""

FLUSH_INTERVAL_S = 0.5
"""Seconds after which records written to a file reach the disk's cache at the latest."""


def record_as_json(record: Record) -> str:
    """Return the record as one line of JSON, its type under ``record``."""
    data: dict[str, Any] = {"record": type(record).__name__}
    for name in attrs.fields_dict(type(record)):
        value = getattr(record, name)
        data[name] = value.value if isinstance(value, Enum) else value
    return json.dumps(data, separators=(",", ":"))


class Watcher:
    """What one watcher has not had yet, and how many batches it may still be sent."""

    def __init__(self) -> None:
        self.credit = 0
        self.backlog: list[Record] = []
        self.needs_snapshot = True
        self.wanted = trio.Event()

    def add_credit(self, credit: int) -> None:
        """The watcher can take ``credit`` more batches."""
        self.credit = max(self.credit, credit)
        self.wanted.set()


class RecordStream:
    """The records of one component.

    Args:
        version: of this package, for the head of the stream.
    """

    def __init__(self, version: str) -> None:
        self.progress = Progress()
        self._watchers: list[Watcher] = []
        self._file: TextIO | None = None
        now = trio.current_time()
        self.opened = StreamOpened(now, time.time() - now, version)

    def append(self, record: Record) -> None:
        """Take one record; never blocks on a watcher."""
        self.progress.apply(record)
        if self._file is not None:
            self._file.write(record_as_json(record) + "\n")
        for watcher in self._watchers:
            if len(watcher.backlog) < BACKLOG_MAX:
                watcher.backlog.append(record)
            else:
                watcher.needs_snapshot = True
                watcher.backlog.clear()

    def open_file(self, path: Path) -> None:
        """Write all records from now on to ``path``, a line of JSON each.

        Raises:
            OSError: the file cannot be written.
        """
        self._file = path.open("w", encoding="utf-8")
        self._file.write(record_as_json(self.opened) + "\n")

    def close_file(self) -> None:
        """Write what is still buffered and close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def flush_regularly(self) -> None:
        """Keep the file at most :data:`FLUSH_INTERVAL_S` behind, until cancelled."""
        while True:
            await trio.sleep(FLUSH_INTERVAL_S)
            if self._file is not None:
                self._file.flush()

    async def feed(self, peer: Peer, watcher: Watcher) -> None:
        """Send a snapshot, then records, to a watcher as its credit allows, until it is gone or this is cancelled."""
        self._watchers.append(watcher)
        try:
            while not peer.lost.is_set():
                if watcher.credit == 0:
                    watcher.wanted = trio.Event()
                    await watcher.wanted.wait()
                batch = self._batch_for(watcher)
                if batch is not None:
                    watcher.credit -= 1
                    peer.post(batch)
                await trio.sleep(WATCH_INTERVAL_S)
        except PeerGone:
            pass
        finally:
            self._watchers.remove(watcher)

    def _batch_for(self, watcher: Watcher) -> RecordBatch | None:
        if watcher.needs_snapshot:
            watcher.needs_snapshot = False
            watcher.backlog.clear()
            return RecordBatch((self.opened, *self.progress.snapshot()), snapshot=True)
        if not watcher.backlog:
            return None
        records, watcher.backlog = tuple(watcher.backlog), []
        return RecordBatch(records)
