"""Records as lines of JSON: the file that ``--records`` writes and ``gspc-top --replay`` reads.

A line is an object: the type under ``record``, then the fields. Fields that are missing have their default,
and those that nobody knows are skipped, so that a file can be read by a somewhat older or newer version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import Any

from msgspec.structs import replace

from gspc_trio.core.records import RECORD_TYPES, Record, TaskChanged, TaskCounts
from gspc_trio.core.task import TaskState

_TYPES = {kind.__name__: kind for kind in RECORD_TYPES}
_FIELDS = {kind: kind.__struct_fields__ for kind in RECORD_TYPES}
_STATES = {state.value: state for state in TaskState}


class BadRecordLine(ValueError):
    """A line is no record; the message says what is wrong with it."""


def encode_record(record: Record) -> str:
    """Return the record as one line of JSON, without the end of the line."""
    return json.dumps(_as_dict(record), separators=(",", ":"))


def decode_record(line: str | bytes) -> Record:
    """Return the record that a line of JSON tells.

    Raises:
        BadRecordLine: it is no JSON, of no type that is known, or lacks a field.
    """
    try:
        data = json.loads(line)
        return _READERS[data.pop("record")](data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRecordLine(f"not a record ({type(error).__name__}: {error})") from error


def _as_dict(record: Any) -> dict[str, Any]:
    if type(record) is TaskChanged:  # by far the most frequent one
        fields: dict[str, Any] = {
            "record": "TaskChanged",
            "at_s": record.at_s,
            "job": record.job,
            "task_id": record.task_id,
            "state": record.state.value,
            "attempt": record.attempt,
            "name": record.name,
            "resource_id": record.resource_id,
            "detail": record.detail,
            "started_s": record.started_s,
            "duration_s": record.duration_s,
        }
        if record.staged_s:
            fields["staged_s"] = list(record.staged_s)
        return fields
    data: dict[str, Any] = {"record": type(record).__name__}
    for name in _FIELDS[type(record)]:
        data[name] = _plain(getattr(record, name))
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if type(value) is TaskChanged:
        return _as_dict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _reader(kind: type) -> Callable[[dict[str, Any]], Record]:
    names = frozenset(_FIELDS[kind])

    def read(data: dict[str, Any]) -> Record:
        record: Record = kind(**{name: _tuples(value) for name, value in data.items() if name in names})
        return record

    return read


def _read_task(data: dict[str, Any]) -> TaskChanged:
    data["state"] = _STATES[data["state"]]
    if "staged_s" in data:
        data["staged_s"] = tuple(data["staged_s"])
    try:
        return TaskChanged(**data)
    except TypeError:
        names = _FIELDS[TaskChanged]
        return TaskChanged(**{name: value for name, value in data.items() if name in names})


def _read_counts(data: dict[str, Any]) -> Record:
    lately = [_read_task({k: v for k, v in one.items() if k != "record"}) for one in data.pop("lately", ())]
    record: TaskCounts = replace(_read_plain_counts(data), lately=tuple(lately))
    return record


_read_plain_counts: Callable[[dict[str, Any]], Any] = _reader(TaskCounts)
_READERS: dict[str, Callable[[dict[str, Any]], Record]] = {
    name: _reader(kind) for name, kind in _TYPES.items()
}
_READERS["TaskChanged"] = _read_task
_READERS["TaskCounts"] = _read_counts
