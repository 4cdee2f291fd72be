"""Calls as an executor submits them: many at a time, and with futures in containers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec.structs import replace

from gspc_trio.core.code import Variants, checked_size
from gspc_trio.core.task import Shape, TaskOptions, TaskVariant, TaskVariants
from gspc_trio.executor.codes import CodeTable, name_of
from gspc_trio.executor.futures import NOTHING, Argument, Call, TaskFuture, may_share, variant_call
from gspc_trio.protocol.values import dumps
from gspc_trio.workflow.call_options import CallOptions, with_stated

if TYPE_CHECKING:
    from gspc_trio.executor.bulk import ItemsMap
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
        fn: Callable[..., T] | Variants,
        shape: Shape,
        options: TaskOptions,
    ) -> None:
        self._loop = loop
        self._codes = codes
        self._encode = encode
        self._with_variants = (
            VariantCalls(codes, encode, fn, shape, options) if isinstance(fn, Variants) else None
        )
        self._fn = fn
        self._name = name_of(fn)
        self._shape = shape
        self._options = options
        self._entry: tuple[int, list[Argument]] | None = None

    def submit(self, items: Iterator[tuple[object, ...]]) -> list[TaskFuture[T]]:
        """Submit a call for the arguments in each item, and return their futures."""
        loop, name, shape, options = self._loop, self._name, self._shape, self._options
        futures: list[TaskFuture[T]] = []
        calls: list[Call]
        first = list(islice(items, OFTEN))
        while first:
            calls = []
            for item in first:
                future: TaskFuture[T] = TaskFuture(loop)
                futures.append(future)
                try:
                    if self._with_variants is not None:
                        calls.append(self._with_variants.made(future, item, {}))
                        continue
                    code_id, arguments = self._encoded(item, len(first) >= OFTEN)
                except Exception as error:
                    loop.check_process()
                    future.set_exception(error)
                else:
                    calls.append(Call(future, code_id, name, arguments, shape, options))
            loop.put(calls)
            first = list(islice(items, PUT_MAX))
        return futures

    def of_items(self, iterables: Sequence[Iterable[Any]]) -> ItemsMap | None:
        """Submit a call for each item as :meth:`submit` does, but none has to have a task of its own.

        Args:
            iterables: of each parameter, the arguments.

        Returns:
            None if each has to be one; then nothing was read.
        """
        if isinstance(self._fn, Variants) or self._encode is not dumps:
            return None  # with a memory layer, large arguments and results go there
        found = self._loop.maps.open(self._fn, self._name, self._codes, self._shape, self._options)
        if found is not None:
            found.read(iterables, self.submit)
        return found

    def submit_one(self, item: tuple[object, ...]) -> TaskFuture[T]:
        """Submit a call for these arguments, and return its future.

        Raises:
            BadCode, BadValue: function or argument cannot be sent to another process.
            ExecutorBroken: the run-time system has gone.
            RuntimeError: the executor was shut down, or belongs to another process.
        """
        future: TaskFuture[T] = TaskFuture(self._loop)
        code_id, arguments = self._encoded(item, False)
        self._loop.put((Call(future, code_id, self._name, arguments, self._shape, self._options),))
        return future

    def submit_encoded(self, arguments: list[bytes]) -> TaskFuture[T]:
        """Submit a call for arguments that are encoded; the rest as :meth:`submit_one`."""
        future: TaskFuture[T] = TaskFuture(self._loop)
        assert not isinstance(self._fn, Variants), "variants have calls of their own"
        if self._entry is None:
            self._entry = self._codes.entry(self._fn, ())
        code_id, leading = self._entry
        call = Call(future, code_id, self._name, [*leading, *arguments], self._shape, self._options)
        self._loop.put((call,))
        return future

    def _encoded(self, item: tuple[object, ...], often: bool) -> tuple[int, list[Argument]]:
        encode = self._encode
        assert not isinstance(self._fn, Variants), "variants have calls of their own"
        try:
            if self._entry is None:
                self._entry = self._codes.entry(self._fn, (), often=often)
            code_id, leading = self._entry
            return code_id, [*leading, *[v if isinstance(v, Future) else encode(v) for v in item]]
        except Exception as error:
            return entry_with_holes(self._codes, encode, self._fn, item, {}, error)


class VariantCalls:
    """Makes calls of code with variants; what they have in common is found out once.

    Args:
        codes: code table of the executor.
        encode: returns an argument as it travels.
        fn: the variants.
        shape, options: what each call needs and states about itself.
        parameters: names of the last arguments.
    """

    def __init__(
        self,
        codes: CodeTable,
        encode: Encode,
        fn: Variants,
        shape: Shape,
        options: TaskOptions,
        parameters: tuple[str, ...] = (),
    ) -> None:
        self._codes, self._encode, self._fn, self._options = codes, encode, fn, options
        self._name = name_of(fn)
        self._variants = variants_of(codes, fn, shape, options, parameters)

    def made(self, future: TaskFuture[Any], args: Sequence[object], kwargs: Mapping[str, object]) -> Call:
        """Return the call with these arguments.

        Raises:
            BadValue: an argument cannot be sent to another process.
        """
        variants, encode = self._variants, self._encode
        try:
            values = (*args, *kwargs.values())
            arguments: list[Argument] = [
                value if isinstance(value, Future) else encode(value) for value in values
            ]
        except Exception as error:
            arguments = arguments_with_holes(encode, args, kwargs, error)
            variants = with_holes(variants, self._codes, self._fn)
        else:
            variants = sized(variants, self._fn, args, kwargs)
        return variant_call(future, self._name, arguments, self._options, variants)


class CallsTogether:
    """Calls that are submitted in one go, all by the end of the block: ``Executor.calls_together`` makes it.

    When the block fails, those that were on their way are cancelled.

    Args:
        loop: of the executor.
        codes: its code table.
        encode: returns an argument as it travels.
        shape, options: what each call needs and states about itself.
        may_share: short ones of the same function may travel in ranges, as separate calls do.
    """

    def __init__(
        self,
        loop: Loop,
        codes: CodeTable,
        encode: Encode,
        shape: Shape,
        options: TaskOptions,
        may_share: bool,
    ) -> None:
        self._loop = loop
        self._codes = codes
        self._encode = encode
        self._shape = shape
        self._options = options
        self._may_share = may_share
        self._calls: list[Call] = []
        self._recent: tuple[Callable[..., object] | None, int] = (None, 0)
        self._put: list[weakref.ref[Future[Any]]] = []

    def __enter__(self) -> CallsTogether:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._put_calls()
        else:
            self.cancel()

    def _put_calls(self) -> None:
        calls, self._calls, self._recent = self._calls, [], (None, 0)
        self._put += [weakref.ref(call.future) for call in calls]
        self._loop.put(calls)

    def submit(self, name: str, fn: Callable[..., T], *args: object, **kwargs: object) -> TaskFuture[T]:
        """Add ``fn(*args, **kwargs)``, under a name; futures among the arguments stand for their results.

        Raises:
            BadCode, BadValue: function or argument cannot be sent to another process.
        """
        encode = self._encode
        values: tuple[object, ...] = ()
        recent, code_id = self._recent
        arguments: list[Argument] = []
        if recent is not fn or kwargs:
            code_id, arguments = self._codes.entry(fn, tuple(kwargs) if kwargs else ())
            self._recent = (fn, code_id) if not kwargs and not arguments else (None, 0)
        if self._may_share and args and not kwargs and not arguments and may_share(args):
            arguments, values = NOTHING, args
        else:
            for value in (*args, *kwargs.values()) if kwargs else args:
                arguments.append(value if isinstance(value, Future) else encode(value))
        future: TaskFuture[T] = TaskFuture(self._loop)
        self._calls.append(Call(future, code_id, name, arguments, self._shape, self._options, values))
        if len(self._calls) >= PUT_MAX:
            self._put_calls()
        return future

    def submit_rows(
        self, name: str, fn: Callable[..., T], rows: Sequence[tuple[object, ...]]
    ) -> list[TaskFuture[T]]:
        """Add a call for each row of arguments, none of which is a future; the rest as :meth:`submit`.

        It takes half the time.
        """
        futures: list[TaskFuture[T]] = []
        loop, shape, options, encode = self._loop, self._shape, self._options, self._encode
        for at in range(0, len(rows), PUT_MAX):
            code_id, leading = self._codes.entry(fn, ())
            for row in rows[at : at + PUT_MAX]:
                future: TaskFuture[T] = TaskFuture(loop)
                if self._may_share and row and not leading and may_share(row):
                    call = Call(future, code_id, name, NOTHING, shape, options, row)
                else:
                    call = Call(future, code_id, name, [*leading, *map(encode, row)], shape, options)
                futures.append(future)
                self._calls.append(call)
            if len(self._calls) >= PUT_MAX:
                self._put_calls()
        return futures

    def cancel(self) -> None:
        """End those that have not ended; their futures are not kept here."""
        for reference in self._put:
            if (future := reference()) is not None:
                future.cancel()


def variants_of(
    codes: CodeTable, variants: Variants, shape: Shape, options: TaskOptions, parameters: tuple[str, ...] = ()
) -> TaskVariants:
    """Return the variants of a call, with numbers of their code and what each needs.

    Args:
        codes: the code table.
        variants: of functions.
        shape, options: what the calls need and state, as far as a variant does not.
        parameters: names of the last arguments.

    Raises:
        BadCode, BadValue: a function cannot be sent to another process.
        TypeError: a variant runs something else than a function.
        WorkflowError: what a variant requires makes no sense.
    """
    ways = []
    for name, variant in variants.ways.items():
        if not callable(variant.run):
            raise TypeError(f"variant {name!r}: an executor calls functions, not {variant.run!r}")
        stated: CallOptions = {}
        if variant.requires is not None:
            stated["requires"] = variant.requires
        if variant.estimate_s is not None:
            stated["estimate_s"] = variant.estimate_s
        its_shape, its_options = with_stated(shape, options, stated)
        code_id, leading = codes.entry(variant.run, parameters, often=True)
        before = tuple(item for item in leading if isinstance(item, bytes))
        ways.append(TaskVariant(name, code_id, its_shape, its_options.estimate_s, before))
    return TaskVariants(tuple(ways), variants.in_order)


def sized(
    variants: TaskVariants, named: Variants, args: Sequence[object], kwargs: Mapping[str, object]
) -> TaskVariants:
    """Return the variants of a call with the size of its arguments, if they say one and these are all known.

    Raises:
        TypeError, ValueError: what they say is no size.
        Exception: their function raised it.
    """
    if named.size is None or any(isinstance(value, Future) for value in (*args, *kwargs.values())):
        return variants
    return replace(variants, size=checked_size(named.size(*args, **kwargs)))


def with_holes(variants: TaskVariants, codes: CodeTable, named: Variants) -> TaskVariants:
    """Return the variants of a call whose arguments have holes, see :func:`entry_with_holes`."""
    ways = []
    for way, variant in zip(variants.ways, named.ways.values(), strict=True):
        code_id, leading = codes.entry_with_holes(variant.run)
        before = tuple(item for item in leading if isinstance(item, bytes))
        ways.append(replace(way, code_id=code_id, leading=before))
    return replace(variants, ways=tuple(ways))


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
    arguments = arguments_with_holes(encode, args, kwargs, error)
    code_id, leading = codes.entry_with_holes(fn)
    return code_id, [*leading, *arguments]


def arguments_with_holes(
    encode: Encode, args: Sequence[object], kwargs: Mapping[str, object], error: Exception
) -> list[Argument]:
    """Return the arguments of such a call behind its function; the rest as :func:`entry_with_holes`."""
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
    counts = [len(futures) if futures else -1 for futures in within]
    return [dumps(list(kwargs)), dumps(counts), *arguments]
