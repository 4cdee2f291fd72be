"""Operators and functions of expressions: what they take, what they return, and how that is computed.

Each is written as a piece of Python over its operands ``a``, ``b``, ``c``, which :mod:`.compiling` puts into
the function of an expression. ``t`` is a name to put a result into before it is checked. An operator that
groups from the right evaluates its right operand first: there ``b`` stands before ``a``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from msgspec import Struct

from gspc_trio.workflow.formats.xpnet.types import FRACTIONAL, INTEGRAL, INTEGRAL_RANGES, KINDS, NUMERIC
from gspc_trio.workflow.formats.xpnet.values import (
    BIGINT_BITS_MAX,
    BITSET_BITS_MAX,
    Bitset,
    MapValue,
    SetValue,
    XpnetValue,
    float32,
    order_key,
    position_in,
    position_in_map,
)


class Overload(Struct, frozen=True):
    """An operator or a function for operands of certain kinds.

    Attributes:
        operands: kind of each; ``any`` takes all.
        result: kind of the result; ``any``: that is seen when it is there.
        code: the piece of Python.
    """

    operands: tuple[str, ...]
    result: str
    code: str


class Undefined(ArithmeticError):
    """An operation has no result for these values; the message says why."""


RIGHT_FIRST = frozenset({"**", "^"})
"""Operators that group from the right."""


def _in_range(kind: str, code: str) -> str:
    """Return code that computes a number of this kind, or says that it is none."""
    if kind in INTEGRAL_RANGES:
        low, high = INTEGRAL_RANGES[kind]
        return f"t if {low} <= (t := {code}) <= {high} else outside({kind!r}, t)"
    if kind == "bigint":
        return f"t if (t := {code}).bit_length() <= {BIGINT_BITS_MAX} else outside('bigint', t)"
    if kind == "float":
        return f"float32({code})"
    return f"t if -INFINITE < (t := {code}) < INFINITE else outside('double', t)"


def _same(kinds: Iterable[str], code: str, result: str | None = None) -> list[Overload]:
    """Return overloads that take two operands of one kind."""
    return [Overload((kind, kind), result or kind, code) for kind in kinds]


def _checked(kinds: Iterable[str], code: str) -> list[Overload]:
    """Return overloads for two operands of one kind, whose result is checked."""
    return [Overload((kind, kind), kind, _in_range(kind, code)) for kind in kinds]


def _ordered(sign: str) -> list[Overload]:
    return _same((*NUMERIC, "bool", "char", "string"), f"a {sign} b", "bool")


def _equal(sign: str) -> list[Overload]:
    plain = _same((*INTEGRAL, "bool", "char", "string", "bitset", "bytearray"), f"a {sign} b", "bool")
    others = [kind for kind in KINDS if kind not in {one.operands[0] for one in plain} | {*FRACTIONAL}]
    nested = _same(others, f"order_key(a) {sign} order_key(b)", "bool")
    return [*plain, *nested, *_same(FRACTIONAL, "equal_fractions(a, b)", "bool")]


def _rounded(name: str) -> list[Overload]:
    return [
        Overload(("double",), "double", f"{name}(a)"),
        Overload(("float",), "float", f"float32({name}(a))"),
    ]


def _cast(kind: str) -> list[Overload]:
    if kind in FRACTIONAL:
        return [Overload((each,), kind, _in_range(kind, "float(a)")) for each in NUMERIC]
    return [Overload((each,), kind, _in_range(kind, "whole(a)")) for each in NUMERIC]


def _bits(code: str, result: str) -> list[Overload]:
    return [Overload(("bitset", each), result, code) for each in ("long", "ulong", "int", "uint")]


OPERATIONS: Mapping[str, tuple[Overload, ...]] = {
    name: tuple(overloads)
    for name, overloads in {
        "||": _same(("bool",), "a or b"),
        "&&": _same(("bool",), "a and b"),
        "|": _same(("bool", *INTEGRAL), "a | b"),
        "&": _same(("bool", *INTEGRAL), "a & b"),
        "!": [Overload(("bool",), "bool", "not a")],
        "==": _equal("=="),
        "!=": _equal("!="),
        "<": _ordered("<"),
        "<=": _ordered("<="),
        ">": _ordered(">"),
        ">=": _ordered(">="),
        "+": [
            *_checked(NUMERIC, "a + b"),
            Overload(("string", "string"), "string", "joined(a, b)"),
            Overload(("char", "char"), "string", "a + b"),
        ],
        "-": _checked(NUMERIC, "a - b"),
        "*": _checked(NUMERIC, "a * b"),
        "/": _checked(FRACTIONAL, "a / b"),
        "div": _checked(INTEGRAL, "quotient(a, b)"),
        "mod": _same(INTEGRAL, "remainder(a, b)"),
        "%": [*_same(INTEGRAL, "remainder(a, b)"), *_checked(FRACTIONAL, "fractional_remainder(a, b)")],
        "**": _checked(FRACTIONAL, "power(b, a)"),
        "^": _checked(INTEGRAL, "whole_power(b, a)"),
        "neg": [Overload((kind,), kind, _in_range(kind, "-a")) for kind in NUMERIC],
        "abs": [Overload((kind,), kind, _in_range(kind, "abs(a)")) for kind in NUMERIC],
        "min": _same((*NUMERIC, "char", "string"), "min(a, b)"),
        "max": _same((*NUMERIC, "char", "string"), "max(a, b)"),
        "floor": _rounded("floor"),
        "ceil": _rounded("ceil"),
        "round": _rounded("nearest"),
        "sin": _rounded("sin"),
        "cos": _rounded("cos"),
        "sqrt": _rounded("sqrt"),
        "log": _rounded("log"),
        **{kind: _cast(kind) for kind in NUMERIC},
        "stack_push": [Overload(("list", "any"), "list", "(*a, b)")],
        "stack_pop": [Overload(("list",), "list", "filled(a, 'list')[:-1]")],
        "stack_top": [Overload(("list",), "any", "filled(a, 'list')[-1]")],
        "stack_empty": [Overload(("list",), "bool", "not a")],
        "stack_size": [Overload(("list",), "ulong", "len(a)")],
        "stack_join": _same(("list",), "lists_joined(a, b)"),
        "set_insert": [Overload(("set", "any"), "set", "set_insert(a, b)")],
        "set_erase": [Overload(("set", "any"), "set", "set_erase(a, b)")],
        "set_is_element": [Overload(("set", "any"), "bool", "position_in(a, b)[1]")],
        "set_pop": [Overload(("set",), "set", "SetValue(filled(a, 'set')[1:])")],
        "set_top": [Overload(("set",), "any", "filled(a, 'set')[0]")],
        "set_empty": [Overload(("set",), "bool", "not a")],
        "set_size": [Overload(("set",), "ulong", "len(a)")],
        "set_is_subset": _same(("set",), "set_is_subset(a, b)", "bool"),
        "map_assign": [Overload(("map", "any", "any"), "map", "map_assign(a, b, c)")],
        "map_unassign": [Overload(("map", "any"), "map", "map_unassign(a, b)")],
        "map_is_assigned": [Overload(("map", "any"), "bool", "position_in_map(a, b)[1]")],
        "map_get_assignment": [Overload(("map", "any"), "any", "map_get_assignment(a, b)")],
        "map_size": [Overload(("map",), "ulong", "len(a)")],
        "map_empty": [Overload(("map",), "bool", "not a")],
        "bitset_insert": _bits("Bitset(a | 1 << bit(b))", "bitset"),
        "bitset_delete": _bits("Bitset(a & ~(1 << bit(b)))", "bitset"),
        "bitset_is_element": _bits("bool(a >> bit(b) & 1)", "bool"),
        "bitset_or": _same(("bitset",), "Bitset(a | b)"),
        "bitset_and": _same(("bitset",), "Bitset(a & b)"),
        "bitset_xor": _same(("bitset",), "Bitset(a ^ b)"),
        "bitset_count": [Overload(("bitset",), "ulong", "a.bit_count()")],
        "bitset_tohex": [Overload(("bitset",), "string", "hexadecimal(a)")],
        "bitset_fromhex": [Overload(("string",), "bitset", "bits_of(a)")],
    }.items()
}
"""Sign of an operator or name of a function -> what it does with operands of which kinds."""

OPERATORS = frozenset(name for name in OPERATIONS if not name.isidentifier() or name in ("neg", "div", "mod"))
"""Those that are written with a sign, or between their operands."""

CODE = frozenset(overload.code for overloads in OPERATIONS.values() for overload in overloads)


def outside(kind: str, result: float) -> NoReturn:
    """Say that a result is no value of its kind."""
    if kind == "bigint":
        raise Undefined(f"the result has more than the {BIGINT_BITS_MAX} bits that a bigint may have")
    if kind in INTEGRAL_RANGES:
        low, high = INTEGRAL_RANGES[kind]
        kind = {"uint": "unsigned int", "ulong": "unsigned long"}.get(kind, kind)
        if low == 0 and result < 0:
            raise Undefined(f"the result is below zero, which no {kind} is")
        raise Undefined(f"the result is beyond {kind}, which goes from {low} to {high}")
    raise Undefined(f"the result is no finite {kind}")


def whole(number: float) -> int:
    """Return a number without its fraction."""
    try:
        return int(number)
    except (ValueError, OverflowError):
        raise Undefined("the number is not finite") from None


def quotient(a: int, b: int) -> int:
    """Return a quotient, cut to a whole number."""
    if b == 0:
        raise Undefined("division by zero")
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def remainder(a: int, b: int) -> int:
    """Return what :func:`quotient` leaves: it has the sign of ``a``."""
    if b == 0:
        raise Undefined("division by zero")
    return a - b * quotient(a, b)


def fractional_remainder(a: float, b: float) -> float:
    """Return what the whole quotient leaves: it has the sign of ``a``."""
    if b == 0:
        raise Undefined("division by zero")
    return math.fmod(a, b)


def power(exponent: float, base: float) -> float:
    """Return a power of fractions."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        raise Undefined("the result is too large") from None
    except ValueError:
        if base == 0:
            raise Undefined("a negative power of zero") from None
        raise Undefined("a power of a negative number with a fraction as the exponent") from None


