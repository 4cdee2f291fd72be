"""Calls as an executor submits them: many at a time, and with futures in containers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from gspc_trio.core.task import Shape, TaskOptions
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.futures import Argument, Call, TaskFuture
from gspc_trio.protocol.values import dumps

if TYPE_CHECKING:
    from gspc_trio.executor.loop import Loop

T = TypeVar("T")

Encode: TypeAlias = Callable[[object], bytes]

OFTEN = 16
"""Calls of one map from which on its function gets an entry of its own in the code table."""

PUT_MAX = 500
"""Calls that are put at a time, so that the first are on their way while the others are made."""


class ManyCalls(Generic[T]):
    """Submits calls of one function: what they have in common is found out once.

    Args:
        loop: of the executor.
        codes: its code table.
        encode: returns an argument as it travels.
        fn: what to call.
        shape, options: what each call needs and states about itself.
    """

    def __init__(
        self,
        loop: Loop,
        codes: CodeTable,
        encode: Encode,
        fn: Callable[..., T],
        shape: Shape,
        options: TaskOptions,
    ) -> None:
        self._loop = loop
        self._codes = codes
        self._encode = encode
        self._fn = fn
        self._name = name_of(fn)
        self._shape = shape
        self._options = options
        self._entry: tuple[int, list[Argument]] | None = None

    def submit(self, items: Iterator[tuple[object, ...]]) -> list[TaskFuture[T]]:
        """Submit a call for the arguments in each item, and return their futures."""
        loop, name, shape, options = self._loop, self._name, self._shape, self._options
        futures: list[TaskFuture[T]] = []
        first = list(islice(items, OFTEN))
        while first:
            calls = []
            for item in first:
                future: TaskFuture[T] = TaskFuture(loop)
                futures.append(future)
                try:
                    code_id, arguments = self._encoded(item, len(first) >= OFTEN)
                except Exception as error:
                    loop.check_process()
                    future.set_exception(error)
                else:
                    calls.append(Call(future, code_id, name, arguments, shape, options))
            loop.put(calls)
            first = list(islice(items, PUT_MAX))
        return futures

    def _encoded(self, item: tuple[object, ...], often: bool) -> tuple[int, list[Argument]]:
        encode = self._encode
        try:
            if self._entry is None:
                self._entry = self._codes.entry(self._fn, (), often=often)
            code_id, leading = self._entry
            return code_id, [*leading, *[v if isinstance(v, Future) else encode(v) for v in item]]
        except Exception as error:
            return entry_with_holes(self._codes, encode, self._fn, item, {}, error)


class CallsTogether:
    """Calls that are submitted in one go, all by the end of the block: ``Executor.calls_together`` makes it.

    When the block fails, those that were on their way are cancelled.

    Args:
        loop: of the executor.
        codes: its code table.
        encode: returns an argument as it travels.
        shape, options: what each call needs and states about itself.
    """

    def __init__(
        self, loop: Loop, codes: CodeTable, encode: Encode, shape: Shape, options: TaskOptions
    ) -> None:
        self._loop = loop
        self._codes = codes
        self._encode = encode
        self._shape = shape
        self._options = options
        self._calls: list[Call] = []
        self._put: list[weakref.ref[Future[Any]]] = []

    def __enter__(self) -> CallsTogether:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._put_calls()
        else:
            self.cancel()

    def _put_calls(self) -> None:
        calls, self._calls = self._calls, []
        self._put += [weakref.ref(call.future) for call in calls]
        self._loop.put(calls)

    def submit(self, name: str, fn: Callable[..., T], *args: object, **kwargs: object) -> TaskFuture[T]:
        """Add ``fn(*args, **kwargs)``, under a name; futures among the arguments stand for their results.

        Raises:
            BadCode, BadValue: function or argument cannot be sent to another process.
        """
        encode = self._encode
        code_id, arguments = self._codes.entry(fn, tuple(kwargs) if kwargs else ())
        for value in (*args, *kwargs.values()) if kwargs else args:
            arguments.append(value if isinstance(value, Future) else encode(value))
        future: TaskFuture[T] = TaskFuture(self._loop)
        self._calls.append(Call(future, code_id, name, arguments, self._shape, self._options))
        if len(self._calls) >= PUT_MAX:
            self._put_calls()
        return future

    def cancel(self) -> None:
        """End those that have not ended; their futures are not kept here."""
        for reference in self._put:
            if (future := reference()) is not None:
                future.cancel()


def entry_with_holes(
    codes: CodeTable,
    encode: Encode,
    fn: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    error: Exception,
) -> tuple[int, list[Argument]]:
    """Return number and arguments of a call that could not be encoded, for there are futures in containers.

    Args:
        codes: the code table.
        encode: returns an argument as it travels.
        fn: what to call.
        args, kwargs: its arguments.
        error: what kept them from being encoded.

    Raises:
        Exception: that, if there are no such futures.
        BadValue: something else cannot be sent to another process either.
    """
    from gspc_trio.workflow.containers import futures_in, make_holes  # only here: few need it

    values = (*args, *kwargs.values())
    within = [[] if isinstance(value, Future) else futures_in(value) for value in values]
    if not any(within):
        raise error
    arguments: list[Argument] = []
    for value, futures in zip(values, within, strict=True):
        if futures:
            arguments += [encode(make_holes(value, futures)), *futures]
        else:
            arguments.append(value if isinstance(value, Future) else encode(value))
    code_id, leading = codes.entry_with_holes(fn)
    counts = [len(futures) if futures else -1 for futures in within]
    return code_id, [*leading, dumps(list(kwargs)), dumps(counts), *arguments]


def name_of(fn: Callable[..., object]) -> str:
    """Return the name of what is called, for people."""
    try:
        return fn.__name__
    except Exception:  # a callable object may have none, and say so in its own way
        return type(fn).__name__
