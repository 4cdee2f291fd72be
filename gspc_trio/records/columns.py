"""Many facts of one type as one, in columns: what a fast job writes to its file.

To make a record of each of a hundred thousand tasks a second, and a line of it, costs more than the tasks.
What several of them have in common is said once, and of each what is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gspc_trio.records.facts import RECORD_TYPES, FactColumns, Record

COLUMNS_MIN = 8
"""Fewer facts are told one by one."""

ROWS_MAX = 1_000
"""Facts in one record of columns, which is one line of a file."""

_MAKERS: Mapping[str, Callable[..., Record]] = {kind.__name__: kind for kind in RECORD_TYPES}


def columns_of(
    kind: type[Record], same: Mapping[str, object], each: Mapping[str, Sequence[object]]
) -> list[FactColumns]:
    """Return facts in columns, at most :data:`ROWS_MAX` together.

    Args:
        kind: their type.
        same: field -> what it is in all of them.
        each: field -> what it is in each of them, at least one; a column whose values are all alike is said
            once.
    """
    alike, columns = dict(same), dict[str, Sequence[object]]()
    number = 0
    for name, values in each.items():
        number, first = len(values), values[0]
        if name != "task_id" and values.count(first) == number:
            alike[name] = first
        else:
            columns[name] = values
    if not columns:  # all alike: one column says how many
        name, values = next(iter(each.items()))
        del alike[name]
        columns[name] = values
    if number <= ROWS_MAX:
        return [FactColumns(kind.__name__, alike, columns)]
    return [
        FactColumns(
            kind.__name__, alike, {name: values[at : at + ROWS_MAX] for name, values in columns.items()}
        )
        for at in range(0, number, ROWS_MAX)
    ]


def runs_of(
    kind: type[Record], same: Mapping[str, object], count: int, runs: Mapping[str, tuple[float, float]]
) -> list[FactColumns]:
    """Return facts whose fields grow evenly: that takes the same time for many as for one.

    Args:
        kind: their type.
        same: field -> what it is in all of them.
        count: number of them.
        runs: field -> what it is in the first one, and by how much more it is in each than in the one before.
    """
    return [
        FactColumns(
            kind.__name__,
            same,
            count=min(ROWS_MAX, count - at),
            runs={name: (first + at * step, step) for name, (first, step) in runs.items()} if at else runs,
        )
        for at in range(0, count, ROWS_MAX)
    ]


def rows_of(columns: FactColumns) -> list[dict[str, object]]:
    """Return the fields of each of the facts.

    Raises:
        ValueError: a column is longer than another one, there is none, or there are too many facts.
    """
    each, same = dict(columns.each), columns.same
    if columns.runs and columns.count > ROWS_MAX:
        raise ValueError(f"{columns.count} facts are more than {ROWS_MAX}")
    for name, (first, step) in columns.runs.items():
        each[name] = [first + place * step for place in range(columns.count)]
    if not each:
        raise ValueError("there are no columns")
    return [{**same, **dict(zip(each, values, strict=True))} for values in zip(*each.values(), strict=True)]


def facts_of(columns: FactColumns) -> list[Record]:
    """Return the facts one by one.

    Raises:
        ValueError: a column is longer than another one, or there is none.
        KeyError: they are of no type that is known.
        TypeError: a field is missing, or there is none of that name.
    """
    make = _MAKERS[columns.of]
    return [make(**row) for row in rows_of(columns)]
