"""Staging of a transition's tasks, as it is stated: ``stage_in``, ``stage_out``, ``output_ranges``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gspc_trio.core.code import Output
from gspc_trio.core.file_sets import INDEX, has_index, is_directory, is_glob, takes_several
from gspc_trio.core.rules import placeholders
from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.staging import (
    BadFileName,
    Data,
    Gather,
    Named,
    Optional,
    Scatter,
    Stage,
    parts_of,
    pattern_parts,
)
from gspc_trio.core.uri import BadUri, is_uri, mask_text, parts_of_uri, set_of
from gspc_trio.workflow.arcs import NAMED, InputArc, OutputArc, WorkflowError
from gspc_trio.workflow.settings import TaskSettings

SEVERAL = "end the name in the task's directory with / or put {index} into it"
"""What to do about several files that would have one name."""


def ports_last(
    arcs: tuple[OutputArc, ...], ports: tuple[Output, ...], settings: TaskSettings
) -> tuple[tuple[OutputArc, ...], tuple[Output, ...]]:
    """Return output arcs and ports with those last that come from files.

    Raises:
        WorkflowError: a file is to be several tokens.
    """
    names = {}
    for file, target in _mapping(settings, "stage_out").items():
        bare = target.files if isinstance(target, Optional) else target
        if isinstance(bare, Data):
            names[bare.name] = file
    if not names:
        return arcs, ports
    for name, is_each in ports:
        if name in names and is_each and (is_directory(names[name]) or not is_glob(names[name])):
            what = "directory" if is_directory(names[name]) else "file"
            raise WorkflowError(
                f"the port {name!r} comes from a {what}, which is one token, and not each of many; a pattern "
                "like '*.txt' is a token for each file"
            )
    order = sorted(range(len(ports)), key=lambda index: ports[index][0] in names)
    place = {before: after for after, before in enumerate(order)}
    moved = tuple(replace(arc, output=place[arc.output]) if arc.output >= 0 else arc for arc in arcs)
    return moved, tuple(ports[index] for index in order)


def stage_of(
    settings: TaskSettings, arcs: Sequence[InputArc], ports: Sequence[Output], is_inline: bool = False
) -> Stage | None:
    """Return the files and ranges that the settings state, None if there are none.

    Args:
        settings: of the transition.
        arcs: its inputs.
        ports: its outputs, those from files last.
        is_inline: whether the engine fires it itself.

    Raises:
        WorkflowError: it is no task, a name leads out of its directory, or an input or port is not there.
    """
    fetch, store = _mapping(settings, "stage_in"), _mapping(settings, "stage_out")
    ranges: Mapping[str, str] = settings.get("output_ranges", {})
    if not (fetch or store or ranges):
        return None
    if is_inline:
        raise WorkflowError("only tasks have files and ranges; leave inline out")
    files = _Files(arcs, ports)
    try:
        for name, source in fetch.items():
            files.fetch(name, source)
        for name, target in store.items():
            files.store(name, target)
    except WorkflowError as error:
        raise WorkflowError(mask_text(str(error))) from None
    made = [target for _, target in files.made if isinstance(target, int)]
    made += [one.target for one in files.scatter if isinstance(one.target, int)]
    if len(made) != len(set(made)):
        raise WorkflowError("two files are one output")
    put = []
    for name, source in ranges.items():
        output = _port(name, ports)
        if output in made or ports[output][1]:
            raise WorkflowError(f"the port {name!r} is a file or each of many, and cannot fill a range")
        put.append((output, files.arc(source)))
    return Stage(
        tuple(files.taken),
        tuple(files.made),
        tuple(put),
        tuple(files.used.items()),
        len(made),
        tuple(files.gather),
        tuple(files.scatter),
    )


class _Files:
    """Reads what a transition says about files.

    Args:
        arcs: its inputs.
        ports: its outputs.

    Attributes:
        taken, made, gather, scatter: as in ``Stage``.
        used: the inputs that names of files have in them.
    """

    def __init__(self, arcs: Sequence[InputArc], ports: Sequence[Output]) -> None:
        self._arcs = arcs
        self._ports = ports
        self._known = _names(arcs)
        self.taken: list[tuple[str, str | int]] = []
        self.made: list[tuple[str, str | int]] = []
        self.gather: list[Gather] = []
        self.scatter: list[Scatter] = []
        self.used: dict[str, int] = {}

    def arc(self, name: str, *, several: bool = False) -> int:
        """Return the input that a file or range names."""
        arcs, known = self._arcs, self._known
        if name not in known:
            raise WorkflowError(f"its files or ranges name {name!r}, which is no input{self._meant(name)}")
        if arcs[known[name]].is_batch and not several:
            raise WorkflowError(
                f"the input {name!r} is several tokens, and cannot be a file or a range; for a file for each "
                "of them put {index} into its name"
            )
        return known[name]

    def _meant(self, name: str) -> str:
        """Return which inputs there are, for the message on one that is not there."""
        there = [arc.place if arc.name.isdigit() else arc.name for arc in self._arcs]
        return f"{did_you_mean(name, there)}; there are: {', '.join(there)}"

    def fetch(self, name: str, source: object) -> None:
        """Note a file, or a set of files, that is put into the task's directory."""
        _check_inside(name)
        is_optional = isinstance(source, Optional)
        bare = source.files if isinstance(source, Optional) else source
        listed = list(bare) if isinstance(bare, Sequence) and not isinstance(bare, str) else None
        if listed is not None and not listed:
            raise WorkflowError(f"the list of files for {name!r} is empty")
        several = takes_several(name)
        found = tuple(self._source(name, one, several) for one in ([bare] if listed is None else listed))
        if is_optional and any(isinstance(one, int) for one in found):
            raise WorkflowError(
                f"{name!r} is the value of an input, which is always there: leave optional out"
            )
        if listed is not None and not several:
            raise WorkflowError(f"{name!r} is a list of files: {SEVERAL}")
        if several or is_optional:
            self.gather.append(Gather(name, found, is_optional))
        else:
            self.taken.append((name, found[0]))

    def _source(self, name: str, source: object, several: bool) -> str | int:
        if isinstance(source, Named):
            if is_directory(name):
                raise WorkflowError(f"{source} has no name of a file: say {name + source.name!r}")
            return self.arc(NAMED + source.name)
        if isinstance(source, Data):
            return self.arc(source.name, several=several)
        stated = set_of(source) if isinstance(source, str) else ""
        if is_directory(stated):
            if not is_directory(name):
                raise WorkflowError(f"{source!r} is a directory: so must {name!r} be, with a / at its end")
            if "*" in stated or (stated == source and is_glob(stated) and not is_uri(stated)):
                raise WorkflowError(f"{source!r} is a pattern of directories: files match patterns, as **")
        if not several and ("*" in stated or ("?" in stated and not is_uri(stated))):
            raise WorkflowError(f"{source!r} stands for several files: {SEVERAL}")
        return self._side(source, "a file's source", several)

    def _side(self, source: object, what: str, several: bool = False, *, numbered: bool = False) -> str:
        """Return the name of a file on the host of the job; ``numbered``: ``{index}`` is its number."""
        if not isinstance(source, str):
            raise WorkflowError(f"{what} is a name or Data(name), not {source!r}")
        if has_index(source) and not (numbered or INDEX in self._known):
            raise WorkflowError(f"{source!r} has {{index}}, which numbers several files, and this is one")
        for name in placeholders(source):
            if name not in self._known and name != INDEX:
                has = f"the file name {source!r} has {{{name}}}"
                raise WorkflowError(f"{has}, which is no input{self._meant(name)}")
            if name in self._known:
                if self._arcs[self._known[name]].is_batch and not several:
                    raise WorkflowError(
                        f"the file name {source!r} has {{{name}}}, which is a batch of tokens: a name is "
                        f"made of one token, so take one at a time; or for a file for each, {SEVERAL}"
                    )
                self.used[name] = self._known[name]
        _check(source)
        return source

    def store(self, name: str, target: object) -> None:
        """Note a file, or a set of files, that is taken from the task's directory."""
        _check_inside(name)
        is_optional = isinstance(target, Optional)
        bare = target.files if isinstance(target, Optional) else target
        several = is_glob(name) or is_directory(name)
        found: str | int
        if isinstance(bare, Data):
            found = _port(bare.name, self._ports)
        else:
            found = self._side(bare, "a file's target", numbered=several)
            if is_uri(found) and "::" in found:
                raise WorkflowError(f"{found!r} is a chain, in which nothing is stored: name one file")
            if not several and is_directory(found):
                found = found + name.rpartition("/")[2]
            if several and not (is_directory(found) if is_directory(name) else takes_several(found)):
                hint = "" if is_directory(name) else ", or put {index} into it"
                raise WorkflowError(f"{name!r} stands for several files: end {found!r} with /{hint}")
            if several and has_index(found) and "index" in self._known:
                raise WorkflowError(f"{found!r} numbers files, but 'index' is an input, too: rename that")
        if several or is_optional:
            is_each = isinstance(found, int) and self._ports[found][1]
            self.scatter.append(Scatter(name, found, is_each, is_optional))
        else:
            self.made.append((name, found))


