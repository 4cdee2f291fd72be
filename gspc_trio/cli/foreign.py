"""Workflow files of all formats: how they are to be read, and ``gspc-jobserver check``."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Collection, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from gspc_trio.cli.arguments import MaybeWhole, Settings
from gspc_trio.cli.common import CommandError, UsageError, interruptible, json_alone, print_json
from gspc_trio.components.job.shell.workflow_file import (
    FROM_ITSELF,
    PYTHON,
    LoadedWorkflow,
    Reading,
    WorkflowFileError,
    format_of,
    load_workflow_file,
    read_foreign,
)
from gspc_trio.core.similar import did_you_mean
from gspc_trio.protocol.plain import to_plain
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import SettingError, Workflow
from gspc_trio.workflow.formats.format import ForeignWorkflow, FormatError, NewFile, Problem, format_names
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.states import States, explore


def _format(_: object, name: str) -> None:
    there = (PYTHON, *format_names())
    if name and name not in there:
        raise ValueError(f"there is no such format{did_you_mean(name, there)}; there are: {', '.join(there)}")


def _firings(_: object, number: int | None) -> None:
    if number is not None and number < 1:
        raise ValueError("a number of firings is 1 or more")


def _factor(_: object, number: float) -> None:
    if not 0 <= number < math.inf:
        raise ValueError("a factor is 0 or more")


def _factors(kind: object, numbers: list[float] | None) -> None:
    if numbers is not None and len(numbers) > 1:
        raise ValueError("there is one factor")
    for number in numbers or ():
        _factor(kind, number)


@Parameter(name="*")
@dataclass(frozen=True)
class ReadingOptions:
    """The options that say how a workflow file is to be read."""

    format: Annotated[
        str,
        Parameter(
            validator=_format,
            help="Format of the workflow file: python, pnml, tasks, wfformat, xpnet, or one that an "
            "installed package offers. By default its suffix and its beginning decide.",
        ),
    ] = ""
    tasks: Annotated[
        Path | None,
        Parameter(
            help="Python file with a function for each transition that is a task, of its name or id; "
            "the other transitions just pass tokens on. For pnml."
        ),
    ] = None
    firings: Annotated[
        MaybeWhole,
        Parameter(validator=_firings, help="How often transitions fire at most, all together. For pnml."),
    ] = None
    net: Annotated[str, Parameter(help="Id of the net to run, if the file has several. For pnml.")] = ""
    scale: Annotated[
        float,
        Parameter(validator=_factor, help="Tasks take the recorded times multiplied by this. For wfformat."),
    ] = 1.0
    work: Annotated[
        Literal["sleep", "cpu", "command"],
        Parameter(
            help="What a recorded task does for so long: sleep, compute on its cores, or run the recorded "
            "program, as long as that takes. For wfformat."
        ),
    ] = "sleep"
    files: Annotated[
        list[float] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            validator=_factors,
            help="Make and stage files of the recorded sizes, multiplied by a factor if one is given; "
            "they lie in a directory beside. For wfformat.",
        ),
    ] = None
    modules: Annotated[
        Path | None,
        Parameter(
            help="Python file with a function for each module, of the name of the module's function; "
            "by default the one beside the workflow file that has its name. For xpnet."
        ),
    ] = None
    seed: Annotated[
        MaybeWhole,
        Parameter(
            help="Draw by this number which transition is next of those of the highest priority that can "
            "fire, and with which tokens. By default what has come first is next. For all formats."
        ),
    ] = None
    include: Annotated[
        list[Path] | None,
        Parameter(
            alias="-I",
            negative=(),
            help="Folder where files are found that the workflow file includes, if they are not beside it; "
            "may be repeated. For xpnet.",
        ),
    ] = None
    no_compile: Annotated[
        bool,
        Parameter(negative=(), help="Refuse modules in C++, instead of compiling them. For xpnet."),
    ] = False


def _markings(_: object, number: int | None) -> None:
    if number is not None and number < 1:
        raise ValueError("a number of markings is 1 or more")


NAMES_SHOWN_MAX = 20
"""So many names are listed for people."""

MarkingsMax = Annotated[MaybeWhole, Parameter(validator=_markings)]
HowToRead = Annotated[ReadingOptions | None, Parameter(name="*")]


def reading_of(stated: ReadingOptions | None) -> Reading:
    """Return how a workflow file is to be read."""
    if stated is None:
        return FROM_ITSELF
    tasks = "" if stated.tasks is None else str(stated.tasks.resolve())
    return Reading(
        format=stated.format,
        tasks=tasks,
        firings=stated.firings,
        net=stated.net,
        scale=stated.scale,
        work=stated.work,
        files=None if stated.files is None else (stated.files or [1.0])[0],
        seed=stated.seed,
        include=tuple(str(folder.resolve()) for folder in stated.include or ()),
        no_compile=stated.no_compile,
        modules="" if stated.modules is None else str(stated.modules.resolve()),
    )


def make_files(loaded: LoadedWorkflow) -> None:
    """Make the files that a workflow of a foreign format needs, unless they are there.

    Raises:
        CommandError: there is no room, or one cannot be written.
    """
    files = () if loaded.foreign is None else loaded.foreign.files
    missing = [file for file in files if not _is_there(file)]
    if not missing:
        return
    from gspc_trio.workflow.formats.in_tasks.python import write_zeros

    wanted, free = sum(file.size_bytes for file in missing), shutil.disk_usage(Path.cwd()).free
    if wanted > free:
        raise CommandError(
            f"--files needs {wanted:,} bytes here, and {free:,} are free: give it a small factor"
        )
    with interruptible():
        for file in missing:
            try:
                write_zeros(Path(file.path), file.size_bytes)
            except OSError as error:
                raise CommandError(f"cannot write {file.path}: {error.strerror}") from error


def check_layer(loaded: LoadedWorkflow, given: Path | None) -> None:
    """See that a workflow whose tasks use a memory layer has one.

    Args:
        loaded: the workflow.
        given: connection file of a memory layer, if there is one.

    Raises:
        CommandError: it has none.
    """
    if given is None and loaded.foreign is not None and loaded.foreign.layer:
        raise CommandError(loaded.foreign.layer)


def _is_there(file: NewFile) -> bool:
    path = Path(file.path)
    return path.is_file() and path.stat().st_size == file.size_bytes


async def check(
    workflow: Path,
    *,
    settings: Settings = None,
    reading: HowToRead = None,
    states: MarkingsMax = None,
    json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Check a workflow file, and start nothing: print all that is wrong with it.

    The exit status is 1 if something is, or if a condition or a function fails in a marking.

    Parameters
    ----------
    workflow
        A workflow file of any format.
    settings
        As run takes them.
    states
        Look which markings the net can reach, so many at most: how many tokens there are on a place, where
        nothing can fire any more, and what never fires. Only for nets without tasks.
    json
        Print one JSON object with format, net, places, transitions, problems and notes, and what was found
        of markings as states.
    """
    with json_alone(json) as out:
        told, lines, problems = checked(workflow, settings or [], reading_of(reading), states)
        if json:
            print_json(told, out)
        else:
            print("\n".join(lines), end="\n" if lines else "")
    if problems and not json:
        print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


