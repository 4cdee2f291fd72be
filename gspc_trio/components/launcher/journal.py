"""Journal of a launcher: all that its machine was told. One that is told the same is where that one was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import get_args

from attrs import asdict
from msgspec import Struct

from gspc_trio.components.launcher.events import (
    LauncherAction,
    LauncherEvent,
    Listed,
    Message,
    ServerMessage,
    Stop,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.provision.batch import BatchJob
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.protocol.plain import BadPlainData, from_plain, to_plain
from gspc_trio.records.facts import StudyRecord
from gspc_trio.version import VERSION

_EVENTS: dict[str, type[LauncherEvent]] = {kind.__name__: kind for kind in get_args(LauncherEvent)}
_BODIES: dict[str, type[ServerMessage]] = {kind.__name__: kind for kind in get_args(ServerMessage)}


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


def replay(
    machine: Launcher, lines: Iterable[str], reader: EventLines, tell: Callable[[StudyRecord | Stop], None]
) -> float:
    """Tell a machine all that the one before it was told; return the time of the last event.

    Args:
        machine: a new one.
        lines: of the journal.
        reader: reads them.
        tell: takes the records of what has happened, and how the study has stopped, if it has.

    Raises:
        BadStudyJournal: that cannot be.
    """
    at_s = 0.0
    for line in lines:
        at_s, event = reader.read(line)
        try:
            actions = machine.handle(event, at_s)
        except IllegalEvent as error:
            raise BadStudyJournal(f"{type(event).__name__} was not possible then: {error}") from error
        for action in actions:
            if isinstance(action, StudyRecord | Stop):
                tell(action)
    return at_s


class JournaledLauncher:
    """A launcher that notes what it is told, before anything follows from it.

    Args:
        machine: the launcher.
        note: writes a line.
        writer: of the lines; the one that has read those of before.
        shift_s: the time of the journal is so much more than that of this program.
    """

    def __init__(
        self, machine: Launcher, note: Callable[[str], None], writer: EventLines, shift_s: float = 0.0
    ) -> None:
        self._machine = machine
        self._note = note
        self._writer = writer
        self._shift_s = shift_s

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
