"""What a format of workflow files is, what its reader gets and returns, and how it says what is wrong.

A package offers a format under the entry point group ``gspc_trio.formats``: a name and a class that can be
called without arguments and returns a :class:`Format`.
"""

from __future__ import annotations

import re
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

from msgspec import Struct

from gspc_trio.core.similar import did_you_mean
from gspc_trio.records.facts import Record
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import SettingError, Workflow
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.tokens import Outputs

if TYPE_CHECKING:
    from gspc_trio.workflow.formats.in_tasks.native import CppSource

ENTRY_POINTS = "gspc_trio.formats"
"""Group in which packages offer formats."""

BUILT_IN = {
    "pnml": ("gspc_trio.workflow.formats.pnml.files", "PnmlFormat"),
    "wfformat": ("gspc_trio.workflow.formats.wfformat.files", "WfFormat"),
    "xpnet": ("gspc_trio.workflow.formats.xpnet.files", "XpnetFormat"),
    "tasks": ("gspc_trio.workflow.formats.task_file.files", "TaskFileFormat"),
}
"""Name of a format -> its module and class. The module itself loads in a moment: what only reading needs is
imported when it reads."""

SOURCE_BYTES_MAX = 64 * 2**20
"""Size of the largest file that is read."""

PROBLEMS_SHOWN_MAX = 50
"""So many problems of a file are told, the first ones; of the others the number."""

PROBLEMS_MAX = 1000
"""So many problems are looked for in a file: then its reader stops."""

MESSAGE_CHARACTERS_MAX = 1000
"""Of a longer message the beginning is told."""

HEAD_BYTES = 4096
"""From so many bytes at its beginning a file is recognised."""


VALUE_CHARACTERS_MAX = 60
"""Of a longer value in a message the beginning is shown."""

_brief = reprlib.Repr()  # all of a value may be large, and deeper than Python goes
_brief.maxstring = _brief.maxlong = _brief.maxother = 2 * VALUE_CHARACTERS_MAX


def brief(value: object) -> str:
    """Return a value as messages show it, or the beginning."""
    text = _brief.repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "..."


class Problem(Struct, frozen=True, order=True):
    """Something that is wrong in a file, and where.

    Attributes:
        path: of the file, as the user wrote it.
        line: from 1 on; 0: the whole file.
        column: from 1 on; 0: the whole line.
        message: what is wrong, what there is, what to do; one line.
    """

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        numbers = "".join(f":{number}" for number in (self.line, self.column) if number)
        return f"{self.path}{numbers}: {self.message}"


