"""Files of tasks: what a workflow says of them, what a worker is told, and messages that carry their bytes.

A task that has files runs in a directory of its own. Before it computes, files are put there (stage-in),
from its inputs or from the host of its job; afterwards others are taken from there (stage-out), as values or
to the host of its job. Names never lead out of the directory on either side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgpack
from msgspec import Struct, ValidationError, convert
from msgspec.structs import astuple, replace

from gspc_trio.core.file_sets import fill_pattern, without_slash
from gspc_trio.core.ids import Count
from gspc_trio.core.rules import fill
from gspc_trio.core.uri import is_uri, mask_uri

PLAN_MARK = b"\xc1\3"
"""Begins an argument that is none: the plan of the task's files."""

WRAPPER_MARK = "\0"
"""Begins, in the place of the name of a directory, what the process that runs a task is to stage itself."""

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4000
"""What the system takes."""

CHUNK_BYTES = 1 << 17
"""Files travel in pieces of so many bytes."""

FIRST_BYTES = 1 << 14
"""The first piece of a file that is written has no more bytes; the others wait until there is room there."""

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


class Optional(Struct, frozen=True):
    """Files that may not be there; made by :func:`optional`.

    Attributes:
        files: as they are written without it.
    """

    files: str | Data | Sequence[str]


def optional(files: str | Data | Sequence[str]) -> Optional:
    """Return what ``stage_in`` or ``stage_out`` says of a file, or of a set of files, that may not be there.

    Without it a task fails when a file is not there, or no file matches a pattern.

    Args:
        files: as they are written without it.
    """
    return Optional(files)


Staged: TypeAlias = "Mapping[str, str | Data | Named | Optional | Sequence[str | Data | Named]]"
"""File in the task's directory -> file on the host of its job, its URI, or the value or data that it is."""


class StageLimits(Struct, frozen=True):
    """How much the tasks of a job may stage at one worker.

    Attributes:
        files_max: files of one task, each way.
        file_bytes_max: bytes of all files of one task, each way.
        inputs_bytes_max: bytes of data that the tasks in a worker's phases may have fetched; the next one's
            stage-in waits for room. One task alone may have more.
        attempts_max: so many tasks may have their data fetched at one worker at a time. If more than one,
            those that have their data go before those that have not. 0: 8 if the job has a plan, else 1.
    """

    files_max: Count = 10_000
    file_bytes_max: Count = 4 << 30
    inputs_bytes_max: Count = 1 << 30
    attempts_max: Count = 0


DEFAULT_LIMITS = StageLimits()


class Gather(Struct, frozen=True):
    """Several files that a task finds in its directory.

    Attributes:
        target: a directory with a slash at its end, a name with ``{index}``, or a name.
        sources: patterns of files on the host of the job, or where their contents are: the index of an input
            arc, in a plan that of an argument.
        is_optional: whether there may be none.
    """

    target: str
    sources: tuple[str | int, ...]
    is_optional: bool = False


class Scatter(Struct, frozen=True):
    """Several files that a task leaves in its directory.

    Attributes:
        pattern: of their names; with a slash at its end a directory.
        target: on the host of the job: a directory with a slash at its end, a name with ``{index}``, or a
            name. Or the index of the output that gets their contents.
        is_each: whether that output gets a token for each file.
        is_optional: whether there may be none.
    """

    pattern: str
    target: str | int
    is_each: bool = False
    is_optional: bool = False


