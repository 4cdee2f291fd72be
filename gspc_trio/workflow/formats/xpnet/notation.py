"""Notation of values: how xpnet writes them, and how JSON has them."""

from __future__ import annotations

import math

from gspc_trio.workflow.formats.xpnet.types import ANY, ValueType
from gspc_trio.workflow.formats.xpnet.values import Shared, XpnetValue, decimal_text, float32, kind_of

_WHOLE_SUFFIXES = {"int": "", "long": "L", "uint": "U", "ulong": "UL", "bigint": "A"}
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\\": "\\\\"}

SHORT_CHARS = 80
"""So much of a value is in a message."""

SHORT_BITS = 1000
"""Longer numbers are not in messages."""

SHORT_DEPTH = 8
"""What is nested deeper is not in messages."""


def show_value(value: XpnetValue, kind: ValueType = ANY) -> str:
    """Return a value as xpnet writes it: what is read from that is the same value.

    A ``shared`` value is written ``shared_PLACE(value)``; a fraction that is not finite has no notation, and
    is written ``inf`` or ``nan``.

    Args:
        value: of this type.
        kind: ``any``: the value says by itself of which type it is.

    Raises:
        BadXpnetValue: it is no value of xpnet.
    """
    name = kind_of(value) if kind.kind == "any" else kind.kind
    if name in _WHOLE_SUFFIXES:
        return decimal_text(value) + _WHOLE_SUFFIXES[name]
    match name:
        case "control":
            return "[]"
        case "bool":
            return "true" if value else "false"
        case "float":
            return _float_text(value)
        case "double":
            return repr(float(value))
        case "char":
            return f"'{_escaped(value, chr(39))}'"
        case "string":
            return f'"{_escaped(value, chr(34))}"'
        case "bitset":
            return "{" + " ".join(map(str, _blocks(value))) + "}"
        case "bytearray":
            return "y(" + " ".join(map(str, value)) + ")"
        case "shared":
            return f"shared_{value.place}({show_value(value.value)})"
        case "list":
            return "List (" + ", ".join(map(show_value, value)) + ")"
        case "set":
            return "Set {" + ", ".join(map(show_value, value)) + "}"
        case "map":
            pairs = (f"{show_value(key)} -> {show_value(one)}" for key, one in value)
            return "Map [" + ", ".join(pairs) + "]"
        case _:
            fields = (f"{name} := {show_value(one)}" for name, one in value.items())
            return "Struct [" + ", ".join(fields) + "]"


def show_short(value: XpnetValue, kind: ValueType = ANY) -> str:
    """Return a value for a message: only the beginning of a long one, and never an error."""
    try:
        text = show_value(_beginning(value, 0), kind)
    except Exception:  # a module of a user may have returned anything
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= SHORT_CHARS else text[: SHORT_CHARS - 3] + "..."


def _beginning(value: XpnetValue, depth: int) -> XpnetValue:
    """Return what a long value begins with: more of it would not be shown, and takes its time."""
    if isinstance(value, int) and value.bit_length() > SHORT_BITS:
        raise OverflowError  # its first digits depend on all others
    if isinstance(value, str | bytes):
        return value[:SHORT_CHARS]
    if depth > SHORT_DEPTH:
        return None
    inner = depth + 1
    if type(value) is dict:
        return {name: _beginning(one, inner) for name, one in value.items()}
    if isinstance(value, tuple):
        return type(value)(_beginning(one, inner) for one in value[:SHORT_CHARS])
    return Shared(value.place, _beginning(value.value, inner)) if type(value) is Shared else value


def plain_value(value: XpnetValue, kind: ValueType = ANY) -> object:
    """Return a value as JSON has it.

    Numbers are numbers, char and string a string, control the empty list. A list and a set are lists, a map
    is a list of pairs, a struct an object. ``{"bitset": "1f"}`` has the bits in hexadecimal, the highest ones
    first; ``{"bytearray": "00ff"}`` the bytes in their order; ``{"shared": value, "place": name}``.

    Args:
        value: of this type.
        kind: ``any``: the value says by itself of which type it is.

    Raises:
        BadXpnetValue: it is no value of xpnet.
    """
    match kind_of(value) if kind.kind == "any" else kind.kind:
        case "control":
            return []
        case "bool":
            return bool(value)
        case "int" | "long" | "uint" | "ulong" | "bigint":
            return int(value)
        case "float" | "double":
            return float(value)
        case "char" | "string":
            return str(value)
        case "bitset":
            return {"bitset": f"{int(value):x}"}
        case "bytearray":
            return {"bytearray": value.hex()}
        case "shared":
            return {"shared": plain_value(value.value), "place": value.place}
        case "list" | "set":
            return [plain_value(one) for one in value]
        case "map":
            return [[plain_value(key), plain_value(one)] for key, one in value]
        case _:
            return {name: plain_value(one) for name, one in value.items()}


def _blocks(bits: int) -> list[int]:
    """Return bits as numbers of 64 bits, the lowest ones first."""
    data = int(bits).to_bytes((bits.bit_length() + 63) // 64 * 8, "little")
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]


def _float_text(number: float) -> str:
    """Return the shortest text from which the same float of 32 bits is read."""
    if not math.isfinite(number):
        return repr(float(number))
    for digits in range(6, 10):
        text = f"{number:.{digits}g}"
        if float32(float(text)) == number:
            break
    return f"{text if set(text) & set('.e') else text + '.0'}f"


def _escaped(text: str, quote: str) -> str:
    """Return what stands between quotes for a text."""
    return "".join(_ESCAPED.get(char, "\\" + char if char == quote else char) for char in text)
