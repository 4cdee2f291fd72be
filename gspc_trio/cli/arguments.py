"""What each argument may be: checked while the command line is parsed, before anything is done."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import Parameter as FunctionParameter
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    Token,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)
from cyclopts.argument import Argument

from gspc_trio.components.rts.messages import CORES_MAX
from gspc_trio.core.similar import most_similar
from gspc_trio.iml.quota import parse_size
from gspc_trio.policies.placement import bad_placement
from gspc_trio.policies.queues import bad_assignment

FILE_NAMES = ["--rts", "--connection-file"]
Flag: Parameter = Parameter(negative=())

PRIORITY_MAX = 2**31 - 1
"""Priorities travel as whole numbers of limited size."""

SHOWN_MAX = 200
"""Characters of a wrong value that are shown."""


def _cores(_: object, cores: int) -> None:
    if not 0 <= cores <= CORES_MAX:
        raise ValueError(f"a number from 0 (all cores of the host) to {CORES_MAX} is needed")


def _port(_: object, port: int | None) -> None:
    if port is not None and not 0 <= port <= 65535:  # the default is checked, too
        raise ValueError("a TCP port is a number from 0 to 65535")


def _more_than_0(_: object, number: float) -> None:
    if not (number > 0 and math.isfinite(number)):
        raise ValueError("give a number greater than 0")


def _maybe_seconds(_: object, seconds: float | None) -> None:
    if seconds is not None:
        _more_than_0(_, seconds)


def _tries(_: object, number: int) -> None:
    if number < 1:
        raise ValueError("a command is tried at least once")


def _priority(_: object, priority: int) -> None:
    if abs(priority) > PRIORITY_MAX:
        raise ValueError(f"a priority is a number from -{PRIORITY_MAX} to {PRIORITY_MAX}")


def _no_option(_: object, value: object) -> None:
    text = str(value)
    if len(text) > 1 and text.startswith("-"):
        raise ValueError("there is no such option")


def _task(_: object, task: int | None) -> None:
    if task is not None and task < 0:
        raise ValueError("tasks are numbered from 0 on")


def _lines(_: object, number: int) -> None:
    if number < 0:
        raise ValueError("a number of lines is not negative")


def _cache_size(_: object, size: str) -> None:
    if parse_size(size) == 0:
        raise ValueError("a cache of this size keeps nothing: leave --cache out")


def _size(_: object, size: str) -> None:
    if size:  # the default is checked, too
        parse_size(size)


def _settings(_: object, settings: Sequence[str] | None) -> None:
    for setting in settings or ():
        name, equals, _value = setting.partition("=")
        if not (name and equals):
            raise ValueError("write NAME=VALUE")


def _hosts(_: object, hosts: Sequence[str] | None) -> None:
    hosts = hosts or ()
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice or "" in hosts:
        raise ValueError(f"hosts named twice: {', '.join(twice)}" if twice else "a host has no name")


def _placement(_: object, name: str) -> None:
    if name and (wrong := bad_placement(name)):
        raise ValueError(wrong)


def _plan(_: object, name: str) -> None:
    from gspc_trio.policies.plans.by_name import find_plan  # only here: few jobs are planned

    if name:
        find_plan(name)


def _tightness(_: object, weight: float) -> None:
    from gspc_trio.policies.plans.by_name import find_plan  # only here: few jobs are planned

    if weight:
        find_plan("move", weight)


def _assign(_: object, name: str) -> None:
    if wrong := bad_assignment(name):
        raise ValueError(wrong)


def _policy(_: object, name: str) -> None:
    from gspc_trio.policies.scheduling import find_policy

    find_policy(name)


def _directory(_: object, tokens: Sequence[Token]) -> Path:
    """Return what is named. An empty text would be the working directory, and mostly is an unset variable."""
    name = tokens[0].value
    if not name:
        raise ValueError("a directory is needed, and its name is empty")
    return Path(name)


def _whole(_: object, tokens: Sequence[Token]) -> int:
    """Return a whole number: left to itself, Cyclopts takes 1.5 for 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError("this is no whole number") from None


WHOLE = Parameter(converter=_whole)
Whole = Annotated[int, WHOLE]
MaybeWhole = Annotated[int | None, WHOLE]
Directory = Annotated[Path, Parameter(converter=_directory)]
MaybeDirectory = Annotated[Path | None, Parameter(converter=_directory)]
OR_INPUT: Parameter = Parameter(allow_leading_hyphen=True, validator=_no_option)
"""Of an argument that may be ``-``, which stands for standard input."""

