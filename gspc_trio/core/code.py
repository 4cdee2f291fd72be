"""What a task runs, and what becomes of what it returns: plain descriptions and the rules for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from attrs import field, frozen

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that stand as ``{name}`` in ``text``, each once, in order.

    Any other brace is an ordinary character, so that shell and awk scripts need no escapes.
    """
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Return ``text`` with ``str(values[name])`` for each ``{name}``; a name without a value stays."""
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), text)


def _words(arguments: Iterable[Any]) -> tuple[str, ...]:
    if isinstance(arguments, str | bytes):
        raise TypeError(
            f"the arguments of a program are a list of words, not one string: {arguments!r}; "
            "for a shell line say ['sh', '-c', line]"
        )
    return tuple(str(argument) for argument in arguments)


def _variables(environment: Mapping[str, Any] | None) -> dict[str, str]:
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


Output: TypeAlias = tuple[str | None, bool]
"""One output of a task's code: (port, each).

``port`` is the key of the returned mapping that holds it, None for the whole returned value; with ``each``
every element of it is a token of its own.
"""

WHOLE: tuple[Output, ...] = ((None, False),)
"""The whole returned value is the one token of the one output."""


@frozen(eq=False)
class CodeEntry:
    """An entry of a job's code table, before it is encoded (``protocol.code``).

    Attributes:
        run: a callable, a :class:`Program` or a :class:`SourceFile`.
        parameters: names of the last ``len(parameters)`` arguments, passed by keyword; the rest by position.
        outputs: what becomes of the returned value.
    """

    run: Any
    parameters: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = WHOLE


class BadResult(TypeError):
    """What a task returned does not fit the outputs it states."""


def split_outputs(value: Any, outputs: tuple[Output, ...]) -> tuple[tuple[Any, ...], ...]:
    """Return, for each output, the tokens that ``value`` puts there.

    Raises:
        BadResult: a port is missing in the returned value, or what should be many tokens is not a list.
    """
    if outputs == WHOLE:
        return ((value,),)
    return tuple(_output_tokens(value, port, each) for port, each in outputs)


def _output_tokens(value: Any, port: str | None, each: bool) -> tuple[Any, ...]:
    if port is not None:
        if not isinstance(value, Mapping):
            raise BadResult(f"a mapping with the port {port!r} was to be returned, not {_kind(value)}")
        if port not in value:
            there = ", ".join(map(repr, value)) or "nothing"
            raise BadResult(f"the returned mapping has no port {port!r}; it has {there}")
        value = value[port]
    if not each:
        return (value,)
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        what = "a list of tokens" if port is None else f"a list of tokens for the port {port!r}"
        raise BadResult(f"{what} was to be returned, not {_kind(value)}")
    return tuple(value)


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"
