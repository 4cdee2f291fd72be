"""The store: rows come back as they were told, old frames become minutes, and it stays within its bound."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from gspc_trio.components.monitor.shell import store as shell
from gspc_trio.components.monitor.shell.store import (
    STORE_FILE,
    Store,
    StoreBusy,
    StoredEvent,
    StoreError,
    checked_directory,
    query,
)
from gspc_trio.components.monitor.tables import NODES, SCHEMA, Row, Table, file_system_of
from gspc_trio.protocol.listening import BadSetting

DAY_S = 24 * 3600
NOW_S = 1_800_000_000.0


def row(begin_s: int, host: str = "a", covered_s: float = 5.0, **values: float) -> Row:
    return Row(begin_s, (host,), covered_s, values)


def test_rows_come_back_as_they_were_told_and_others_read_meanwhile(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30, wall=float)
    store.write({"nodes": [row(5, disk_reads=3, load=0.1234), row(5, "b", memory_bytes=2.0**34)]})
    store.write(
        {"nodes": [row(5, disk_reads=4, disk_writes=1, covered_s=1.5)]},
        [StoredEvent(7.5, "swapping", "3 pages", "a")],
    )
    sql = "SELECT begin_s, seconds, host, covered_s, disk_reads, disk_writes, load, memory_bytes FROM nodes"
    assert query(tmp_path, f"{sql} ORDER BY host").rows == [
        (5, 5, "a", 6.5, 7, 1, 0.123, None),
        (5, 5, "b", 5.0, None, None, None, 2**34),
    ]
    assert query(tmp_path, "SELECT at_s, kind, host, job FROM events").rows == [(7.5, "swapping", "a", None)]
    store.close()
    assert query(tmp_path, "SELECT count(*) AS n FROM nodes").columns == ("n",)
    store = Store(tmp_path, 1 << 30, wall=float)
    store.write({"nodes": [row(10, "b")]})
    assert query(tmp_path, "SELECT count(DISTINCT host) FROM nodes").rows == [(2,)]
    store.close()


def test_a_slow_reader_keeps_nobody_from_writing_and_sees_one_moment(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30, wall=float)
    store.write({"nodes": [row(5)]})
    reader = sqlite3.connect(tmp_path / STORE_FILE)
    reader.execute("BEGIN")
    count = "SELECT count(*) FROM nodes"
    assert reader.execute(count).fetchone() == (1,)
    for number in range(2, 50):
        store.write({"nodes": [row(5 * number)]})
    assert reader.execute(count).fetchone() == (1,)
    reader.close()
    assert query(tmp_path, count).rows == [(49,)]
    store.close()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DELETE FROM nodes_frames", "only reads.* not DELETE"),
        ("DELETE", "only reads.* not DELETE"),
        (" -- all\n/* of\nit */ drop", "only reads.* not drop"),
        ("INSERT INTO names VALUES (9, 'x', 1)", "only reads.* not INSERT"),
        ("UPDATE", "only reads.* not UPDATE"),
        ("WITH one AS (SELECT 1) DELETE FROM names", "only reads"),
        ("WITH one AS (SELECT 1) DELETE FROM nodes", "only reads"),
        ("EXPLAIN DELETE FROM names", "only reads"),
        ("VACUUM INTO '/tmp/other.db'", "only reads"),
        ("BEGIN", "only reads"),
        ("garbage", "only reads.* not garbage"),
        ("(SELECT 1)", r"only reads.* not \("),
        ("-- nothing", "there is none"),
        ("SELECT * FROM", "ends too soon"),
        ("SELECT ?", "write the values there"),
        ("SELECT \ud800", "no text can have"),
        ("SELECT 1; DELETE FROM names", "one statement"),
        ("ATTACH '/tmp/other.db' AS other", "only reads"),
        ("PRAGMA query_only = 0", "only reads"),
        ("SELECT lod FROM nodes", "no such column"),
        ("SELECT 1; SELECT 2", "one statement"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n",
            "took more",
        ),
    ],
)
def test_a_query_changes_nothing_and_ends(tmp_path: Path, sql: str, why: str) -> None:
    Store(tmp_path, 1 << 30).close()
    before = (tmp_path / STORE_FILE).read_bytes()
    with pytest.raises(StoreError, match=why) as told:
        query(tmp_path, sql, timeout_s=0.05)
    assert "\n" not in str(told.value)
    assert (tmp_path / STORE_FILE).read_bytes() == before


def test_there_is_one_writer(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30)
    with pytest.raises(StoreBusy, match="another run-time system"):
        Store(tmp_path, 1 << 30)
    store.close()
    Store(tmp_path, 1 << 30).close()


def test_a_torn_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / STORE_FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path, 1 << 30)
    with pytest.raises(StoreError, match="not a database"):
        query(tmp_path, "SELECT * FROM nodes")
    with pytest.raises(StoreError, match="missing"):
        query(tmp_path / "elsewhere", "SELECT 1")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30, wall=float)
    store.write({"nodes": [row(5)]})
    store._database.execute("PRAGMA max_page_count = 1")  # as on a full disk
    with pytest.raises(StoreError, match="full"):
        store.write({"nodes": [row(begin_s, f"h{begin_s}", load=1.5) for begin_s in range(0, 5000, 5)]})
    assert query(tmp_path, "SELECT count(*), (SELECT count(*) FROM names) FROM nodes").rows == [(1, 1)]
    store.close()


def test_frames_become_minutes_after_a_day(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30, wall=lambda: NOW_S)
    begin = int(NOW_S) - DAY_S - 120
    rows = [row(begin + 5 * number, disk_reads=number, load=float(number)) for number in range(12)]
    unequal = [row(begin + 60, covered_s=1.0, load=8.0), row(begin + 65, covered_s=3.0, load=4.0)]
    recent = row(int(NOW_S) - 60, disk_reads=100)
    store.write({"nodes": [*rows, *unequal, recent]})
    store.age()
    store.age()
    found = query(tmp_path, "SELECT begin_s, seconds, covered_s, disk_reads, load FROM nodes ORDER BY 1").rows
    assert found == [
        (begin, 60, 60.0, 66, 5.5),
        (begin + 60, 60, 4.0, None, 5.0),
        (int(NOW_S) - 60, 5, 5.0, 100, None),
    ]
    store.close()


def test_the_oldest_goes_when_there_is_no_room(tmp_path: Path) -> None:
    store = Store(tmp_path, 200_000, wall=lambda: 0.0)
    for minute in range(20):
        rows = [row(minute * 60 + 5 * number, host, load=number / 7, disk_reads=10**9) for number in range(12)
                for host in "abcdefghij"]  # fmt: skip
        store.write({"nodes": rows}, [StoredEvent(minute * 60.0, "x", "y" * 1000)])
        assert store.used_bytes() <= 200_000
    (first, last) = query(tmp_path, "SELECT min(begin_s), max(begin_s) FROM nodes").rows[0]
    assert first > 60
    assert last == 19 * 60 + 55
    assert query(tmp_path, "SELECT min(at_s) > 0 FROM events").rows == [(1,)]
    store.close()


def test_other_tables_have_other_keys(tmp_path: Path) -> None:
    calls = Table("calls", ("host", "job"), ("task",), ("reads",))
    store = Store(tmp_path, 1 << 30, tables=(calls,), wall=float)
    store.write({"calls": [Row(5, ("a", "j1", 7), 2.0, {"reads": 3}), Row(5, ("a", "j1", 8), 2.0, {})]})
    found = query(tmp_path, "SELECT host, job, task, reads FROM calls ORDER BY task").rows
    assert found == [("a", "j1", 7, 3), ("a", "j1", 8, None)]
    store.close()


def test_jobs_of_the_same_name_are_told_apart_by_the_run_in_which_they_had_it(tmp_path: Path) -> None:
    calls = Table("calls", ("host", "job"), ("task",), ("reads",), of_run=("job",))
    for run, reads in ((1, 3), (2, 50)):
        store = Store(tmp_path, 1 << 30, tables=(calls,), wall=lambda: 7.0)
        assert store.run == run
        for _ in range(2):  # amounts of one frame of one task are added, of one run alone
            store.write(
                {"calls": [Row(5, ("j1", "j1", 7), 1.0, {"reads": reads})]}, [StoredEvent(6.0, "x", "y")]
            )
        store.age()
        store.close()
        assert query(tmp_path, "SELECT begin_s FROM runs").rows == [(7.0,)] * run
    rows = query(tmp_path, "SELECT run, host, job, task, reads FROM calls ORDER BY run").rows
    assert rows == [(1, "j1", "j1", 7, 6), (2, "j1", "j1", 7, 100)]
    assert query(tmp_path, "SELECT run FROM events").rows == [(1,), (1,), (2,), (2,)]
    assert query(tmp_path, "SELECT name, run FROM names ORDER BY run").rows == [
        ("j1", 0),
        ("j1", 1),
        ("j1", 2),
    ]


def test_a_store_of_a_version_without_runs_is_written_on(tmp_path: Path) -> None:
    calls = Table("calls", ("host", "job"), ("task",), ("reads",), of_run=("job",))
    with sqlite3.connect(tmp_path / STORE_FILE) as database:
        names = "CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)"
        events = (
            "id INTEGER PRIMARY KEY, at_s REAL, kind TEXT, host TEXT, job TEXT, task INTEGER, detail TEXT"
        )
        frames = "CREATE TABLE calls_frames (begin_s, host, job, task, covered_s, reads"
        for statement in (
            *(names, f"CREATE TABLE events ({events})", f"{frames}, PRIMARY KEY (begin_s, host, job, task))"),
            "INSERT INTO names VALUES (1, 'a'), (2, 'j1')",
            "INSERT INTO calls_frames VALUES (5, 1, 2, 7, 5000, 9)",
            f"PRAGMA user_version = {SCHEMA}",
        ):
            database.execute(statement)
    database.close()
    for _ in range(2):
        store = Store(tmp_path, 1 << 30, tables=(calls,), wall=float)
        store.write({"calls": [Row(5, ("a", "j1", 7), 1.0, {"reads": 1})]}, [StoredEvent(6.0, "x", "y")])
        store.close()
    rows = query(tmp_path, "SELECT run, host, job, reads FROM calls ORDER BY run").rows
    assert rows == [(0, "a", "j1", 9), (1, "a", "j1", 1), (2, "a", "j1", 1)]


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / STORE_FILE) as database:
        database.execute("PRAGMA user_version = 999")
    with pytest.raises(StoreError, match="another version"):
        Store(tmp_path, 1 << 30)


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:40 / /home rw shared:1 - nfs4 server:/home rw
24 22 0:41 / /home/local\\040disk rw - xfs /dev/sdb1 rw
odd line
"""


