"""The code of a task as bytes: encoded where the job is described, opened only in the compute process.

Five kinds: a function by import path, a callable by value (cloudpickle), a function of a Python source file,
a program, a function of many items. Reading needs nothing but msgpack, so that a compute process stays small.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgpack

from gspc_trio.core.rules import WHOLE, Output
from gspc_trio.protocol.values import RAISED_BY_USERS, modules_by_value

if TYPE_CHECKING:
    from gspc_trio.core.code import CodeEntry, Program

T = TypeVar("T")


class BadCode(pickle.PicklingError, ValueError):
    """The code cannot be sent to a compute process, or the bytes are no encoded code."""


class ImportedFunction(NamedTuple):
    """A function found by importing ``module`` and following ``qualname``."""

    parameters: tuple[str, ...]
    outputs: tuple[Output, ...]
    module: str
    qualname: str


class PickledFunction(NamedTuple):
    """A callable by value; ``name`` is for people; with ``anew`` each task opens a copy of its own."""

    parameters: tuple[str, ...]
    outputs: tuple[Output, ...]
    name: str
    data: bytes
    anew: bool = False


class SourceFunction(NamedTuple):
    """``function`` of the module that ``text`` makes; ``path`` names it in tracebacks."""

    parameters: tuple[str, ...]
    outputs: tuple[Output, ...]
    path: str
    text: str
    function: str


class ProgramCall(NamedTuple):
    """An external program, as ``core.code.Program``; its texts hold placeholders (``core.rules.fill``)."""

    parameters: tuple[str, ...]
    outputs: tuple[Output, ...]
    arguments: tuple[str, ...]
    environment: dict[str, str]
    working_directory: str
    check: bool


class FunctionOfItems(NamedTuple):
    """A function that is called with each row of columns; ``code`` is its own, encoded."""

    parameters: tuple[str, ...]
    outputs: tuple[Output, ...]
    code: bytes


class FunctionOfCalls(NamedTuple):
    """A function of which a caller sends calls itself (``compute.direct``); ``code`` is its own, encoded."""

    parameters: tuple[str, ...]
    outputs: tuple[Output, ...]
    code: bytes


Code: TypeAlias = (
    ImportedFunction | PickledFunction | SourceFunction | ProgramCall | FunctionOfItems | FunctionOfCalls
)

_KINDS: tuple[type[Code], ...] = (
    ImportedFunction,
    PickledFunction,
    SourceFunction,
    ProgramCall,
    FunctionOfItems,
    FunctionOfCalls,
)


def function_code(
    function: Callable[..., Any],
    parameters: Iterable[str] = (),
    outputs: Iterable[Output] = WHOLE,
    *,
    anew: bool = False,
) -> bytes:
    """Encode a callable: by import path if it is found under its name outside ``__main__``, else by value.

    Args:
        function: any callable.
        parameters: names of the last ``len(parameters)`` arguments, which are passed by keyword; the rest by
            position.
        outputs: (port, each) of each output: ``port`` is a key of the returned mapping, None the whole
            returned value; with ``each`` every element of it is a value of its own.
        anew: whether each task gets a copy of its own of a function by value.

    Raises:
        BadCode: not callable, or async, or it cannot be pickled by value; the message says why.
    """
    if not callable(function):
        raise BadCode(f"{function!r} is not callable, so it cannot be the code of a task")
    if is_async(function):
        raise BadCode(
            f"{getattr(function, '__name__', function)} is async, and a task calls plain functions: "
            "let one run it with trio.run or asyncio.run"
        )
    common = (tuple(parameters), tuple(outputs))
    if is_importable(function):
        return _encode(ImportedFunction(*common, function.__module__, function.__qualname__))
    name = getattr(function, "__qualname__", "") or type(function).__name__
    return _encode(PickledFunction(*common, name, _pickle_by_value(function), anew))


def code_of_items(data: bytes) -> bytes | None:
    """Encode what calls the function of an encoded code with each of many items.

    Returns:
        None if each of its tasks is to have a copy of its own of the function.
    """
    return None if _is_anew(data) else _encode(FunctionOfItems((), tuple(WHOLE), data))


def code_of_calls(data: bytes) -> bytes | None:
    """Encode what has a caller send calls of the function of an encoded code itself; the rest as above."""
    return None if _is_anew(data) else _encode(FunctionOfCalls((), tuple(WHOLE), data))


def _is_anew(data: bytes) -> bool:
    code = decode_code(data)
    return isinstance(code, PickledFunction) and code.anew


ANSWER_HEAD = Struct("<II")
"""How what calls a function with many items begins its answer: items computed, items that failed."""


CALL_BYTES_MAX = 32_768
"""Calls that a caller sends itself are no longer than this, and neither are results on its socket."""

REPLY_HEAD = Struct("<QI")
"""Before a result on that socket: number of the call, from 1, and length of what follows."""

CallsAnswer: TypeAlias = tuple[bool, int, bytes | None, tuple[str, str, str, bytes] | None]
"""Result of the task that computes such calls.

