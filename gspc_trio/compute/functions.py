"""Runs the code of tasks: opens encoded code and arguments, calls, encodes what is returned."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from gspc_trio.compute import data as layer
from gspc_trio.compute import modules
from gspc_trio.compute.code import (
    Code,
    FunctionOfCalls,
    FunctionOfItems,
    ImportedFunction,
    PickledFunction,
    ProgramCall,
    SourceFunction,
    decode_code,
)
from gspc_trio.compute.errors import TaskFailure
from gspc_trio.compute.tidy import changes
from gspc_trio.core.published import offer
from gspc_trio.core.rules import WHOLE, split_outputs
from gspc_trio.protocol import values

if TYPE_CHECKING:
    from gspc_trio.compute.programs import Watch

EncodedValues = list[list[bytes]]
"""For each output of a code, the encoded values put there."""


class Runner:
    """One entry of a job's code table, ready to run.

    Raises:
        Exception: whatever importing, unpickling or executing the user's module raises.
    """

    def __init__(self, data: bytes, watch: Watch | None = None, echo: tuple[int, int] | None = None) -> None:
        """Open the code.

        Args:
            data: the encoded code.
            watch: who wants to know of programs; given where tasks share the process with others.
            echo: files for others to see what programs have written so far, if there are.
        """
        code = decode_code(data)
        self._names = code.parameters
        self._outputs = code.outputs
        self._whole = code.outputs == WHOLE
        self._watch = watch
        self._program = isinstance(code, ProgramCall)
        self._serializer = serializer = layer.serializer
        self._loads = serializer.loads if serializer.active else values.loads
        self._dumps = serializer.dumps if serializer.active else values.dumps
        self._call = find_call(code, watch, echo)

    def run(self, arguments: list[bytes], memory_bytes: int) -> tuple[EncodedValues, bytes, bytes]:
        """Run the code once.

        Args:
            arguments: encoded values.
            memory_bytes: what it may take, 0 for no limit.

        Returns:
            the encoded values of each output, and the last part of a program's standard output and error.

        Raises:
            BaseException: whatever the user's code raises; TaskFailure for what is not an exception of it.
        """
        if not self._serializer.active:
            return self._run([*map(values.loads, arguments)], memory_bytes)
        offer(self._serializer)
        opened: list[Any] = []
        try:
            opened += map(self._loads, self._serializer.begin(arguments))
            return self._run(opened, memory_bytes)
        finally:
            opened.clear()  # with it go the views of shared memory that the task has not kept
            self._serializer.task_ended()

    def _run(self, opened: list[Any], memory_bytes: int) -> tuple[EncodedValues, bytes, bytes]:
        if self._program:
            return self._run_program(opened, memory_bytes)
        if memory_bytes:
            if self._watch is not None:
                raise TaskFailure("refused", "memory_bytes needs compute in processes, not in threads")
            with memory_limit(memory_bytes):
                return self._run_function(opened), b"", b""
        return self._run_function(opened), b"", b""

    def _run_function(self, opened: list[Any]) -> EncodedValues:
        try:
            if self._names:
                split = len(opened) - len(self._names)
                result = self._call(*opened[:split], **dict(zip(self._names, opened[split:], strict=True)))
            else:
                result = self._call(*opened)
        finally:
            if changes.in_fork:
                changes.leave_fork()
        return [[self._dumps(result)]] if self._whole else self._encode(result)

    def _run_program(self, opened: list[Any], memory_bytes: int) -> tuple[EncodedValues, bytes, bytes]:
        named = dict(zip(self._names, opened[len(opened) - len(self._names) :], strict=True))
        result, stdout, stderr = self._call(named, memory_bytes)
        return self._encode(result), stdout, stderr

    def _encode(self, result: Any) -> EncodedValues:
        if self._whole:
            return [[self._dumps(result)]]
        return [[self._dumps(token) for token in tokens] for tokens in split_outputs(result, self._outputs)]


def find_call(code: Code, watch: Watch | None, echo: tuple[int, int] | None) -> Callable[..., Any]:
    """Return what calls a code; ``watch`` and ``echo`` as for :class:`Runner`."""
    changes.only_programs &= _starts_programs_alone(code)
    if isinstance(code, ImportedFunction):
        return _import(code.module, code.qualname)
    if isinstance(code, PickledFunction):
        if code.anew:
            return lambda *args, **kwargs: pickle.loads(code.data)(*args, **kwargs)
        call: Callable[..., Any] = pickle.loads(code.data)
        return call
    if isinstance(code, FunctionOfItems):
        from gspc_trio.compute.ranges import call_items  # only here: few need it

        return partial(call_items, find_call(decode_code(code.code), watch, echo))
    if isinstance(code, FunctionOfCalls):
        from gspc_trio.compute.direct import serve_calls  # only here: few need it

        return partial(serve_calls, find_call(decode_code(code.code), watch, echo))
    if isinstance(code, SourceFunction):
        module = modules.make_module(code.path, code.text)
        function: Callable[..., Any] | None = getattr(module, code.function, None)
        if not callable(function):
            raise TaskFailure("AttributeError", f"{code.path} has no function {code.function}")
        return function
    from gspc_trio.compute import programs

    return lambda named, memory_bytes: programs.run(code, named, memory_bytes, watch, echo)


def _starts_programs_alone(code: Code) -> bool:
    """Whether a code does nothing in this process but to start programs."""
    return isinstance(code, ProgramCall) or (
        isinstance(code, ImportedFunction) and code.module == "gspc_trio.compute.commands"
    )


def _import(module_name: str, qualname: str) -> Callable[..., Any]:
    import importlib

    found: Any = importlib.import_module(module_name)
    for name in qualname.split("."):
        found = getattr(found, name)
    function: Callable[..., Any] = found
    return function


@contextmanager
def memory_limit(memory_bytes: int) -> Iterator[None]:
    """Let the block take so much memory on top of what there is; more raises MemoryError in it."""
    import resource

    from gspc_trio.compute.system import read_status

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    taken = int(read_status("/proc/self/statm").split()[5]) * os.sysconf("SC_PAGE_SIZE")
    limit = taken + memory_bytes
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
