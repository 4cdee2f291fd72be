"""Records as lines of JSON: the file that ``--records`` writes and ``gspc-top --replay`` reads.

A line is an object: the type under ``record``, then the fields. Fields that are missing have their default,
and those that nobody knows are skipped, so that a file can be read by a somewhat older or newer version. A
line whose type is ``FactColumns`` tells of many facts: ``of`` is their type, ``same`` has the fields that all
of them share, ``each`` the others, a list for each field.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum

import msgspec

from gspc_trio.protocol.limits import NUMBER_MAX
from gspc_trio.records.columns import rows_of
from gspc_trio.records.facts import RECORD_TYPES, FactColumns, Record, TaskChanged

log: logging.Logger = logging.getLogger(__name__)

_TYPES = {kind.__name__: kind for kind in RECORD_TYPES}
_encoder = msgspec.json.Encoder()
_FIELDS = {kind: kind.__struct_fields__ for kind in RECORD_TYPES}


class BadRecordLine(ValueError):
    """A line is no record; the message says what is wrong with it."""


def encode_record(record: Record) -> str:
    """Return the record as one line of JSON, without the end of the line."""
    return encode_records([record]).decode().removesuffix("\n")


def encode_records(records: Sequence[Record | FactColumns]) -> bytes:
    """Return lines of JSON, one for each record."""
    try:
        return _encoder.encode_lines(records)
    except UnicodeEncodeError:  # bytes that are no text, in what a task has printed or in a name
        plain = map(msgspec.to_builtins, records)
        return "".join(f"{json.dumps(fields, separators=(',', ':'))}\n" for fields in plain).encode()


def decode_record(line: str | bytes) -> Record:
    """Return the one record that a line of JSON tells.

    Raises:
        BadRecordLine: it is no JSON, of no type that is known, lacks a field, or has one of a wrong type.
    """
    try:
        return _record(_object(line))
    except _NO_RECORD as error:
        raise _bad(error) from error


def decode_records(line: str | bytes) -> list[Record]:
    """Return the records that a line of a file tells: one, or many in columns.

    Raises:
        BadRecordLine: it is no JSON, of no type that is known, lacks a field, or has one of a wrong type.
    """
    try:
        data = _object(line)
        if data.get("record") != FactColumns.__name__:
            return [_record(data)]
        of = data["of"]
        rows = rows_of(msgspec.convert(data, FactColumns))
        return [_record({**row, "record": of}) for row in rows]
    except _NO_RECORD as error:
        raise _bad(error) from error


def read_records(
    lines: Iterable[bytes], name: object = "records", warn: Callable[[str], None] = log.warning
) -> Iterator[Record]:
    """Yield the records that the lines of a file tell; a last line that is not whole is left out.

    Args:
        lines: of the file, with their ends, as one that is open yields them.
        name: of the file, for messages.
        warn: told if the last line is left out.

    Raises:
        BadRecordLine: a line is no record; the message says which.
    """
    for number, line in enumerate(lines, 1):
        try:
            yield from decode_records(line)
        except BadRecordLine as error:
            if line.endswith(b"\n"):
                raise BadRecordLine(f"{name}:{number}: {error}") from error
            warn(f"{name}:{number}: the last line is not whole, and was left out")


_NO_RECORD = (ValueError, TypeError, KeyError, AttributeError)


def _bad(error: Exception) -> BadRecordLine:
    return BadRecordLine(f"not a record ({type(error).__name__}: {error})")


def _object(line: str | bytes) -> dict[str, object]:
    data: dict[str, object] = json.loads(line, parse_constant=_no_number)
    return data


def _record(data: dict[str, object]) -> Record:
    record = msgspec.convert(data, _TYPES[str(data.pop("record"))])
    if not -NUMBER_MAX <= record.at_s <= NUMBER_MAX:
        raise ValueError(f"its time is {record.at_s}")
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
