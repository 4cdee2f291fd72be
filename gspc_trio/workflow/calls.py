"""Calls of the user's functions: do the arguments fit, and in which order do they go in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.code import Program, SourceFile, Variants
from gspc_trio.core.frames import user_stack
from gspc_trio.workflow.arcs import InputArc, WorkflowError
from gspc_trio.workflow.tokens import Value

Run: TypeAlias = Callable[..., object] | Program | SourceFile | Variants
"""What a task runs."""

KeyFunction: TypeAlias = Callable[[Value], object]
"""Returns the key of a token's value."""

_PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

USER_CODE: set[CodeType] = set()
"""Where an engine calls the user's functions, if there is one: below these the user's own code runs."""


class SaysAll(Exception):
    """An error whose message says what failed, where and why: neither its type nor a traceback adds to it."""


class TransitionFailed(WorkflowError):
    """A condition, a key or an inline transition raised; its own exception is the cause."""

    def __init__(self, transition: str, what: str, error: Exception) -> None:
        if isinstance(error, SaysAll):
            super().__init__(f"transition {transition!r}: {error}")
            return
        stack = user_stack(error)
        message = f"transition {transition!r}: {what}: {type(error).__name__}: {error}"
        super().__init__(f"{message}\n{stack}" if stack else message)


class FunctionCall(Struct, frozen=True):
    """A function, and which arcs of its transition give its positional arguments.

    Attributes:
        function: takes positional arguments only.
        order: indices of the arcs, one for each argument.
    """

    function: Callable[..., object]
    order: tuple[int, ...]


def function_name(run: object) -> str:
    """Return what to call ``run`` before people; of Variants, the shortest name of their code."""
    if isinstance(run, Program):
        return run.arguments[0]
    if isinstance(run, SourceFile):
        return run.function
    if isinstance(run, Variants):
        return min(map(function_name, runs_of(run)), key=len)
    name = getattr(run, "__name__", None) or getattr(getattr(run, "func", None), "__name__", None)
    return name or type(run).__name__


def runs_of(run: Run | None) -> list[object]:
    """Return the code of each variant of what tasks run, or that alone."""
    return [variant.run for variant in run.ways.values()] if isinstance(run, Variants) else [run]


def check_run(run: object, arcs: Sequence[InputArc]) -> None:
    """See that ``run`` can be called with what the arcs pass; None is not called.

    Raises:
        WorkflowError: it cannot, or cannot be run at all.
    """
    if run is None:
        return
    if isinstance(run, Variants):
        for variant in run.ways.values():
            check_run(variant.run, arcs)
        return
    passed = [arc.name for arc in arcs if arc.passed]
    named = [name for name in passed if not name.isdigit()]
    if isinstance(run, Program):
        missing = [name for name in run.names if name not in passed]
        if missing:
            has = ", ".join(passed) or "none"
            raise WorkflowError(f"{function_name(run)!r} asks for {{{missing[0]}}}; its inputs are: {has}")
        return
    if isinstance(run, SourceFile):
        return
    if not callable(run):
        raise WorkflowError(f"it runs {run!r}, which is no function, Program or SourceFile")
    signature = _signature(run)
    if signature is None:
        return
    try:
        signature.bind(*[None] * (len(passed) - len(named)), **dict.fromkeys(named))
    except TypeError as error:
        inputs = ", ".join(arc.place if arc.name.isdigit() else arc.name for arc in arcs if arc.passed)
        head = f"{function_name(run)}({', '.join(signature.parameters)})"
        raise WorkflowError(f"{head} does not fit its inputs ({inputs}): {error}") from None


def call_of_run(run: Run, arcs: Sequence[InputArc]) -> FunctionCall:
    """Return how to call what an inline transition runs: with every argument that the arcs pass.

    Raises:
        WorkflowError: it is no function.
    """
    if not callable(run):
        raise WorkflowError(f"the engine itself cannot run {function_name(run)!r}; leave inline out")
    return _with_all(run, [index for index, arc in enumerate(arcs) if arc.passed], arcs)


def call_of_condition(condition: Callable[..., object], arcs: Sequence[InputArc]) -> FunctionCall:
    """Return how to call a condition: with those inputs that it names, so that only they are decoded.

    Raises:
        WorkflowError: it asks for something that is not among the inputs.
    """
    everything = [index for index, arc in enumerate(arcs) if not arc.is_file]
    if any(arc.name.isdigit() for arc in arcs):
        return _with_all(condition, everything, arcs)
    signature = _signature(condition)
    if signature is None:
        return _with_all(condition, everything, arcs)
    names = [arc.name for arc in arcs]
    order = []
    for parameter in signature.parameters.values():
        if (
            parameter.kind is inspect.Parameter.VAR_KEYWORD
            or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        ):
            return _with_all(condition, everything, arcs)
        if parameter.name in names:
            order.append(names.index(parameter.name))
        elif parameter.default is inspect.Parameter.empty:
            there = ", ".join(names)
            raise WorkflowError(f"its condition asks for {parameter.name!r}; its inputs are: {there}")
    return _with_all(condition, order, arcs)


def call_of_size(run: object, arcs: Sequence[InputArc]) -> FunctionCall | None:
    """Return how Variants tell the size of a task's input, as :func:`call_of_condition`; None: they do not.

    A function whose parameters have no names, as ``len``, gets all that the task gets.

    Raises:
        WorkflowError: their function asks for something that is not among the inputs.
    """
    if not isinstance(run, Variants) or run.size is None:
        return None
    signature = _signature(run.size)
    if signature is not None and all(it.kind is it.POSITIONAL_ONLY for it in signature.parameters.values()):
        return FunctionCall(run.size, tuple(index for index, arc in enumerate(arcs) if arc.passed))
    try:
        return call_of_condition(run.size, arcs)
    except WorkflowError as error:
        raise WorkflowError(str(error).replace("its condition", "size of its Variants", 1)) from None


def _with_all(
    function: Callable[..., object], indices: Iterable[int], arcs: Sequence[InputArc]
) -> FunctionCall:
    """Return a call with these arcs: by position where the signature lets us, since that is faster."""
    indices = list(indices)
    positional = [index for index in indices if arcs[index].name.isdigit()]
    named = [index for index in indices if not arcs[index].name.isdigit()]
    if not named:
        return FunctionCall(function, tuple(positional))
    signature = _signature(function)
    if signature is not None and not positional:
        kinds = [parameter.kind in _PLAIN for parameter in signature.parameters.values()]
        by_name = {arcs[index].name: index for index in named}
        first = list(signature.parameters)[: len(named)]
        if all(kinds[: len(named)]) and set(first) == set(by_name):
            return FunctionCall(function, tuple(by_name[name] for name in first))
    names = [arcs[index].name for index in named]
    count = len(positional)

    def call(*values: object) -> object:
        return function(*values[:count], **dict(zip(names, values[count:], strict=True)))

    return FunctionCall(call, (*positional, *named))


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    """Return the signature, or None for what does not tell (some built-in functions)."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
