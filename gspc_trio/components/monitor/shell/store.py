"""The store: an SQLite file in write-ahead mode, with one writer; others read while it is written."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname

from msgspec import Struct

from gspc_trio.components.monitor.io_frames import IO
from gspc_trio.components.monitor.locality import LOCALITY
from gspc_trio.components.monitor.tables import (
    COMMON,
    KEEP_FRAMES_S,
    MINUTE_S,
    NAMES_OF_RUNS,
    NETWORK_FILE_SYSTEMS,
    NODES,
    SCHEMA,
    Name,
    Row,
    Table,
    ageing,
    creation,
    file_system_of,
    insertion,
    names_in,
    told_in,
    values_of,
)
from gspc_trio.protocol.listening import BadSetting

STORE_FILE = "monitor.db"
"""Name of the file in the directory of the store."""

TABLES: tuple[Table, ...] = (NODES, IO, LOCALITY)
"""All tables of frames."""

QUERY_S = 10.0
"""A query may take so long."""

AGE_S = 3600.0
"""So often old frames become minutes."""


class StoreError(Exception):
    """The store cannot be used; the message is one line for people."""


class StoreBusy(StoreError):
    """Another process writes the store."""


class StoredEvent(Struct, frozen=True):
    """Something that happened.

    Attributes:
        at_s: when, in seconds since 1970.
        kind: a word.
        detail: one line for people.
        host, job, task: whom it concerns, "" and 0 for none.
    """

    at_s: float
    kind: str
    detail: str
    host: str = ""
    job: str = ""
    task: int = 0


def checked_directory(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Refuse a directory in which there can be no store; make it if it is missing.

    Raises:
        BadSetting: it cannot be written, or is in a network file system.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting("monitor", str(path), f"cannot make this directory: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadSetting("monitor", str(path), "this directory cannot be written")
    with suppress(OSError):
        kind = file_system_of(str(path.resolve()), mounts.read_text(encoding="utf-8", errors="replace"))
        if kind in NETWORK_FILE_SYSTEMS:
            why = f"it is in a network file system ({kind}), where the store cannot be kept: name a local one"
            raise BadSetting("monitor", str(path), why)


class Store:
    """The one writer of a store. Its methods may be called from any thread, one at a time.

    Args:
        directory: of the file, which is made if it is missing.
        bytes_max: the file is kept below this size; the oldest goes first.
        wall: returns the seconds since 1970.
        tables: of frames.

    Attributes:
        path: of the file.
        run: counts the writers of this file from 1; names of jobs begin anew with each.

    Raises:
        StoreBusy: another process writes it.
        StoreError: the file is none of ours, or is torn.
    """

    def __init__(
        self,
        directory: Path,
        bytes_max: int,
        wall: Callable[[], float] = time.time,
        tables: Sequence[Table] = TABLES,
    ) -> None:
        self.path: Path = directory / STORE_FILE
        self._bytes_max = bytes_max
        self._wall = wall
        self._tables = tables
        self._names: dict[Name, int] = {}
        self._aged_s = -AGE_S
        self._lock = _lock(directory)
        try:
            with _as_store_error(self.path):
                self._open()
        except StoreError:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        run = self._database.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA journal_size_limit = {1 << 22}")
        (version,) = run("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA):
            self._database.close()
            raise StoreError(f"{self.path} was written by another version: name another directory")
        there = {row[1] for row in run("PRAGMA table_info(names)")}
        self._database.executescript(COMMON)
        if there and "run" not in there:
            self._database.executescript(NAMES_OF_RUNS)
        with self._transaction():
            for table in self._tables:
                make, minutes, *views = creation(table)
                run(make)
                run(minutes)
                self._add_columns(table)
                for statement in views:
                    run(statement)
            run(f"PRAGMA user_version = {SCHEMA}")
            begun = run("INSERT INTO runs (begin_s, host) VALUES (?, ?)", (self._wall(), gethostname()))
            self.run: int = begun.lastrowid or 0
        found = run("SELECT id, name FROM names WHERE run = 0")
        self._names = {(name, False): number for number, name in found}

    def _add_columns(self, table: Table) -> None:
        """Give tables that an earlier version has made the columns that they lack."""
        for suffix in ("frames", "minutes"):
            name = f"{table.name}_{suffix}"
            there = {row[1] for row in self._database.execute(f"PRAGMA table_info({name})")}
            for column in table.columns:
                if column not in there:
                    self._database.execute(f"ALTER TABLE {name} ADD COLUMN {column}")

    def write(self, rows: Mapping[str, Sequence[Row]], events: Iterable[StoredEvent] = ()) -> None:
        """Store frames and events, all or nothing.

        Args:
            rows: name of a table -> frames.
            events: what happened.

        Raises:
            StoreError: they cannot be written; the disk is full, for example.
        """
        with _as_store_error(self.path):
            with self._transaction():
                for table in self._tables:
                    if found := rows.get(table.name):
                        self._learn(names_in(table, found) - self._names.keys())
                        told = told_in(table, found)
                        values = values_of(told, found, self._names)
                        self._database.executemany(insertion(told), values)
                self._database.executemany(
                    "INSERT INTO events (at_s, kind, detail, host, job, task, run) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        (
                            *(one.at_s, one.kind, one.detail),
                            *(one.host or None, one.job or None, one.task or None, self.run),
                        )
                        for one in events
                    ),
                )
            self._make_room()

    def _learn(self, names: set[Name]) -> None:
        for name, is_of_run in sorted(names):
            row = name, self.run if is_of_run else 0
            number = self._database.execute("INSERT INTO names (name, run) VALUES (?, ?)", row).lastrowid
            assert number is not None
            self._names[name, is_of_run] = number

    def _make_room(self) -> None:
        """Make minutes of old frames once an hour; remove the oldest of all when there is no room."""
        now = time.monotonic()
        if now - self._aged_s >= AGE_S:
            self._aged_s = now
            self.age()
        while self.used_bytes() > self._bytes_max and self._remove_oldest():
            pass

    def age(self) -> None:
        """Make minutes of the frames that are older than a day."""
        until_s = int(self._wall() - KEEP_FRAMES_S) // MINUTE_S * MINUTE_S
        with self._transaction():
            for table in self._tables:
                for statement in ageing(table, until_s):
                    self._database.execute(statement)

    def used_bytes(self) -> int:
        """Return how much of the file is in use; what was removed is used again before the file grows."""
        run = self._database.execute
        pages, free, size = (
            run(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _remove_oldest(self) -> bool:
        """Remove the oldest twentieth of the time that the store knows of; return whether there was any."""
        run = self._database.execute
        tables = [f"{one.name}_{suffix}" for one in self._tables for suffix in ("minutes", "frames")]
        spans = [run(f"SELECT min(begin_s), max(begin_s) FROM {name}").fetchone() for name in tables]
        spans.append(run("SELECT min(at_s), max(at_s) FROM events").fetchone())
        told = [(first, last) for first, last in spans if first is not None]
        if not told:
            return False
        first, last = min(one for one, _ in told), max(one for _, one in told)
        until_s = first + max(MINUTE_S, (last - first) / 20)
        with self._transaction():
            for name in tables:
                run(f"DELETE FROM {name} WHERE begin_s < ?", (until_s,))
            run("DELETE FROM events WHERE at_s < ?", (until_s,))
        return True

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        known = dict(self._names)
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            self._names = known
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file; nothing is beside it then, unless somebody reads it."""
        with suppress(sqlite3.Error):
            self._database.close()
        os.close(self._lock)


