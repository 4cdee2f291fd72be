"""Records as lines of JSON: the file that ``--records`` writes and ``gspc-top --replay`` reads.

A line is an object: the type under ``record``, then the fields. Fields that are missing have their default,
and those that nobody knows are skipped, so that a file can be read by a somewhat older or newer version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum

import msgspec

from gspc_trio.protocol.hooks import NUMBER_MAX
from gspc_trio.records.facts import RECORD_TYPES, Record, TaskChanged

_TYPES = {kind.__name__: kind for kind in RECORD_TYPES}
_encoder = msgspec.json.Encoder()
_FIELDS = {kind: kind.__struct_fields__ for kind in RECORD_TYPES}


class BadRecordLine(ValueError):
    """A line is no record; the message says what is wrong with it."""


def encode_record(record: Record) -> str:
    """Return the record as one line of JSON, without the end of the line."""
    return encode_records([record]).decode().removesuffix("\n")


def encode_records(records: Sequence[Record]) -> bytes:
    """Return lines of JSON, one for each record."""
    try:
        return _encoder.encode_lines(records)
    except UnicodeEncodeError:  # bytes that are no text, in what a task has printed or in a name
        lines = (json.dumps(record_fields(record), separators=(",", ":")) for record in records)
        return "".join(f"{line}\n" for line in lines).encode()


def decode_record(line: str | bytes) -> Record:
    """Return the record that a line of JSON tells.

    Raises:
        BadRecordLine: it is no JSON, of no type that is known, lacks a field, or has one of a wrong type.
    """
    try:
        data = json.loads(line, parse_constant=_no_number)
        record = msgspec.convert(data, _TYPES[data.pop("record")])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRecordLine(f"not a record ({type(error).__name__}: {error})") from error
    if not -NUMBER_MAX <= record.at_s <= NUMBER_MAX:
        raise BadRecordLine(f"not a record (its time is {record.at_s})")
    return record


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def record_fields(record: Record) -> dict[str, object]:
    """Return the fields of a record as JSON has them, its type as ``record``."""
    data: dict[str, object] = {"record": type(record).__name__}
    for name in _FIELDS[type(record)]:
        data[name] = _plain(getattr(record, name))
    return data


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if type(value) is TaskChanged:
        return record_fields(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
