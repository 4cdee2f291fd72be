"""The functions that were submitted to an executor, by number."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

from gspc_trio.protocol.code import call_first, function_code
from gspc_trio.protocol.values import dumps


class CodeTable:
    """The code table of an executor's job.

    An importable function gets a number. So does a function without a closure that comes a second time, as
    those of ``__main__`` do; the globals that it uses are taken as they are then. Any other callable travels
    as an argument, so that what it refers to is as it was when it was submitted, and a million lambdas leave
    nothing behind.
    """

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._ids: dict[Any, int] = {}
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def data(self, code_id: int) -> bytes:
        """Return entry ``code_id``."""
        return self._data[code_id]

    def entry(
        self, fn: Callable[..., Any], parameters: tuple[str, ...] = (), *, often: bool = False
    ) -> tuple[int, list[Any]]:
        """Return the number under which to call ``fn``, and the arguments that must come before the caller's.

        Args:
            fn: what to call.
            parameters: names of its last arguments.
            often: it is about to be called many times.

        Raises:
            BadCode, BadValue: it cannot be sent to another process.
        """
        try:
            code_id = self._ids.get((fn, parameters))
        except TypeError:  # not hashable
            return self._by_value(fn, parameters)
        if code_id is not None:
            return code_id, []
        if _is_importable(fn) or (_is_lasting(fn) and (often or self._seen_before(fn))):
            return self._add(fn, parameters), []
        return self._by_value(fn, parameters)

    def _seen_before(self, fn: Callable[..., Any]) -> bool:
        if fn in self._seen:
            return True
        self._seen.add(fn)
        return False

    def _by_value(self, fn: Callable[..., Any], parameters: tuple[str, ...]) -> tuple[int, list[Any]]:
        code_id = self._ids.get((call_first, parameters))
        if code_id is None:
            code_id = self._add(call_first, parameters)
        return code_id, [dumps(fn)]

    def _add(self, fn: Callable[..., Any], parameters: tuple[str, ...]) -> int:
        self._data.append(function_code(fn, parameters))
        code_id = self._ids[fn, parameters] = len(self._data) - 1
        return code_id


def _is_importable(fn: Callable[..., Any]) -> bool:
    name = getattr(fn, "__qualname__", "<")
    return getattr(fn, "__module__", "__main__") not in (None, "__main__") and "<" not in name


def _is_lasting(fn: Callable[..., Any]) -> bool:
    return type(fn) is FunctionType and fn.__closure__ is None