def whole_power(exponent: int, base: int) -> int:
    """Return a power of whole numbers."""
    if exponent < 0:
        raise Undefined("the exponent is negative")
    if base in (0, 1):
        return 1 if exponent == 0 else int(base)
    if base == -1:
        return -1 if exponent & 1 else 1
    if (abs(base).bit_length() - 1) * exponent > BIGINT_BITS_MAX:
        raise Undefined("the result is too large")
    result: int = int(base) ** exponent
    return result


def equal_fractions(a: float, b: float) -> NoReturn:
    """Say that fractions are not compared so."""
    raise Undefined(f"{a!r} and {b!r}: == and != are not for fractions; compare abs(a - b) with a tolerance")


TEXT_CHARS_MAX = 1 << 24
"""Length of the longest string that expressions make."""


def joined(a: str, b: str) -> str:
    """Return two strings as one."""
    if len(a) + len(b) > TEXT_CHARS_MAX:
        raise Undefined(f"the string would be longer than {TEXT_CHARS_MAX} characters")
    return a + b


ELEMENTS_MAX = 1 << 24
"""Elements of the longest list that expressions make of two."""


def lists_joined(a: tuple[XpnetValue, ...], b: tuple[XpnetValue, ...]) -> tuple[XpnetValue, ...]:
    """Return two lists as one."""
    if len(a) + len(b) > ELEMENTS_MAX:
        raise Undefined(f"the list would be longer than {ELEMENTS_MAX} elements")
    return a + b


