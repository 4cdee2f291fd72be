"""Descriptions of the code that tasks run: programs, source files, entries of a job's code table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import field, frozen
from msgspec import Struct

from gspc_trio.core.rules import WHOLE, BadResult, Output, fill, placeholders, split_outputs

__all__ = [
    "WHOLE",
    "BadResult",
    "CodeEntry",
    "Output",
    "Program",
    "SourceFile",
    "WithItem",
    "fill",
    "placeholders",
    "split_outputs",
]


def _words(arguments: Iterable[object]) -> tuple[str, ...]:
    if isinstance(arguments, str | bytes):
        raise TypeError(
            f"the arguments of a program are a list of words, not one string: {arguments!r}; "
            "for a shell line say ['sh', '-c', line]"
        )
    return tuple(str(argument) for argument in arguments)


def _variables(environment: Mapping[str, object] | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in (environment or {}).items()}


def _directory(path: object) -> str:
    return "" if path is None else str(path)


@frozen
class Program:
    """An external program.

    In arguments, values of the environment and working directory, ``{name}`` stands for the task's argument
    of that name (:func:`fill`).

    Attributes:
        arguments: the program and its arguments, one word each; no shell comes between.
        environment: variables added to the environment of the compute process.
        working_directory: where it runs; "" means the working directory of the job.
        check: whether an exit status other than 0 makes the task fail.

    Raises:
        TypeError: the arguments are one string.
        ValueError: there are no arguments.
    """

    arguments: tuple[str, ...] = field(converter=_words)
    environment: dict[str, str] = field(factory=dict, converter=_variables)
    working_directory: str = field(default="", converter=_directory)
    check: bool = True

    def __attrs_post_init__(self) -> None:
        if not self.arguments:
            raise ValueError("a program needs at least its own name as an argument")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the task arguments it asks for, in order."""
        texts = (*self.arguments, *self.environment.values(), self.working_directory)
        return tuple(dict.fromkeys(name for text in texts for name in placeholders(text)))


@frozen
class SourceFile:
    """A function of a Python source file that need not be importable where the task runs.

    Attributes:
        path: the file, read where the job is described.
        function: name of the function in it.
    """

    path: str = field(converter=str)
    function: str = "main"


class CodeEntry(Struct, frozen=True, eq=False):
    """An entry of a job's code table, before it is encoded (``compute.code``).

    Attributes:
        run: a callable, a :class:`Program` or a :class:`SourceFile`.
        parameters: names of the last ``len(parameters)`` arguments, passed by keyword; the rest by position.
        outputs: what becomes of the returned value.
    """

    run: Any
    parameters: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = WHOLE


class WithItem:
    """A function that returns its argument with what another one makes of it.

    Args:
        function: the other one.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.__wrapped__ = function

    def __call__(self, item: object) -> tuple[object, object]:
        return item, self.__wrapped__(item)
