"""Computes a range of the items of a map in one task: each item as if it were a task of its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from gspc_trio.compute.code import ANSWER_HEAD
from gspc_trio.compute.errors import ErrorFields, TaskFailure, describe
from gspc_trio.compute.tidy import changes
from gspc_trio.core.current import ComputePlace, current_place
from gspc_trio.protocol.values import ATOMS, dumps, loads, pickled

LIMIT_S = 0.02
"""A range that takes longer ends after the item that runs then; the others go back."""

SILENT_S = 1.5e-6
"""Who takes no longer has not printed, which is a system call: neither that nor the limits are looked at."""

RESULT_BYTES_MAX = 1 << 20
"""So does one whose results are longer than this together."""

_SHORT = frozenset({type(None), bool, int, float})


def call_items(function: Callable[..., object], are_encoded: bool, *columns: Iterable[Any]) -> bytes:
    """Call a function with each row of some columns.

    What an item raises is its own error. What it has changed in the process is undone before the next one.

    Args:
        function: what to call.
        are_encoded: whether the arguments are encoded values.
        columns: of each parameter, the arguments of all items.

    Returns:
        how many items were computed, and how many of these have failed (``ANSWER_HEAD``); behind it, encoded,
        their results, None for those of the next two; number -> result, encoded; number -> fields of the
        error.
    """
    place = current_place() or ComputePlace("", "")
    results: list[object] = []
    encoded: dict[int, bytes] = {}
    errors: dict[int, ErrorFields] = {}
    size_bytes = 0
    rows, call = _calls(function, are_encoded, columns)
    before = perf_counter()
    end = before + LIMIT_S
    for row in rows:
        try:
            value = call(row)
            if type(value) not in _SHORT:
                if changes.in_fork:
                    changes.leave_fork()
                if type(value) is tuple and _SHORT.issuperset(map(type, value)):
                    size = len(value)
                else:
                    size = _size_if_shared(value)
                if size < 0:
                    encoded[len(results)] = data = dumps(value)
                    size, value = len(data), None
                size_bytes += size
        except BaseException as problem:
            if changes.in_fork:
                changes.leave_fork()
            if isinstance(problem, TaskFailure) or place.cut_off:
                break  # through no doing of its own, or with more to tell: it is run again, alone
            errors[len(results)] = fields = describe(problem)
            size_bytes += len(fields[2]) + len(fields[3])
            value = None
        results.append(value)
        if changes.made or place.on_end is not None:
            _tidy(place)
        now = perf_counter()
        if now - before > SILENT_S:
            if now > end or size_bytes > RESULT_BYTES_MAX:
                break
            if place.is_silent is not None and not place.is_silent():
                break  # the others are to print under names of their own
            now = perf_counter()  # what the look took is no time of the next item: else that was looked at, too
        before = now
    answer = pickled(pickle.dumps((results, encoded, errors), 5))  # for tuples much faster than msgpack
    return ANSWER_HEAD.pack(len(results), len(errors)) + answer


def _calls(
    function: Callable[..., Any], are_encoded: bool, columns: Sequence[Iterable[Any]]
) -> tuple[Iterable[Any], Callable[[Any], Any]]:
    """Return rows, and what calls the function with one of them: itself, if it takes one argument."""
    if len(columns) == 1:
        return columns[0], (lambda data: function(loads(data))) if are_encoded else function
    rows = zip(*columns, strict=True)
    return rows, (lambda row: function(*map(loads, row))) if are_encoded else lambda row: function(*row)


def _size_if_shared(value: Any) -> int:
    """Return about how long a result is that may be packed later: no item can change it; -1 for others."""
    if type(value) in ATOMS:
        return len(value)
    if type(value) is not tuple or not set(map(type, value)) <= ATOMS:
        return -1
    return sum(len(part) for part in value if type(part) not in _SHORT)


def _tidy(place: ComputePlace) -> None:
    """Leave all as it was before the item."""
    if changes.in_fork:
        changes.leave_fork()
    if place.on_end is not None:
        place.end()
    if changes.made:
        changes.undo()