def nearest(number: float) -> float:
    """Return the nearest whole number; of two the one that is farther from zero."""
    whole_part = float(math.trunc(number))
    return whole_part + math.copysign(1.0, number) if abs(number - whole_part) >= 0.5 else whole_part


def _fraction(function: Callable[[float], float], name: str) -> Callable[[float], float]:
    """Return a function that says where it has no result."""

    def call(number: float) -> float:
        try:
            return float(function(number))
        except (ValueError, OverflowError):
            raise Undefined(f"{name} of {number!r} is not defined") from None

    return call


def filled(values: XpnetValue, kind: str) -> XpnetValue:
    """Return a list or a set, and see that it has elements."""
    if not values:
        raise Undefined(f"the {kind} is empty")
    return values


def set_insert(values: SetValue, element: XpnetValue) -> SetValue:
    """Return a set with one more element."""
    at, there = position_in(values, element)
    return values if there else SetValue((*values[:at], element, *values[at:]))


def set_erase(values: SetValue, element: XpnetValue) -> SetValue:
    """Return a set without an element, which need not be there."""
    at, there = position_in(values, element)
    return SetValue(values[:at] + values[at + 1 :]) if there else values


def set_is_subset(a: SetValue, b: SetValue) -> bool:
    """Return whether all elements of one set are in another."""
    return set(map(order_key, a)) <= set(map(order_key, b))


