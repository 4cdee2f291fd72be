"""Expressions of xpnet as trees, with the place of each part in its file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.workflow.formats.format import FormatError, Problem
from gspc_trio.workflow.formats.xpnet.values import XpnetValue


class TextStart(Struct, frozen=True):
    """Where a text begins.

    Attributes:
        path: of its file, as messages name it.
        line: from 1 on.
        column: from 1 on.
    """

    path: str
    line: int = 1
    column: int = 1


class ExpressionText:
    """What was written, and where.

    Attributes:
        text: all of it.
        start: where it begins.
    """

    def __init__(self, text: str, start: TextStart) -> None:
        self.text = text
        self.start = start
        self._lines = [0, *accumulate(len(line) for line in text.split("\n")[:-1])]
        self._lines = [at + number for number, at in enumerate(self._lines)]

    def place(self, at: int) -> tuple[int, int]:
        """Return line and column of the character with this number."""
        line = bisect_right(self._lines, at) - 1
        column = at - self._lines[line]
        return self.start.line + line, column + (self.start.column if line == 0 else 1)

    def problem(self, at: int, message: str) -> Problem:
        """Return a problem of the character with this number."""
        return Problem(self.start.path, *self.place(at), message)

    def error(self, at: int, message: str) -> FormatError:
        """Return a problem of the character with this number, to be raised."""
        return FormatError([self.problem(at, message)])


class Literal(Struct, eq=False):
    """A value that is written out.

    Attributes:
        begin, end: numbers of its first character and of the one behind it; all nodes have these.
        kind: of the value.
        value: plain; a number may be beyond the range of its kind.
    """

    begin: int
    end: int
    kind: str
    value: XpnetValue


class PathReference(Struct, eq=False):
    """A binding, or a field of it: ``${a.b}``.

    Attributes:
        path: the name of the binding, then those of fields.
    """

    begin: int
    end: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return "${" + ".".join(self.path) + "}"


class Assigned(Struct, eq=False):
    """A value that is given to a binding or to a field: ``${a.b} := value``."""

    begin: int
    end: int
    target: PathReference
    value: ExpressionNode


class Applied(Struct, eq=False):
    """An operator or a function, and what it is applied to.

    Attributes:
        name: of the operator, by its sign, or of the function.
        operands: one to three.
    """

    begin: int
    end: int
    name: str
    operands: tuple[ExpressionNode, ...]


class Made(Struct, eq=False):
    """A list, a set, a map, a struct or a shared value.

    Attributes:
        kind: which of these.
        names: of the fields of a struct; the cleanup place of a shared value.
        items: elements; key and value of each pair of a map in turn; values of fields.
    """

    begin: int
    end: int
    kind: str
    names: tuple[str, ...]
    items: tuple[ExpressionNode, ...]


ExpressionNode: TypeAlias = Literal | PathReference | Assigned | Applied | Made


class Expression(Struct, eq=False):
    """Expressions that are evaluated one after another; the value is that of the last one.

    Attributes:
        source: what was written.
        parts: the expressions; none is the value control.
    """

    source: ExpressionText
    parts: tuple[ExpressionNode, ...]

    def text_of(self, node: ExpressionNode) -> str:
        """Return a part as it was written, on one line."""
        return " ".join(self.source.text[node.begin : node.end].split())


def parts_of(node: ExpressionNode) -> tuple[ExpressionNode, ...]:
    """Return the parts of a node, in the order in which they are written."""
    match node:
        case Assigned(target=target, value=value):
            return target, value
        case Applied(operands=parts) | Made(items=parts):
            return parts
        case _:
            return ()


def levels(node: ExpressionNode) -> Iterator[tuple[int, ExpressionNode]]:
    """Yield each node below and including this one with its depth, from 1 on; without recursion."""
    waiting = [(1, node)]
    while waiting:
        depth, one = waiting.pop()
        yield depth, one
        waiting += [(depth + 1, part) for part in parts_of(one)]
