"""Values of xpnet as Python values.

Where a type is known, as on a place or a port, numbers are plain ``int`` and ``float``, a char and a string
``str``, a bytearray ``bytes``, control ``None``. A list is a tuple, a struct a dict; neither is ever changed.

Elements of lists, sets and maps and fields of structs say by themselves of which type they are: there a
plain ``int`` is a long, a plain ``float`` a double and a ``str`` a string; others are of the classes here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import chain
from struct import Struct as Layout
from typing import Any, TypeAlias, cast

from gspc_trio.workflow.formats.xpnet.types import (
    KINDS,
    ValueType,
)

XpnetValue: TypeAlias = Any
"""A value in the form of this module: only its type tells which class it is of."""

BIGINT_BITS_MAX = 1 << 20
"""So long a bigint may be: some 315,000 digits."""

BITSET_BITS_MAX = 1 << 24
"""Numbers of bits of a bitset are below this."""

DEPTH_MAX = 100
"""Values and expressions are nested no deeper."""


class BadXpnetValue(ValueError):
    """A value is not what is needed there; the message says what is."""


class Int(int):
    """An int that says so by itself."""

    __slots__ = ()


class UInt(int):
    """An unsigned int that says so by itself."""

    __slots__ = ()


class ULong(int):
    """An unsigned long that says so by itself."""

    __slots__ = ()


class BigInt(int):
    """A bigint that says so by itself."""

    __slots__ = ()


class Float(float):
    """A float of 32 bits that says so by itself."""

    __slots__ = ()


class Char(str):
    """A char that says so by itself."""

    __slots__ = ()


class Bitset(int):
    """Bits: bit ``i`` of the number says whether ``i`` is in the set."""

    __slots__ = ()


class SetValue(tuple[XpnetValue, ...]):
    """Elements of a set, each once, in their order; made by :func:`make_set`."""

    __slots__ = ()


class MapValue(tuple[tuple[XpnetValue, XpnetValue], ...]):
    """Pairs (key, value) of a map in the order of the keys; made by :func:`make_map`."""

    __slots__ = ()


class Shared:
    """A value that is counted, and that comes to a cleanup place when nobody has it any more.

    Two with equal values for the same place are the same.

    Attributes:
        place: name of the cleanup place.
        value: the value, which says by itself of which type it is.
    """

    __slots__ = ("place", "value")

    def __init__(self, place: str, value: XpnetValue) -> None:
        self.place: str = place
        self.value: XpnetValue = value

    def __repr__(self) -> str:
        return f"Shared({self.place!r}, {self.value!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shared) and order_key(self) == order_key(other)

    def __hash__(self) -> int:
        return hash(order_key(self))

    def __reduce__(self) -> tuple[type[Shared], tuple[str, XpnetValue]]:
        return Shared, (self.place, self.value)


_KIND_OF: dict[type, str] = {
    type(None): "control",
    bool: "bool",
    Int: "int",
    int: "long",
    UInt: "uint",
    ULong: "ulong",
    Float: "float",
    float: "double",
    Char: "char",
    str: "string",
    Bitset: "bitset",
    bytes: "bytearray",
    BigInt: "bigint",
    Shared: "shared",
    tuple: "list",
    SetValue: "set",
    MapValue: "map",
    dict: "struct",
}

SAYING: dict[str, type] = {
    "int": Int,
    "uint": UInt,
    "ulong": ULong,
    "bigint": BigInt,
    "float": Float,
    "char": Char,
}
"""Kind -> class of values that say so by themselves, where the plain one says something else."""

NESTED_CLASSES = frozenset({tuple, dict, SetValue, MapValue, Shared})
"""Classes of values that have others in them."""


def inner_values(value: XpnetValue) -> Iterable[XpnetValue]:
    """Return the values that are directly in one of :data:`NESTED_CLASSES`."""
    kind = type(value)
    if kind is dict:
        return cast("Iterable[XpnetValue]", value.values())
    if kind is MapValue:
        return chain.from_iterable(value)
    return (value.value,) if kind is Shared else cast("Iterable[XpnetValue]", value)


_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}


def kind_of(value: object) -> str:
    """Return the kind of a value that says it by itself.

    Raises:
        BadXpnetValue: it is no value of xpnet.
    """
    kind = _KIND_OF.get(type(value))
    if kind is None:
        raise BadXpnetValue(f"{type(value).__name__} is no type of xpnet")
    return kind


def saying(value: XpnetValue, kind: ValueType) -> XpnetValue:
    """Return the same value so that it says its type by itself."""
    wrapper = SAYING.get(kind.kind)
    return value if wrapper is None or type(value) is wrapper else wrapper(value)


def type_of(value: XpnetValue) -> ValueType:
    """Return the type of a value that says it by itself, with the fields of structs."""
    kind = kind_of(value)
    if kind != "struct":
        return ValueType(kind)
    return ValueType("struct", "", tuple((name, type_of(field)) for name, field in value.items()))


def is_of(value: XpnetValue, kind: ValueType) -> bool:
    """Return whether a value that says its type by itself is of this one."""
    if kind.kind == "any":
        return True
    if kind_of(value) != kind.kind:
        return False
    if kind.kind != "struct":
        return True
    fields = dict(kind.fields)
    return value.keys() == fields.keys() and all(is_of(value[name], fields[name]) for name in fields)


def order_key(value: XpnetValue) -> tuple[object, ...]:
    """Return what values that say their type are sorted and compared by: their kinds, then themselves."""
    kind = kind_of(value)
    rank = _RANKS[kind]
    if kind in ("list", "set"):
        return rank, tuple(map(order_key, value))
    if kind == "map":
        return rank, tuple((order_key(key), order_key(one)) for key, one in value)
    if kind == "struct":
        return rank, tuple(sorted((name, order_key(one)) for name, one in value.items()))
    if kind == "shared":
        return rank, value.place, order_key(value.value)
    return (rank,) if value is None else (rank, value)


def make_set(elements: Iterable[XpnetValue]) -> SetValue:
    """Return the set of these elements, which say their types by themselves."""
    unique = {order_key(element): element for element in elements}
    return SetValue(unique[key] for key in sorted(unique, key=_sortable))


def make_map(pairs: Iterable[tuple[XpnetValue, XpnetValue]]) -> MapValue:
    """Return the map of these pairs; of several with one key the last one counts."""
    unique = {order_key(key): (key, value) for key, value in pairs}
    return MapValue(unique[key] for key in sorted(unique, key=_sortable))


def _sortable(key: tuple[object, ...]) -> XpnetValue:
    return key


def position_in(values: SetValue, element: XpnetValue) -> tuple[int, bool]:
    """Return where an element of a set is or would be, and whether it is there."""
    key = order_key(element)
    at = bisect_left(values, key, key=order_key)
    return at, at < len(values) and order_key(values[at]) == key


def position_in_map(pairs: MapValue, key: XpnetValue) -> tuple[int, bool]:
    """Return where a key of a map is or would be, and whether it is there."""
    wanted = order_key(key)
    at = bisect_left(pairs, wanted, key=_key_of_pair)
    return at, at < len(pairs) and order_key(pairs[at][0]) == wanted


def _key_of_pair(pair: tuple[XpnetValue, XpnetValue]) -> tuple[object, ...]:
    return order_key(pair[0])


_FLOAT32 = Layout("<f")  # native layouts make infinity of what is too large


def float32(number: float) -> float:
    """Return the float of 32 bits that is nearest.

    Raises:
        OverflowError: it is too large.
    """
    rounded: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    return rounded


_DIGITS = 4000
"""Python converts no more decimal digits than some 4300 at once."""


def decimal_text(number: int) -> str:
    """Return a whole number in decimal, however long it is."""
    if abs(number) < 10**_DIGITS:
        return str(int(number))
    if number < 0:
        return "-" + decimal_text(-number)
    half = number.bit_length() * 30103 // 200000  # decimal digits, halved
    high, low = divmod(number, 10**half)
    return decimal_text(high) + decimal_text(low).zfill(half)


def decimal_number(digits: str) -> int:
    """Return the whole number that decimal digits stand for, however many they are."""
    if len(digits) <= _DIGITS:
        return int(digits)
    half = len(digits) // 2
    shift: int = 10**half
    return decimal_number(digits[:-half]) * shift + decimal_number(digits[-half:])
