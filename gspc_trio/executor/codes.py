"""The functions that were submitted to an executor, by number."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import TypeAlias

from gspc_trio.compute.code import (
    call_filled,
    call_first,
    call_named,
    code_of_calls,
    code_of_items,
    function_code,
    is_importable,
)
from gspc_trio.core.code import Variants
from gspc_trio.executor.futures import Argument
from gspc_trio.executor.snapshot import LEAF_BYTES_MAX, take_snapshot
from gspc_trio.protocol.values import PICKLER, dumps, modules_by_value

CODES_MAX = 4096
"""Numbers that are given at most, for nobody forgets what they stand for; then functions travel by value."""

ALIKE_MAX = 64
"""A function that keeps changing has to be the same for so many calls until it gets another number."""


Key: TypeAlias = int | tuple[int | tuple[str, ...], ...]
"""Of a function: its id, with the ids of what it consists of and the names of its last arguments, if any."""

_NAMED, _FILLED = "named", "filled"
"""Keys of what calls any function: with names, with arguments that have holes."""


def _importing(function: Callable[..., object]) -> Callable[[], bool]:
    """Return what tells whether a function can still be imported: quickly, for it is asked at every call."""
    name, module = function.__qualname__, function.__module__
    if "." in name:
        return partial(is_importable, function)
    modules = sys.modules
    there = modules.get(module)
    names = getattr(there, "__dict__", {})

    def holds() -> bool:
        is_there = names.get(name) is function and modules.get(module) is there
        return is_there and not (PICKLER in modules and modules_by_value())

    def holds_otherwise() -> bool:  # the module makes it when it is asked for
        return getattr(modules.get(module), name, None) is function and not modules_by_value()

    return holds if names.get(name) is function else holds_otherwise


class Known:
    """A function that came before.

    Attributes:
        function: the function; kept, so that no other one gets its id.
        holds: returns whether it still means what it meant then.
        code_id: its number, or None.
        alike: calls since then.
        enough: calls after which it gets a number.
        name: for people.
        anew: whether each task has to get a copy of its own.
    """

    __slots__ = ("alike", "anew", "code_id", "enough", "function", "holds", "name")

    def __init__(
        self,
        function: Callable[..., object],
        holds: Callable[[], bool],
        enough: int = 0,
        anew: bool = False,
    ) -> None:
        self.anew: bool = anew
        self.function: Callable[..., object] = function
        self.holds: Callable[[], bool] = holds
        self.code_id: int | None = None
        self.alike: int = 0
        self.enough: int = enough
        self.name: str = name_of(function)


class CodeTable:
    """The code table of an executor's job.

    A task calls what its function was when it was submitted. A function that can be imported gets a number.
    So does any other that is still the same when it comes again, with all that it refers to; it is looked at
    each time. Whatever else can be called travels as an argument, each time anew.

    Args:
        codes_max: how many numbers it gives.

    Attributes:
        known: functions that came before.
    """

    def __init__(self, codes_max: int = CODES_MAX) -> None:
        self._codes_max = codes_max
        self._lock = threading.Lock()
        self._data: list[bytes] = []
        self.known: dict[Key, Known] = {}
        self._seen: weakref.WeakSet[Callable[..., object]] = weakref.WeakSet()
        self._unsteady: weakref.WeakSet[Callable[..., object]] = (
            weakref.WeakSet()
        )  # their snapshot cannot be taken
        self._callers: dict[tuple[str, ...] | str, int] = {}
        self._last = b""
        self._of_items: dict[int, int | None] = {}
        self._of_calls: dict[int, int | None] = {}

    def data(self, code_id: int) -> bytes:
        """Return entry ``code_id``."""
        return self._data[code_id]

    def entry(
        self, fn: Callable[..., object], parameters: tuple[str, ...] = (), *, often: bool = False
    ) -> tuple[int, list[Argument]]:
        """Return the number under which to call ``fn``, and the arguments that must come before the caller's.

        Args:
            fn: what to call.
            parameters: names of its last arguments.
            often: it is about to be called many times.

        Raises:
            BadCode, BadValue: it cannot be sent to another process.
        """
        key: Key = (id(fn), parameters) if parameters else id(fn)
        known = self.known.get(key)
        if known is not None and known.code_id is not None and known.holds():
            return known.code_id, []
        if type(fn) is MethodType:
            code_id = self._method_id(fn, parameters)
        elif is_importable(fn):
            code_id = self._number(key, Known(fn, _importing(fn)), parameters)
        elif type(fn) is FunctionType:
            code_id = self._function_id(fn, parameters, key, often)
        else:
            code_id = None
        if code_id is not None:
            return code_id, []
        return self._by_value(fn, parameters)

    def items_entry(self, fn: Callable[..., object]) -> int | None:
        """Return the number under which a task calls ``fn`` with each of many items.

        Returns:
            None if each call has to be a task of its own: it gets a copy of the function.

        Raises:
            BadCode, BadValue: it cannot be sent to another process.
        """
        code_id, leading = self.entry(fn, often=True)
        return None if leading else self.items_entry_of(code_id)

    def items_entry_of(self, code_id: int) -> int | None:
        """Return the number under which a task calls code with each of many items; the rest as there."""
        if code_id not in self._of_items:
            data = code_of_items(self._data[code_id])
            self._of_items[code_id] = None if data is None else self._add(data)
        return self._of_items[code_id]

    def calls_entry_of(self, code_id: int) -> int | None:
        """Return the number under which a task takes calls of code from their caller; the rest as there."""
        if code_id not in self._of_calls:
            data = code_of_calls(self._data[code_id])
            self._of_calls[code_id] = None if data is None else self._add(data)
        return self._of_calls[code_id]

    def _method_id(self, method: MethodType, parameters: tuple[str, ...]) -> int | None:
        """Return the number of a class method that can be imported: there is a new object at each look."""
        if not is_importable(method):
            return None
        key = (id(method.__self__), id(method.__func__), parameters)
        known = self.known.get(key) or Known(method, _importing(method))
        return self._number(key, known, parameters) if known.code_id is None else known.code_id

    def _function_id(
        self, function: FunctionType, parameters: tuple[str, ...], key: Key, often: bool
    ) -> int | None:
        """Return the number of a function that travels by value; None if it has none now."""
        known = self.known.get(key)
        if known is None:
            if function in self._unsteady or not (often or function in self._seen):
                self._seen.add(function)
                return None
            known = self._look_at(function, key, 1)
        elif known.holds():
            known.alike += 1
        else:
            known = self._look_at(function, key, min(ALIKE_MAX, 2 * known.enough or 1))
        if known is None or not (often or known.alike >= known.enough):
            return None
        return self._number(key, known, parameters)

    def _look_at(self, function: FunctionType, key: Key, enough: int) -> Known | None:
        snapshot = take_snapshot(function)
        if snapshot is None:
            self._unsteady.add(function)
            self.known.pop(key, None)
            return None
        known = Known(function, snapshot.check(), enough, snapshot.has_containers)
        with self._lock:
            if key not in self.known and len(self.known) >= self._codes_max:
                del self.known[next(iter(self.known))]
            self.known[key] = known
        return known

    def _number(self, key: Key, known: Known, parameters: tuple[str, ...]) -> int | None:
        """Give it a number, if there is one left and it is small; it has to hold while it is encoded."""
        if len(self._data) >= self._codes_max:
            return None
        data = function_code(known.function, parameters, anew=known.anew)
        if len(data) > LEAF_BYTES_MAX:
            self._unsteady.add(known.function)
            self.known.pop(key, None)
            return None
        if not known.holds():
            return None
        known.code_id = self._add(data)
        self.known[key] = known
        return known.code_id

    def _by_value(self, fn: Callable[..., object], parameters: tuple[str, ...]) -> tuple[int, list[Argument]]:
        """Return the number of what calls its first argument, and that."""
        data = dumps(fn)
        if len(data) > LEAF_BYTES_MAX:
            if data == self._last:  # many calls that wait are to hold it once
                data = self._last
            self._last = data
        code_id = self._callers.get(parameters)
        if code_id is not None:
            return code_id, [data]
        if len(self._callers) < self._codes_max // 2:
            code_id = self._callers[parameters] = self._add(function_code(call_first, parameters))
            return code_id, [data]
        code_id = self._callers.get(_NAMED)
        if code_id is None:
            code_id = self._callers[_NAMED] = self._add(function_code(call_named))
        return code_id, [data, dumps(parameters)]

    def entry_with_holes(self, fn: Callable[..., object]) -> tuple[int, list[Argument]]:
        """Return the number under which to call ``fn`` with arguments that have holes (``call_filled``).

        Returns:
            the number, and the argument that must come before names, counts and values.

        Raises:
            BadValue: it cannot be sent to another process.
        """
        data = dumps(fn)
        code_id = self._callers.get(_FILLED)
        if code_id is None:
            code_id = self._callers[_FILLED] = self._add(function_code(call_filled))
        return code_id, [data]

    def _add(self, data: bytes) -> int:
        with self._lock:
            self._data.append(data)
            return len(self._data) - 1


def name_of(fn: Callable[..., object] | Variants) -> str:
    """Return the name of what is called, for people; of Variants, the shortest name of their code."""
    if isinstance(fn, Variants):
        return min((name_of(way.run) for way in fn.ways.values()), key=len)
    try:
        return fn.__name__
    except Exception:  # a callable object may have none, and say so in its own way
        return type(fn).__name__
