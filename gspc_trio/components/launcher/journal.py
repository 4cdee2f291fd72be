"""Journal of a launcher: what its machine knew at one time, and all that it was told since.

One that knows the same, and is told the same, is where that one was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from attrs import asdict
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.launcher.events import (
    LauncherAction,
    LauncherEvent,
    Listed,
    Message,
    ServerMessage,
)
from gspc_trio.components.launcher.http_routes import KeptView
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.launcher.snapshot import decode_snapshot, encode_snapshot, restore, snapshot_of
from gspc_trio.components.provision.batch import BatchJob
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.protocol.plain import BadPlainData, from_json, from_plain, to_json, to_plain
from gspc_trio.records.facts import StudyChanged, StudyRecord
from gspc_trio.records.lines import decode_record, encode_record
from gspc_trio.version import VERSION

_EVENTS: dict[str, type[LauncherEvent]] = {kind.__name__: kind for kind in get_args(LauncherEvent)}
_BODIES: dict[str, type[ServerMessage]] = {kind.__name__: kind for kind in get_args(ServerMessage)}

MAGIC = b"GSPCS1\r\n"
"""The first bytes of each file."""

_KINDS = _HEAD, _LAUNCHER, _PROGRESS, _RECORD, _LAST, _LINE = b"h", b"s", b"p", b"r", b"n", b"e"
"""What a frame is, by its first byte."""


class BadStudyJournal(ValueError):
    """A journal cannot be used; the message is one line for people."""


class StudyHead(Struct, frozen=True):
    """What does not change in a study.

    Attributes:
        version: of the package that has begun it.
        study: its name.
        output_dir, work_dir: absolute paths of its directories.
        options: by name.
        key: from which secrets of its servers are made, in hexadecimal digits.
    """

    version: str
    study: str
    output_dir: str
    work_dir: str
    options: dict[str, object]
    key: str


def options_of_head(options: LauncherOptions) -> dict[str, object]:
    """Return the options that a study keeps for good, as JSON has them."""
    told: dict[str, object] = json.loads(json.dumps(asdict(options)))
    return {name: value for name, value in told.items() if name not in ("verbose", "output_dir")}


def check_head(head: StudyHead, options: LauncherOptions) -> None:
    """Look whether a launcher with these options can go on with a study.

    Raises:
        BadOption: it has other options, or was begun by another version.
    """
    if head.version != VERSION:
        raise BadOption(f"journal: it was begun by version {head.version}, and this is {VERSION}")
    for name, value in options_of_head(options).items():
        before = head.options.get(name)
        if value != before:
            raise BadOption(f"journal: its study was begun with {name} = {before!r}, and not with {value!r}")


class EventLines:
    """Events as lines of JSON, and back.

    A list of jobs is written as what has changed since the list before: the place there of a job that is the
    same.
    """

    def __init__(self) -> None:
        self._listed: tuple[BatchJob, ...] = ()

    def write(self, at_s: float, event: LauncherEvent) -> str:
        """Return the line of an event."""
        said: object
        if isinstance(event, Message):
            said = [event.connection, type(event.body).__name__, to_plain(event.body)]
        elif isinstance(event, Listed):
            places = {job: place for place, job in enumerate(self._listed)}
            said = [event.uid, [places[job] if job in places else to_plain(job) for job in event.jobs]]
            self._listed = event.jobs
        else:
            said = to_plain(event)
        return json.dumps([at_s, type(event).__name__, said], separators=(",", ":")) + "\n"

    def read(self, line: str) -> tuple[float, LauncherEvent]:
        """Return the time and the event of a line.

        Raises:
            BadStudyJournal: it has none.
        """
        try:
            at_s, name, said = json.loads(line)
            kind = _EVENTS[name]
            if kind is Message:
                connection, body, told = said
                return at_s, Message(connection, from_plain(told, _BODIES[body]))
            if kind is Listed:
                uid, jobs = said
                self._listed = tuple(
                    self._listed[job] if isinstance(job, int) else from_plain(job, BatchJob) for job in jobs
                )
                return at_s, Listed(uid, self._listed)
            return at_s, from_plain(said, kind)
        except (ValueError, KeyError, IndexError, TypeError, BadPlainData) as error:
            raise BadStudyJournal(f"this is no line of a journal: {line[:80]!r}") from error


class StudyFile(Struct, frozen=True):
    """A file of a journal.

    Attributes:
        head: of the study.
        launcher: what the launcher knew when the file was begun, as JSON; see ``snapshot``.
        view: what was told of the study until then.
        lines: of what the launcher was told since.
    """

    head: StudyHead
    launcher: bytes
    view: KeptView
    lines: list[str]


def payloads_of(file: StudyFile) -> Iterator[bytes]:
    """Yield the payloads of the frames of a file."""
    yield _HEAD + to_json(file.head).encode()
    yield _LAUNCHER + file.launcher
    for kind, records in ((_PROGRESS, file.view.progress), (_RECORD, file.view.records)):
        for record in records:
            yield kind + encode_record(record).encode()
    yield _LAST + str(file.view.last).encode()
    for line in file.lines:
        yield payload_of(line)


def payload_of(line: str) -> bytes:
    """Return the payload of the frame of a line."""
    return _LINE + line.encode()


def read_file(payloads: Iterable[bytes]) -> StudyFile:
    """Return what the frames of a file say.

    Raises:
        BadStudyJournal: they do not begin like those of a journal of a study.
    """
    parts: dict[bytes, list[bytes]] = {kind: [] for kind in _KINDS}
    try:
        for payload in payloads:
            parts[payload[:1]].append(payload[1:])
        (head,), (launcher,), (last,) = parts[_HEAD], parts[_LAUNCHER], parts[_LAST]
        progress, records = ([_study_record(line) for line in parts[kind]] for kind in (_PROGRESS, _RECORD))
        view = KeptView(int(last), records, progress)
        return StudyFile(from_json(head, StudyHead), launcher, view, [one.decode() for one in parts[_LINE]])
    except (ValueError, KeyError) as error:
        raise BadStudyJournal(f"this is no journal of a study: {error}") from error


def _study_record(line: bytes) -> StudyRecord:
    record = decode_record(line)
    if not isinstance(record, StudyRecord):
        raise BadStudyJournal(f"a {type(record).__name__} is none of a study")
    return record


def moved(view: KeptView, seconds: float) -> KeptView:
    """Return a view whose times are so much later."""
    records, progress = ([moved_record(one, seconds) for one in row] for row in (view.records, view.progress))
    return KeptView(view.last, records, progress)


def moved_record(record: StudyRecord, seconds: float) -> StudyRecord:
    """Return a record whose times are so much later."""
    if isinstance(record, StudyChanged) and record.heard_at_s is not None:
        return replace(record, at_s=record.at_s + seconds, heard_at_s=record.heard_at_s + seconds)
    return replace(record, at_s=record.at_s + seconds)


def restore_launcher(machine: Launcher, file: StudyFile, tell: Callable[[StudyRecord], None]) -> float:
    """Bring a new machine to where the one before it was; return the time of the last event.

    Args:
        machine: a new one.
        file: of the journal.
        tell: takes the records of what has happened since the file was begun.

    Raises:
        BadStudyJournal: that cannot be.
    """
    try:
        known = decode_snapshot(file.launcher)
    except ValueError as error:
        raise BadStudyJournal(f"what the launcher knew cannot be read: {error}") from error
    restore(machine, known)
    at_s, reader = known.now, EventLines()
    for line in file.lines:
        at_s, event = reader.read(line)
        try:
            actions = machine.handle(event, at_s)
        except IllegalEvent as error:
            raise BadStudyJournal(f"{type(event).__name__} was not possible then: {error}") from error
        for action in actions:
            if isinstance(action, StudyRecord):
                tell(action)
    return at_s


class JournaledLauncher:
    """A launcher that notes what it is told, before anything follows from it.

    Args:
        machine: the launcher.
        note: takes a line.
        shift_s: the time of the journal is so much more than that of this program.
    """

    def __init__(self, machine: Launcher, note: Callable[[str], None], shift_s: float = 0.0) -> None:
        self._machine = machine
        self._note = note
        self._writer = EventLines()
        self._shift_s = shift_s

    def begin_file(self) -> bytes:
        """Return what the machine knows now; the lines from now on are for a new file, which begins so."""
        self._writer = EventLines()
        return encode_snapshot(snapshot_of(self._machine))

    def handle(self, event: LauncherEvent, now: float) -> list[LauncherAction]:
        """Take one event; see :class:`Machine`."""
        at_s = now + self._shift_s
        actions = self._machine.handle(event, at_s)
        self._note(self._writer.write(at_s, event))
        return actions

    def deadline(self) -> float | None:
        """See :class:`Machine`."""
        due_s = self._machine.deadline()
        return None if due_s is None else due_s - self._shift_s

    def check(self) -> None:
        """See :class:`Machine`."""
        self._machine.check()
