"""The settings of sites: the keys of ``sites.toml`` and of ``gspc-rts site add``."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from attrs import evolve, field, frozen

from gspc_trio.components.provision.block_settings import BadBlockSettings, BlockSettings
from gspc_trio.components.provision.staging import staging_mode
from gspc_trio.components.provision.strategy import parse_time
from gspc_trio.components.provision.throttle import DEFAULTS, Limit, parse_throttles
from gspc_trio.core.resources import parse_features
from gspc_trio.core.similar import did_you_mean
from gspc_trio.iml.quota import parse_size

Value: TypeAlias = str | int | float | list[str]
"""What a setting is written as; on a command line, all are texts."""

ENGINE_OPTIONS = ("image", "address")
"""Options of blocks that some batch systems have, and others have not."""

BLOCK_OPTIONS = (
    "queue",
    "account",
    "shared",
    "python",
    "directory",
    "features",
    "memory",
    "spill",
    "spill_directory",
    "site_directory",
    *ENGINE_OPTIONS,
)
"""Settings that are options of each block of the site, as for ``gspc-rts bootstrap --set``."""

MAX_TIME_S = 3600.0
"""Seconds that a block may ask for at most if nothing is said."""

CLUSTER_TIME_S = 7 * 86400.0
"""The same for a cluster that says itself how large it is: nobody waits for a host there."""

TIME_UNITS = ("s", "m", "h", "d")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_URL = re.compile(r"([a-z]+)://(.*)")
_QUANTITY = re.compile(r"[0-9.]+\s*([A-Za-z]+)")


class BadSite(ValueError):
    """A site cannot be had like this; the message is one line for people, and nothing was changed."""


USUAL_BLOCKS = BlockSettings(MAX_TIME_S, 1, 1)


@frozen
class SiteSettings:
    """The settings of one site.

    Attributes:
        provider: name of the batch system.
        blocks: how its blocks are chosen.
        via: another provider that runs the commands of this one, such as ``ssh:login``; "" for none.
        options: of each block; ``arguments`` is text for the command that submits.
        staging: how files get to the tasks.
        throttles: of this site, name -> the most at a time; None for any number.
        asks_size: the cluster says how many hosts and cores there are.
    """

    provider: str
    blocks: BlockSettings = USUAL_BLOCKS
    via: str = ""
    options: Mapping[str, str] = field(factory=dict)
    staging: str = "provider"
    throttles: Mapping[str, Limit] = field(factory=dict)
    asks_size: bool = False

    def with_size(self, nodes: int, cores: int) -> SiteSettings:
        """Return the settings for a cluster of this size: what was not said is as fits it."""
        usual, said = USUAL_BLOCKS, self.blocks
        blocks = evolve(
            said,
            cores_per_node=cores,
            slots=nodes if said.slots == usual.slots else said.slots,
            allocation_step=1.0 if said.allocation_step == usual.allocation_step else said.allocation_step,
            max_time_s=CLUSTER_TIME_S if said.max_time_s == usual.max_time_s else said.max_time_s,
        )
        return evolve(self, blocks=blocks, asks_size=False)


@frozen
class SitesFile:
    """What a file of sites says.

    Attributes:
        sites: name -> settings.
        throttles: of all sites together, name -> the most at a time; None for any number.
    """

    sites: Mapping[str, SiteSettings]
    throttles: Mapping[str, Limit] = field(factory=dict)


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


def _size(value: Value) -> str:
    text = str(value) if type(value) is int else _text(value)
    parse_size(text)
    return text


def _features(value: Value) -> str:
    return ",".join(parse_features(",".join(value) if isinstance(value, list) else _text(value)))


def _words(value: Value) -> str:
    if isinstance(value, list):
        if any(not isinstance(word, str) or not word or any(map(str.isspace, word)) for word in value):
            raise ValueError(f"{value!r} is no list of arguments without spaces")
        return " ".join(value)
    return _text(value)


def _staging(value: Value) -> str:
    return staging_mode(_text(value))


_BLOCK_KEYS: Mapping[str, tuple[str, Callable[[Value], object]]] = {
    "max_time": ("max_time_s", _some_time),
    "max_nodes": ("max_nodes", _count),
    "cores_per_node": ("cores_per_node", _count),
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
    "idle_suspend": ("idle_suspend_s", _seconds),
    "idle_end": ("idle_end_s", _seconds),
}
"""Key -> field of the settings of blocks, and how its value is read."""

_SITE_KEYS: Mapping[str, Callable[[Value], object]] = {
    "provider": _text,
    "via": _text,
    "staging": _staging,
}

_OPTION_KEYS: Mapping[str, Callable[[Value], str]] = {
    "arguments": _words,
    "features": _features,
    "memory": _size,
    "spill": _size,
}
"""Options of blocks that are not just a text."""

KEYS = (
    *_SITE_KEYS,
    *_BLOCK_KEYS,
    "arguments",
    *BLOCK_OPTIONS,
    *(name for name in DEFAULTS if name.startswith("host_")),
)
"""All keys of a site."""

ALSO_CALLED = {
    **dict.fromkeys(("partition", "partitions"), "queue"),
    **dict.fromkeys(("cores", "cpus", "cpus_per_node", "ncpus", "ppn"), "cores_per_node"),
    **dict.fromkeys(("nodes", "hosts"), "max_nodes"),
    **dict.fromkeys(("time", "walltime", "time_limit"), "max_time"),
    **dict.fromkeys(("blocks", "max_blocks", "jobs"), "slots"),
    **dict.fromkeys(("project", "allocation"), "account"),
    **dict.fromkeys(("options", "args", "extra"), "arguments"),
    **dict.fromkeys(("url", "scheduler", "host"), "address"),
    **dict.fromkeys(("type", "system", "batch_system"), "provider"),
}
"""What a key is called elsewhere."""


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
    read: dict[str, dict[str, Any]] = {"site": {}, "blocks": {}, "options": {}, "throttles": {}}
    for key, value in given.items():
        if key not in KEYS:
            meant = ALSO_CALLED.get(key, "")
            near = f" (did you mean {meant!r}?)" if meant else did_you_mean(key, KEYS)
            near = near or f"; there are: {', '.join(KEYS)}"
            raise BadSite(f"site {name}: there is no setting {key!r}{near}")
        try:
            _read(key, value, read)
        except ValueError as error:
            what = "" if key in DEFAULTS else f"{key}: "
            raise BadSite(f"site {name}: {what}{error}") from error
    site = read["site"]
    if not site.get("provider"):
        raise BadSite(f'site {name}: it has no provider; write for example provider = "slurm"')
    try:
        blocks = evolve(USUAL_BLOCKS, **read["blocks"])
    except BadBlockSettings as error:
        raise BadSite(f"site {name}: {error}") from error
    asks_size = "address" in given and "cores_per_node" not in given
    return SiteSettings(
        **site, blocks=blocks, options=read["options"], throttles=read["throttles"], asks_size=asks_size
    )


def written(settings: SiteSettings) -> dict[str, str]:
    """Return all settings that hold at a site, as :func:`site_settings` reads them; options that it has."""
    said = {key: str(getattr(settings, key)) for key in _SITE_KEYS if getattr(settings, key)}
    for key, (target, _) in _BLOCK_KEYS.items():
        value = getattr(settings.blocks, target)
        said[key] = str(int(value) if value == int(value) else value) + "s" * target.endswith("_s")
    limits = {name: "off" if limit is None else str(limit) for name, limit in settings.throttles.items()}
    return said | dict(settings.options) | limits


def _read(key: str, value: object, read: dict[str, dict[str, Any]]) -> None:
    """Enter the value of a key where it belongs.

    Raises:
        ValueError: it cannot be used.
    """
    if not isinstance(value, str | int | float | list):
        raise ValueError(f"{value!r} is neither number nor text")
    if key in _SITE_KEYS:
        read["site"][key] = _SITE_KEYS[key](value)
    elif key in _BLOCK_KEYS:
        target, parse = _BLOCK_KEYS[key]
        read["blocks"][target] = parse(value)
    elif key in DEFAULTS:
        read["throttles"] |= parse_throttles({key: value})
    else:
        read["options"][key] = _OPTION_KEYS.get(key, _text)(value)


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
    throttles: dict[str, Limit] = {}
    for name, value in said.items():
        if isinstance(value, dict):
            sites[name] = site_settings(name, value)
            continue
        if name not in DEFAULTS:
            near = did_you_mean(name, DEFAULTS) or "; settings of a site stand below its name: [NAME]"
            raise BadSite(f"there is no setting {name!r} of all sites{near}")
        try:
            throttles |= parse_throttles({name: value})
        except ValueError as error:
            raise BadSite(str(error)) from error
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
    if not isinstance(said, str | Path):
        raise BadSite(f"it is a file of sites, its tables, or an address, not a {type(said).__name__}")
    found = _URL.fullmatch(str(said)) if isinstance(said, str) else None
    if found is not None:
        return sites_of({found[1]: {"provider": found[1], "address": str(said)}})
    return read_sites(Path(said))
