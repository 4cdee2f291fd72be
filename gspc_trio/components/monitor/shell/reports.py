"""Reads what was read and written from a store, beside its writer or after."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from pathlib import Path

from msgspec.structs import replace

from gspc_trio.components.monitor.frames import frame_of
from gspc_trio.components.monitor.io_frames import IO
from gspc_trio.components.monitor.locality import LOCALITY
from gspc_trio.components.monitor.reports import (
    BY,
    DURATIONS_NS,
    EVENTS_MAX,
    KEYS,
    GetIo,
    IoEvent,
    IoReport,
    IoSum,
    step_of,
    steps_sql,
    sums_sql,
    totals_sql,
)
from gspc_trio.components.monitor.shell.anomalies import BY_TASKS, OFF, ON
from gspc_trio.components.monitor.shell.store import StoreError, query
from gspc_trio.core.similar import did_you_mean
from gspc_trio.records.facts import (
    AnomalyChanged,
    HostLoad,
    LocalityChanged,
    Record,
    RifChanged,
    StreamOpened,
)

TOLD_S = 3.0
"""So long after its end a frame is in the store."""


def read_io(directory: Path, asked: GetIo, until_s: float, run: int = 0) -> IoReport:
    """Return what was read and written.

    Args:
        directory: of the store.
        asked: what is to be told.
        until_s: what happened later is not told, in seconds since 1970; nor frames that may be incomplete.
        run: of this run of the run-time system alone; 0: of all.

    Raises:
        StoreError: the store cannot be read, or there is no such sum.
    """
    if asked.by not in BY:
        raise StoreError(f"by={asked.by}: there are {', '.join(BY)}{did_you_mean(asked.by, BY)}")
    step_s = step_of(asked.last_s)
    whole_s = frame_of(until_s - TOLD_S)
    end = -(-whole_s // step_s)
    begin = end - max(1, -(-asked.last_s // step_s))
    wanted, values = "begin_s >= ? AND begin_s < ?", list[object]((begin * step_s, whole_s))
    if asked.job:
        wanted, values = f"{wanted} AND job = ?", [*values, asked.job]
    if run:
        wanted, values = f"{wanted} AND run = ?", [*values, run]
    rows = query(directory, sums_sql(asked.by, wanted), values).rows
    keys = len(KEYS[asked.by])
    names = [name for row in rows for name in row[:keys]]
    in_steps = [step_s, *values, *names, step_s]
    volumes: dict[tuple[str, ...], dict[int, int]] = {}
    for row in query(directory, steps_sql(asked.by, wanted, len(rows)), in_steps).rows if rows else ():
        volumes.setdefault(_texts(row[:keys]), {})[_whole(row[keys])] = _whole(row[keys + 1])
    totals = query(directory, totals_sql(wanted), [step_s, *values]).rows
    by_step = {_whole(row[0]): tuple(map(_whole, row[1:])) for row in totals}
    nothing = (0,) * (len(totals[0]) - 1) if totals else ()
    steps = range(begin, end)
    counted = query(
        directory,
        f"SELECT count(*) FROM (SELECT 1 FROM io WHERE {wanted} GROUP BY {', '.join(KEYS[asked.by])})",
        values,
    )
    return IoReport(
        begin * step_s,
        step_s,
        tuple(by_step.get(step, nothing) for step in steps) if totals else (),
        tuple(_with_run(asked.by, [_sum(row, keys, volumes, steps) for row in rows])),
        _whole(counted.rows[0][0]) - len(rows),
        _events(directory, asked.job, begin * step_s, until_s, run),
    )


def _with_run(by: str, sums: list[IoSum]) -> list[IoSum]:
    """Return sums with the last one of their keys as their run, unless that is the newest."""
    if KEYS[by] == BY[by]:
        return sums
    newest = max((int(one.keys[-1] or 0) for one in sums), default=0)
    return [
        replace(one, keys=one.keys[:-1], run=0 if one.keys[-1] == str(newest) else int(one.keys[-1] or 0))
        for one in sums
    ]


def _sum(
    row: tuple[object, ...], keys: int, volumes: dict[tuple[str, ...], dict[int, int]], steps: range
) -> IoSum:
    names, amounts = _texts(row[:keys]), row[keys : keys + len(IO.counts)]
    durations = tuple(map(_whole, row[keys + len(IO.counts) :]))
    half = len(DURATIONS_NS) + 1
    moved = volumes.get(names, {})
    return IoSum(
        names,
        {name: _whole(n) for name, n in zip(IO.counts, amounts, strict=True) if n},
        tuple(moved.get(step, 0) for step in steps),
        durations[:half],
        durations[half:],
    )


def _events(directory: Path, job: str, begin_s: float, until_s: float, run: int) -> tuple[IoEvent, ...]:
    found = query(
        directory,
        "SELECT at_s, kind, coalesce(host, ''), coalesce(job, ''), coalesce(task, 0), detail FROM events "
        "WHERE at_s >= ? AND at_s <= ? AND (? = '' OR job IS NULL OR job = ?) AND ? IN (0, run) "
        "ORDER BY at_s DESC LIMIT ?",
        (begin_s, until_s, job, job, run, EVENTS_MAX),
    )
    return tuple(
        IoEvent(float(str(at_s)), str(kind), str(host), str(of), _whole(task), str(detail))
        for at_s, kind, host, of, task, detail in reversed(found.rows)
    )


def span(directory: Path) -> tuple[float, float]:
    """Return when the first frame of a store began and the last one ended, in seconds since 1970.

    Raises:
        StoreError: it cannot be read, or there is no frame in it.
    """
    ends = [
        query(directory, f"SELECT min(begin_s), max(begin_s + seconds) FROM {table}").rows[0]
        for table in ("nodes", "io")
    ]
    told = [(_whole(first), _whole(last)) for first, last in ends if first is not None]
    if not told:
        raise StoreError(f"there is no frame in the store in {directory} yet")
    return float(min(first for first, _ in told)), float(max(last for _, last in told))


def records_of(directory: Path) -> Iterator[Record]:
    """Yield what a store knows of hosts as records of a run, for a replay.

    Raises:
        StoreError: it cannot be read, or there is no frame in it.
    """
    first_s, last_s = span(directory)
    yield StreamOpened(0.0, first_s, "")
    told = _loads(directory, first_s, last_s), _anomalies(directory, first_s)
    yield from merge(*told, key=lambda record: record.at_s)


def _loads(directory: Path, first_s: float, last_s: float) -> Iterator[Record]:
    found = query(
        directory,
        "SELECT begin_s + seconds, host, load, cpu_user_ms + cpu_system_ms, cpu_idle_ms, covered_s, "
        "memory_bytes, memory_available_bytes FROM nodes ORDER BY begin_s, host",
    )
    hosts: dict[str, None] = {}
    for end_s, host, load, busy_ms, idle_ms, covered_s, memory, available in found.rows:
        name, at_s = str(host), _whole(end_s) - first_s
        if name not in hosts:
            hosts[name] = None
            yield RifChanged(at_s, name, name, "up")
        if memory is not None and available is not None:
            total_ms = _number(busy_ms) + _number(idle_ms)
            cpus = max(1, round(total_ms / 1000 / max(0.001, _number(covered_s))))
            share = _number(busy_ms) / max(1, total_ms)
            used = _whole(memory) - _whole(available)
            yield HostLoad(at_s, name, name, _number(load), cpus, share, used, _whole(memory))
    for name in hosts:
        yield RifChanged(last_s - first_s, name, name, "up")


def _anomalies(directory: Path, first_s: float) -> Iterator[Record]:
    """Yield when anomalies began and ended, and from where tasks had taken data by the end of each frame."""
    later: list[AnomalyChanged | LocalityChanged] = []
    found = query(directory, f"SELECT at_s, host, kind, detail FROM events WHERE kind IN ('{ON}', '{OFF}')")
    for at_s, host, kind, detail in found.rows:
        name, _, evidence = str(detail).partition(": ")
        cause, begin_s = name.removesuffix(BY_TASKS), max(0.0, _number(at_s) - first_s)
        state = "on" if kind == ON else "over"
        later.append(AnomalyChanged(begin_s, str(host), cause, state, cause != name, evidence))
    sums = ", ".join(f"sum({name})" for name in LOCALITY.counts)
    taken = [0, 0, 0]
    found = query(directory, f"SELECT begin_s + seconds, {sums} FROM locality GROUP BY 1 ORDER BY 1")
    for end_s, *amounts in found.rows:
        taken = [before + _whole(amount) for before, amount in zip(taken, amounts, strict=True)]
        later.append(LocalityChanged(max(0.0, _whole(end_s) - first_s), *taken))
    yield from sorted(later, key=lambda record: record.at_s)


def _texts(row: tuple[object, ...]) -> tuple[str, ...]:
    return tuple("" if value is None else str(value) for value in row)


def _whole(value: object) -> int:
    return int(_number(value))


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
