"""Jobs of a co-allocation request with all that their options say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeAlias, cast

from attrs import frozen

from gspc_trio.components.coallocation.language import parse_coallocation
from gspc_trio.components.coallocation.tree import (
    DescribedJob,
    Multistage,
    NamedJob,
    Option,
    Place,
    Request,
    RslError,
    SingleStage,
    Value,
)
from gspc_trio.components.coallocation.vocabulary import (
    BARRIER_TIMEOUT_S,
    check_options,
    option_name,
    read_option,
)
from gspc_trio.core.similar import did_you_mean

NamedJobs: TypeAlias = Mapping[str, "Mapping[str, object] | str"]
"""Name of a job -> its options, or its text (``&...`` or ``+...``)."""


@frozen
class CoPart:
    """One part of a job: a program that runs once on each resource of the part.

    Attributes:
        program: the program and its arguments.
        directory: where it runs, "" where the request was given.
        environment: variables that are added.
        max_time_s: after so many seconds it is stopped, and has failed; None: never.
        contact: host that the resources are on, "" for any.
        count, resource_class, memory_bytes, features: ladders, best first; memory 0: none.
        order: names of the ladders, in the order of the text.
    """

    program: tuple[str, ...]
    directory: str = ""
    environment: Mapping[str, str] = {}
    max_time_s: float | None = None
    contact: str = ""
    count: tuple[int, ...] = (1,)
    resource_class: tuple[str, ...] = ("core",)
    memory_bytes: tuple[int, ...] = (0,)
    features: tuple[tuple[str, ...], ...] = ((),)
    order: tuple[str, ...] = ()


@frozen
class CoJob:
    """A job of a request.

    Attributes:
        number: from 1, in the order of the text.
        name: for people.
        parts: which start together.
        barrier_timeout_s: so long parts that are ready wait for the others.
        on_error: so many more tries to get resources; infinite: as many as it takes.
        attempts: how often it is run if a program fails.
        start: ``together`` or ``inside``.
        place: in the text.
    """

    number: int
    name: str
    parts: tuple[CoPart, ...]
    barrier_timeout_s: float = BARRIER_TIMEOUT_S
    on_error: float = 0
    attempts: int = 1
    start: str = "together"
    place: Place = (0, 0)


LADDERS = ("count", "class", "memory", "features")
"""Options of which several values are a ladder."""


def jobs_with_options(request: Request, named: NamedJobs) -> tuple[CoJob, ...]:
    """Return the jobs of a request, in the order of the text.

    Args:
        request: its tree.
        named: jobs that it names.

    Raises:
        RslError: a job is not there, or lacks what it needs.
    """
    described = _Described(named)
    found: list[CoJob] = []
    stack: list[tuple[Request, dict[str, Option]]] = [(request, {})]
    while stack:
        one, inherited = stack.pop()
        if isinstance(one, Multistage):
            below = inherited
            if one.options:
                below = inherited | {option.name: option for option in one.options}
            stack.extend((stage, below) for stage in reversed(one.stages))
        else:
            found.append(_like_others(len(found) + 1, one, inherited, described))
    return tuple(found)


class _Described:
    """The jobs that can be named; each is read once.

    Attributes:
        made: name -> a job of this name that says nothing else, with the options that it has inherited.
    """

    def __init__(self, named: NamedJobs) -> None:
        self._named = named
        self._read: dict[str, DescribedJob | SingleStage] = {}
        self.made: dict[str, tuple[Mapping[str, Option], CoJob]] = {}

    def find(self, job: NamedJob) -> DescribedJob | SingleStage:
        """Return what a name stands for, without the options that stand behind the name."""
        known = self._read.get(job.name)
        if known is None:
            if job.name not in self._named:
                guess = did_you_mean(job.name, self._named)
                there = "none are described" if not self._named else f"there are {', '.join(self._named)}"
                raise RslError(f"there is no job {job.name!r}{guess}; {there:.200}", job.place)
            try:
                known = _read_job(self._named[job.name])
            except RslError as error:
                raise RslError(f"job {job.name!r}: {error}", job.place) from None
            self._read[job.name] = known
        return known


def _read_job(said: object) -> DescribedJob | SingleStage:
    if isinstance(said, str):
        request = parse_coallocation(said)
        if isinstance(request, DescribedJob | SingleStage):
            return request
        raise RslError("its text begins with & or with +")
    if not isinstance(said, Mapping):
        raise RslError("it is a table of options, or a text that begins with & or with +")
    options = []
    for name, value in said.items():
        values = value if isinstance(value, list | tuple) else [value]
        if isinstance(value, Mapping):
            values = [[key, one] for key, one in value.items()]
        if not values:
            raise RslError(f"{name} has no value")
        options.append(Option(option_name(str(name), (0, 0)), tuple(map(_value, values))))
    if not options:
        raise RslError("it has no options")
    check_options(options, "program")
    return DescribedJob(tuple(options))


def _value(value: object) -> Value:
    if isinstance(value, list | tuple):
        return tuple(map(_value, value))
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise RslError(f"{value!r:.60} can be no value of an option: texts, numbers and lists can")


def _like_others(number: int, one: Request, inherited: Mapping[str, Option], described: _Described) -> CoJob:
    """Return a job; of many that are named alike each has the parts of the first one."""
    if not isinstance(one, NamedJob) or one.options:
        return _job(number, one, inherited, described)
    known = described.made.get(one.name)
    if known is None or known[0] is not inherited:
        made = _job(number, one, inherited, described)
        described.made[one.name] = inherited, made
        return made
    it = known[1]
    return CoJob(
        number,
        it.name,
        it.parts,
        it.barrier_timeout_s,
        it.on_error,
        it.attempts,
        it.start,
        one.place,
    )


def _job(number: int, one: Request, inherited: Mapping[str, Option], described: _Described) -> CoJob:
    """Return a job with its options: those behind its name come before its own, and before inherited ones."""
    assert not isinstance(one, Multistage)
    options = {option.name: option for option in one.options}
    name, whole = "", one
    if isinstance(one, NamedJob):
        name, whole = one.name, described.find(one)
        if isinstance(whole, SingleStage) and one.options:
            check_options(one.options, "job")
    own = {option.name: option for option in whole.options} | options
    if isinstance(whole, SingleStage):
        parts = tuple(_part(part, described) for part in whole.parts)
        name = name or "+".join(_name(part) for part in whole.parts)
    else:
        assert isinstance(whole, DescribedJob)
        parts = (_made_part(own, one.place),)
        name = name or PurePath(parts[0].program[0]).name
    if sum(any(part.memory_bytes) for part in parts[1:]):
        raise RslError("memory is that of the first part: other parts cannot ask for some", one.place)
    said = {key: read_option(option) for key, option in (dict(inherited) | own).items()}
    cast_said = cast(dict[str, Any], said)
    return CoJob(
        number,
        name,
        parts,
        cast_said.get("barrier_timeout", BARRIER_TIMEOUT_S),
        cast_said.get("on_error", 0),
        cast_said.get("attempts", 1),
        cast_said.get("start", "together"),
        one.place,
    )


def _name(part: DescribedJob | NamedJob) -> str:
    if isinstance(part, NamedJob):
        return part.name
    found = (option.values[0] for option in part.options if option.name == "executable")
    return PurePath(str(next(found, "?"))).name


def _part(part: DescribedJob | NamedJob, described: _Described) -> CoPart:
    whole: DescribedJob | SingleStage | NamedJob = part
    if isinstance(part, NamedJob):
        whole = described.find(part)
        if isinstance(whole, SingleStage):
            raise RslError(f"job {part.name!r} is a + itself, and cannot be a part of one", part.place)
        try:
            check_options(whole.options, "part")
        except RslError as error:
            raise RslError(f"job {part.name!r}: {error.message}", part.place) from None
    own = {option.name: option for option in whole.options} | {option.name: option for option in part.options}
    return _made_part(own, part.place)


def _made_part(options: Mapping[str, Option], place: Place) -> CoPart:
    said: dict[str, Any] = {name: read_option(option) for name, option in options.items()}
    if "executable" not in said:
        raise RslError("this job has no executable", place)
    ladders = [name for name in options if name in LADDERS]
    return CoPart(
        (said["executable"], *said.get("arguments", ())),
        said.get("directory", ""),
        said.get("environment", {}),
        said.get("max_time"),
        said.get("contact", ""),
        said.get("count", (1,)),
        said.get("class", ("core",)),
        said.get("memory", (0,)),
        said.get("features", ((),)),
        tuple(ladders),
    )