def read_net(
    path: Path, settings: list[str], reading: Reading, *, explored: bool = True
) -> tuple[Net, ForeignWorkflow | None]:
    """Return the net of a workflow that is not going to run, with the tokens that it begins with.

    Args:
        path: of the file.
        settings: as ``run`` takes them; input ports may lack values.
        reading: how it is to be read.
        explored: it may be one that never ends.

    Raises:
        UsageError: a setting is wrong.
        WorkflowError, WorkflowFileError: the file is.
    """
    chosen = format_of(path, reading.format)
    try:
        with interruptible():
            if chosen is None:
                return filled_net(load_workflow_file(path, settings, reading, explored=True).workflow), None
            foreign, _, _ = read_foreign(path, chosen, reading, explored=explored)
            if settings:
                return filled_net(foreign.workflow(settings)), foreign
    except SettingError as error:
        raise UsageError(f"--set: {error}") from error
    foreign.net.check()
    return foreign.net, foreign


def checked(
    path: Path, settings: list[str], reading: Reading, markings_max: int | None = None
) -> tuple[dict[str, object], list[str], list[str]]:
    """Return what ``check --json`` prints of a file, the same as lines for people, and all that is wrong.

    Raises:
        UsageError: the command line is wrong.
    """
    chosen = format_of(path, reading.format)
    told: dict[str, object] = {"file": str(path), "format": PYTHON if chosen is None else chosen.name}
    try:
        net, foreign = read_net(path, settings, reading, explored=markings_max is not None)
    except FormatError as error:
        problems = [to_plain(problem) for problem in error.problems]
        return {**told, "problems": problems}, [], str(error).splitlines()
    except (WorkflowError, WorkflowFileError) as error:
        problem = Problem(str(path), 0, 0, str(error).removeprefix(f"{path}: "))
        return {**told, "problems": [to_plain(problem)]}, [], [str(problem)]
    hidden = frozenset[str]() if foreign is None else foreign.hidden
    transitions = list(net.all_transitions)
    nets = [net, *(one.subnet.net for one in transitions if one.subnet is not None)]
    places = {name for one in nets for name in one.places} - hidden
    told |= {"net": net.name, "places": len(places), "transitions": len(transitions)}
    told |= {"problems": [], "notes": [] if foreign is None else [to_plain(note) for note in foreign.notes]}
    numbers = counted("place", places), counted("transition", transitions)
    lines = [f"{path}: a net with {' and '.join(numbers)}"]
    lines += [] if foreign is None else map(str, foreign.notes)
    wanting = wanting_ports(net)
    if wanting:
        told["wanting"] = wanting
        lines.append(f"{path}: {_said_of_ports(wanting, foreign is None)}")
    if markings_max is not None:
        found = _explored(net, markings_max, hidden, foreign is None)
        told["states"] = to_plain(found)
        lines += describe_states(found)
        failures = [f"fails: {failure}" for failure in found.failures]
        return told, lines, failures
    return told, lines, []


