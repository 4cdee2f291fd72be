"""``gspc-monitor io|locality``: what tasks have read and written, and from where their data came."""

from __future__ import annotations

import time
from collections.abc import Iterator

from gspc_trio.cli.common import CommandError, UsageError, print_json
from gspc_trio.cli.monitor.commands import StoreOption, app, ask, seconds, store_directory
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
    "no task has done so while it was written, or the run-time system was started with --io off. "
    "It is told 1 to 6 s after it was done"
)


@app.command(name="io")
async def task_io(
    *,
    by: str = "job",
    job: str = "",
    task: int = 0,
    host: str = "",
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
        Of the task with this number.
    host
        On this host alone.
    since
        Only what is not older than this, such as 10m or 2h.
    """
    if by not in BY:
        raise UsageError(f"--by {by}: there are {', '.join(BY)}{did_you_mean(by, BY)}")
    wanted, arguments = ["begin_s >= ?"], [time.time() - seconds(since) if since else 0.0]
    given = {"job": job, "task": task, "host": host}
    values: list[object] = [*arguments, *(value for value in given.values() if value)]
    wanted += [f"{name} = ?" for name, value in given.items() if value]
    keys = BY["task"] if task else BY[by]
    sums = ", ".join(f"sum({name})" for name in IO.counts)
    order = (
        f"SELECT {', '.join(keys)}, {sums} FROM io WHERE {' AND '.join(wanted)} GROUP BY {', '.join(keys)}"
    )
    directory = await store_directory(store, connection_file)
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
    texts = [tuple(map(str, row)) for row, _ in rows]
    table = [(*row, *_shown(amounts)) for row, (_, amounts) in zip(texts, rows, strict=True)]
    print("\n".join(in_columns([(*keys, *HEAD), *table])))
    if task:
        print("\n".join(line for _, amounts in rows for line in _details(amounts)))


@app.command
async def locality(
    *,
    by: str = "job",
    job: str = "",
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
    since
        Only what is not older than this, such as 10m or 2h.
    """
    keys = {name: columns for name, columns in BY.items() if name != "task"}
    if by not in keys:
        raise UsageError(f"--by {by}: there are {', '.join(keys)}{did_you_mean(by, keys)}")
    (key,) = keys[by]
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in DISTANCES)
    wanted = "begin_s >= ?" + (" AND job = ?" if job else "")
    values: list[object] = [time.time() - seconds(since) if since else 0.0, *([job] if job else [])]
    order = f"SELECT {key}, {sums} FROM locality WHERE {wanted} GROUP BY {key}"
    found = await ask(await store_directory(store, connection_file), order, *values)
    if not found.rows:
        raise CommandError(f"no task{_what({'job': job})} has taken data from a memory layer")
    rows = [(str(row[0]), [int(str(n)) for n in row[1:]]) for row in found.rows]
    if json:
        shown = [{key: name, **dict(zip(DISTANCES, found, strict=True))} for name, found in rows]
        print_json({"by": by, "rows": shown})
        return
    table = [(name, *(_share(n, sum(found)) for n in found), size_text(sum(found))) for name, found in rows]
    print("\n".join(in_columns([(key, "node", "rack", "inter-rack", "of"), *table, EXPECTED_ROW])))


EXPECTED_ROW = ("expected", *EXPECTED, "")
"""Last line of the table."""


def _share(number: int, total: int) -> str:
    return f"{number / max(1, total):.1%}"


def _what(given: dict[str, object]) -> str:
    return "".join(f" of {name} {value}" for name, value in given.items() if value)


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
