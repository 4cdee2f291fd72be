"""``gspc-monitor``: the metrics that a run-time system has kept, while it runs and after."""

from __future__ import annotations

import csv
import importlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TextIO

import trio
from cyclopts import App, Parameter
from msgspec import Struct, structs

from gspc_trio.cli.common import CommandError, UsageError, print_json, run_command, running_connection
from gspc_trio.cli.monitor.hosts import NOT_TOLD, Json, RunningFile, in_columns
from gspc_trio.components.monitor.shell.anomalies import HELD, OFF, ON, USED
from gspc_trio.components.monitor.shell.store import TABLES, Answer, StoreError
from gspc_trio.components.monitor.shell.store import query as ask_store
from gspc_trio.components.provision.strategy import parse_time
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.core.imports import missing_extra
from gspc_trio.core.similar import did_you_mean
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.version import VERSION

app: App = App(name="gspc-monitor", help="Look at the metrics of hosts that were kept.", version=VERSION)

StoreOption = Annotated[
    Path | None,
    Parameter(
        name="--store",
        help="Directory of the metrics (gspc-rts start --monitor DIR); by default that of the running "
        "run-time system.",
    ),
]

SHOWN = (
    *("cpu_user_ms", "cpu_system_ms", "memory_available_bytes", "disk_read_bytes", "disk_written_bytes"),
    *("network_received_bytes", "network_sent_bytes"),
)
"""Metrics that are shown unless others are named."""


@app.command
async def nodes(
    *metrics: str,
    host: str = "",
    since: str = "",
    store: StoreOption = None,
    connection_file: RunningFile = None,
    json: Json = False,
) -> None:
    """Show metrics of hosts by frame: 5 s each, a minute after a day. What a host does not tell is "-".

    Parameters
    ----------
    metrics
        Names of metrics, as gspc-rts hosts HOST --json shows them; by default the most common ones.
    host
        Of this host alone.
    since
        Only what is not older than this, such as 10m or 2h.
    """
    known = TABLES[0].counts + TABLES[0].levels
    for name in metrics:
        if name not in known:
            hint = did_you_mean(name, known)
            raise CommandError(f"there is no metric {name!r}{hint}; there are: {', '.join(known)}")
    columns = ("begin_s", "host", "seconds", "covered_s", *(metrics or SHOWN))
    wanted, arguments = ["1"], list[object]()
    if host:
        wanted.append("host = ?")
        arguments.append(host)
    if since:
        wanted.append("begin_s >= ?")
        arguments.append(time.time() - seconds(since))
    directory = await store_directory(store, connection_file)
    if host:
        await check_host(directory, host)
    order = f"SELECT {', '.join(columns)} FROM nodes WHERE {' AND '.join(wanted)} ORDER BY begin_s, host"
    _print(await ask(directory, order, *arguments), json)


@app.command
async def query(
    sql: str, *, store: StoreOption = None, connection_file: RunningFile = None, json: Json = False
) -> None:
    """Print what a statement in SQL finds; it may read for 10 s, and changes nothing.

    The view "nodes" has the metrics of hosts: begin_s (seconds since 1970), host, seconds (5, or 60 for what
    is older than a day), covered_s, and a column for each metric. The table "events" has what happened.

    Parameters
    ----------
    sql
        One statement, for example "SELECT host, max(load) FROM nodes GROUP BY host".
    """
    _print(await ask(await store_directory(store, connection_file), sql), json)


@app.command
async def events(
    *,
    host: str = "",
    since: str = "",
    store: StoreOption = None,
    connection_file: RunningFile = None,
    json: Json = False,
) -> None:
    """Show what happened: a host that was short of memory or disk, or swapped; records that were lost.

    Parameters
    ----------
    host
        On this host alone.
    since
        Only what is not older than this, such as 10m or 2h.
    """
    directory = await store_directory(store, connection_file)
    if host:
        await check_host(directory, host)
    sql = "SELECT at_s, kind, host, job, task, run, detail FROM events WHERE at_s >= ?"
    sql += " AND host = ? ORDER BY at_s" if host else " ORDER BY at_s"
    begin_s = time.time() - seconds(since) if since else 0.0
    _print(await ask(directory, sql, begin_s, *([host] if host else [])), json)


