"""What a task runs, as far as it is not a Python callable: plain descriptions, without the means to run them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias

from attrs import field, frozen

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that stand as ``{name}`` in ``text``, each once, in order.

    Any other brace is an ordinary character, so that shell and awk scripts need no escapes.
    """
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Return ``text`` with each ``{name}`` replaced by ``str(values[name])``; a name without a value stays as it is."""
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


@frozen
class Program:
    """An external program.

    In arguments, values of the environment and working directory, ``{name}`` stands for the task's argument of that
    name (:func:`fill`).

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
    working_directory: str = field(default="", converter=lambda path: "" if path is None else str(path))
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

    path: str = field(converter=lambda path: str(PurePath(path)))
    function: str = "main"


Output: TypeAlias = tuple[str | None, bool]
"""One output of a task's code: (port, each).

``port`` is the key of the returned mapping that holds it, None for the whole returned value; with ``each`` every element
of it is a token of its own.
"""

WHOLE: tuple[Output, ...] = ((None, False),)
"""The whole returned value is the one token of the one output."""


@frozen(eq=False)
class CodeEntry:
    """An entry of a job's code table, before it is encoded (``protocol.code``).

    Attributes:
        run: a callable, a :class:`Program` or a :class:`SourceFile`.
        parameters: names of the last ``len(parameters)`` arguments, which are passed by keyword; the others by position.
        outputs: what becomes of the returned value.
    """

    run: Any
    parameters: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = WHOLE
