"""Batches of joblib calls as arguments of one function, with their large values beside them."""

from __future__ import annotations

import pickle
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeAlias, cast

from gspc_trio.protocol.values import BadValue, dumps, pickle_reduced, pickle_with

LARGE_BYTES_MIN = 1 << 20
"""Arrays, bytes and texts of so many bytes are kept once for all batches of a call."""

RECENT_MAX = 16
"""Of values that cannot say when they go, the last so many are kept."""

JoblibCall: TypeAlias = tuple[Callable[..., object], Sequence[object], Mapping[str, object]]
"""A function, its arguments, its keyword arguments."""

_ATOMS = frozenset({int, float, bool, type(None)})
"""Types of arguments that are small, and pickled the same by everybody."""

Share: TypeAlias = Callable[[object], object]
"""Puts a large value where tasks can map it, and returns what stands for it as an argument of tasks."""


class Taken:
    """Stands in a batch for one of the values beside it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: int = number

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return _beside, (self.number,)


class Batches:
    """Encodes the batches of one call of joblib.

    A large array, text or bytes object is shared once, however many calls have it among their arguments, and
    for as long as it lives.

    Args:
        share: puts a large value where tasks can map it.
        level: how deep the calls are nested in other parallel calls, 1 for those of the outermost one.
    """

    def __init__(self, share: Share, level: int) -> None:
        self._share = share
        self._level = level
        self._arrays: dict[object, tuple[weakref.ref[Any], object]] = {}
        self._recent: OrderedDict[int, tuple[object, object]] = OrderedDict()
        self._lock = threading.Lock()
        self._function: Callable[..., object] | None = None  # of the last batch
        self._head: bytes | None = None  # level and that function, if it travels by its name alone

    def encode_small(self, calls: Sequence[JoblibCall]) -> list[bytes] | None:
        """Return the arguments of :func:`run_call`, encoded, if the batch is such a call; None: it is not.

        That is one call of a function that can be imported, with numbers. It takes a third of the time that
        others take.
        """
        if len(calls) == 1:
            function, args, kwargs = calls[0]
            if not kwargs and _ATOMS.issuperset(map(type, args)):
                if function is not self._function:  # asked once for many calls
                    is_plain = _travels_by_name(function)
                    head = dumps(pickle.dumps((self._level, function), protocol=5)) if is_plain else None
                    self._function, self._head = function, head
                if self._head is not None:
                    return [self._head, *map(dumps, args)]
        return None

    def encode(self, calls: Sequence[JoblibCall]) -> tuple[bytes, list[object]]:
        """Return a batch as bytes, and what stands for the large values beside it.

        Raises:
            BadValue: it cannot be sent to another process.
        """
        try:
            return self._encode(calls)
        except BadValue as error:
            names = ", ".join(sorted({getattr(call[0], "__name__", repr(call[0])) for call in calls}))
            raise BadValue(f"joblib: calls of {names} cannot be sent: {error.__cause__ or error}") from error

    def _encode(self, calls: Sequence[JoblibCall]) -> tuple[bytes, list[object]]:
        beside = _Beside(self._shared)
        prepared = self._level, [_without_texts(call, beside) for call in calls]
        array = getattr(sys.modules.get("numpy"), "ndarray", None)
        if array is None:
            return pickle_with(prepared), beside.values
        reducers = {array: beside.reduce_array, sys.modules["numpy"].memmap: beside.reduce_array}
        return pickle_reduced(prepared, reducers), beside.values

    def clear(self) -> None:
        """Forget all values: the call is over."""
        with self._lock:
            self._arrays.clear()
            self._recent.clear()

    def _shared(self, value: Any) -> object:
        with self._lock:
            if isinstance(value, bytes | str):
                return self._shared_text(value)
            memory = value.__array_interface__
            key = memory["data"], memory["shape"], memory["strides"], str(memory["typestr"]), type(value)
            owner = value
            while isinstance(owner.base, sys.modules["numpy"].ndarray):  # a view goes before its memory does
                owner = owner.base
            known = self._arrays.get(key)
            if known is None or known[0]() is not owner:
                known = weakref.ref(owner, lambda _: self._arrays.pop(key, None)), self._share(value)
                self._arrays[key] = known
            return known[1]

    def _shared_text(self, value: bytes | str) -> object:
        known = self._recent.get(id(value))
        if known is None:
            known = self._recent[id(value)] = value, self._share(value)
            if len(self._recent) > RECENT_MAX:
                self._recent.popitem(last=False)
        else:
            self._recent.move_to_end(id(value))
        return known[1]


def _travels_by_name(function: Callable[..., object]) -> bool:
    if not isinstance(function, FunctionType | BuiltinFunctionType):
        return False
    try:
        return pickle_with(function) == pickle.dumps(function, protocol=5)
    except Exception:  # a lambda, for instance: it travels by value, or not at all
        return False


class _Beside:
    """The large values of one batch, each once."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._numbers: dict[int, int] = {}
        self._taken: list[object] = []  # kept, so that no other value gets the id of one
        self.values: list[object] = []

    def take(self, value: object) -> Taken:
        """Put a value beside the batch, and return what stands for it there."""
        number = self._numbers.get(id(value))
        if number is None:
            self.values.append(self._share(value))
            self._taken.append(value)
            number = self._numbers[id(value)] = len(self.values) - 1
        return Taken(number)

    def reduce_array(self, array: Any) -> Any:
        """Return what is pickled of an array."""
        if array.nbytes < LARGE_BYTES_MIN:
            return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return self.take(array).__reduce__()