Whether the caller could be reached; how many calls have begun; if the last one's end was not told on the
socket, its result, encoded, or the fields of its error: neither if it is to be run again, alone.
"""


def is_async(function: Any) -> bool:
    """Return whether what a call returns has to be awaited or iterated over with ``async for``."""
    import inspect

    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def source_code(
    path: str,
    text: str,
    function: str = "main",
    parameters: Iterable[str] = (),
    outputs: Iterable[Output] = WHOLE,
) -> bytes:
    """Encode ``function`` of a Python source file with the content ``text``; the rest as function_code.

    Raises:
        BadCode: the text is no valid Python, or defines no such name at its top level.
    """
    try:
        compiled = compile(text, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise BadCode(f"{path} is not valid Python: {error}") from error
    star_import = ("*",) in compiled.co_consts
    if function not in compiled.co_names and not star_import:
        raise BadCode(f"{path} has no function {function}")
    return _encode(SourceFunction(tuple(parameters), tuple(outputs), path, text, function))


def program_code(
    program: Program, parameters: Iterable[str] = (), outputs: Iterable[Output] = WHOLE
) -> bytes:
    """Encode an external program; ``parameters`` name the arguments that fill its placeholders.

    What it "returns" is ``{"exit_status": int, "stdout": str, "stderr": str}``.
    """
    return _encode(
        ProgramCall(
            tuple(parameters),
            tuple(outputs),
            program.arguments,
            program.environment,
            program.working_directory,
            program.check,
        )
    )


def read_source(path: str) -> str:
    """Return the text of a Python source file, in the encoding that it declares; OSError if there is none."""
    import tokenize

    with tokenize.open(path) as file:
        return file.read()


def encode_entry(entry: CodeEntry, read_text: Callable[[str], str] = read_source) -> bytes:
    """Encode an entry of a job's code table, whatever its kind.

    Args:
        entry: what to run, its parameters and outputs.
        read_text: returns the text of a source file, given its path.

    Raises:
        BadCode: as function_code and source_code; or a source file that cannot be read.
    """
    from gspc_trio.core.code import Program, SourceFile

    if isinstance(entry.run, Program):
        return program_code(entry.run, entry.parameters, entry.outputs)
    if isinstance(entry.run, SourceFile):
        path = entry.run.path
        try:
            text = read_text(path)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise BadCode(f"cannot read the source file {path}: {error}") from error
        return source_code(path, text, entry.run.function, entry.parameters, entry.outputs)
    return function_code(entry.run, entry.parameters, entry.outputs)


def call_first(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the first argument with the others: the code of a function that is an argument itself."""
    return function(*args, **kwargs)


def call_named(function: Callable[..., Any], names: tuple[str, ...], /, *args: Any) -> Any:
    """The same with the last arguments by name."""
    split = len(args) - len(names)
    return function(*args[:split], **dict(zip(names, args[split:], strict=True)))