class Shown(Struct):
    """An anomaly of a host, or a time in which it got nothing new (``held``).

    Attributes:
        host: which one.
        kind: its class.
        begin_s, end_s: in seconds since 1970; None: it lasts.
        evidence: one line for people.
    """

    host: str
    kind: str
    begin_s: float
    end_s: float | None
    evidence: str


def fold(rows: list[tuple[object, ...]], begins_s: Mapping[int, float] | None = None) -> list[Shown]:
    """Return anomalies, made of the events in which they begin and end.

    One that goes on when the run-time system is started again is told once more, as of before. All others of
    the run before are over with that.

    Args:
        rows: moment, kind, host, detail and run of each, in their order.
        begins_s: run -> when it began.
    """
    found: list[Shown] = []
    lasting: dict[tuple[str, str], Shown] = {}
    began = dict(begins_s or {})
    last_runs: dict[tuple[str, str], int] = {}
    newest = max(began, default=0)
    for at_s, event, host, detail, of_run in rows:
        run = int(str(of_run or 0))
        kind, _, evidence = str(detail).partition(": ")
        kind = "held" if event in (HELD, USED) else kind
        key, moment = (str(host), kind), float(str(at_s))
        known = lasting.get(key)
        if known is not None and last_runs[key] < run and moment > began.get(run, 0.0):
            known.end_s = began.get(run)
            known = lasting.pop(key) and None
        last_runs[key] = run
        if event in (OFF, USED):
            if known is not None:
                del lasting[key]
                known.end_s = moment
        elif known is not None and event == HELD:
            known.evidence = str(detail)
        elif known is not None:
            known.evidence = evidence
        else:
            text = str(detail) if event == HELD else evidence
            lasting[key] = one = Shown(str(host), kind, moment, None, text)
            found.append(one)
    for key, one in lasting.items():
        if last_runs[key] < newest:
            one.end_s = began.get(last_runs[key] + 1)
    return found


@app.command
async def anomalies(
    *,
    host: str = "",
    since: str = "",
    store: StoreOption = None,
    connection_file: RunningFile = None,
    json: Json = False,
) -> None:
    """Show anomalies of hosts, and when hosts got nothing new because of them ("held").

    Parameters
    ----------
    host
        Of this host alone.
    since
        Only what was there in this time, such as 10m or 2h.
    """
    directory = await store_directory(store, connection_file)
    if host:
        await check_host(directory, host)
    kinds = ON, OFF, HELD, USED
    marks = ", ".join("?" * len(kinds))
    sql = f"SELECT at_s, kind, host, detail, run FROM events WHERE kind IN ({marks}) ORDER BY id"
    runs = (await ask(directory, "SELECT run, begin_s FROM runs")).rows
    begins_s = {int(str(run)): float(str(at_s)) for run, at_s in runs}
    events_there = (await ask(directory, sql, *kinds)).rows
    found = [one for one in fold(events_there, begins_s) if host in ("", one.host)]
    begin_s = time.time() - seconds(since) if since else 0.0
    found = [one for one in found if one.end_s is None or one.end_s >= begin_s]
    if json:
        print_json({"anomalies": [structs.asdict(one) for one in found]})
        return
    rows = [(one.host, one.kind, clock(one.begin_s), clock(one.end_s), one.evidence) for one in found]
    print("\n".join(in_columns([("host", "class", "from", "until", "evidence"), *rows])))


def clock(at_s: float | None) -> str:
    """Return a moment for people, "-" for none."""
    return NOT_TOLD if at_s is None else time.strftime("%m-%d %H:%M:%S", time.localtime(at_s))