def _without_texts(call: JoblibCall, beside: _Beside) -> JoblibCall:
    """Return a call whose large texts and bytes objects are beside the batch, for picklers ask of no such."""
    function, args, kwargs = call
    values = (*args, *kwargs.values())
    if not any(map(_is_large_text, values)):
        return call
    taken = [beside.take(value) if _is_large_text(value) else value for value in values]
    return function, taken[: len(args)], dict(zip(kwargs, taken[len(args) :], strict=True))


def _is_large_text(value: object) -> bool:
    return isinstance(value, bytes | str) and len(value) >= LARGE_BYTES_MIN


_here = threading.local()


def _beside(number: int) -> object:
    """Return one of the values beside the batch that is being opened in this thread."""
    return _here.values[number]


def open_batch(batch: bytes, beside: Sequence[Any]) -> tuple[int, Sequence[JoblibCall]]:
    """Return level and calls of a batch. Its large arrays are read-only, wherever they lie."""
    for value in beside:
        if not isinstance(value, bytes | str):
            value.setflags(write=False)
    _here.values = beside
    try:
        level: int
        calls: Sequence[JoblibCall]
        level, calls = pickle.loads(batch)
    finally:
        del _here.values
    return level, calls


def run_batch(batch: bytes, *beside: object) -> bytes:
    """Make the calls of a batch, in a task; return their results, pickled.

    Args:
        batch: encoded.
        beside: its large values.
    """
    level, calls = open_batch(batch, beside)
    with _nested(level):
        results = [function(*args, **kwargs) for function, args, kwargs in calls]
    return pickle_with(results)


def run_call(head: bytes, *args: object) -> object:
    """Make one call, in a task; return a number as it is, and what else comes back as :func:`run_batch` does.

    Args:
        head: level and function, pickled.
        args: of the call.
    """
    level, function = _opened.get(head) or _open_head(head)
    with _nested(level):
        result = function(*args)
    return result if type(result) in _ATOMS else pickle_with([result])


def results_of(value: object) -> Any:
    """Return the results of a batch: of what :func:`run_batch` or :func:`run_call` has returned."""
    return [value] if type(value) in _ATOMS else pickle.loads(cast("bytes", value))


_opened: dict[bytes, tuple[int, Callable[..., object]]] = {}
"""The heads that came last: those of a call of joblib are mostly alike."""

OPENED_MAX = 16
"""So many heads are kept."""


def _open_head(head: bytes) -> tuple[int, Callable[..., object]]:
    if len(_opened) >= OPENED_MAX:
        _opened.clear()
    opened: tuple[int, Callable[..., object]] = pickle.loads(head)
    _opened[head] = opened
    return opened


def _nested(level: int) -> AbstractContextManager[object]:
    """Return the block in which calls are made: joblib in them uses threads, and in those nothing more."""
    from joblib.parallel import SequentialBackend, ThreadingBackend, parallel_config

    backend = (ThreadingBackend if level <= 1 else SequentialBackend)(nesting_level=level)
    nested: AbstractContextManager[object] = parallel_config(backend=backend, n_jobs=None)
    return nested
