"""Files of tasks: what a workflow says of them, what a worker is told, and messages that carry their bytes.

A task that has files runs in a directory of its own. Before it computes, files are put there (stage-in),
from its inputs or from the host of its job; afterwards others are taken from there (stage-out), as values or
to the host of its job. Names never lead out of the directory on either side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgpack
from msgspec import Struct

from gspc_trio.core.ids import Count
from gspc_trio.core.rules import fill

PLAN_MARK = b"\xc1\3"
"""Begins an argument that is none: the plan of the task's files."""

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4000
"""What the system takes."""

CHUNK_BYTES = 1 << 17
"""Files travel in pieces of so many bytes."""

FETCHED_AHEAD = 12
STORED_AHEAD = 4
"""So many pieces of one file are under way at a time.

With one alone a link would rest each time while the next is asked for. Where files go both ways, what asks
for the next piece waits behind those that go its way: so more are asked for than are sent.
"""


class BadFileName(ValueError):
    """The name of a file would lead out of its directory, or is none; the message says why."""


class Data(Struct, frozen=True):
    """Stands for a value where a file could stand: an input, or a port of the outputs.

    Attributes:
        name: of the input or of the port.
    """

    name: str


class Named(Struct, frozen=True):
    """Stands for data that was published in the job's memory layer: an input of tasks, a token, or a file.

    Tasks see it as read-only memory. It is looked up once, before anything runs.

    Attributes:
        name: under which it was published.
    """

    name: str


Staged: TypeAlias = "Mapping[str, str | Data | Named]"
"""File in the task's directory -> file on the host of its job, or the value or data that it is."""


class StageLimits(Struct, frozen=True):
    """How much the tasks of a job may stage at one worker.

    Attributes:
        files_max: files of one task, each way.
        file_bytes_max: bytes of all files of one task, each way.
        inputs_bytes_max: bytes of data that the tasks in a worker's phases may have fetched; the next one's
            stage-in waits for room. One task alone may have more.
    """

    files_max: Count = 1000
    file_bytes_max: Count = 4 << 30
    inputs_bytes_max: Count = 1 << 30


DEFAULT_LIMITS = StageLimits()