@app.command
async def export(
    *,
    csv_file: Annotated[Path | None, Parameter(name="--csv", allow_leading_hyphen=True)] = None,
    parquet: Path | None = None,
    table: str = "nodes",
    store: StoreOption = None,
    connection_file: RunningFile = None,
) -> None:
    """Write all frames to a file; what a host does not tell is empty there.

    Parameters
    ----------
    csv_file
        A file of comma-separated values; "-" for standard output. It is replaced.
    parquet
        A file of Parquet, which needs pyarrow. It is replaced.
    table
        What is written: nodes or events.
    """
    if (csv_file is None) == (parquet is None):
        raise UsageError("say where: --csv FILE or --parquet FILE")
    there = (*(one.name for one in TABLES), "events")
    if table not in there:
        raise UsageError(f"--table {table}: there are {', '.join(there)}{did_you_mean(table, there)}")
    order = "at_s" if table == "events" else "begin_s"
    directory = await store_directory(store, connection_file)
    found = await ask(directory, f"SELECT * FROM {table} ORDER BY {order}", timeout_s=3600.0)
    if csv_file is not None:
        await trio.to_thread.run_sync(_export, csv_file, found)
    elif parquet is not None:
        await trio.to_thread.run_sync(_export_parquet, parquet, found)


def _export(path: Path, found: Answer) -> None:
    if str(path) == "-":
        _write_csv(sys.stdout, found)
        return
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            _write_csv(file, found)
    except OSError as error:
        raise CommandError(f"--csv {path}: {error.strerror}") from error
    print(f"{len(found.rows)} rows in {path}")


def _export_parquet(path: Path, found: Answer) -> None:
    try:
        table: Any = importlib.import_module("pyarrow")
        writer: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise CommandError(missing_extra("--parquet", "pyarrow", "parquet")) from error
    columns = zip(*found.rows, strict=True) if found.rows else ([] for _ in found.columns)
    named = {name: list(values) for name, values in zip(found.columns, columns, strict=True)}
    try:
        writer.write_table(table.table(named), str(path))
    except OSError as error:
        raise CommandError(f"--parquet {path}: {error.strerror or error}") from error
    print(f"{len(found.rows)} rows in {path}")


def _write_csv(file: TextIO, found: Answer) -> None:
    writer = csv.writer(file)
    writer.writerow(found.columns)
    writer.writerows(found.rows)


def seconds(text: str) -> float:
    """Return how many seconds ``--since`` says.

    Raises:
        UsageError: it says none.
    """
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(f"--since {text}: {error}") from error


async def store_directory(store: Path | None, connection_file: Path | None) -> Path:
    """Return the directory of the store: as named, or as the run-time system says.

    Raises:
        CommandError: it keeps none.
    """
    if store is not None:
        return store
    async with join_rts(running_connection(connection_file)) as rts:
        try:
            path = (await rts.sys_stats()).store
        except RemoteError as error:
            raise CommandError(error.message) from error
    if not path:
        raise CommandError("this run-time system does not keep metrics any more; its log says why")
    return Path(path).parent


async def check_host(directory: Path, host: str) -> None:
    """Refuse a host of which there are no metrics.

    Raises:
        CommandError: there are none.
    """
    found = await ask(directory, "SELECT DISTINCT host FROM nodes")
    names = sorted(str(row[0]) for row in found.rows)
    if host not in names:
        raise CommandError(
            f"there are no metrics of host {host!r}{did_you_mean(host, names)}; "
            f"there are: {', '.join(names) or 'none'}"
        )


async def ask(directory: Path, sql: str, *arguments: object, timeout_s: float = 10.0) -> Answer:
    """Return what a statement finds in a store.

    Raises:
        CommandError: the store cannot be read, or not so.
    """
    try:
        return await trio.to_thread.run_sync(ask_store, directory, sql, arguments, timeout_s)
    except StoreError as error:
        raise CommandError(str(error)) from error


def _print(found: Answer, json: bool) -> None:
    if json:
        print_json({"columns": list(found.columns), "rows": [list(row) for row in found.rows]})
        return
    rows = [tuple(NOT_TOLD if value is None else _text(value) for value in row) for row in found.rows]
    if found.columns:
        print("\n".join(in_columns([found.columns, *rows])))


def _text(value: object) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def add_commands() -> None:
    """Add the command of another module to the app."""
    importlib.import_module("gspc_trio.cli.monitor.task_io")


def main() -> None:
    """Run the command ``gspc-monitor``."""
    add_commands()
    run_command(app)


if __name__ == "__main__":
    main()
