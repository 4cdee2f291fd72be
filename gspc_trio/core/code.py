"""Descriptions of the code that tasks run: programs, source files, entries of a job's code table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from attrs import field, frozen
from msgspec import Struct

from gspc_trio.core.rules import WHOLE, BadResult, Output, fill, placeholders, split_outputs
from gspc_trio.core.task import Requirement

__all__ = [
    "WHOLE",
    "BadResult",
    "CodeEntry",
    "Output",
    "Program",
    "SourceFile",
    "Variant",
    "Variants",
    "WithItem",
    "checked_size",
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


_VARIANT_NAME = re.compile(r"[\w.-]{1,64}")
_SIZE_MAX = 2**63


@frozen
class Variant:
    """One way to run a task: code for a class of resources.

    Attributes:
        run: a callable, a :class:`Program` or a :class:`SourceFile`.
        requires: resource class or :class:`~gspc_trio.core.task.Requirement`, or several; None: what the
            task requires anyway.
        estimate_s: expected run time in seconds; None: as measured, and as the other variants until then.

    Raises:
        TypeError: ``run`` is a variant itself.
        ValueError: ``estimate_s`` is no positive finite number.
    """

    run: Any
    requires: str | Requirement | Sequence[str | Requirement] | None = None
    estimate_s: float | None = None

    def __attrs_post_init__(self) -> None:
        if isinstance(self.run, Variant | Variants):
            raise TypeError(f"a variant runs a function, Program or SourceFile, not {self.run!r}")
        estimate_s = self.estimate_s
        if estimate_s is None:
            return
        if isinstance(estimate_s, bool) or not isinstance(estimate_s, int | float):
            raise ValueError(f"estimate_s is a number of seconds, not {estimate_s!r}")
        if not 0 < estimate_s < math.inf:
            raise ValueError(f"estimate_s must be finite and more than 0, not {estimate_s!r}")


class Variants:
    """Several ways to run a task, by name: for instance one for GPUs and one for cores (GSPC19 3.6).

    It stands where code may stand: in nets, patterns and ``submit``. For each attempt the way is taken that
    is expected to end first: by waiting, transfer of data and run time. Ways whose resource class is not
    there drop out, and an attempt after a failure takes another way.

    Args:
        size: function that returns the size of a task's input, a number, from the task's arguments; in nets
            from those that it names. None: the bytes of the arguments. Run times are learned for each size.
        variants: name -> :class:`Variant`, or the code of one that states nothing else.

    Raises:
        TypeError: ``size`` is no function.
        ValueError: there are no variants, or a name has other characters than letters, digits, ``_``, ``-``
            and ``.``.
    """

    in_order = False

    def __init__(self, *, size: Callable[..., float] | None = None, **variants: object) -> None:
        if size is not None and not callable(size):
            raise TypeError(f"size is a function of the arguments, not {size!r:.60}; no variant is named so")
        self.size: Callable[..., float] | None = size
        self.ways: dict[str, Variant] = _named_ways(variants)

    @classmethod
    def by_order(cls, **variants: object) -> Variants:
        """Return variants of which the first is taken of whose class a resource is free, else the first that
        gets one; run times do not matter.

        Args:
            variants: as for the class.
        """
        made = cls(_=len)  # which is replaced: here one may be named size
        made.ways = _named_ways(variants)
        made.in_order = True
        return made

    def __repr__(self) -> str:
        return f"<Variants {', '.join(self.ways)}>"


def _named_ways(variants: Mapping[str, object]) -> dict[str, Variant]:
    if not variants:
        raise ValueError("Variants needs at least one: Variants(gpu=Variant(f, requires='gpu'), cpu=g)")
    for name in variants:
        if not _VARIANT_NAME.fullmatch(name):
            allowed = "up to 64 letters, digits, '_', '-' and '.'"
            raise ValueError(f"{name!r:.60} is no name for a variant: it has {allowed}")
    return {name: one if isinstance(one, Variant) else Variant(one) for name, one in variants.items()}


def checked_size(size: object) -> int:
    """Return a size as a whole number.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative or too large.
    """
    if not isinstance(size, Real) or isinstance(size, bool):
        raise TypeError(f"size of Variants returned {size!r:.60}; it returns a number, 0 or more")
    if not 0 <= float(size) < _SIZE_MAX:
        raise ValueError(f"size of Variants returned {size!r}; it returns a number, 0 or more, below 2**63")
    return math.ceil(float(size))


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