class FormatError(WorkflowError):
    """A file cannot be read; the message has a line for each problem.

    Attributes:
        problems: all that were found, in the order of the file.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        shown = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        more = len(self.problems) - len(shown)
        if more > 0:
            least = "at least " if len(self.problems) >= PROBLEMS_MAX else ""
            shown.append(f"{self.problems[0].path}: and {least}{more} more")
        super().__init__("\n".join(shown))

    def __reduce__(self) -> tuple[type[FormatError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def _nothing_beside(_: str) -> None:
    """Find no other file."""


class Problems(list[Problem]):
    """What is wrong in a file so far. Only so many are collected: what is made on purpose has millions."""

    def append(self, problem: Problem, /) -> None:
        """Note a problem.

        Raises:
            FormatError: there are :data:`PROBLEMS_MAX` now; all of them.
        """
        super().append(problem)
        if len(self) >= PROBLEMS_MAX:
            raise FormatError(self)


Function: TypeAlias = Callable[..., object]


def _no_functions(name: str) -> Mapping[str, Function]:
    """Find no Python file."""
    raise ValueError(f"there is no file {name}")


class Source(Struct, frozen=True):
    """A file to be read.

    Attributes:
        path: of the file, as messages name it.
        data: all of it.
        find: name of another file -> what is in it, None if there is none. Names are relative to the
            directory of the file, then to those of ``-I``.
        functions: name of a Python file beside it -> its functions, which tasks may call; raises ValueError.
    """

    path: str
    data: bytes
    find: Callable[[str], bytes | None] = _nothing_beside
    functions: Callable[[str], Mapping[str, Function]] = _no_functions

    def problem(self, message: str, line: int = 0, column: int = 0) -> Problem:
        """Return a problem of this file."""
        if len(message) > MESSAGE_CHARACTERS_MAX:
            message = f"{message[:MESSAGE_CHARACTERS_MAX]}..."
        return Problem(self.path, line, column, message)

    def text(self) -> str:
        """Return what is in it, a text in UTF-8.

        Raises:
            FormatError: it is none; says where.
        """
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            data = error.object  # a mark at the beginning of the file is no part of it
            line = data.count(b"\n", 0, error.start) + 1
            before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start]
            column = len(before.decode(errors="replace")) + 1
            message = f"this is no text in UTF-8: there is the byte 0x{data[error.start]:02x}"
            raise FormatError([self.problem(message, line, column)]) from error


_NOT_SAID = ("explored", "modules_file", "compile")
"""Attributes of :class:`ReadOptions` that do not come from an option of the user."""


class ReadOptions(Struct, frozen=True, kw_only=True):
    """What the user says of a file besides its path; each format has some of these.

    Attributes:
        tasks: name -> function, of the Python file of ``--tasks``; None: none was given.
        firings: how often transitions fire at most, all together; None: as often as they can.
        net: id of the net to be run, of a file with several; "": the only one.
        scale: recorded run times times this are those of the tasks.
        work: what tasks of a recorded run do: ``sleep``, ``cpu`` or ``command``.
        files: recorded sizes of files times this are those of files that are made and staged; None: none.
        modules: name -> function, of the Python file of ``--modules`` or of the one beside the workflow
            file that has its name; None: there is none.
        modules_file: path of that file, or of the one beside, whether it is there or not.
        compile: what makes a library of a module in C++; None: nothing is to be compiled.
        explored: it is not to be run, but to be explored: it may go on for ever.
    """

    tasks: Mapping[str, Function] | None = None
    firings: int | None = None
    net: str = ""
    scale: float = 1.0
    work: str = "sleep"
    files: float | None = None
    modules: Mapping[str, Function] | None = None
    modules_file: str = ""
    compile: Callable[[CppSource], Callable[[bytes], bytes]] | None = None
    explored: bool = False

    def given(self) -> list[str]:
        """Return the names of the options that the user has given."""
        plain = ReadOptions()
        names = [name for name in self.__struct_fields__ if name not in _NOT_SAID]
        return [name for name in names if getattr(self, name) != getattr(plain, name)]


class NewFile(Struct, frozen=True):
    """A file that has to be there before a workflow runs.

    Attributes:
        path: of the file, from the working directory on.
        size_bytes: of it; zeros.
    """

    path: str
    size_bytes: int


class ForeignWorkflow(ABC):
    """A workflow that was read from a file of a foreign format.

    Subclasses say how the format writes values.

    Attributes:
        net: the workflow.
        notes: what was read and counts for nothing here.
        groups: ("place" or "transition", name) -> names of the subnets around it, the outermost first.
        files: what has to be there before it runs.
        hidden: places that the file does not have.
        layer: what to say if there is no memory layer, "" if none is needed.

    Args:
        net, notes, groups, files, hidden, layer: see above.
    """

    def __init__(
        self,
        net: Net,
        *,
        notes: Sequence[Problem] = (),
        groups: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
        files: Iterable[NewFile] = (),
        hidden: Collection[str] = (),
        layer: str = "",
    ) -> None:
        self.net = net
        self.notes: tuple[Problem, ...] = tuple(notes)
        self.groups: Mapping[tuple[str, str], tuple[str, ...]] = groups or {}
        self.files: tuple[NewFile, ...] = tuple(files)
        self.hidden: frozenset[str] = frozenset(hidden)
        self.layer = layer

    def workflow(self, settings: Sequence[str] = ()) -> Workflow:
        """Return the workflow that starts with the values of these settings, ``PORT=VALUE`` each.

        Several of one port are several tokens there.

        Raises:
            SettingError: there is no such port, or a value is badly written.
            WorkflowError: a port lacks values.
        """
        values: dict[str, list[object]] = {}
        for port, text in split_pairs(settings):
            place = self.check_input(port)
            values.setdefault(place, []).append(self.parse_value(port, text))
        return Workflow(self.net, values, self.report, notation=self)

    @property
    def inputs(self) -> Mapping[str, str]:
        """Input port -> the place of the net that it is."""
        return {name: name for name in self.net.inputs}

    def check_input(self, port: str) -> str:
        """Return the place that an input port is.

        Raises:
            SettingError: it is no input port.
        """
        inputs = self.inputs
        if port not in inputs:
            known = ", ".join(inputs) or "none"
            meant = did_you_mean(port, inputs)
            raise SettingError(f"there is no input port {port!r}; the input ports are: {known}{meant}")
        return inputs[port]

    @abstractmethod
    def parse_value(self, port: str, text: str, /) -> object:
        """Return the value that a text of the user stands for, in the notation of the format.

        Raises:
            SettingError: it is badly written, or of another type than the port.
        """

    @abstractmethod
    def show_value(self, port: str, value: object, /) -> str:
        """Return a value of a port in the notation of the format."""

    @abstractmethod
    def plain_value(self, port: str, value: object, /) -> object:
        """Return a value of a port as JSON has it."""

    def show_outputs(self, outputs: Outputs) -> Iterable[str]:
        """Return what is printed of the results, lines for people."""
        for port, values in outputs.items():
            for value in values:
                yield f"{port}: {self.show_value(port, value)}"

    def plain_outputs(self, outputs: Outputs) -> Mapping[str, object]:
        """Return the results as JSON has them."""
        return {port: [self.plain_value(port, value) for value in values] for port, values in outputs.items()}

    def report(self, outputs: Outputs) -> None:
        """Print the results."""
        for line in self.show_outputs(outputs):
            print(line)


class Written(Struct, frozen=True):
    """A workflow in a format.

    Attributes:
        data: what is in the file.
        lost: what the format cannot say of the workflow, a line each. Lines such as ``place 'p': its tokens``
            that say the same of several are told as one, see :func:`gathered`.
    """

    data: bytes
    lost: tuple[str, ...] = ()


_OF_ONE = re.compile(r"""(\w+) ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"): (.*)""", re.DOTALL)
"""A line of :attr:`Written.lost` that is about one thing: what it is, its name, what is lost."""