def map_assign(pairs: MapValue, key: XpnetValue, value: XpnetValue) -> MapValue:
    """Return a map in which a key has this value."""
    at, there = position_in_map(pairs, key)
    return MapValue((*pairs[:at], (key, value), *pairs[at + there :]))


def map_unassign(pairs: MapValue, key: XpnetValue) -> MapValue:
    """Return a map without a key, which need not be there."""
    at, there = position_in_map(pairs, key)
    return MapValue(pairs[:at] + pairs[at + 1 :]) if there else pairs


def map_get_assignment(pairs: MapValue, key: XpnetValue) -> XpnetValue:
    """Return the value that a key has."""
    at, there = position_in_map(pairs, key)
    if not there:
        raise Undefined("the map has no such key")
    return pairs[at][1]


def bit(number: int) -> int:
    """Return the number of a bit."""
    if not 0 <= number < BITSET_BITS_MAX:
        raise Undefined(f"a bit has a number from 0 to {BITSET_BITS_MAX - 1}")
    return number


def hexadecimal(bits: int) -> str:
    """Return bits as hexadecimal digits, the highest ones first."""
    return f"{int(bits):x}"


def bits_of(digits: str) -> Bitset:
    """Return the bits that hexadecimal digits say, the highest ones first."""
    if not digits or len(digits) > BITSET_BITS_MAX // 4 or not set(digits) <= set("0123456789abcdefABCDEF"):
        raise Undefined("these are no hexadecimal digits")
    return Bitset(int(digits, 16))


HELPERS: Mapping[str, object] = {
    "INFINITE": math.inf,
    "__builtins__": {},
    **{name: _fraction(getattr(math, name), name) for name in ("floor", "ceil", "sin", "cos", "sqrt", "log")},
    **{one.__name__: one for one in (abs, bool, float, len, max, min, order_key, float32, Bitset, SetValue)},
    **{one.__name__: one for one in (outside, whole, quotient, remainder, fractional_remainder, power)},
    **{
        one.__name__: one
        for one in (whole_power, equal_fractions, joined, lists_joined, filled, bit, hexadecimal, bits_of)
    },
    **{one.__name__: one for one in (set_insert, set_erase, set_is_subset, map_assign, map_unassign)},
    **{one.__name__: one for one in (map_get_assignment, position_in, position_in_map)},
    "nearest": _fraction(nearest, "round"),
}
"""Names that pieces of code use, and all that the function of an expression can reach."""
