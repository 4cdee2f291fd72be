"""``gspc-monitor``, and ``gspc-top --replay DIR``, on a store that a run-time system has left."""

from __future__ import annotations

import importlib
import json
import shlex
import time
from pathlib import Path

import pytest
from cyclopts import App

from gspc_trio.cli.common import run_command
from gspc_trio.cli.monitor.commands import app as monitor
from gspc_trio.cli.top import app as top
from gspc_trio.components.monitor.io_frames import IO
from gspc_trio.components.monitor.locality import LOCALITY
from gspc_trio.components.monitor.shell.store import Store, StoredEvent
from gspc_trio.components.monitor.tables import NODES, Row

importlib.import_module("gspc_trio.cli.monitor.task_io")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two hosts, a job and an event of now."""
    directory = tmp_path_factory.mktemp("metrics")
    begin_s = int(time.time()) // 5 * 5 - 60
    made = Store(directory, 1 << 30)
    memory = {"memory_bytes": 2.0**30, "memory_available_bytes": 2.0**29}
    nodes = [Row(begin_s, (host,), 5.0, {"load": 0.5, "disk_reads": 7, **memory}) for host in ("a", "b")]
    amounts = {"read_calls": 4, "read_bytes": 4096, "storage_read_bytes": 1024, "file_read_bytes": 2048}
    io = [Row(begin_s, ("a", "j1", 3, 1), 5.0, amounts), Row(begin_s + 5, ("b", "j1", 4, 1), 5.0, amounts)]
    events = (StoredEvent(begin_s + 1.0, "user", "half way", "a", "j1", 3),)
    near = [Row(begin_s, ("a", "j1"), 5.0, {"node_bytes": 900, "rack_bytes": 75, "inter_rack_bytes": 25})]
    made.write({NODES.name: nodes, IO.name: io, LOCALITY.name: near}, events)
    made.close()
    return directory


def run(
    app: App, store: Path, line: str, capsys: pytest.CaptureFixture[str], *, failing: bool = False
) -> str:
    """Return what a command has printed, or its one line of error."""
    with pytest.raises(SystemExit) as ended:
        run_command(app, [word.replace("STORE", str(store)) for word in shlex.split(line)])
    out, err = capsys.readouterr()
    assert bool(ended.value.code) == failing, err
    assert err.count("\n") == int(failing), err
    return err if failing else out


@pytest.mark.parametrize(
    ("app", "line", "told"),
    [
        (monitor, "nodes load disk_reads --store STORE", ["a", "5", "0.5", "7"]),
        (monitor, "nodes --host b --since 10m --store STORE", ["b", "536870912"]),
        (monitor, "events --store STORE", ["user", "half way", "j1"]),
        (monitor, "io --store STORE", ["j1", "8.0 KiB", "75%", "50%"]),
        (monitor, "io --by task --job j1 --run 1 --store STORE", ["j1", "3", "4.0 KiB"]),
        (monitor, "runs --store STORE", ["run", "begun", "jobs", "1"]),
        (monitor, "io --by host --since 1h --store STORE", ["a", "b"]),
        (monitor, "io --task 3 --store STORE", ["storage_read_bytes", "1024"]),
        (monitor, "locality --store STORE", ["j1", "90.0%", "7.5%", "2.5%", "80-90 %"]),
        (monitor, "locality --by frame --since 1h --json --store STORE", ['"rack_bytes":']),
        (monitor, "query 'SELECT host, max(load) FROM nodes GROUP BY 1' --store STORE", ["a", "b", "0.5"]),
        (monitor, "export --csv - --table io --store STORE", ["begin_s,seconds,host,job", "4096"]),
        (top, "--replay STORE --once", ["a ", "b ", "512.0 MiB of 1.0 GiB"]),
    ],
)
def test_what_was_kept_is_shown(
    store: Path, app: App, line: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(app, store, line, capsys)
    assert [one for one in told if one not in out] == []


def test_json_is_one_object(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    io = json.loads(run(monitor, store, "io --json --store STORE", capsys))
    assert io["rows"][0] | {"job": "j1", "read_bytes": 8192, "seen": 0.5} == io["rows"][0]
    events = json.loads(run(monitor, store, "events --json --store STORE", capsys))
    assert events["columns"] == ["at_s", "kind", "host", "job", "task", "run", "detail"]


@pytest.mark.parametrize(
    ("app", "line", "named"),
    [
        (monitor, "nodes laod --store STORE", "there is no metric 'laod' (did you mean 'load'?)"),
        (monitor, "nodes --host c --store STORE", "there are no metrics of host 'c'"),
        (monitor, "io --by jobs --store STORE", "--by jobs: there are job, task, host, frame"),
        (monitor, "locality --job j9 --store STORE", "no task of job j9 has taken data"),
        (monitor, "locality --by task --store STORE", "--by task: there are job, host, frame"),
        (monitor, "io --job j9 --store STORE", "nothing is known of job j9"),
        (monitor, "io --job j1 --run 2 --store STORE", "--run 2: there is no such run; there are: 1"),
        (monitor, "locality --run 2 --store STORE", "--run 2: there is no such run"),
        (monitor, "io --host c --store STORE", "there are no metrics of host 'c'"),
        (monitor, "events --since soon --store STORE", "--since soon"),
        (monitor, "query 'DELETE FROM events' --store STORE", "a query only reads"),
        (monitor, "query 'SELECT gone' --store STORE", "no such column: gone"),
        (monitor, "export --csv - --table tasks --store STORE", "--table tasks: there are nodes, io"),
        (monitor, "export --csv STORE --store STORE", "Is a directory"),
        (monitor, "export --store STORE", "say where: --csv FILE or --parquet FILE"),
        (monitor, "nodes --store STORE/none", "there are no metrics in"),
        (top, "--replay STORE/.. --once", "there are no metrics in"),
    ],
)
def test_a_wrong_question_is_one_line(
    store: Path, app: App, line: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in run(app, store, line, capsys, failing=True)


def test_a_store_without_io_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(tmp_path, 1 << 30).close()
    told = run(monitor, tmp_path, "io --store STORE", capsys, failing=True)
    assert f"{tmp_path} has nothing about what tasks read and write: " in told
    assert "--io off" in told
