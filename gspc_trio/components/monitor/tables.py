"""Tables of the store: their columns, and the SQL that makes, fills, ages and bounds them.

A table of frames has a twin for minutes, into which frames go after a day, and a view over both with the
names of hosts and jobs written out. People query the view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.monitor.frames import FRAME_S
from gspc_trio.components.monitor.readings import COUNTS, LEVELS

SCHEMA = 3
"""Number of this form of the file."""

MINUTE_S = 60
"""Seconds of what frames become after a day."""

KEEP_FRAMES_S = 24 * 3600
"""So long frames are kept as they are."""


class Table(Struct, frozen=True):
    """A table of frames.

    Attributes:
        name: of the view; the tables are called NAME_frames and NAME_minutes.
        names: key columns that hold names: each is kept once, and as a number here.
        numbers: key columns that hold whole numbers.
        counts: columns that can be added.
        levels: columns whose mean counts.
        of_run: which of the names say the same of one run of the run-time system alone.
    """

    name: str
    names: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    of_run: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All key columns beside the begin of the frame."""
        return self.names + self.numbers

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in their order."""
        return ("begin_s", *self.keys, "covered_s", *self.counts, *self.levels)


class Row(Struct, frozen=True):
    """A frame to be stored.

    Attributes:
        begin_s: when it began.
        keys: values of the key columns of its table.
        covered_s: so many seconds of it were measured.
        values: column -> value; what is absent stays unknown.
    """

    begin_s: int
    keys: tuple[str | int, ...]
    covered_s: float
    values: Mapping[str, float]


Name = tuple[str, bool]
"""A name, and whether it is one of this run alone."""

NODES = Table("nodes", ("host",), counts=COUNTS, levels=LEVELS)
"""Metrics of hosts."""

COMMON = """
CREATE TABLE IF NOT EXISTS runs (run INTEGER PRIMARY KEY, begin_s REAL NOT NULL, host TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS names (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, run INTEGER NOT NULL DEFAULT 0, UNIQUE (name, run)
);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, host TEXT, job TEXT, task INTEGER,
    detail TEXT NOT NULL, run INTEGER
);
CREATE INDEX IF NOT EXISTS events_by_time ON events (at_s);
"""
"""Names of jobs begin anew with each run of the run-time system. Those of hosts, of run 0, do not."""

NAMES_OF_RUNS = """
BEGIN;
ALTER TABLE events ADD COLUMN run INTEGER;
ALTER TABLE names RENAME TO names_without_runs;
CREATE TABLE names (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, run INTEGER NOT NULL DEFAULT 0, UNIQUE (name, run)
);
INSERT INTO names (id, name) SELECT id, name FROM names_without_runs;
DROP TABLE names_without_runs;
COMMIT;
"""
"""Makes the names of a store of an earlier version such as have a run; of jobs before, it is 0."""


def creation(table: Table) -> Iterator[str]:
    """Yield the statements that make a table of frames, if it is not there."""
    keys = ", ".join(("begin_s", *table.keys))
    for suffix in ("frames", "minutes"):
        columns = [f"{name} INTEGER NOT NULL" for name in ("begin_s", *table.keys)]
        columns += ["covered_s INTEGER NOT NULL", *table.counts, *table.levels]
        yield (
            f"CREATE TABLE IF NOT EXISTS {table.name}_{suffix} "
            f"({', '.join(columns)}, PRIMARY KEY ({keys})) WITHOUT ROWID"
        )
    yield f"DROP VIEW IF EXISTS {table.name}"
    rest = [f"{name}{_OF_UNIT[_unit(name)]} AS {name}" for name in table.levels]
    shown = [f"(SELECT name FROM names WHERE id = {name}) AS {name}" for name in table.names]
    shown += [f"(SELECT run FROM names WHERE id = {name}) AS run" for name in table.of_run]
    rest = ["covered_s / 1000.0 AS covered_s", *table.numbers, *table.counts, *rest]
    parts = (
        f"SELECT begin_s, {seconds} AS seconds, {', '.join((*shown, *rest))} FROM {table.name}_{suffix}"
        for suffix, seconds in (("frames", FRAME_S), ("minutes", MINUTE_S))
    )
    yield f"CREATE VIEW {table.name} AS {' UNION ALL '.join(parts)}"


def told_in(table: Table, rows: Collection[Row]) -> Table:
    """Return a table without the columns that none of these rows has: an empty one costs time, too."""
    told: set[str] = set().union(*[row.values for row in rows])
    counts = tuple(name for name in table.counts if name in told)
    levels = tuple(name for name in table.levels if name in told)
    return replace(table, counts=counts, levels=levels)


def insertion(table: Table) -> str:
    """Return the statement that stores a frame.

    Of two for the same frame, as when a host was started again within it, amounts are added.
    """
    columns = table.columns
    places = ", ".join("?" * len(columns))
    keys = ", ".join(("begin_s", *table.keys))
    return (
        f"INSERT INTO {table.name}_frames ({', '.join(columns)}) VALUES ({places}) "
        f"ON CONFLICT ({keys}) DO UPDATE SET {_added(table)}"
    )


def _added(table: Table) -> str:
    sums = [f"{name} = coalesce({name} + excluded.{name}, {name}, excluded.{name})" for name in table.counts]
    means = [f"{name} = coalesce(excluded.{name}, {name})" for name in table.levels]
    return ", ".join(("covered_s = covered_s + excluded.covered_s", *sums, *means))


def values_of(
    table: Table, rows: Iterable[Row], names: Mapping[Name, int]
) -> Iterator[list[float | int | None]]:
    """Yield rows as values for :func:`insertion`.

    Args:
        table: in which they are stored.
        rows: the rows.
        names: name -> its number.
    """
    named = [(place, name in table.of_run) for place, name in enumerate(table.names)]
    counts, levels = table.counts, table.levels
    scales = [1 / _unit(name) for name in levels]
    for row in rows:
        keys, value_of = row.keys, row.values.get
        yield [
            row.begin_s,
            *[names[str(keys[place]), is_of_run] for place, is_of_run in named],
            *map(int, keys[len(named) :]),
            round(row.covered_s * 1000),
            *map(value_of, counts),
            *[
                None if value is None else round(value * scale)
                for value, scale in zip(map(value_of, levels), scales, strict=True)
            ],
        ]


_OF_UNIT = {1024: " * 1024", 1: "", 0.001: " / 1000.0"}
"""Unit of a column of the file -> what makes of it what the view shows."""


def _unit(level: str) -> float:
    """Return in which unit a level is kept in the file.

    A float takes 8 bytes; a whole number takes as many as it needs. The kernel tells memory in KiB; shares
    and the like, and seconds, keep three places.
    """
    if level.endswith("_bytes"):
        return 1024
    return 1 if level.endswith("_mhz") else 0.001


def ageing(table: Table, until_s: int) -> tuple[str, str]:
    """Return the two statements that make minutes of the frames before a moment.

    Args:
        table: of these frames.
        until_s: a multiple of a minute.
    """
    minute = f"begin_s / {MINUTE_S} * {MINUTE_S}"
    weight = "max(covered_s, 1)"
    sums = [f"sum({name})" for name in table.counts]
    means = [
        f"CAST(round(sum({name} * {weight}) / sum(CASE WHEN {name} IS NULL THEN NULL ELSE {weight} END)) "
        "AS INTEGER)"
        for name in table.levels
    ]
    keys = ", ".join(table.keys)
    return (
        f"INSERT OR IGNORE INTO {table.name}_minutes ({', '.join(table.columns)}) "
        f"SELECT {minute} AS minute, {', '.join((*table.keys, 'sum(covered_s)', *sums, *means))} "
        f"FROM {table.name}_frames WHERE begin_s < {until_s} GROUP BY minute, {keys}",
        f"DELETE FROM {table.name}_frames WHERE begin_s < {until_s}",
    )


def names_in(table: Table, rows: Collection[Row]) -> set[Name]:
    """Return all names that key columns of these rows have."""
    return {
        (str(key), column in table.of_run)
        for place, column in enumerate(table.names)
        for key in {row.keys[place] for row in rows}
    }


NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "coda", "lustre", "gpfs"),
        *("beegfs", "orangefs", "pvfs2", "panfs", "glusterfs", "ocfs2", "gfs2", "wekafs", "virtiofs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.rclone", "fuse.s3fs"),
        *("fuse.juicefs", "fuse.davfs", "davfs", "acfs", "vboxsf", "fuse.vmhgfs-fuse"),
    )
)
"""File systems that other hosts write too: locks and shared memory of SQLite do not hold there."""


def file_system_of(path: str, mounts: str) -> str:
    """Return the type of the file system of a path, "" if it is not told.

    Args:
        path: absolute, without symbolic links.
        mounts: what ``/proc/self/mountinfo`` holds.
    """
    found, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        columns = before.split()
        if len(columns) < 5 or not after:
            continue
        point = columns[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        is_below = path == point or path.startswith(point.rstrip("/") + "/")
        if is_below and len(point) >= longest:  # of two at one place the later one is seen
            found, longest = after.split()[0], len(point)
    return found
