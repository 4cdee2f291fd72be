"""Options of a study (MEL-5): their types, defaults and meanings, from a TOML table or Melissa's JSON."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeAlias

from attrs import Attribute, field, fields, frozen

from gspc_trio.core.similar import did_you_mean

SCHEDULERS = (
    *("local", "openmpi", "slurm", "slurm-srun", "slurm-mixed", "slurm-openmpi"),
    *("oar", "oar-hybrid"),
)
"""Ways to start jobs; installed packages may offer more."""

ADAPTER_ENTRY_POINTS = "gspc_trio.adapters"
"""Group in which packages offer adapters, which are ways to start jobs."""

MELISSA_SCHEDULERS = {"slurm-global": "slurm-srun", "slurm-semiglobal": "slurm-mixed"}
"""Melissa's name of a scheduler -> ours."""

MELISSA_PROTOCOLS = ("auto", "tcp")
"""Values of Melissa's option ``protocol`` that change nothing here."""

_TYPES = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}


class BadOption(ValueError):
    """A study cannot be had like this; the message is one line for people."""


def schedulers() -> tuple[str, ...]:
    """Return all values of the option ``scheduler``."""
    offered = {entry.name for entry in entry_points(group=ADAPTER_ENTRY_POINTS)}
    return (*SCHEDULERS, *sorted(offered - set(SCHEDULERS)))


def _count(meaning: str, default: int, least: int = 1, most: int | None = None) -> int:
    value: int = field(default=default, metadata={"meaning": meaning, "least": least, "most": most})
    return value


def _seconds(meaning: str, default: float) -> float:
    value: float = field(default=default, metadata={"meaning": meaning, "over": 0})
    return value


def _text(meaning: str, default: str = "", choices: Callable[[], tuple[str, ...]] = tuple) -> str:
    value: str = field(default=default, metadata={"meaning": meaning, "choices": choices})
    return value


def _words(meaning: str) -> tuple[str, ...]:
    value: tuple[str, ...] = field(default=(), metadata={"meaning": meaning})
    return value


def _flag(meaning: str, default: bool) -> bool:
    value: bool = field(default=default, metadata={"meaning": meaning})
    return value


@frozen
class LauncherOptions:
    """The options of a study; :func:`option_table` tells what each means."""

    output_dir: str = _text('directory of all files of the study; "" for study-YYYYMMDDTHHMMSS')
    scheduler: str = _text('how jobs are started; "" is refused', choices=schedulers)
    server_command: tuple[str, ...] = _words("program and arguments of the server")
    scheduler_arg: tuple[str, ...] = _words("arguments of the scheduler for all jobs")
    scheduler_arg_server: tuple[str, ...] = _words("more arguments of the scheduler for the server job")
    scheduler_arg_client: tuple[str, ...] = _words("more arguments of the scheduler for client jobs")
    scheduler_arg_container: tuple[str, ...] = _words("arguments of oarsub for containers (oar-hybrid)")
    scheduler_server_command: str = _text('command that starts the server in its job; "" for the usual one')
    scheduler_client_command: str = _text('command that starts clients in their job; "" for the usual one')
    scheduler_server_command_options: tuple[str, ...] = _words("options of scheduler_server_command")
    scheduler_client_command_options: tuple[str, ...] = _words("options of scheduler_client_command")
    container_client_size: int = _count("client jobs that a container holds at a time (oar-hybrid)", 1)
    besteffort_allocation_frequency: int = _count("one in so many client jobs is best effort (oar-hybrid)", 1)
    job_limit: int = _count("the most jobs at a time, with that of the server; the rest waits", 1000, 2)
    timer_interval_s: float = _seconds(
        "seconds between two pings; after twice that in silence a server is dead", 5.0
    )
    job_update_interval_s: float = _seconds("seconds between two questions for states of jobs", 30.0)
    fault_tolerance: bool = _flag("whether the study survives failures of jobs and of the connection", True)
    load_from_checkpoint: bool = _flag("whether the first server, too, goes on from a checkpoint", False)
    std_output: bool = _flag("whether what jobs print goes to files in output_dir", True)
    group_size: int = _count("the most clients that share one job", 1)
    verbose: int = _count("0: warnings, 1: what happens, 2 or more: everything", 0, 0)
    bind: str = _text("address at which the server connects", "127.0.0.1")
    http_port: int = _count("port of the HTTP interface; 0 for a free one", 0, 0, 65535)
    http_token: str = _text('token of the HTTP interface; "" for a random one')
    stop_grace_s: float = _seconds("seconds that the end of the study waits for its jobs to be gone", 30.0)


@frozen
class OptionRow:
    """One option, for people.

    Attributes:
        name: of the option.
        type: of its value, in words.
        default: value if nothing is said.
        meaning: what it is for.
        choices: the values that it can have; none: there are others.
    """

    name: str
    type: str
    default: object
    meaning: str
    choices: tuple[str, ...] = ()