def _lock(directory: Path) -> int:
    """Return a descriptor that holds the lock of the only writer.

    Raises:
        StoreBusy: another process has it.
        StoreError: it cannot be had.
    """
    path = directory / "writer.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise StoreError(f"{path}: {error.strerror}") from error
        raise StoreBusy(
            f"another run-time system writes the metrics in {directory}: name another one"
        ) from error
    return descriptor


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path}: {error}") from error


# Reading ----------------------------------------------------------------------------------------------------


class Answer(Struct, frozen=True):
    """What a query has found: names of columns, and rows."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


def query(directory: Path, sql: str, arguments: Sequence[object] = (), timeout_s: float = QUERY_S) -> Answer:
    """Return what a statement finds in a store that may be written meanwhile. It changes nothing.

    Args:
        directory: of the store.
        sql: one statement that reads.
        arguments: in place of its question marks.
        timeout_s: it may take so long.

    Raises:
        StoreError: there is no store, the statement is wrong or would write, or it took too long.
    """
    begin = _BEFORE.sub("", sql, count=1)
    word = re.split(r"\W", begin, maxsplit=1)[0] or begin[:1]
    if word.upper() not in QUERIES:
        raise StoreError(f"{ONLY_READS}, not {word}" if word else f"{ONLY_READS}; there is none")
    path = directory / STORE_FILE
    if not path.is_file():
        raise StoreError(f"there are no metrics in {directory}: {STORE_FILE} is missing")
    until = time.monotonic() + timeout_s
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=timeout_s)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
    try:
        database.execute("PRAGMA query_only = 1")
        database.set_authorizer(_only_reads)
        database.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        cursor = database.execute(sql, arguments)
        return Answer(tuple(column[0] for column in cursor.description or ()), cursor.fetchall())
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise StoreError(_why(error, timeout_s)) from error
    finally:
        database.close()


ONLY_READS = "a query only reads: begin it with SELECT or WITH"

QUERIES = frozenset(("SELECT", "WITH", "VALUES", "EXPLAIN"))
"""Words with which a statement begins that may read alone."""

_BEFORE = re.compile(r"\A(?:\s|;|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""Comments and the like before the first word."""

_CLEARER = (
    (r"interrupted", "the query took more than {timeout_s:g} s: ask for less, such as WHERE begin_s > ..."),
    (r"not authorized$|authorization denied|cannot modify|attempt to write", ONLY_READS),
    (r"You can only execute one statement", "a query is one statement: ask for each alone"),
    (r"incomplete input", "the query ends too soon: something is missing behind its last word"),
    (r"'utf-8' codec", "the query has characters that no text can have"),
    (r"Incorrect number of bindings", "the query has places for values (? or :name): write the values there"),
)
"""What SQLite says -> what is told of it."""


def _why(error: Exception, timeout_s: float) -> str:
    for pattern, text in _CLEARER:
        if re.match(pattern, str(error)):
            return text.format(timeout_s=timeout_s)
    return str(error)


READS: set[int] = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    getattr(sqlite3, "SQLITE_RECURSIVE", 33),
}


def _only_reads(action: int, _: str | None, second: str | None, *__: str | None) -> int:
    if action in READS and second != "load_extension":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