def _mapping(settings: TaskSettings, name: str) -> Mapping[str, object]:
    found = settings.get(name, False)
    if isinstance(found, bool):
        return {}
    if not isinstance(found, Mapping):
        raise WorkflowError(f"{name} is True, False or a mapping of files, not {found!r}")
    return found


def _names(arcs: Sequence[InputArc]) -> dict[str, int]:
    """Return the inputs by name; those without a name have that of their place, a lone one also ``item``."""
    written = [
        index for index, arc in enumerate(arcs) if arc.passed or not (arc.is_file or arc.name.isdigit())
    ]
    known = {"item": written[0]} if len(written) == 1 else {}
    known.update({arc.place: index for index, arc in enumerate(arcs)})
    known.update({arc.name: index for index, arc in enumerate(arcs)})
    return known


def _port(name: str, ports: Sequence[Output]) -> int:
    for index, (port, _) in enumerate(ports):
        if port == name:
            return index
    there = ", ".join(repr(port) for port, _ in ports if port) or "none: its outputs are no mapping"
    raise WorkflowError(f"its files or ranges name the port {name!r}; there are: {there}")


def _check_inside(name: object) -> None:
    """Check the name of a file in the directory of a task."""
    _check_path(name)
    wrong = next((each for each in placeholders(str(name)) if each != INDEX), None)
    if wrong is not None:
        raise WorkflowError(
            f"{name!r} has {{{wrong}}}, but a file is called the same in the directories of all tasks: "
            "only its name on the host of the job may be made of values"
        )


def _check(name: str) -> None:
    if not is_uri(name):
        _check_path(name)
        return
    try:
        parts_of_uri(name)
    except BadUri as error:
        raise WorkflowError(str(error)) from None


def _check_path(name: object) -> None:
    if not isinstance(name, str):
        raise WorkflowError(f"{name!r} is no name of a file")
    try:
        if is_directory(name):
            pattern_parts(name)
        else:
            parts_of(name)
    except BadFileName as error:
        raise WorkflowError(str(error)) from None