NAMES_SHOWN_MAX = 3
"""Of things that lose the same so many are named."""


def gathered(lost: Iterable[str]) -> list[str]:
    """Return what is lost, in one line where the same is lost of several things.

    Args:
        lost: lines of :attr:`Written.lost`.
    """
    lines: dict[tuple[str, str], list[str]] = {}
    for line in lost:
        match = _OF_ONE.fullmatch(line)
        key, name = ((match[1], match[3]), match[2]) if match else (("", line), "")
        lines.setdefault(key, []).append(name)
    return [_told(what, message, names) for (what, message), names in lines.items()]


def _told(what: str, message: str, names: Sequence[str]) -> str:
    if not what:
        return message
    if len(names) == 1:
        return f"{what} {names[0]}: {message}"
    more = len(names) - NAMES_SHOWN_MAX
    shown = ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"{len(names)} {what}s: {message} ({shown})"


class Surroundings(Struct, frozen=True):
    """What only the shell knows, and whoever writes a recorded run has to ask.

    Attributes:
        size_of: path of a file as the workflow states it -> its size in bytes, None if it is gone.
        iso_time: seconds since 1970 -> the same as ISO 8601 says it.
    """

    size_of: Callable[[str], int | None]
    iso_time: Callable[[float], str]


class Format(ABC):
    """A format of workflow files.

    Attributes:
        name: what ``--format`` calls it.
        suffixes: with which its files end, in lower case and with the dot.
        options: names of the :class:`ReadOptions` that count for it.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    options: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Return whether a file that begins so is of this format."""

    @abstractmethod
    def read(self, source: Source, options: ReadOptions) -> ForeignWorkflow:
        """Return the workflow in a file.

        Raises:
            FormatError: it cannot be read; all that is wrong with it.
        """

    def write(self, net: Net, _foreign: ForeignWorkflow | None, /) -> Written:
        """Return a workflow in this format.

        Args:
            net: what the workflow runs.
            _foreign: what was read, if it was read from a foreign format.

        Raises:
            WorkflowError: no workflow can be written in this format.
        """
        raise WorkflowError(f"{self.name} is only read: {net.name!r} cannot be written as {self.name}")

    def of_records(self, _records: Iterable[Record], _surroundings: Surroundings, /) -> Written:
        """Return in this format the run that records tell of.

        Args:
            _records: of one job, in order.
            _surroundings: of whoever converts them.

        Raises:
            WorkflowError: runs cannot be written in this format, or the records tell too little.
        """
        raise WorkflowError(f"{self.name} is no format of recorded runs: records become wfformat")