class FilePlan(Struct, frozen=True):
    """What is to be staged for one task.

    Attributes:
        arguments: so many arguments are for its code; those behind them are for its files.
        fetch: (file in its directory, file on the host of the job or index of an argument).
        store: (file in its directory, file on the host of the job or index of an output).
        ranges: (index of an output, index of the argument that is the range to put it into).
    """

    arguments: int
    fetch: tuple[tuple[str, str | int], ...] = ()
    store: tuple[tuple[str, str | int], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def has_files(self) -> bool:
        """Whether the task needs a directory."""
        return bool(self.fetch or self.store)

    def encoded(self) -> bytes:
        """Return the plan as an argument."""
        packed: bytes = msgpack.packb((self.arguments, self.fetch, self.store, self.ranges))
        return PLAN_MARK + packed


class Stage(Struct, frozen=True):
    """What a transition says about the files and ranges of its tasks.

    Attributes:
        fetch: (file in the task's directory, pattern of a file on the job's host or index of an input arc).
        store: (file in the task's directory, pattern of a file on the job's host or index of an output).
        ranges: (index of an output, index of the input arc that holds the range).
        names: input arcs by the names that patterns have for them.
        ports: how many outputs come from files; they are the last ones.
    """

    fetch: tuple[tuple[str, str | int], ...] = ()
    store: tuple[tuple[str, str | int], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    names: tuple[tuple[str, int], ...] = ()
    ports: int = 0

    @property
    def arcs(self) -> tuple[int, ...]:
        """The input arcs whose values are staged."""
        files = [source for _, source in self.fetch if isinstance(source, int)]
        return tuple(dict.fromkeys([*files, *(arc for _, arc in self.ranges)]))

    def plan(self, arguments: int, places: Mapping[int, int], values: Mapping[str, object]) -> FilePlan:
        """Return the plan of one task.

        Args:
            arguments: how many its code gets.
            places: input arc -> index of its value among all arguments.
            values: what patterns are filled with.
        """
        return FilePlan(
            arguments,
            tuple((name, fill(s, values) if isinstance(s, str) else places[s]) for name, s in self.fetch),
            tuple((name, fill(t, values) if isinstance(t, str) else t) for name, t in self.store),
            tuple((output, places[arc]) for output, arc in self.ranges),
        )


class FilePatterns(Struct, frozen=True):
    """Which files of its host the tasks of a job may ask for: no others are read or written for them.

    Attributes:
        fetch, store: patterns of their names.
    """

    fetch: tuple[str, ...] = ()
    store: tuple[str, ...] = ()

    @classmethod
    def of(cls, stages: Iterable[Stage | None]) -> FilePatterns:
        """Return those that transitions state."""
        known = [stage for stage in stages if stage is not None]
        return cls(
            tuple(source for stage in known for _, source in stage.fetch if isinstance(source, str)),
            tuple(target for stage in known for _, target in stage.store if isinstance(target, str)),
        )


def matches(pattern: str, path: str) -> bool:
    """Return whether a path is what a pattern becomes when it is filled with inputs."""
    literal = re.split(r"\{[A-Za-z_][A-Za-z0-9_]*\}", pattern)
    return re.fullmatch(".+".join(map(re.escape, literal)), path, re.DOTALL) is not None


def split_plan(arguments: tuple[bytes, ...]) -> tuple[FilePlan | None, tuple[bytes, ...], tuple[bytes, ...]]:
    """Take the plan out of the arguments of a task.

    Returns:
        the plan or None, all values, and what is behind the plan.

    Raises:
        ValueError: there is a plan that makes no sense.
    """
    for behind in (1, 2):
        if len(arguments) >= behind and arguments[-behind][:2] == PLAN_MARK:
            split = len(arguments) - behind
            return _decode_plan(arguments[split], split), arguments[:split], arguments[split + 1 :]
    return None, arguments, ()


def _decode_plan(data: bytes, values: int) -> FilePlan:
    try:
        arguments, fetch, store, ranges = msgpack.unpackb(memoryview(data)[2:], use_list=False)
        plan = FilePlan(arguments, fetch, store, ranges)
        indices = [plan.arguments - 1, *(s for _, s in fetch if type(s) is int), *(a for _, a in ranges)]
        fits = all(type(index) is int and -1 <= index < values for index in indices)
        named = all(type(name) is str for name, _ in (*fetch, *store))
        aimed = all(type(target) in (str, int) for _, target in store) and all(
            type(source) in (str, int) for _, source in fetch
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise ValueError(f"these {len(data)} bytes are no plan of files: {error}") from error
    if not (fits and named and aimed):
        raise ValueError("a plan of files that does not go with its task")
    return plan


def parts_of(path: str) -> tuple[str, ...]:
    """Return the parts of a relative path that stays in its directory.

    Raises:
        BadFileName: it is empty, absolute, has ``..`` or empty parts, or is too long.
    """
    try:
        size = len(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise BadFileName(f"{path!r} is no name of a file") from None
    parts = path.split("/")
    if not path or "\0" in path or size > PATH_BYTES_MAX:
        raise BadFileName(f"{path[:100]!r} is no name of a file")
    if path.startswith("/"):
        raise BadFileName(f"{path!r} is absolute: files of tasks are named from their directory")
    if any(part in ("", ".", "..") for part in parts):
        raise BadFileName(f"{path!r} leads out of its directory, or has empty parts")
    if any(len(part.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX for part in parts):
        raise BadFileName(f"{path[:100]!r} has a part that is too long")
    return tuple(parts)


# RIF to job server (calls) ----------------------------------------------------------------------------------


class ReadFile(Struct, frozen=True):
    """Give a piece of a file of the job's directory (call, answered by FilePiece)."""

    path: str
    offset: Count
    size_bytes: Count


class FilePiece(Struct, frozen=True):
    """A piece of a file, the size of all of it, and a mark that changes when the file does."""

    size_bytes: Count
    mark: str
    data: bytes


class WriteFile(Struct, frozen=True):
    """A piece of a file for the job's directory (call, answered by Done).

    The pieces of one transfer come in order; the file is seen when the last has come, and then whole.

    Attributes:
        transfer: number of the transfer, of the caller's choice.
        path: where it is to be.
        offset: where the piece belongs.
        last: whether it is the last one.
        data: the bytes.
    """

    transfer: int
    path: str
    offset: Count
    last: bool
    data: bytes


class DropFile(Struct, frozen=True):
    """Give up a transfer."""

    transfer: int


FILE_MESSAGE_TYPES: tuple[type, ...] = (ReadFile, FilePiece, WriteFile, DropFile)
"""In the order that gives each its number on the wire."""