Cores = Annotated[Whole, Parameter(validator=_cores)]
Port = Annotated[Whole, Parameter(validator=_port)]
MetricsPort = Annotated[
    MaybeWhole,
    Parameter(
        validator=_port,
        help="Serve metrics for Prometheus at this TCP port, not encrypted; 0 for any free one.",
    ),
]
SpillDirectory = Annotated[
    str,
    Parameter(help="Directory for data on disk; by default the system's directory for temporary files."),
]
Weight = Annotated[float, Parameter(validator=_more_than_0)]
MaybeSeconds = Annotated[float | None, Parameter(validator=_maybe_seconds)]
Tries = Annotated[Whole, Parameter(validator=_tries)]
Speed = Annotated[float, Parameter(validator=_more_than_0)]
Priority = Annotated[
    Whole,
    Parameter(
        validator=_priority,
        help="Jobs of higher priority get free resources first; running tasks are not interrupted.",
    ),
]
OneTask = Annotated[Whole, Parameter(validator=_task)]
Task = Annotated[MaybeWhole, Parameter(validator=_task)]
LineCount = Annotated[Whole, Parameter(validator=_lines)]
Size = Annotated[str, Parameter(validator=_size)]
Spill = Annotated[
    str,
    Parameter(
        validator=_size,
        help="How much disk a memory server may use when its memory is full, e.g. 20GiB; by default none.",
    ),
]
CacheSize = Annotated[str, Parameter(validator=_cache_size)]
Settings = Annotated[
    list[str] | None, Parameter(name="--set", consume_multiple=False, negative=(), validator=_settings)
]
Hosts = Annotated[list[str], Parameter(validator=_hosts)]
HostOptions = Annotated[
    list[str] | None, Parameter(name="--host", consume_multiple=False, negative=(), validator=_hosts)
]
PlacementName = Annotated[str, Parameter(validator=_placement)]
AssignName = Annotated[
    str,
    Parameter(
        validator=_assign,
        help="queues: each resource of the job has a queue of tasks, and idle ones steal from others; "
        "by default a task goes where a resource comes free.",
    ),
]
JobPlacement = Annotated[
    str,
    Parameter(
        validator=_placement,
        help="Which free resource the job gets next: fifo (free for longest), compact (fill one host after "
        "the other), fair (spread over hosts) or progressive (spread while there is room, then fill up); by "
        "default as the run-time system does.",
    ),
]
Threads = Annotated[
    bool, Parameter(negative=(), help="Run tasks in threads of one process, not in a process per core.")
]
RunWeight = Annotated[
    Weight, Parameter(help="Share of the resources, relative to other jobs of the same priority.")
]
PolicyName = Annotated[
    str,
    Parameter(validator=_policy, help="Scheduling policy: default, or one that an installed package offers."),
]
PlanName = Annotated[
    str,
    Parameter(
        validator=_plan,
        help="Plan tasks on hosts: move, to move little data, or heft, to end soon. By default they are not.",
    ),
]
PlanTightness = Annotated[
    float,
    Parameter(
        validator=_tightness,
        help="With --plan move: weight of the mean distance to the other planned tasks, 0 or more. The "
        "larger it is, the closer tasks stay together.",
    ),
]
RemovePolicy = Literal["lose", "wait", "refuse"]


Verbose = Annotated[
    bool,
    Parameter(name=["--verbose", "-v"], negative=(), help="Log everything, not only warnings."),
]
LogJson = Annotated[bool, Parameter(name="--log-json", negative=(), help="Log as JSON, one line each.")]
ResultsFile = Annotated[
    Path | None, Parameter(help="Write what --json prints to this file, too, before the report.")
]
Detach = Annotated[
    bool,
    Parameter(
        negative=(),
        help="Give the prompt back when the job is accepted; it goes on until it ends, or its run-time "
        "system does. It runs on the one of --rts, or on that of the current user. With --json, print its id "
        "as JSON.",
    ),
]
DetachedFrom = Annotated[Whole, Parameter(name="--detached-from", show=False)]
"""The pipe to the command at the prompt, for the process that ``--detach`` starts."""


