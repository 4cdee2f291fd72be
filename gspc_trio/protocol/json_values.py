"""Any value as JSON, for people and other programs; what JSON does not have becomes its text."""

from __future__ import annotations

import json
import math

INTEGER_BITS_MAX = 2048
"""Larger integers are written as text, in hexadecimal digits."""


class TooLarge(ValueError):
    """The text would be longer than there is room for."""


def json_text(value: object, room: int | None = None) -> str:
    """Return a value as one line of JSON.

    Args:
        value: of any type.
        room: most characters, roughly; None: any number.

    Raises:
        TooLarge: there is no room for it; it is not looked at any further then.
        RecursionError: it is nested too deeply for JSON, or contains itself.
    """
    return json.dumps(_plain(value, [math.inf if room is None else room]), allow_nan=False)


def _plain(value: object, room: list[float]) -> object:
    if isinstance(value, dict):
        return {
            _take(key, room) if isinstance(key, str) else _text(key, room): _plain(item, room)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, room) for item in value]
    if isinstance(value, str):
        return _take(value, room)
    _take("", room)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() <= INTEGER_BITS_MAX:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _text(value, room)


def _take(text: str, room: list[float]) -> str:
    room[0] -= len(text) + 1
    if room[0] < 0:
        raise TooLarge("the value has no room")
    return text


def _text(value: object, room: list[float]) -> str:
    if isinstance(value, int):
        return _take(hex(value), room)  # Python refuses to write so many decimal digits
    try:
        text = str(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose text cannot be had: {type(error).__name__}>"
    return _take(text, room)
