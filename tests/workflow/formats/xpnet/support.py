"""Expressions of xpnet for tests."""

from __future__ import annotations

from collections.abc import Mapping

from gspc_trio.workflow.formats.xpnet.compiling import compile_value
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.notation import show_value
from gspc_trio.workflow.formats.xpnet.tree import Expression, TextStart
from gspc_trio.workflow.formats.xpnet.types import ValueType
from gspc_trio.workflow.formats.xpnet.values import XpnetValue

START = TextStart("net.xpnet", 10, 5)


def parsed(text: str) -> Expression:
    return parse_expression(text, START)


def evaluated(text: str, **given: tuple[ValueType, XpnetValue]) -> str:
    """Return the value of an expression as xpnet writes it."""
    kinds: Mapping[str, ValueType] = {name: kind for name, (kind, _) in given.items()}
    function = compile_value(parsed(text), kinds)
    return show_value(function(*(value for _, value in given.values())))