def call_filled(
    function: Callable[..., object], names: Sequence[str], counts: Sequence[int], /, *values: object
) -> object:
    """Call a function with arguments of which some are pickles with holes.

    Args:
        function: what to call.
        names: of its last arguments.
        counts: for each argument the number of values behind it that belong into its holes; -1: it has none.
        values: the arguments, each with what belongs into its holes.
    """
    arguments: list[object] = []
    rest = iter(values)
    for count in counts:
        argument = next(rest)
        if count >= 0:
            assert isinstance(argument, bytes)
            argument = _Filler(argument, tuple(islice(rest, count))).load()
        arguments.append(argument)
    split = len(arguments) - len(names)
    return function(*arguments[:split], **dict(zip(names, arguments[split:], strict=True)))


class _Filler(pickle.Unpickler):
    """Opens a pickle with holes, which have numbers."""

    def __init__(self, data: bytes, values: Sequence[object]) -> None:
        super().__init__(io.BytesIO(data))
        self._values = values

    def persistent_load(self, number: int) -> object:
        return self._values[number]


def call_each(function: Callable[..., T], items: Iterable[tuple[object, ...]]) -> list[T]:
    """Call the function once with each tuple of arguments: a chunk of a map."""
    return [function(*item) for item in items]


def calls_of_chunks(
    function: Callable[..., T], items: Iterator[tuple[object, ...]], size: int
) -> Iterator[tuple[Callable[..., T], list[tuple[object, ...]]]]:
    """Yield the arguments of :func:`call_each` for chunks of so many items, read as they are wanted."""
    while chunk := list(islice(items, size)):
        yield function, chunk


def flat(parts: Iterator[list[T]]) -> Iterator[T]:
    """Yield the elements of each part, keeping none; nor does ``parts`` keep the part."""
    for part in parts:
        part.reverse()
        while part:
            yield part.pop()


def decode_code(data: bytes) -> Code:
    """Return the code that ``data`` stands for.

    Raises:
        BadCode: not an encoded code.
    """
    try:
        kind, *fields = msgpack.unpackb(data, use_list=False, unicode_errors="surrogateescape")
        code: Code = _KINDS[kind](*fields)
    except (ValueError, TypeError, IndexError, msgpack.exceptions.UnpackException) as error:
        raise BadCode(f"these {len(data)} bytes are not an encoded code: {error}") from error
    return code


def _encode(code: Code) -> bytes:
    data: bytes = msgpack.packb((_KINDS.index(type(code)), *code), unicode_errors="surrogateescape")
    return data


def is_importable(function: Any) -> bool:
    """Return whether importing its module and following its name finds this very object, here and elsewhere.

    A bound method is found if it is one of a class. What :func:`cloudpickle.register_pickle_by_value` names
    is not importable, nor is ``__main__``.
    """
    try:
        name, module_name = function.__qualname__, function.__module__
    except Exception:  # objects may answer with errors of their own
        return False
    if type(name) is not str or type(module_name) is not str or module_name == "__main__" or "<" in name:
        return False
    module = found = sys.modules.get(module_name)
    if module is None:
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function and not _is_same_class_method(found, function):
        return False
    return not modules_by_value() or travels_by_name(module)


def _is_same_class_method(found: Any, function: Any) -> bool:
    return (
        type(found) is type(function) is MethodType
        and isinstance(found.__self__, type)
        and found.__self__ is function.__self__
        and found.__func__ is function.__func__
    )


def travels_by_name(module: ModuleType) -> bool:
    """Return whether a module is imported where it is wanted, instead of being pickled."""
    name = module.__name__
    if sys.modules.get(name) is not module:
        return False
    return not any(name == each or name.startswith(f"{each}.") for each in modules_by_value())


def _pickle_by_value(function: Any) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(function, protocol=5)
    except RAISED_BY_USERS as error:
        raise BadCode(f"{function!r} cannot be sent to another process: {error}") from error
    return data