def split_pairs(settings: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, text) for texts ``name=value``.

    Raises:
        SettingError: one has no name or no ``=``.
    """
    pairs = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"a setting is written NAME=VALUE, not {setting!r}")
        pairs.append((name.strip(), text.strip()))
    return pairs


def format_names() -> list[str]:
    """Return the names of all formats: the built-in ones, then those that installed packages offer."""
    return [*BUILT_IN, *sorted(entry_points(group=ENTRY_POINTS).names - BUILT_IN.keys())]


def find_format(name: str) -> Format:
    """Return the format of this name.

    Raises:
        WorkflowError: nobody offers it, or it cannot be loaded.
    """
    if name in BUILT_IN:
        module, kind = BUILT_IN[name]
        return cast("type[Format]", getattr(import_module(module), kind))()
    there = format_names()
    if name not in there:
        known = ", ".join(("python", *there))
        raise WorkflowError(f"there is no format {name!r}{did_you_mean(name, there)}; there are: {known}")
    (entry,) = entry_points(group=ENTRY_POINTS, name=name)
    try:
        found: object = entry.load()()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise WorkflowError(f"the format {name!r} of {entry.value} cannot be used: {what}") from error
    if not isinstance(found, Format):
        raise WorkflowError(f"the format {name!r} of {entry.value} is {found!r}, which is no Format")
    return found


def known_formats() -> list[Format]:
    """Return all formats that can be used; one that cannot be loaded is only told of by its name."""
    found = []
    for name in format_names():
        with suppress(WorkflowError):
            found.append(find_format(name))
    return found


def recognise(suffix: str, head: bytes) -> Format | None:
    """Return the format of a file, None if no format is known to be its.

    Of the formats with this suffix the one that recognises the beginning, or the only one; else any one that
    recognises the beginning.

    Args:
        suffix: of its name, with the dot.
        head: the first :data:`HEAD_BYTES` of it.
    """
    formats = known_formats()
    named = [one for one in formats if suffix.lower() in one.suffixes]
    for one in (*named, *formats):
        if one.recognises(head):
            return one
    return named[0] if len(named) == 1 else None


def check_options(chosen: Format, options: ReadOptions) -> None:
    """See that the options that are given count for a format.

    Raises:
        WorkflowError: one does not.
    """
    for name in options.given():
        if name not in chosen.options:
            takers = [each.name for each in known_formats() if name in each.options]
            raise WorkflowError(
                f"--{name} is for files of the format {' or '.join(takers)}, and this one is {chosen.name}"
            )
