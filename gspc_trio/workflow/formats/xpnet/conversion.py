"""Values of xpnet as functions in Python get and return them, and back.

A list is a list, a set a set, a map and a struct a dict, control ``None``. Numbers and texts inside of them
still say of which type they are, if that is not clear: an ``Int`` is an ``int`` for what computes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gspc_trio.workflow.formats.xpnet.types import FRACTIONAL, INTEGRAL, INTEGRAL_RANGES, ValueType
from gspc_trio.workflow.formats.xpnet.values import (
    BIGINT_BITS_MAX,
    DEPTH_MAX,
    BadXpnetValue,
    BigInt,
    Bitset,
    MapValue,
    SetValue,
    Shared,
    XpnetValue,
    float32,
    kind_of,
    make_map,
    make_set,
    saying,
)

_SHORT_CHARS = 60
_LONG = INTEGRAL_RANGES["long"]


def to_python(value: XpnetValue) -> object:
    """Return a value as a function in Python gets it."""
    kind = type(value)
    if kind is tuple:
        return [to_python(one) for one in value]
    if kind is dict:
        return {name: to_python(one) for name, one in value.items()}
    if kind is SetValue:
        return {_hashable(one) for one in value}
    if kind is MapValue:
        return {_hashable(key): to_python(one) for key, one in value}
    return value


def _hashable(value: XpnetValue) -> object:
    """Return an element of a set or a key: lists stay tuples there."""
    return tuple(sorted(value.items())) if type(value) is dict else value


def from_python(value: XpnetValue, kind: ValueType) -> XpnetValue:
    """Return what a function in Python has returned as a value of a type.

    Args:
        value: what was returned.
        kind: of which type it has to be. With ``any`` an ``int`` is a long, a ``float`` a double, a dict with
            texts as keys a struct.

    Raises:
        BadXpnetValue: it is none of this type; the message says what is wanted and what there is.
    """
    return _converted(value, kind, 0)


def _converted(value: XpnetValue, kind: ValueType, depth: int) -> XpnetValue:
    if depth > DEPTH_MAX:
        raise BadXpnetValue(f"a value is nested deeper than {DEPTH_MAX} levels")
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()  # a number or an array of numpy
    if kind.kind == "any":
        return _saying_itself(value, depth)
    if kind.kind in INTEGRAL:
        return _whole(value, kind)
    if kind.kind in FRACTIONAL:
        return _fraction(value, kind)
    if kind.kind == "struct":
        return _struct(value, kind, depth)
    wanted, what, convert = _OTHERS[kind.kind]
    if not isinstance(value, wanted):
        raise _other(kind, what, value)
    return convert(value, depth)


def _whole(value: XpnetValue, kind: ValueType) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _other(kind, "an int", value)
    low, high = INTEGRAL_RANGES.get(kind.kind, (None, None))
    if low is None or high is None:
        if value.bit_length() > BIGINT_BITS_MAX:
            raise BadXpnetValue(
                f"a number of {value.bit_length()} bits: a bigint has at most {BIGINT_BITS_MAX}"
            )
    elif not low <= value <= high:
        raise _other(kind, f"an int from {low} to {high}", value)
    return int(value)


def _fraction(value: XpnetValue, kind: ValueType) -> float:
    if not isinstance(value, float):
        raise _other(kind, "a float", value)
    if kind.kind == "double":
        return float(value)
    try:
        return float32(value)
    except OverflowError:
        raise _other(kind, "a float of 32 bits", value) from None


def _struct(value: XpnetValue, kind: ValueType, depth: int) -> dict[str, XpnetValue]:
    fields = dict(kind.fields)
    if not isinstance(value, Mapping):
        raise _other(kind, f"a dict with {', '.join(fields) or 'nothing'}", value)
    for name in fields.keys() - value.keys():
        raise BadXpnetValue(f"{kind}: the field {name} is missing")
    for name in value.keys() - fields.keys():
        raise BadXpnetValue(f"{kind} has no field {_shown(name)}; its fields are: {', '.join(fields)}")
    made = {}
    for name, inner in fields.items():
        try:
            made[name] = saying(_converted(value[name], inner, depth + 1), inner)
        except BadXpnetValue as error:
            raise BadXpnetValue(f"the field {name}: {error}") from None
    return made


def _char(value: XpnetValue, _depth: int) -> str:
    if len(value) != 1:
        raise _other(ValueType("char"), "a str of one character", value)
    return str(value)


def _bits(value: XpnetValue, _depth: int) -> Bitset:
    if isinstance(value, bool) or value < 0:
        raise _other(ValueType("bitset"), "an int from 0 on", value)
    return Bitset(value)


def _elements(value: XpnetValue, depth: int) -> tuple[XpnetValue, ...]:
    return tuple(_saying_itself(one, depth + 1) for one in value)


def _set(value: XpnetValue, depth: int) -> SetValue:
    return make_set(_elements(value, depth))


def _map(value: XpnetValue, depth: int) -> MapValue:
    pairs = value.items() if isinstance(value, Mapping) else value
    inner = depth + 1
    return make_map((_saying_itself(key, inner), _saying_itself(one, inner)) for key, one in pairs)


def _plain(make: Callable[[XpnetValue], XpnetValue]) -> Callable[[XpnetValue, int], XpnetValue]:
    return lambda value, _depth: make(value)


_OTHERS: dict[str, tuple[tuple[type, ...], str, Callable[[XpnetValue, int], XpnetValue]]] = {
    "control": ((type(None),), "None", _plain(lambda _: None)),
    "bool": ((bool,), "a bool", _plain(bool)),
    "char": ((str,), "a str of one character", _char),
    "string": ((str,), "a str", _plain(str)),
    "bitset": ((int,), "an int from 0 on", _bits),
    "bytearray": ((bytes, bytearray, memoryview), "bytes", _plain(bytes)),
    "shared": ((Shared,), "a Shared", _plain(lambda value: value)),
    "list": ((list, tuple), "a list", _elements),
    "set": ((set, frozenset, SetValue), "a set", _set),
    "map": ((Mapping, MapValue), "a dict", _map),
}
"""Kind -> what is taken, what a message calls it, how that becomes a value."""


def _saying_itself(value: XpnetValue, depth: int) -> XpnetValue:
    """Return a value of which only Python's type is known."""
    if depth > DEPTH_MAX:
        raise BadXpnetValue(f"a value is nested deeper than {DEPTH_MAX} levels")
    kind = type(value)
    if kind is int:
        return value if _LONG[0] <= value <= _LONG[1] else BigInt(_whole(value, ValueType("bigint")))
    if isinstance(value, list) or kind is tuple:
        return _elements(value, depth)
    if isinstance(value, set | frozenset):
        return _set(value, depth)
    if isinstance(value, Mapping):
        if not all(type(name) is str for name in value):
            return _map(value, depth)
        return {name: _saying_itself(one, depth + 1) for name, one in value.items()}
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return _saying_itself(value.tolist(), depth + 1)
    kind_of(value)
    return value


def _other(kind: ValueType, wanted: str, value: object) -> BadXpnetValue:
    return BadXpnetValue(f"{kind} is {wanted} in Python, and this is {_shown(value)}")


def _shown(value: object) -> str:
    """Return a value of a user for a message."""
    try:
        text = repr(value)
    except Exception:
        text = ""
    if not text or len(text) > _SHORT_CHARS:
        text = f"{text[:_SHORT_CHARS]}..." if text else ""
    return f"{text} ({type(value).__name__})"