TIMER_DELAY = OptionRow("timer_delay", "number", None, "timer_interval_s and job_update_interval_s at once")
"""The option that is none of the fields."""

Fields: TypeAlias = Mapping[str, "Attribute[object]"]
_FIELDS: Fields = {one.name: one for one in fields(LauncherOptions)}


def option_table() -> Iterator[OptionRow]:
    """Return a row for each option."""
    for name, one in _FIELDS.items():
        kind = _TYPES.get(str(one.type), "list of texts")
        choices = one.metadata.get("choices", tuple)()
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        yield OptionRow(name, kind, default, one.metadata["meaning"], choices)
    yield TIMER_DELAY


def launcher_options(given: Mapping[str, object]) -> LauncherOptions:
    """Return the options that a table says.

    Args:
        given: name -> value, as TOML has them.

    Raises:
        BadOption: there is no such option, a value cannot be used, or the scheduler is missing.
    """
    known = {*_FIELDS, TIMER_DELAY.name}
    values: dict[str, object] = {}
    for name in given:
        if name not in known:
            near = did_you_mean(name, known) or f"; there are: {', '.join(sorted(known))}"
            raise BadOption(f"there is no option {name!r}{near}")
    if (delay := given.get(TIMER_DELAY.name)) is not None:
        for name in ("timer_interval_s", "job_update_interval_s"):
            values[name] = _value(TIMER_DELAY.name, delay, _FIELDS[name])
    for name in _FIELDS.keys() & given.keys():
        values[name] = _value(name, given[name], _FIELDS[name])
    if not values.get("scheduler"):
        raise BadOption(f"the option scheduler is missing; there are: {', '.join(schedulers())}")
    make: Callable[..., LauncherOptions] = LauncherOptions
    return make(**values)


def melissa_options(given: Mapping[str, object]) -> LauncherOptions:
    """Return the options that the ``launcher_config`` of Melissa says, with its names of schedulers.

    Raises:
        BadOption: as :func:`launcher_options`; or the protocol is one that is not spoken here.
    """
    values = {name: value for name, value in given.items() if value is not None}  # bind: null
    protocol = values.pop("protocol", "auto")
    if protocol not in MELISSA_PROTOCOLS:
        raise BadOption(f"protocol: there is no {protocol!r}; there are: {', '.join(MELISSA_PROTOCOLS)}")
    scheduler = values.get("scheduler")
    if isinstance(scheduler, str) and scheduler in MELISSA_SCHEDULERS:
        values["scheduler"] = MELISSA_SCHEDULERS[scheduler]
    return launcher_options(values)


def read_options(path: Path) -> LauncherOptions:
    """Return the options in a file.

    Args:
        path: of a TOML file with the options; or, if it ends in ``.json``, of a configuration of Melissa.

    Raises:
        BadOption: it cannot be read, or says what cannot be.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            return launcher_options(tomllib.loads(text))
        said = json.loads(text)
        found = said.get("launcher_config") if isinstance(said, dict) else None
        if not isinstance(found, dict):
            raise BadOption('it has no dictionary "launcher_config"')
        return melissa_options(found)
    except OSError as error:
        raise BadOption(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadOption(f"{path}: {error}") from error


def _value(name: str, value: object, one: Attribute[object]) -> object:
    """Return the value of an option.

    Raises:
        BadOption: it cannot be one.
    """
    read, words = _READERS[str(one.type)]
    result = read(value)
    if result is None:
        raise BadOption(f"{name}: {value!r} is no {words}")
    least, over = one.metadata.get("least"), one.metadata.get("over")
    if least is not None and isinstance(result, int) and result < least:
        raise BadOption(f"{name}: {value!r} is too small: it is {least} or more")
    most = one.metadata.get("most")
    if most is not None and isinstance(result, int) and result > most:
        raise BadOption(f"{name}: {value!r} is too large: it is {most} or less")
    if over is not None and isinstance(result, float) and result <= over:
        raise BadOption(f"{name}: {value!r} is too small: it is more than {over}")
    choices = one.metadata.get("choices", tuple)()
    if choices and result not in choices:
        near = did_you_mean(str(result), choices)
        raise BadOption(f"{name}: there is no {result!r}{near}; there are: {', '.join(choices)}")
    return result


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) and not {"\n", "\0"} & set(value) else None


def _as_whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _as_flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_words(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    words = [_as_text(word) for word in value]
    found = tuple(word for word in words if word is not None)
    return found if len(found) == len(words) else None


_READERS: Mapping[str, tuple[Callable[[object], object | None], str]] = {
    "str": (_as_text, "text of one line"),
    "int": (_as_whole, "whole number"),
    "float": (_as_number, "number"),
    "bool": (_as_flag, "true or false"),
    "tuple[str, ...]": (_as_words, "list of texts of one line"),
}
"""Type of an option -> how its value is read, and what it is in words."""
