"""``gspc-monitor io|locality``: what tasks have read and written, and from where their data came."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gspc_trio.cli.common import CommandError, UsageError, print_json
from gspc_trio.cli.monitor.commands import StoreOption, app, ask, check_host, clock, seconds, store_directory
from gspc_trio.cli.monitor.hosts import NOT_TOLD, Json, RunningFile, in_columns
from gspc_trio.components.monitor.io_frames import IO, coverage
from gspc_trio.components.monitor.locality import DISTANCES, EXPECTED
from gspc_trio.core.similar import did_you_mean
from gspc_trio.tui.text import size as size_text

BY: dict[str, tuple[str, ...]] = {
    "job": ("job",),
    "task": ("job", "task", "attempt"),
    "host": ("host",),
    "frame": ("begin_s",),
}
"""What sums can be made by."""

HEAD = ("reads", "read", "hit", "writes", "written", "seen")


NO_IO = (
    "no task has done so while it was written, the run-time system was started with --io off, or the jobs "
    "ran on one of their own (without gspc-jobserver run --rts FILE). It is told 1 to 6 s after it was done"
)


@app.command(name="io")
async def task_io(
    *,
    by: str = "job",
    job: str = "",
    task: int | None = None,
    host: str = "",
    run: int = 0,
    since: str = "",
    store: StoreOption = None,
    connection_file: RunningFile = None,
    json: Json = False,
) -> None:
    """Show what tasks have read and written: calls, bytes, and the share of bytes read that were in memory.

    "seen" is the share of all bytes that the library has seen, with gspc-rts start --io calls. With --task
    all that is known of the task is listed.

    Parameters
    ----------
    by
        Add up by job, task, host or frame.
    job
        Of this job alone.
    task
        Of the task with this number; 0 is what processes did between tasks.
    host
        On this host alone.
    run
        Of this run of the run-time system alone: gspc-monitor runs lists them.
    since
        Only what is not older than this, such as 10m or 2h.
    """
    if by not in BY:
        raise UsageError(f"--by {by}: there are {', '.join(BY)}{did_you_mean(by, BY)}")
    wanted, arguments = ["begin_s >= ?"], [time.time() - seconds(since) if since else 0.0]
    named = {"job": job or None, "task": task, "host": host or None, "run": run or None}
    given = {name: value for name, value in named.items() if value is not None}
    values: list[object] = [*arguments, *given.values()]
    wanted += [f"{name} = ?" for name in given]
    keys = _with_run(BY[by] if task is None else BY["task"])
    sums = ", ".join(f"sum({name})" for name in IO.counts)
    order = (
        f"SELECT {', '.join(keys)}, {sums} FROM io WHERE {' AND '.join(wanted)} GROUP BY {', '.join(keys)}"
    )
    directory = await store_directory(store, connection_file)
    await _check_run(directory, run, host)
    found = await ask(directory, order, *values)
    if not found.rows:
        if not (await ask(directory, "SELECT 1 FROM io LIMIT 1")).rows:
            raise CommandError(f"{directory} has nothing about what tasks read and write: {NO_IO}")
        raise CommandError(f"nothing is known{_what(given)}: it is told 1 to 6 s after it was done")
    rows = [
        (
            row[: len(keys)],
            {name: int(str(n)) for name, n in zip(IO.counts, row[len(keys) :], strict=True) if n},
        )
        for row in found.rows
    ]
    if json:
        shown = [
            {**dict(zip(keys, row, strict=True)), **amounts, "seen": coverage(amounts)}
            for row, amounts in rows
        ]
        print_json({"by": by, "rows": shown})
        return
    keys, texts = _shown_keys(keys, [tuple(map(str, row)) for row, _ in rows])
    table = [(*row, *_shown(amounts)) for row, (_, amounts) in zip(texts, rows, strict=True)]
    print("\n".join(in_columns([(*keys, *HEAD), *table])))
    if task is not None:
        print("\n".join(line for _, amounts in rows for line in _details(amounts)))


def _with_run(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return key columns, those of jobs with the run in which a job has its name."""
    return (*keys, "run") if "job" in keys else keys


async def _check_run(directory: Path, run: int, host: str = "") -> None:
    """Refuse a run that has not written the metrics, and a host without any; 0 and "" are all.

    Raises:
        CommandError: there was none with this number or name.
    """
    if host:
        await check_host(directory, host)
    if run:
        runs = [int(str(row[0])) for row in (await ask(directory, "SELECT run FROM runs ORDER BY run")).rows]
        if run not in runs:
            known = f"{runs[0]} to {runs[-1]}" if len(runs) > 1 else ", ".join(map(str, runs)) or "none"
            raise CommandError(f"--run {run}: there is no such run; there are: {known}")