def _explored(net: Net, markings_max: int, hidden: Collection[str], is_python: bool) -> States:
    wanting = wanting_ports(net)
    if wanting:
        raise UsageError(f"--states: {_said_of_ports(wanting, is_python)}")
    try:
        with interruptible():
            return explore(net, markings_max, hidden)
    except WorkflowError as error:
        raise UsageError(f"--states: {error}") from error


def wanting_ports(net: Net) -> list[str]:
    """Return the input ports that have to get values before the net can run."""
    return [
        place.name
        for place in net.places.values()
        if place.is_input and not (place.is_optional or place.initial)
    ]


def _said_of_ports(names: list[str], is_python: bool) -> str:
    shown = ", ".join(map(repr, names[:NAMES_SHOWN_MAX]))
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    what = f"the input port {shown} wants" if len(names) == 1 else f"the input ports {shown}{more} want"
    how = "return Workflow(net, {PORT: VALUES})" if is_python else "say --set PORT=VALUE"
    return f"{what} values before it runs: {how}"


def counted(what: str, things: Sized) -> str:
    """Return how many there are of something, as people read it."""
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def filled_net(workflow: Workflow) -> Net:
    """Return the net of a workflow with the values that it starts with on its places."""
    net = workflow.net.copy()
    for name, values in workflow.values.items():
        net.replace_place(name, initial=tuple(values), is_optional=True)
    return net


def describe_states(found: States) -> list[str]:
    """Return what is known of the markings of a net, lines for people."""
    there = "these are all" if found.complete else "there may be more"
    lines = [f"markings: {found.markings} ({there})", f"edges: {found.edges}"]
    place, most = max(found.most_on_place.items(), key=lambda item: item[1], default=("", 0))
    on_place = f", {most} on {place!r}" if most else ""
    lines.append(f"most tokens: {found.most_tokens} altogether{on_place}")
    lines.append(f"deadlocks: {found.deadlocks}")
    for example in found.deadlock_examples:
        tokens = ", ".join(f"{name!r}: {count}" for name, count in example.items())
        lines.append(f"  {tokens or 'no tokens'}")
    if found.never:
        shown = ", ".join(map(repr, found.never[:NAMES_SHOWN_MAX]))
        more = f" and {len(found.never) - NAMES_SHOWN_MAX} more" if len(found.never) > NAMES_SHOWN_MAX else ""
        lines.append(f"{'never fire' if found.complete else 'not fired yet'}: {shown}{more}")
    return lines
