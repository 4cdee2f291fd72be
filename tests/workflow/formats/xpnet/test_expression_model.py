"""Random expressions of xpnet against an interpreter that walks trees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from ctypes import c_float
from functools import cache
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from gspc_trio.workflow.formats.format import FormatError
from gspc_trio.workflow.formats.xpnet.compiling import ExpressionError, compile_value, read_value
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.notation import show_value
from gspc_trio.workflow.formats.xpnet.types import ANY, NAMED_TYPES
from gspc_trio.workflow.formats.xpnet.values import (
    BigInt,
    Bitset,
    Char,
    Float,
    Int,
    UInt,
    ULong,
    float32,
    make_map,
    make_set,
    saying,
)
from tests.workflow.formats.xpnet.support import START, parsed

Tree: TypeAlias = tuple[Any, ...]
Value: TypeAlias = tuple[str, Any]
"""Kind and value; elements of lists are such pairs, too."""

RANGES = {"int": (-(2**31), 2**31), "long": (-(2**63), 2**63), "uint": (0, 2**32), "ulong": (0, 2**64)}
BITS_MAX = 1 << 20
WHOLE = (*RANGES, "bigint")
FRACTIONS = ("float", "double")
SUFFIXES = {"int": "", "long": "L", "uint": "U", "ulong": "UL", "bigint": "A", "float": "f", "double": ""}
LEVELS = (
    {":="},
    {"||"},
    {"&&"},
    {"<", "<=", "==", ">", "!="},
    {"+", "-"},
    {"*", "/", "div"},
    {"mod"},
    {"^", "**"},
)
FROM_RIGHT = {":=", "^", "**"}


class NoValue(Exception):
    """The interpreter has no value for this."""


class Interpreter:
    """Evaluates a tree with the bindings that it has."""

    def __init__(self, bindings: Mapping[str, Value]) -> None:
        self.bindings = dict(bindings)

    def value(self, tree: Tree) -> Value:
        match tree:
            case ("literal", kind, value):
                return kind, value
            case ("name", name):
                return self.bindings[name]
            case (":=", ("name", name), right):
                self.bindings[name] = self.value(right)
                return self.bindings[name]
            case ("&&" | "||" as sign, left, right):
                first = self.value(left)
                return first if first[1] == (sign == "||") else self.value(right)
            case ("^" | "**" as sign, left, right):
                exponent = self.value(right)
                return self.binary(sign, self.value(left), exponent)
            case ("unary", sign, inner):
                return self.unary(sign, self.value(inner))
            case ("call", name, *operands):
                return self.call(name, *map(self.value, operands))
            case (sign, left, right):
                first = self.value(left)
                return self.binary(sign, first, self.value(right))
        raise AssertionError(tree)

    def unary(self, sign: str, operand: Value) -> Value:
        kind, value = operand
        if sign == "!":
            return "bool", not value
        return number(kind, abs(value) if sign == "abs" else -value)

    def binary(self, sign: str, left: Value, right: Value) -> Value:
        (kind, a), (other, b) = left, right
        assert kind == other
        if sign in ("<", "<=", "==", ">", "!="):
            if kind in FRACTIONS and sign in ("==", "!="):
                raise NoValue
            same = {"<": a < b, "<=": a <= b, "==": a == b, ">": a > b, "!=": a != b}
            return "bool", same[sign]
        if sign in ("/", "div", "mod") and b == 0:
            raise NoValue
        if sign == "^" and (b < 0 or (abs(a) > 1 and (abs(a).bit_length() - 1) * b > BITS_MAX)):
            raise NoValue
        try:
            return number(kind, self.arithmetic(sign, a, b))
        except (OverflowError, ZeroDivisionError):
            raise NoValue from None

    def arithmetic(self, sign: str, a: Any, b: Any) -> Any:
        match sign:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return a / b
            case "div":
                return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))
            case "mod":
                return int(math.copysign(1, a)) * (abs(a) % abs(b))
            case "^":
                if abs(a) <= 1:
                    return a**b if b < 2 else a ** (2 - b % 2)
                return a**b
            case "**":
                return a**b
        raise AssertionError(sign)

    def call(self, name: str, *operands: Value) -> Value:
        kinds, values = zip(*operands, strict=True)
        match name:
            case "min" | "max":
                return kinds[0], min(values) if name == "min" else max(values)
            case "stack_push":
                return "list", (*values[0], operands[1])
            case "stack_pop" | "stack_top":
                if not values[0]:
                    raise NoValue
                return ("list", values[0][:-1]) if name == "stack_pop" else values[0][-1]
            case "stack_join":
                return "list", values[0] + values[1]
            case "stack_size":
                return "ulong", len(values[0])
        if name in WHOLE:
            return number(name, int(values[0]))
        return number(name, float(values[0]))


def number(kind: str, value: Any) -> Value:
    """Return a number, or say that it is none of its kind."""
    if isinstance(value, complex):
        raise NoValue
    if kind in RANGES:
        low, end = RANGES[kind]
        if not low <= value < end:
            raise NoValue
    if kind == "bigint" and value.bit_length() > BITS_MAX:
        raise NoValue
    if kind == "float":
        value = c_float(value).value
    if kind in FRACTIONS and not math.isfinite(value):
        raise NoValue
    return kind, value


@cache
def literals(kind: str) -> st.SearchStrategy[Tree]:
    if kind in RANGES:
        low, end = RANGES[kind]
        inner = st.one_of(st.integers(low, end - 1), st.integers(max(low, -3), 3))
    elif kind == "bigint":
        inner = st.one_of(st.integers(-(2**80), 2**80), st.integers(-3, 3))
    elif kind == "bool":
        return st.booleans().map(lambda value: ("literal", "bool", value))
    elif kind == "list":
        return st.just(("literal", "list", ()))
    else:
        width = 32 if kind == "float" else 64
        inner = st.floats(allow_nan=False, allow_infinity=False, width=width)
        inner = st.one_of(inner, st.sampled_from([0.0, 0.5, 2.0, -3.0]))
    return inner.map(lambda value: ("literal", kind, value))


BINDINGS = {"a": "int", "b": "long", "c": "double", "d": "bool", "l": "list"}
OF_KIND = {kind: name for name, kind in BINDINGS.items()}


@cache
def trees(kind: str, depth: int) -> st.SearchStrategy[Tree]:
    """Return trees whose value is of this kind."""
    leaves = literals(kind)
    if kind in OF_KIND:
        leaves |= st.just(("name", OF_KIND[kind]))
    if depth == 0:
        return leaves
    below = st.deferred(lambda: trees(kind, depth - 1))
    choices = [leaves]
    if kind in OF_KIND:
        choices.append(st.tuples(st.just(":="), st.just(("name", OF_KIND[kind])), below))
    if kind == "bool":
        for each in ("int", "ulong", "bigint", "float", "double", "bool"):
            inner = trees(each, depth - 1)
            choices.append(st.tuples(st.sampled_from(["<", "<=", "==", ">", "!="]), inner, inner))
        choices.append(st.tuples(st.sampled_from(["&&", "||"]), below, below))
        choices.append(st.tuples(st.just("unary"), st.just("!"), below))
        return st.one_of(choices)
    if kind == "list":
        element = st.sampled_from(["int", "long", "float"]).flatmap(lambda each: trees(each, depth - 1))
        choices.append(st.tuples(st.just("call"), st.just("stack_push"), below, element))
        choices.append(st.tuples(st.just("call"), st.just("stack_join"), below, below))
        choices.append(st.tuples(st.just("call"), st.just("stack_pop"), below))
        return st.one_of(choices)
    signs = ["+", "-", "*", *(["div", "mod", "^"] if kind in WHOLE else ["/", "**"])]
    choices.append(st.tuples(st.sampled_from(signs), below, below))
    choices.append(st.tuples(st.just("unary"), st.sampled_from(["-", "abs"]), below))
    choices.append(st.tuples(st.just("call"), st.sampled_from(["min", "max"]), below, below))
    other = st.sampled_from([*WHOLE, *FRACTIONS]).flatmap(lambda each: trees(each, depth - 1))
    choices.append(st.tuples(st.just("call"), st.just(kind), other))
    if kind in ("int", "long", "float"):
        pushed = st.tuples(st.just("call"), st.just("stack_push"), trees("list", depth - 1), below)
        choices.append(st.tuples(st.just("call"), st.just("stack_top"), pushed))
    return st.one_of(choices)


def written(tree: Tree, level: int = 0) -> str:
    """Return a tree as an expression with no more parentheses than the levels of operators need."""
    match tree:
        case ("literal", "bool", value):
            return "true" if value else "false"
        case ("literal", "list", _):
            return "List ()"
        case ("literal", kind, value):
            text = repr(abs(value)) + SUFFIXES[kind]
            negative = math.copysign(1, value) < 0
            return f"-{text}" if negative and level <= len(LEVELS) else f"(-{text})" if negative else text
        case ("name", name):
            return "${" + str(name) + "}"
        case ("unary", sign, inner):
            text = f"{sign} {written(inner, len(LEVELS) if sign != 'abs' else len(LEVELS) + 1)}"
            return f"({text})" if level > len(LEVELS) else text
        case ("call", name, *operands):
            return f"{name} (" + ", ".join(map(written, operands)) + ")"
        case (sign, left, right):
            (own,) = (at for at, signs in enumerate(LEVELS) if sign in signs)
            first, second = (own + 1, own) if sign in FROM_RIGHT else (own, own + 1)
            text = f"{written(left, first)} {sign} {written(right, second)}"
            return f"({text})" if level > own else text
    raise AssertionError(tree)


def shown(value: Value) -> str:
    kind, plain = value
    if kind == "list":
        return "List (" + ", ".join(map(shown, plain)) + ")"
    return show_value(plain, NAMED_TYPES[kind])


ANY_TREE = st.sampled_from([*WHOLE, *FRACTIONS, "bool", "list"]).flatmap(lambda kind: trees(kind, 3))


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.lists(ANY_TREE, min_size=1, max_size=3), st.data())
def test_a_compiled_expression_is_worth_what_an_interpreter_says(
    sequence: list[Tree], data: st.DataObject
) -> None:
    given_values = {name: data.draw(literals(kind))[1:] for name, kind in BINDINGS.items()}
    text = "; ".join(map(written, sequence))
    interpreter = Interpreter(given_values)
    expected: str | None = None
    try:
        for tree in sequence:
            expected = shown(interpreter.value(tree))
    except NoValue:
        expected = None
    function = compile_value(parsed(text), {name: NAMED_TYPES[kind] for name, kind in BINDINGS.items()})
    found: str | None = None
    with suppress(ExpressionError):
        found = show_value(function(*(value for _, value in given_values.values())))
    assert found == expected, text


TOKENS = (
    *("${a}", "${a.b}", ":=", ";", "(", ")", "[", "]", "{", "}", "->", "+", "-", "*", "/", "div", "mod", "^"),
    *(
        "**",
        "!",
        "<",
        ":and:",
        "||",
        "|",
        "1",
        "2L",
        "3.5f",
        "4A",
        "true",
        "'c'",
        '"s"',
        "List",
        "Set",
        "Map",
    ),
    *(
        "Struct",
        "x",
        "y",
        "pi",
        "min",
        "floor",
        "stack_push",
        "shared_p",
        ",",
        "/*",
        "*/",
        "\n",
        "$",
        "\\",
        "é",
    ),
)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join)))
@example("${a.b} := 1; ${a}")
@example("\ud800")
@example("\x00")
@example("1 ^ 1 ^ 1 ^ " * 60 + "1")
def test_nothing_but_its_own_errors_leaves_the_reader(text: str) -> None:
    try:
        value = read_value(text, ANY, START)
    except (FormatError, ExpressionError) as error:
        assert str(error).startswith("net.xpnet:")  # noqa: PT017
    else:
        assume("inf" not in show_value(value))
        assert show_value(read_value(show_value(value), ANY, START)) == show_value(value)


SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), st.binary(max_size=5)),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers().map(BigInt),
    st.integers(0, 2**130).map(Bitset),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(Float),
    st.characters().map(Char),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(make_set),
        st.lists(st.tuples(inner, inner), max_size=3).map(make_map),
        st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_what_is_written_reads_back_to_the_same_value(value: object) -> None:
    text = show_value(value)
    again = read_value(text, ANY, START)
    assert (again, type(again)) == (value, type(value))
    assert show_value(again) == text


@pytest.mark.parametrize("kind", ["float", "double"])
def test_fractions_are_written_shortly(kind: str) -> None:
    for number_ in (0.1, 1.0, 1e20, 123456.0, 1e-7):
        text = show_value(float32(number_) if kind == "float" else number_, NAMED_TYPES[kind])
        assert read_value(text, NAMED_TYPES[kind], START) == (
            float32(number_) if kind == "float" else number_
        )
        assert len(text) <= 9
    assert saying(1.5, NAMED_TYPES["float"]) == Float(1.5)
    assert parse_expression("", START).parts == ()