class FilePlan(Struct, frozen=True):
    """What is to be staged for one task.

    Attributes:
        arguments: so many arguments are for its code; those behind them are for its files.
        fetch: (file in its directory, file on the host of the job or index of an argument).
        store: (file in its directory, file on the host of the job or index of an output).
        ranges: (index of an output, index of the argument that is the range to put it into).
        gather: sets of files to fetch.
        scatter: sets of files to store.
    """

    arguments: int
    fetch: tuple[tuple[str, str | int], ...] = ()
    store: tuple[tuple[str, str | int], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    gather: tuple[Gather, ...] = ()
    scatter: tuple[Scatter, ...] = ()

    @property
    def has_files(self) -> bool:
        """Whether the task needs a directory."""
        return bool(self.fetch or self.store or self.gather or self.scatter)

    @property
    def file_arguments(self) -> set[int]:
        """The arguments whose values become files."""
        sets = {source for one in self.gather for source in one.sources if isinstance(source, int)}
        return sets.union(source for _, source in self.fetch if isinstance(source, int))

    @property
    def uris(self) -> list[str]:
        """The URIs among what it fetches and stores."""
        named = [path for _, path in (*self.fetch, *self.store)]
        named += [one.target for one in self.scatter]
        named += [source for one in self.gather for source in one.sources]
        return [path for path in named if isinstance(path, str) and is_uri(path)]

    def encoded(self) -> bytes:
        """Return the plan as an argument."""
        fields: tuple[object, ...] = (self.arguments, self.fetch, self.store, self.ranges)
        if self.gather or self.scatter:
            fields += (tuple(map(astuple, self.gather)), tuple(map(astuple, self.scatter)))
        packed: bytes = msgpack.packb(fields)
        return PLAN_MARK + packed


class Stage(Struct, frozen=True):
    """What a transition says about the files and ranges of its tasks.

    Attributes:
        fetch: (file in the task's directory, pattern of a file on the job's host or index of an input arc).
        store: (file in the task's directory, pattern of a file on the job's host or index of an output).
        ranges: (index of an output, index of the input arc that holds the range).
        names: input arcs by the names that patterns have for them.
        ports: how many outputs come from files; they are the last ones.
        gather: sets of files to fetch.
        scatter: sets of files to store.
    """

    fetch: tuple[tuple[str, str | int], ...] = ()
    store: tuple[tuple[str, str | int], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    names: tuple[tuple[str, int], ...] = ()
    ports: int = 0
    gather: tuple[Gather, ...] = ()
    scatter: tuple[Scatter, ...] = ()

    @property
    def has_files(self) -> bool:
        """Whether its tasks need a directory."""
        return bool(self.fetch or self.store or self.gather or self.scatter)

    @property
    def arcs(self) -> tuple[int, ...]:
        """The input arcs whose values are staged."""
        files = [source for _, source in self.fetch if isinstance(source, int)]
        files += [source for one in self.gather for source in one.sources if isinstance(source, int)]
        return tuple(dict.fromkeys([*files, *(arc for _, arc in self.ranges)]))

    def paths(self, values: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the files, and patterns of files, on the job's host that one task reads, and that it writes.

        URIs among them are masked.

        Args:
            values: what patterns are filled with.
        """
        read = [source for _, source in self.fetch] + [each for one in self.gather for each in one.sources]
        written = [target for _, target in self.store] + [one.target for one in self.scatter]
        fetched, stored = (
            tuple(mask_uri(fill(path, values)) for path in paths if isinstance(path, str))
            for paths in (read, written)
        )
        return fetched, stored

    def plan(
        self, arguments: int, places: Mapping[int, Sequence[int]], values: Mapping[str, object]
    ) -> FilePlan:
        """Return the plan of one task.

        Args:
            arguments: how many its code gets.
            places: input arc -> indices of its values among all arguments: one, or one for each token.
            values: what patterns are filled with.
        """
        return FilePlan(
            arguments,
            tuple((name, fill(s, values) if isinstance(s, str) else places[s][0]) for name, s in self.fetch),
            tuple((name, fill(t, values) if isinstance(t, str) else t) for name, t in self.store),
            tuple((output, places[arc][0]) for output, arc in self.ranges),
            tuple(self._gather(one, places, values) for one in self.gather),
            tuple(
                one if isinstance(one.target, int) else replace(one, target=fill(one.target, values))
                for one in self.scatter
            ),
        )

    @staticmethod
    def _gather(one: Gather, places: Mapping[int, Sequence[int]], values: Mapping[str, object]) -> Gather:
        sources: list[str | int] = []
        for source in one.sources:
            if isinstance(source, int):
                sources += places[source]
                continue
            plain = fill_pattern(source, values, plain=True)
            filled = fill_pattern(source, values)
            sources += [uri if is_uri(uri) else path for uri, path in zip(plain, filled, strict=True)]
        return Gather(one.target, tuple(sources), one.is_optional)


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
        fetch = [source for stage in known for _, source in stage.fetch]
        fetch += [source for stage in known for one in stage.gather for source in one.sources]
        store = [target for stage in known for _, target in stage.store]
        store += [one.target for stage in known for one in stage.scatter]
        return cls(
            tuple(source for source in fetch if isinstance(source, str) and not is_uri(source)),
            tuple(target for target in store if isinstance(target, str) and not is_uri(target)),
        )


def wrapper_order(plan: FilePlan, home: str, directory: str, files_max: int, bytes_max: int) -> str | None:
    """Return what the process that runs a task is told so that it stages files itself, with its mark.

    It comes in the place of the name of a directory.

    Args:
        plan: of the task.
        home: directory of the job's files.
        directory: to be made for the task.
        files_max, bytes_max: of the task, each way.

    Returns:
        None if some of its files are values or have URIs: these that process cannot stage.
    """
    fetch: list[object] = [[name, [source], False] for name, source in plan.fetch]
    fetch += [[one.target, one.sources, one.is_optional] for one in plan.gather]
    store = [(name, target, False) for name, target in plan.store]
    store += [(one.pattern, one.target, one.is_optional) for one in plan.scatter]
    if plan.file_arguments or plan.uris or any(isinstance(target, int) for _, target, _ in store):
        return None
    return WRAPPER_MARK + json.dumps([home, directory, fetch, store, files_max, bytes_max])


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


_GatherFields: TypeAlias = tuple[str, tuple[str | int, ...], bool]
_ScatterFields: TypeAlias = tuple[str, str | int, bool, bool]


def _decode_plan(data: bytes, values: int) -> FilePlan:
    try:
        arguments, fetch, store, ranges, *sets = msgpack.unpackb(memoryview(data)[2:], use_list=False)
        gather, scatter = convert(
            sets or ((), ()), tuple[tuple[_GatherFields, ...], tuple[_ScatterFields, ...]]
        )
        plan = FilePlan(
            arguments,
            fetch,
            store,
            ranges,
            tuple(Gather(*fields) for fields in gather),
            tuple(Scatter(*fields) for fields in scatter),
        )
        indices = [plan.arguments - 1, *plan.file_arguments, *(a for _, a in ranges)]
        fits = all(type(index) is int and -1 <= index < values for index in indices)
        named = all(type(name) is str for name, _ in (*fetch, *store))
        aimed = all(type(target) in (str, int) for _, target in store) and all(
            type(source) in (str, int) for _, source in fetch
        )
    except (ValueError, TypeError, ValidationError, msgpack.exceptions.UnpackException) as error:
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


def pattern_parts(pattern: str) -> tuple[str, ...]:
    """Return the parts of a pattern or directory that stays in its directory; none for all of that.

    Raises:
        BadFileName: see :func:`parts_of`.
    """
    path = without_slash(pattern)
    return parts_of(path) if path else ()


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


class ListFiles(Struct, frozen=True):
    """Say which files of the job's directory match a pattern (call, answered by FileList).

    Attributes:
        pattern: of their names; with a slash at its end a directory with all that is in it.
        after: of those that the caller knows the last one, "" at first.
    """

    pattern: str
    after: str = ""


class FileList(Struct, frozen=True):
    """Files that match a pattern, sorted by name.

    Attributes:
        paths: of the files.
        is_whole: whether there are no more.
        there: if there are none, what there is instead, for people.
    """

    paths: tuple[str, ...]
    is_whole: bool = True
    there: str = ""


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