def _shown_keys(
    keys: tuple[str, ...], rows: list[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return key columns and what is in them, without the run if all rows are of one."""
    if keys[-1] != "run" or len({row[-1] for row in rows}) > 1:
        return keys, rows
    return keys[:-1], [row[:-1] for row in rows]


@app.command
async def runs(*, store: StoreOption = None, connection_file: RunningFile = None, json: Json = False) -> None:
    """Show which runs of a run-time system have written the metrics: names of jobs begin anew with each."""
    sql = "SELECT run, begin_s, host, (SELECT count(*) FROM names WHERE names.run = runs.run) FROM runs"
    found = await ask(await store_directory(store, connection_file), f"{sql} ORDER BY run")
    rows = [
        (int(str(run)), float(str(at_s)), str(host), int(str(jobs))) for run, at_s, host, jobs in found.rows
    ]
    if json:
        print_json(
            {"runs": [dict(zip(("run", "begin_s", "host", "jobs"), row, strict=True)) for row in rows]}
        )
        return
    table = [(str(run), clock(at_s), host, str(jobs)) for run, at_s, host, jobs in rows]
    print("\n".join(in_columns([("run", "begun", "host", "jobs"), *table])))


@app.command
async def locality(
    *,
    by: str = "job",
    job: str = "",
    run: int = 0,
    since: str = "",
    store: StoreOption = None,
    connection_file: RunningFile = None,
    json: Json = False,
) -> None:
    """Show from where tasks took data of memory layers: their own host, another one of its rack, elsewhere.

    Which host is in which rack is said by gspc-rts start --topology FILE, or --set rack=NAME for a host.
    Without it all hosts are in one rack.

    Parameters
    ----------
    by
        Add up by job, host or frame.
    job
        Of this job alone.
    run
        Of this run of the run-time system alone: gspc-monitor runs lists them.
    since
        Only what is not older than this, such as 10m or 2h.
    """
    there = {name: columns for name, columns in BY.items() if name != "task"}
    if by not in there:
        raise UsageError(f"--by {by}: there are {', '.join(there)}{did_you_mean(by, there)}")
    keys, given = _with_run(there[by]), {"job": job, "run": run}
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in DISTANCES)
    wanted = "begin_s >= ?" + "".join(
        f" AND {name} = ?" for name, value in given.items() if value or name == "task"
    )
    values: list[object] = [time.time() - seconds(since) if since else 0.0, *filter(None, given.values())]
    order = f"SELECT {', '.join(keys)}, {sums} FROM locality WHERE {wanted} GROUP BY {', '.join(keys)}"
    directory = await store_directory(store, connection_file)
    await _check_run(directory, run)
    found = await ask(directory, order, *values)
    if not found.rows:
        raise CommandError(f"no task{_what(given)} has taken data from a memory layer")
    rows = [(row[: len(keys)], [int(str(n)) for n in row[len(keys) :]]) for row in found.rows]
    if json:
        columns = (*keys, *DISTANCES)
        print_json({"by": by, "rows": [dict(zip(columns, (*row, *n), strict=True)) for row, n in rows]})
        return
    keys, texts = _shown_keys(keys, [tuple(map(str, row)) for row, _ in rows])
    table = [
        (*row, *(_share(n, sum(found)) for n in found), size_text(sum(found)))
        for row, (_, found) in zip(texts, rows, strict=True)
    ]
    expected = ("expected", *("" for _ in keys[1:]), *EXPECTED, "")
    print("\n".join(in_columns([(*keys, "node", "rack", "inter-rack", "of"), *table, expected])))


def _share(number: int, total: int) -> str:
    return f"{number / max(1, total):.1%}"


def _what(given: Mapping[str, object]) -> str:
    return "".join(f" of {name} {value}" for name, value in given.items() if value or name == "task")


def _shown(amounts: dict[str, int]) -> tuple[str, ...]:
    read, stored = amounts.get("read_bytes", 0), amounts.get("storage_read_bytes", 0)
    seen = coverage(amounts)
    return (
        str(amounts.get("read_calls", 0)),
        size_text(read),
        f"{max(0.0, 1 - stored / read):.0%}" if read else NOT_TOLD,
        str(amounts.get("write_calls", 0)),
        size_text(amounts.get("write_bytes", 0)),
        f"{seen:.0%}" if seen is not None else NOT_TOLD,
    )


def _details(amounts: dict[str, int]) -> Iterator[str]:
    yield ""
    for name, amount in amounts.items():
        yield f"{name:<28}{amount:>16}"
