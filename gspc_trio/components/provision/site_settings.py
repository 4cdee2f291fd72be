"""The settings of sites: the keys of ``sites.toml`` and of ``gspc-rts site add``."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from gspc_trio.components.provision.strategy import parse_time
from gspc_trio.core.similar import did_you_mean
from gspc_trio.protocol.plain import from_plain

Value: TypeAlias = str | int | float | list[str]
"""What a setting is written as; on a command line, all are texts."""

BLOCK_OPTIONS = ("queue", "account", "shared", "python", "directory", "memory", "spill", "spill_directory")
"""Settings that are options of each block of the site, as for ``gspc-rts bootstrap --set``."""

THROTTLES = tuple(
    f"{host}{kind}{submit}"
    for host in ("", "host_")
    for kind in ("job", "file_transfers", "file_operations")
    for submit in ("", "_submit")
)
"""Names of throttles; those of one site begin with ``host_``."""

STAGINGS = ("provider", "swift", "wrapper")
"""Ways of staging."""

TIME_UNITS = ("s", "m", "h", "d")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_URL = re.compile(r"([a-z]+)://(.*)")
_QUANTITY = re.compile(r"[0-9.]+\s*([A-Za-z]+)")


class BadSite(ValueError):
    """A site cannot be had like this; the message is one line for people, and nothing was changed."""


class SiteSettings(Struct, frozen=True):
    """The settings of one site.

    Attributes:
        provider: name of the batch system.
        max_time_s: the longest time that a block may ask for, seconds.
        max_nodes: the most nodes that a block may ask for.
        cores_per_node: cores of each node.
        via: another provider that runs the commands of this one, such as ``ssh:login``; "" for none.
        options: of each block; ``arguments`` is text for the command that submits.
        slots: the most blocks at a time, those included that wait in the queue.
        allocation_step: part of the free slots that one plan uses.
        low_overallocation: how many times the longest task fits into a block, for short tasks.
        high_overallocation: the same, for long tasks.
        overallocation_decay: how fast the one becomes the other, per second of the longest task.
        spread: how much blocks differ in size, 0 to 1.
        exponential_spread: ratio of the sizes of successive blocks; 0 for a linear spread.
        parallelism: 0 counts cores alone, 1 counts cores times seconds.
        node_granularity: blocks have a multiple of so many nodes.
        reserve_s: part of the time of a block that is left free for its start and end, seconds.
        time_unit_s: the time of a block is rounded up to a multiple of this, seconds.
        idle_s: a block that is not needed gets no new task when it was idle for so long, seconds.
        idle_max_s: a block that was idle for so long is ended in any case, seconds.
        staging: how files get to the tasks.
        throttles: of this site, name -> the most at a time; None for any number.
    """

    provider: str
    max_time_s: float = 3600.0
    max_nodes: int = 1
    cores_per_node: int = 1
    via: str = ""
    options: dict[str, str] = field(default_factory=dict)
    slots: int = 20
    allocation_step: float = 0.1
    low_overallocation: float = 10.0
    high_overallocation: float = 1.0
    overallocation_decay: float = 0.001
    spread: float = 0.9
    exponential_spread: float = 0.0
    parallelism: float = 0.01
    node_granularity: int = 1
    reserve_s: float = 60.0
    time_unit_s: float = 60.0
    idle_s: float = 30.0
    idle_max_s: float = 120.0
    staging: str = "provider"
    throttles: dict[str, int | None] = field(default_factory=dict)

    @property
    def usable_s(self) -> float:
        """The longest walltime of a task that fits into a block."""
        return self.max_time_s - self.reserve_s

    @property
    def cores_max(self) -> int:
        """The most cores that one block has."""
        return self.max_nodes * self.cores_per_node


class SitesFile(Struct, frozen=True):
    """What a file of sites says.

    Attributes:
        sites: name -> settings.
        throttles: of all sites together, name -> the most at a time; None for any number.
    """

    sites: dict[str, SiteSettings]
    throttles: dict[str, int | None] = field(default_factory=dict)


Range: TypeAlias = tuple[float, float, str]

_POSITIVE: Range = (1, math.inf, "1 or more")
_AT_LEAST_0: Range = (0, math.inf, "0 or more")
_PART: Range = (0, 1, "from 0 to 1")


def _number(value: Value, bounds: Range) -> float:
    lowest, highest, words = bounds
    try:
        number = float(value) if not isinstance(value, bool | list) else math.nan
    except ValueError:
        number = math.nan
    if not (lowest <= number <= highest and number < math.inf):
        raise ValueError(f"{value!r} is no number that is {words}")
    return number


def _count(value: Value, bounds: Range = _POSITIVE) -> int:
    number = _number(value, bounds)
    if number != int(number):
        raise ValueError(f"{value!r} is no whole number")
    return int(number)


def _seconds(value: Value) -> float:
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None and found[1] not in TIME_UNITS:
        near = found[1][0].lower()
        hint = f" (did you mean {near!r}?)" if near in TIME_UNITS else ""
        raise ValueError(
            f"{value!r}: there is no unit {found[1]!r}{hint}; there are: {', '.join(TIME_UNITS)}"
        )
    return parse_time(value) if isinstance(value, str) else _number(value, _AT_LEAST_0)


def _some_time(value: Value) -> float:
    seconds = _seconds(value)
    if not seconds:
        raise ValueError(f"{value!r}: it is more than 0 s")
    return seconds


def _fraction_step(value: Value) -> float:
    step = _number(value, _PART)
    if not step:
        raise ValueError(f"{value!r}: it is more than 0, or no block would ever be asked for")
    return step


def _ratio(value: Value) -> float:
    ratio = _number(value, _AT_LEAST_0)
    if ratio and ratio <= 1:
        raise ValueError(f"{value!r}: the ratio of successive blocks is more than 1; 0 for a linear spread")
    return ratio


def _text(value: Value) -> str:
    if not isinstance(value, str) or "\n" in value or "\0" in value:
        raise ValueError(f"{value!r} is no text of one line")
    return value


def _words(value: Value) -> str:
    if isinstance(value, list):
        if any(not isinstance(word, str) or not word or any(map(str.isspace, word)) for word in value):
            raise ValueError(f"{value!r} is no list of arguments without spaces")
        return " ".join(value)
    return _text(value)


def _staging(value: Value) -> str:
    text = _text(value)
    if text not in STAGINGS:
        raise ValueError(
            f"there is no {text!r}{did_you_mean(text, STAGINGS)}; there are: {', '.join(STAGINGS)}"
        )
    return text


def _throttle(value: object) -> int | None:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no number that is 1 or more, or off")
    return None if value == "off" else _count(value, (1, math.inf, "1 or more, or off"))


_KEYS: Mapping[str, tuple[str, Callable[[Value], object]]] = {
    "provider": ("provider", _text),
    "max_time": ("max_time_s", _some_time),
    "max_nodes": ("max_nodes", _count),
    "cores_per_node": ("cores_per_node", _count),
    "via": ("via", _text),
    "slots": ("slots", _count),
    "allocation_step": ("allocation_step", _fraction_step),
    "low_overallocation": ("low_overallocation", lambda value: _number(value, _POSITIVE)),
    "high_overallocation": ("high_overallocation", lambda value: _number(value, _POSITIVE)),
    "overallocation_decay": ("overallocation_decay", lambda value: _number(value, _AT_LEAST_0)),
    "spread": ("spread", lambda value: _number(value, _PART)),
    "exponential_spread": ("exponential_spread", _ratio),
    "parallelism": ("parallelism", lambda value: _number(value, _PART)),
    "node_granularity": ("node_granularity", _count),
    "reserve": ("reserve_s", _seconds),
    "idle": ("idle_s", _seconds),
    "idle_max": ("idle_max_s", _seconds),
    "staging": ("staging", _staging),
}
"""Key -> field of the settings, and how its value is read."""

KEYS = (*_KEYS, "arguments", *BLOCK_OPTIONS, *(name for name in THROTTLES if name.startswith("host_")))
"""All keys of a site."""


def site_settings(name: str, given: Mapping[str, object]) -> SiteSettings:
    """Return the settings of a site.

    Args:
        name: of the site.
        given: key -> value: numbers, texts, and for ``arguments`` also a list of texts.

    Raises:
        BadSite: the name cannot be one, there is no such key, or a value cannot be used.
    """
    if not _NAME.fullmatch(name):
        raise BadSite(f"site {name!r}: a name has letters, digits, _ and -, begins with a letter, at most 64")
    fields: dict[str, object] = {}
    options: dict[str, str] = {}
    throttles: dict[str, int | None] = {}
    for key, value in given.items():
        if key not in KEYS:
            near = did_you_mean(key, KEYS) or f"; there are: {', '.join(KEYS)}"
            raise BadSite(f"site {name}: there is no setting {key!r}{near}")
        try:
            if not isinstance(value, str | int | float | list):
                raise ValueError(f"{value!r} is neither number nor text")
            if key in _KEYS:
                target, read = _KEYS[key]
                fields[target] = read(value)
            elif key in THROTTLES:
                throttles[key] = _throttle(value)
            else:
                options[key] = _words(value) if key == "arguments" else _text(value)
        except ValueError as error:
            raise BadSite(f"site {name}: {key}: {error}") from error
    if not fields.get("provider"):
        raise BadSite(f'site {name}: it has no provider; write for example provider = "slurm"')
    settings = from_plain({**fields, "options": options, "throttles": throttles}, SiteSettings)
    if why := _contradiction(settings):
        raise BadSite(f"site {name}: {why}")
    return settings


def _contradiction(settings: SiteSettings) -> str:
    """Return which settings exclude each other, or ""."""
    if settings.node_granularity > settings.max_nodes:
        return (
            f"node_granularity is {settings.node_granularity}, more than max_nodes {settings.max_nodes}: "
            "no block would have so few nodes"
        )
    if settings.usable_s <= 0:
        return (
            f"max_time is {settings.max_time_s:g} s and reserve {settings.reserve_s:g} s: "
            "no time is left for tasks"
        )
    if settings.idle_s > settings.idle_max_s:
        return f"idle is {settings.idle_s:g} s, more than idle_max {settings.idle_max_s:g} s"
    return ""


def read_sites(path: Path) -> SitesFile:
    """Return what a file of sites says.

    Args:
        path: of a file in the format TOML: a table for each site, and throttles of all sites above them.

    Raises:
        BadSite: it cannot be read, or says what cannot be.
    """
    try:
        with path.open("rb") as file:
            said = tomllib.load(file)
    except OSError as error:
        raise BadSite(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSite(f"{path}: {error}") from error
    try:
        return sites_of(said)
    except BadSite as error:
        raise BadSite(f"{path}: {error}") from error


def sites_of(said: Mapping[str, object]) -> SitesFile:
    """Return what the tables of a file of sites say.

    Raises:
        BadSite: it cannot be.
    """
    sites: dict[str, SiteSettings] = {}
    throttles: dict[str, int | None] = {}
    for name, value in said.items():
        if isinstance(value, dict):
            sites[name] = site_settings(name, value)
            continue
        if name not in THROTTLES:
            near = did_you_mean(name, THROTTLES) or "; settings of a site stand below its name: [NAME]"
            raise BadSite(f"there is no setting {name!r} of all sites{near}")
        try:
            throttles[name] = _throttle(value)
        except ValueError as error:
            raise BadSite(f"{name}: {error}") from error
    if not sites:
        raise BadSite("it names no site; write for example [hpc], and below that its settings")
    return SitesFile(sites, throttles)


def given_sites(said: Path | str | Mapping[str, Mapping[str, object]] | SitesFile) -> SitesFile:
    """Return the sites that a user means by a file, by tables, or by an address such as ``dask://host:8786``.

    Raises:
        BadSite: they cannot be used.
    """
    if isinstance(said, SitesFile):
        return said
    if isinstance(said, Mapping):
        return sites_of(said)
    found = _URL.fullmatch(str(said)) if isinstance(said, str) else None
    if found is not None:
        settings = SiteSettings(found[1], options={"address": str(said)})
        return SitesFile({found[1]: settings})
    return read_sites(Path(said))
