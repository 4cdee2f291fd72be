"""Computes a range of the items of a map in one task: each item as if it were a task of its own."""

from __future__ import annotations

import _thread
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from time import perf_counter, sleep
from typing import Any

from gspc_trio.compute.code import ANSWER_HEAD
from gspc_trio.compute.errors import ErrorFields, TaskFailure, describe
from gspc_trio.compute.items.trace import ItemTrace, begun_in, trace_of
from gspc_trio.compute.system import read_status
from gspc_trio.compute.tidy import changes
from gspc_trio.core.current import ComputePlace, current_place
from gspc_trio.protocol.values import ATOMS, dumps, loads, pickled

LIMIT_S = 0.02
"""A range that takes longer ends after the item that runs then; the others go back.

The time that it waits for a processor does not count: others would not have been quicker meanwhile.
"""

SILENT_S = 1.5e-6
"""Who takes no longer has not printed, which is a system call: neither that nor the limits are looked at."""

TOGETHER_MAX = 128
TOGETHER_S = 2e-5
"""So many items are called one after the other without a look at the time, if that takes no longer."""

IDLE_LOOKS = 25
"""Nobody looks after ranges any more after so many times at which none ran."""

RESULT_BYTES_MAX = 1 << 20
"""So does one whose results are longer than this together."""

_SHORT = frozenset({type(None), bool, int, float})


class _Watch:
    """Another thread that ends a range which takes long while several items are called in a row."""

    def __init__(self) -> None:
        self._present: tuple[float, _Found] | None = None
        self._runs = False

    def begin(self, due_s: float, found: _Found) -> None:
        """A range begins.

        Args:
            due_s: when it has taken long (``perf_counter``).
            found: what is called next is not called then, unless there are no results. Its ``tell`` is called
                once if no item ends for a while after that.
        """
        self._present = due_s, found
        if not self._runs:
            self._runs = True
            _thread.start_new_thread(self._look, ())

    def end(self) -> None:
        """The range has ended."""
        self._present = None

    def _look(self) -> None:
        idle, count = 0, 0
        seen: _Found | None = None
        while idle < IDLE_LOOKS:
            sleep(LIMIT_S)
            present = self._present
            idle = 0 if present is not None else idle + 1
            if present is not None and perf_counter() > present[0]:
                found = present[1]
                if found.results:
                    found.behind.clear()
                is_stuck = seen is found and count == len(found.results)
                if is_stuck and found.tell is not None:
                    tell, found.tell = found.tell, None
                    tell()
                seen, count = found, len(found.results)
            if idle == IDLE_LOOKS:
                self._runs = False
                if self._present is not None:  # it has begun just before, and started no other thread
                    self._runs, idle = True, 0


_watch = _Watch()


class _Found:
    """What has become of the items so far.

    Attributes:
        results: of all that have ended, None for those of the next two.
        encoded: number -> result, encoded.
        errors: number -> fields of the error.
        size_bytes: about how long all that is.
        behind: first arguments of the items that are called next; none is called once this is empty.
        tell: says what there is to who waits for it; None: nobody does, or it was said.
    """

    def __init__(self) -> None:
        self.results: list[object] = []
        self.encoded: dict[int, bytes] = {}
        self.errors: dict[int, ErrorFields] = {}
        self.size_bytes: int = 0
        self.behind: list[object] = []
        self.tell: Callable[[], None] | None = None

    def take(self, values: Iterable[object]) -> None:
        """Take what items return: numbers as they come, all else before the next item can change it."""
        for kind, group in groupby(values, type):
            if kind in _SHORT:
                self.results.extend(group)  # as far as they come before one raises something
            else:
                for value in group:
                    self._add(value)

    def _add(self, value: object) -> None:
        if changes.in_fork:
            changes.leave_fork()
        if type(value) is tuple and _SHORT.issuperset(map(type, value)):
            size = len(value)
        else:
            size = _size_if_shared(value)
        if size < 0:
            self.encoded[len(self.results)] = data = dumps(value)
            size, value = len(data), None
        self.size_bytes += size
        self.results.append(value)
        if self.size_bytes > RESULT_BYTES_MAX:
            self.behind.clear()

    def answer(self) -> bytes:
        """Return what is said of the items that have ended; also in another thread, while one runs."""
        count = len(self.results)
        encoded = {number: data for number, data in self.encoded.copy().items() if number < count}
        errors = {number: fields for number, fields in self.errors.copy().items() if number < count}
        # pickle is for tuples much faster than msgpack
        data = pickled(pickle.dumps((self.results[:count], encoded, errors), 5))
        return ANSWER_HEAD.pack(count, len(errors)) + data

    def fail(self, problem: BaseException) -> None:
        """An item has raised something."""
        self.errors[len(self.results)] = fields = describe(problem)
        self.size_bytes += len(fields[2]) + len(fields[3])
        self.results.append(None)


