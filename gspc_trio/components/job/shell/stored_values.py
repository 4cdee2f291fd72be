"""Large values of a journal: files beside it, for what lies in a memory layer while the job runs.

A result in the memory layer is a reference, and its data is gone with the processes. So before such a result
is noted its data is written to a file of its own, and the journal has a reference to that. A job that is
resumed reads it from there: the value travels with the tasks that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from weakref import WeakValueDictionary

from msgspec.structs import replace

from gspc_trio.components.job.journal import JournalRecord, Outcomes, Reusable, Snapshot, Values
from gspc_trio.components.job.shell.journal_files import JournalDirectory
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Task
from gspc_trio.iml.errors import NoRoom
from gspc_trio.protocol.values import (
    TrackedReference,
    Value,
    decode_reference,
    dumps,
    encode_reference,
    is_encoded,
    is_range,
    is_reference,
    loads,
)

_STORED = "journal:"
"""Begins the id of data that is a file of the journal; its name follows."""

OpenData = Callable[[str], memoryview]
Rows = Sequence[tuple[TaskId, Values]]


class _Stored:
    """A file that somebody may still need, for as long as this object lives."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name


class StoredValues:
    """The files of one journal.

    Args:
        disk: the journal's directory.
    """

    def __init__(self, disk: JournalDirectory) -> None:
        self._disk = disk
        self._number = max((int(name.rpartition(".")[2]) for name in disk.values()), default=0)
        self._names: dict[str, str] = {}  # id in the layer -> name of its file
        self._moved: dict[str, str] = {}  # name of a file -> id in the layer
        self._needed: WeakValueDictionary[str, object] = WeakValueDictionary()

    @property
    def has_some(self) -> bool:
        """Whether an earlier run has left files that are needed."""
        return bool(self._needed)

    def store(self, rows: Rows, open_data: OpenData) -> list[tuple[TaskId, Values]]:
        """Make the data of results durable; return the results with references to that.

        Raises:
            OSError: the disk does not take it.
            ImlError: data was lost before.
        """

        def stored(value: bytes) -> bytes:
            if not is_reference(value):
                return value
            reference = decode_reference(value)
            if is_range(reference):
                return value  # somebody else keeps it
            name = self._names.get(reference.data_id)
            if name is None:
                self._number += 1
                name = f"value.{self._number:06}"
                self._disk.put_value(name, open_data(reference.data_id))
                self._names[reference.data_id] = name
            keep = getattr(value, "keep", None)
            if keep is not None:
                self._needed[name] = keep
            return self._rewritten(value)

        return [(task_id, _each(values, stored)) for task_id, values in rows]

    def _rewritten(self, value: bytes) -> bytes:
        if not is_reference(value):
            return value
        reference = decode_reference(value)
        name = self._names.get(reference.data_id)
        if name is None:
            return value
        return encode_reference(replace(reference, data_id=_STORED + name, places=()))

    def written(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot as it is to be written: with references to files."""
        if not self._names and not self._needed:
            return snapshot
        return Snapshot(_walk(snapshot.state, lambda value: bytes(self._rewritten(value))))

    def still_there(self, records: Iterable[JournalRecord]) -> list[JournalRecord]:
        """Return what was noted of results of before, without those whose files have gone."""
        there = set(self._disk.values())

        def whole(values: Values) -> bool:
            return all(name in there for tokens in values for name in filter(None, map(_name_of, tokens)))

        found: list[JournalRecord] = []
        for record in records:
            if isinstance(record, Outcomes) and record.keys:
                rows = [both for both in zip(record.rows, record.keys, strict=True) if whole(both[0][1])]
                record = Outcomes(tuple([row for row, _ in rows]), tuple([key for _, key in rows]))
            elif isinstance(record, Reusable):
                pairs = [both for both in zip(record.rows, record.keys, strict=True) if whole(both[0])]
                kept, keys = tuple([values for values, _ in pairs]), tuple([key for _, key in pairs])
                record = Reusable(kept, keys, record.taken)
            found.append(record)
        return self.restored(found)

    def restored(self, records: Iterable[JournalRecord]) -> list[JournalRecord]:
        """Return records that were read, whose references to files can be opened."""
        found: list[JournalRecord] = []
        for record in records:
            if isinstance(record, Snapshot):
                record = Snapshot(_walk(record.state, self._restored))
            elif isinstance(record, Outcomes):
                rows = [(task_id, _each(values, self._restored)) for task_id, values in record.rows]
                record = Outcomes(tuple(rows), record.keys)
            elif isinstance(record, Reusable):
                values = tuple(_each(values, self._restored) for values in record.rows)
                record = Reusable(values, record.keys, record.taken)
            found.append(record)
        return found

    def _restored(self, value: bytes) -> bytes:
        if not is_reference(value):
            return value
        tracked = TrackedReference(value)
        tracked.reference = reference = decode_reference(value)
        name = reference.data_id.removeprefix(_STORED)
        if name == reference.data_id:
            return value  # a range of somebody else's data
        tracked.keep = self._needed.get(name)
        if tracked.keep is None:
            tracked.keep = self._needed[name] = _Stored(name)
        tracked.open_data = self.open_data
        return tracked

    def open_data(self, data_id: str) -> memoryview:
        """Return the bytes of a file.

        Raises:
            OSError: it cannot be read.
        """
        return memoryview(self._disk.read_value(data_id.removeprefix(_STORED)))

    def move(self, write: Callable[[memoryview], str]) -> None:
        """Put what an earlier run has left into the memory layer of this one, as far as there is room.

        It stays there until the job ends.

        Args:
            write: puts bytes there; returns the id.
        """
        for name in sorted(self._needed):
            view = self.open_data(_STORED + name)
            try:
                self._moved[name] = write(view)
            except NoRoom:
                return

    def with_values(self, task: Task) -> Task:
        """Return a task with what its arguments stand for: data in the layer, or the value itself."""
        if not any(map(is_stored, task.arguments)):
            return task
        given = [self._given(one) if is_stored(one) else one for one in task.arguments]
        return replace(task, arguments=tuple(given))

    def _given(self, value: bytes) -> bytes:
        assert isinstance(value, TrackedReference)
        reference = value.reference
        moved = self._moved.get(reference.data_id.removeprefix(_STORED))
        if moved is not None:
            return encode_reference(replace(reference, data_id=moved))
        return bytes(self.open_data(reference.data_id)) if is_encoded(reference) else dumps(loads(value))

    def sweep(self) -> None:
        """Remove what nothing refers to; the journal that is on disk now has no reference to it.

        Raises:
            OSError: it cannot be removed.
        """
        for name in self._disk.values():
            if name not in self._needed:
                self._disk.remove_value(name)
        self._names = {data_id: name for data_id, name in self._names.items() if name in self._needed}


def is_stored(value: bytes) -> bool:
    """Return whether an encoded value is a reference to a file of a journal."""
    return type(value) is TrackedReference and value.reference.data_id.startswith(_STORED)


def _name_of(value: bytes) -> str:
    """Return the name of the file that an encoded value refers to, "" for none."""
    data_id = decode_reference(value).data_id if is_reference(value) else ""
    return data_id.removeprefix(_STORED) if data_id.startswith(_STORED) else ""


def _each(values: Values, change: Callable[[bytes], bytes]) -> Values:
    return tuple([tuple(map(change, tokens)) for tokens in values])


def _walk(value: Value, change: Callable[[bytes], bytes]) -> Value:
    """Return plain data with all its encoded values changed."""
    if isinstance(value, bytes):
        return change(value)
    if isinstance(value, dict):
        return {key: _walk(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(one, change) for one in value]
    return value