def describe_usage_error(error: CycloptsError) -> str:
    """Return in one line which argument of a command line is wrong, its value, and why."""
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"{shlex.quote(error.unused_tokens[0])}: this argument is one too many"
    argument = error.argument
    if isinstance(error, MissingArgumentError) and argument is not None and error.keyword is None:
        has_name = argument.field_info.kind is FunctionParameter.KEYWORD_ONLY
        return f"{argument.name if has_name else _place(argument)} is missing"
    if isinstance(error, UnknownOptionError) and (option := error.token.keyword or error.token.value):
        known = [name.lstrip("-") for one in error.argument_collection for name in one.names if one.show]
        near = most_similar(option.partition("=")[0].lstrip("-"), known)
        return f"{option}: there is no such option" + (f" (did you mean --{near}?)" if near else "")
    problem = error.exception_message if isinstance(error, ValidationError) else ""
    if isinstance(error, CoercionError):
        problem = str(error.msg or "")  # of a converter
    if problem and argument is not None and argument.tokens:
        tokens = argument.tokens
        name = tokens[0].keyword or _place(argument)
        value = " ".join(token.value or "''" for token in tokens)
        if len(value) > SHOWN_MAX:
            value = f"{value[:SHOWN_MAX]}..."
        return f"{name} {value}: {problem}"
    return " ".join(str(error).split())


def _place(argument: Argument) -> str:
    """Return what the help calls an argument without a name."""
    return argument.name.lstrip("-").upper()


SitesOption = Annotated[
    str | None,
    Parameter(
        help="File of batch systems that are asked for hosts as tasks need them, or the address of a cluster "
        "of Dask or Ray, such as dask://HOST:8786. Then this host offers nothing, unless you say how many "
        "cores."
    ),
]
Monitor = Annotated[
    Path | None,
    Parameter(
        converter=_directory,
        help="Measure the hosts, and keep their metrics in this directory of a local file system: see "
        "docs/monitoring.md.",
    ),
]
MonitorBytes = Annotated[
    str,
    Parameter(validator=_size, help="Room for these metrics; the oldest are removed when it is full."),
]
Topology = Annotated[
    Path | None,
    Parameter(
        help="File that says which hosts are in which rack, a line RACK: HOST HOST ... for each. For one "
        "host --set rack=NAME says so, too."
    ),
]
TaskIo = Annotated[
    str,
    Parameter(
        help="What is kept there of the reading and writing of tasks: off, counts (what the kernel counts) "
        "or calls (sizes, durations and patterns too); by default counts."
    ),
]
TaskDirectory = Annotated[
    str,
    Parameter(help="Directory for tasks with files; by default the system's directory for temporary files."),
]
Anomalies = Annotated[
    str,
    Parameter(
        help="What is done about anomalies of the hosts that are measured: off, watch (they are told) or act "
        "(such hosts get nothing new for a while, too); by default watch."
    ),
]
ManagerCount = Annotated[
    Whole,
    Parameter(
        help="Number of resource managers. More than one are processes of their own, and share the hosts: "
        "see docs/scheduling.md."
    ),
]
Sharing = Annotated[
    str,
    Parameter(
        help="How several managers share the hosts: pessimistic (each has hosts of its own) or optimistic "
        "(each sees all, and who comes too late chooses again)."
    ),
]
RemoteRm = Annotated[
    Path | None,
    Parameter(
        help="Connection file of a resource manager that runs elsewhere (gspc-rts rm); by default one begins "
        "here."
    ),
]
AllowFiles = Annotated[list[str] | None, Parameter(consume_multiple=False, negative=())]
RunCores = Annotated[
    Cores, Parameter(help="How many cores of this machine to use; 0 for all. Not with --rts.")
]
RunAllowFiles = Annotated[
    AllowFiles,
    Parameter(
        help="Directory in which file:// URIs may name files, beside that of the job; repeat it for several. "
        "Not with --rts."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class OwnSystem:
    """The options of the run-time system that a run starts, unless it joins one."""

    cores: RunCores = 0
    sites: SitesOption = None
    allow_files: RunAllowFiles = None

    @property
    def is_given(self) -> bool:
        """Whether there is an option for a run-time system that is started."""
        return bool(self.cores or self.sites is not None or self.allow_files)


Own = Annotated[OwnSystem | None, Parameter(name="*")]
ImlFile = Annotated[
    Path | None,
    Parameter(
        help="Connection file of a running memory layer that keeps large values; "
        "tasks run where their data is."
    ),
]