def _tell_first(found: _Found, place: ComputePlace) -> None:
    """Say what has become of the first items to who waits for them, while another one takes long."""
    import socket

    from gspc_trio.compute.channel import FRAME_HEADER
    from gspc_trio.core.nested import ItemsEnded, TaskHello, encode

    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect("\0" + place.address)
        for word in (TaskHello(place.job, place.task_id, place.attempt), ItemsEnded(dumps(found.answer()))):
            data = encode(word)
            line.sendall(FRAME_HEADER.pack(len(data)) + data)


def call_items(
    function: Callable[..., object], are_encoded: bool | None, *columns: Sequence[object]
) -> bytes:
    """Call a function with each row of some columns.

    What an item raises is its own error. What it has changed in the process is undone before the next one.

    Args:
        function: what to call.
        are_encoded: whether the arguments are encoded values. None: they are not, and somebody may wait for
            one of the items: when another one takes long, those before are told of, and the row ends.
        columns: of each parameter, the arguments of all items.

    Returns:
        how many items were computed, and how many of these have failed (``ANSWER_HEAD``); behind it, encoded,
        their results, None for those of the next two; number -> result, encoded; number -> fields of the
        error.
    """
    place = current_place() or ComputePlace("", "")
    found = _Found()
    place.behind = changes.behind = found.behind
    begun_s, is_long = perf_counter(), len(columns[0]) > TOGETHER_MAX
    due_s, waited_s = begun_s + LIMIT_S, _waited_s() if is_long else 0.0
    trace = trace_of(place)
    if are_encoded is None:
        found.tell = partial(_tell_first, found, place)
        _watch.begin(due_s, found)
    try:
        while _call_all(function, bool(are_encoded), columns, found, place, due_s, trace) and is_long:
            now = perf_counter()
            left_s = LIMIT_S - (now - begun_s) + _waited_s() - waited_s
            if left_s < LIMIT_S / 4:
                break
            due_s = now + left_s
            if are_encoded is None:
                _watch.begin(due_s, found)
    finally:
        _watch.end()
        found.behind.clear()
        if trace is not None:
            place.begun_items = None
            trace.hide()
    return found.answer()


def _call_all(
    function: Callable[..., object],
    are_encoded: bool,
    columns: Sequence[Sequence[object]],
    found: _Found,
    place: ComputePlace,
    due_s: float,
    trace: ItemTrace | None,
) -> bool:
    """Call the function with one row after the other, several in a row while they are quick.

    Returns:
        whether it has ended for nothing but the time.
    """
    results, behind, count = found.results, found.behind, len(columns[0])
    together = 1
    before = perf_counter()
    while (done := len(results)) < count:
        behind[:] = columns[0][done : done + together]
        called = len(behind)
        row = iter(behind)
        if trace is not None:
            place.begun_items = begun_in(done, row)
            if called == 1 or not trace.is_shown:
                trace.show()
        rows: list[Iterable[Any]] = [row, *(column[done : done + together] for column in columns[1:])]
        try:
            found.take(map(function, *(map(loads, row) for row in rows) if are_encoded else rows))
            if len(results) - done < called == len(behind):  # for ``map`` that is an end
                raise StopIteration
        except BaseException as problem:
            if changes.in_fork:
                changes.leave_fork()
            if isinstance(problem, TaskFailure) or place.cut_off:
                return False  # through no doing of its own, or with more to tell: it is run again, alone
            found.fail(problem)
        if changes.made or place.on_end is not None:
            undo_changes(place)
        now = perf_counter()
        taken_s = now - before
        if taken_s > SILENT_S:
            if found.size_bytes > RESULT_BYTES_MAX:
                return False
            if place.is_silent is not None and not place.is_silent():
                return False  # the others are to print under names of their own
            if now > due_s:
                return True
            now = perf_counter()  # the look is no part of the next item: else that would be looked at, too
        if together == 1 and taken_s < TOGETHER_S and count > TOGETHER_MAX:
            _watch.begin(due_s, found)  # not before: who forks in an item wants no other thread
        together = min(TOGETHER_MAX, 2 * together) if taken_s < TOGETHER_S else max(1, together // 4)
        before = now
    return False


def _waited_s() -> float:
    """Return how long this thread has waited for a processor so far; 0 where the system does not tell."""
    try:
        return int(read_status("/proc/thread-self/schedstat").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _size_if_shared(value: Any) -> int:
    """Return about how long a result is that may be packed later: no item can change it; -1 for others."""
    if type(value) in ATOMS:
        return len(value)
    if type(value) is not tuple or not set(map(type, value)) <= ATOMS:
        return -1
    return sum(len(part) for part in value if type(part) not in _SHORT)


def undo_changes(place: ComputePlace) -> None:
    """Leave all as it was before the item."""
    if changes.in_fork:
        changes.leave_fork()
    if place.on_end is not None:
        place.end()
    if changes.made:
        changes.undo()
