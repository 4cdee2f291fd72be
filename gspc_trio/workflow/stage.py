"""Staging of a transition's tasks, as it is stated: ``stage_in``, ``stage_out``, ``output_ranges``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gspc_trio.core.code import Output
from gspc_trio.core.rules import placeholders
from gspc_trio.core.staging import BadFileName, Data, Named, Stage, parts_of
from gspc_trio.workflow.arcs import NAMED, InputArc, OutputArc, WorkflowError
from gspc_trio.workflow.settings import TaskSettings


def ports_last(
    arcs: tuple[OutputArc, ...], ports: tuple[Output, ...], settings: TaskSettings
) -> tuple[tuple[OutputArc, ...], tuple[Output, ...]]:
    """Return output arcs and ports with those last that come from files.

    Raises:
        WorkflowError: a file is to be several tokens.
    """
    names = {target.name for target in _mapping(settings, "stage_out").values() if isinstance(target, Data)}
    if not names:
        return arcs, ports
    for name, is_each in ports:
        if name in names and is_each:
            raise WorkflowError(
                f"the port {name!r} comes from a file, which is one token, and not each of many"
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
    known = _names(arcs)
    used: dict[str, int] = {}

    def side(source: object, what: str) -> str:
        if not isinstance(source, str):
            raise WorkflowError(f"{what} is a name or Data(name), not {source!r}")
        for name in placeholders(source):
            if name in known:
                if arcs[known[name]].is_batch:
                    raise WorkflowError(
                        f"the file name {source!r} has {{{name}}}, which is a batch of tokens: a name is "
                        "made of one token, so take one at a time"
                    )
                used[name] = known[name]
        _check(source)
        return source

    taken, made = [], []
    for name, source in fetch.items():
        _check(name)
        if isinstance(source, Named):
            source = Data(NAMED + source.name)
        found = (
            _arc(source.name, arcs, known) if isinstance(source, Data) else side(source, "a file's source")
        )
        taken.append((name, found))
    for name, target in store.items():
        _check(name)
        found = _port(target.name, ports) if isinstance(target, Data) else side(target, "a file's target")
        made.append((name, found))
    files = [target for _, target in made if type(target) is int]
    if len(files) != len(set(files)):
        raise WorkflowError("two files are one output")
    put = []
    for name, source in ranges.items():
        output = _port(name, ports)
        if output in files or ports[output][1]:
            raise WorkflowError(f"the port {name!r} is a file or each of many, and cannot fill a range")
        put.append((output, _arc(source, arcs, known)))
    return Stage(tuple(taken), tuple(made), tuple(put), tuple(used.items()), len(files))


def _mapping(settings: TaskSettings, name: str) -> Mapping[str, object]:
    found = settings.get(name, False)
    if isinstance(found, bool):
        return {}
    if not isinstance(found, Mapping):
        raise WorkflowError(f"{name} is True, False or a mapping of files, not {found!r}")
    return found


def _names(arcs: Sequence[InputArc]) -> dict[str, int]:
    """Return the inputs by name; those without a name have that of their place, a lone one also ``item``."""
    alone = sum(not arc.is_file for arc in arcs) == 1
    known = {"item": 0} if alone else {}
    known.update({arc.place: index for index, arc in enumerate(arcs)})
    known.update({arc.name: index for index, arc in enumerate(arcs)})
    return known


def _arc(name: str, arcs: Sequence[InputArc], known: Mapping[str, int]) -> int:
    if name not in known:
        there = ", ".join(arc.place if arc.name.isdigit() else arc.name for arc in arcs)
        raise WorkflowError(f"its files or ranges name {name!r}, which is no input; there are: {there}")
    if arcs[known[name]].is_batch:
        raise WorkflowError(f"the input {name!r} is several tokens, and cannot be a file or a range")
    return known[name]


def _port(name: str, ports: Sequence[Output]) -> int:
    for index, (port, _) in enumerate(ports):
        if port == name:
            return index
    there = ", ".join(repr(port) for port, _ in ports if port) or "none: its outputs are no mapping"
    raise WorkflowError(f"its files or ranges name the port {name!r}; there are: {there}")


def _check(name: object) -> None:
    if not isinstance(name, str):
        raise WorkflowError(f"{name!r} is no name of a file")
    try:
        parts_of(name)
    except BadFileName as error:
        raise WorkflowError(str(error)) from None
