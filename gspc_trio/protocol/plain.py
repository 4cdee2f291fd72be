"""Classes as plain data with the names of their fields: orders, files, and what ``--json`` prints."""

from __future__ import annotations

import base64
import json
from typing import TypeVar

import attrs
import msgspec
from cattrs.preconf.msgspec import make_converter

T = TypeVar("T")

_CONVERTER = make_converter()
_CONVERTER.register_unstructure_hook(bytes, lambda data: base64.b64encode(data).decode())  # as msgspec reads
# msgspec checks the type of each field, also in classes of attrs; cattrs converts what is of another type.
_CONVERTER.register_structure_hook_func(attrs.has, lambda data, kind: msgspec.convert(data, kind))


class BadPlainData(ValueError):
    """Data is not what it should be; the message says in one line why."""


def to_plain(value: object) -> object:
    """Return a value with maps of names and values in place of instances of classes.

    Args:
        value: an instance of a class of attrs or msgspec, or a collection of such.
    """
    plain: object = _CONVERTER.unstructure(value)
    return plain


def from_plain(data: object, kind: type[T]) -> T:
    """Return the instance of a class that plain data describes.

    Args:
        data: maps of names and values; fields that have a default may be missing, others are not looked at.
        kind: the class.

    Raises:
        BadPlainData: a field is missing or of a wrong type.
    """
    try:
        return _CONVERTER.structure(data, kind)
    except msgspec.ValidationError as error:
        raise BadPlainData(str(error)) from error


def to_json(value: object) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(to_plain(value))


def from_json(text: str | bytes, kind: type[T]) -> T:
    """Return the instance of a class that JSON describes.

    Raises:
        BadPlainData: it is no JSON, or not of this class.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPlainData(str(error)) from error
    return from_plain(data, kind)