def test_network_file_systems_are_refused(tmp_path: Path) -> None:
    assert file_system_of("/var/x", MOUNTS) == "ext4"
    assert file_system_of("/home/me", MOUNTS) == "nfs4"
    assert file_system_of("/homes", MOUNTS) == "ext4"
    assert file_system_of("/home/local disk/x", MOUNTS) == "xfs"
    assert file_system_of("/x", "") == ""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 1 0:1 / {tmp_path} rw - lustre mgs:/x rw\n")
    with pytest.raises(BadSetting, match=r"network file system \(lustre\)"):
        checked_directory(tmp_path / "store", mounts)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSetting, match="cannot make"):
        checked_directory(tmp_path / "file" / "store")
    assert shell.TABLES[0].name == "nodes"


def test_a_full_disk_and_a_killed_writer_lose_whole_transactions_and_count_nothing_twice(
    tmp_path: Path,
) -> None:
    begin_s = int(time.time()) // 60 * 60

    def rows(count: int) -> dict[str, list[Row]]:
        return {NODES.name: [Row(begin_s + 5 * n, ("a",), 5.0, {"disk_reads": 1}) for n in range(count)]}

    store = Store(tmp_path, 1 << 30)
    store.write(rows(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(it.stat().st_size for it in tmp_path.iterdir()), hard))
    try:
        with pytest.raises(StoreError, match=r"monitor\.db: "):
            store.write(rows(4000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.close()
    assert query(tmp_path, "SELECT count(*), sum(disk_reads) FROM nodes").rows == [(1, 1)]

    pid = os.fork()
    if not pid:  # a writer that is killed in the middle of a transaction, after another one
        try:
            writer = Store(tmp_path, 1 << 30)
            writer.write({NODES.name: rows(2)[NODES.name][1:]})
            writer._database.execute("BEGIN IMMEDIATE")
            writer._database.execute("UPDATE nodes_frames SET disk_reads = 9")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    store = Store(tmp_path, 1 << 30)
    store.write({NODES.name: rows(3)[NODES.name][2:]})
    store.close()
    assert query(tmp_path, "SELECT disk_reads, covered_s FROM nodes").rows == [(1, 5.0)] * 3
