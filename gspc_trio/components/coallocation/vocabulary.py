"""Options of co-allocation requests: which there are, where they may stand, and what their values may be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from attrs import frozen

from gspc_trio.components.coallocation.tree import (
    Option,
    Place,
    RslError,
    Value,
)
from gspc_trio.core.similar import did_you_mean

BARRIER_TIMEOUT_S = 60.0
"""After so long the parts of a job that are ready wait no more for the others."""

COUNT_MAX = 1_000_000
TRIES_MAX = 1_000_000
SIZES = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZE = re.compile(r"(\d{1,15})\s*([a-z]*)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,9}")

Read: TypeAlias = Callable[[Option], object]


@frozen
class Word:
    """What an option is for.

    Attributes:
        name: of the option.
        read: from an option to what it means; raises RslError.
        at: where it may stand: ``program`` (of a ``&`` or a name), ``job`` (of those and of a ``+``), or
            ``stages`` (of those and of a ``*``).
        operators: that it may have; all mean the same.
    """

    name: str
    read: Read
    at: str
    operators: tuple[str, ...] = ("=",)


def _text(value: Value, option: Option, number: int) -> str:
    if isinstance(value, str):
        return value
    raise RslError(f"{option.name} takes texts, not a list in parentheses", option.place_of(number))


def _texts(option: Option) -> tuple[str, ...]:
    return tuple(_text(value, option, number) for number, value in enumerate(option.values))


def _single(option: Option) -> str:
    if len(option.values) > 1:
        raise RslError(f"{option.name} takes one value, not {len(option.values)}", option.place_of(1))
    text = _text(option.values[0], option, 0)
    if not text or "\0" in text:
        raise RslError(f"{option.name} is empty", option.place_of(0))
    return text


def _counts(option: Option) -> tuple[int, ...]:
    return tuple(_whole(text, option, number, 1, COUNT_MAX) for number, text in enumerate(_texts(option)))


def _whole(text: str, option: Option, number: int, least: int, most: int) -> int:
    if _NUMBER.fullmatch(text) and least <= int(text) <= most:
        return int(text)
    message = f"{option.name} is a whole number from {least} to {most:,}, not {text!r:.60}"
    raise RslError(message, option.place_of(number))


def _sizes(option: Option) -> tuple[int, ...]:
    sizes = []
    for number, text in enumerate(_texts(option)):
        found = _SIZE.fullmatch(text)
        unit = SIZES.get(found[2].lower()) if found else None
        if found is None or unit is None or not int(found[1]):
            message = f"memory is a size such as 512MiB or 4GiB, not {text!r:.60}"
            raise RslError(message, option.place_of(number))
        sizes.append(int(found[1]) * unit)
    return tuple(sizes)


def _seconds(option: Option) -> float:
    text = _single(option)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e9:
        message = f"{option.name} is a number of seconds more than 0, not {text!r:.60}"
        raise RslError(message, option.place_of(0))
    return seconds


def _environment(option: Option) -> dict[str, str]:
    """Return the variables of ``(environment=(NAME value)(NAME value))``."""
    variables: dict[str, str] = {}
    for number, value in enumerate(option.values):
        pair = value if isinstance(value, tuple) else ()
        if len(pair) != 2 or not all(isinstance(one, str) for one in pair):
            message = "environment takes pairs in parentheses: (environment=(NAME value)(NAME value))"
            raise RslError(message, option.place_of(number))
        name, text = str(pair[0]), str(pair[1])
        if not name or "=" in name or name in variables:
            raise RslError(f"{name!r:.60} cannot be a variable, or is there twice", option.place_of(number))
        variables[name] = text
    return variables


def _classes(option: Option) -> tuple[str, ...]:
    texts = _texts(option)
    if "" in texts:
        raise RslError("class is empty", option.place_of(texts.index("")))
    return texts


def _features(option: Option) -> tuple[tuple[str, ...], ...]:
    """Return a ladder of sets of features: ``(features=(avx512f amx) avx2)``."""
    ladder = []
    for number, value in enumerate(option.values):
        names = (value,) if isinstance(value, str) else value
        if not all(isinstance(name, str) and name for name in names):
            message = "features are names, or several of them in parentheses"
            raise RslError(message, option.place_of(number))
        ladder.append(tuple(str(name) for name in names))
    return tuple(ladder)


def _start(option: Option) -> str:
    text = _single(option)
    if text not in ("together", "inside"):
        raise RslError(f"start is together or inside, not {text!r:.60}", option.place_of(0))
    return text


def _on_error(option: Option) -> float:
    text = _single(option)
    return math.inf if text == "n" else _whole(text, option, 0, 0, TRIES_MAX)


def _attempts(option: Option) -> int:
    return _whole(_single(option), option, 0, 1, TRIES_MAX)


def _wait(option: Option) -> tuple[int, ...]:
    return tuple(number for number, _ in waits_of(option))


WORDS: Mapping[str, Word] = {
    word.name.replace("_", ""): word
    for word in (
        Word("executable", _single, "program"),
        Word("arguments", _texts, "program"),
        Word("directory", _single, "program"),
        Word("environment", _environment, "program"),
        Word("count", _counts, "program"),
        Word("class", _classes, "program"),
        Word("memory", _sizes, "program", ("=", ">=")),
        Word("features", _features, "program"),
        Word("max_time", _seconds, "program", ("=", "<=")),
        Word("contact", _single, "program"),
        Word("start", _start, "job"),
        Word("barrier_timeout", _seconds, "stages"),
        Word("wait", _wait, "job"),
        Word("on_error", _on_error, "stages"),
        Word("attempts", _attempts, "stages"),
    )
}
"""Name without ``_`` -> option."""

_KINDS = {"program": "a & or a name", "job": "a &, a name or a +", "stages": "a request"}
_PLACES = {"part": "a part of a +", "program": "a job", "job": "a +", "stages": "a *"}
_ALLOWED = {
    "part": ("program",),
    "program": ("program", "job", "stages"),
    "job": ("job", "stages"),
    "stages": ("stages",),
}


def option_name(written: str, place: Place) -> str:
    """Return the usual name of an option; capitals and ``_`` do not matter.

    Raises:
        RslError: there is no such option.
    """
    word = WORDS.get(written.lower().replace("_", ""))
    if word is not None:
        return word.name
    names = [one.name for one in WORDS.values()]
    guess = did_you_mean(written.lower(), names)
    raise RslError(f"there is no option {written!r:.60}{guess}; there are {', '.join(names)}", place)


_PIECES = re.compile(r",|[^,\s]+")


def waits_of(option: Option) -> tuple[tuple[int, Place], ...]:
    """Return the ids of jobs that are waited for, with where they stand: commas and blanks part them.

    Raises:
        RslError: one is no number from 1 on, or a comma has none before or behind it.
    """
    found: list[tuple[int, Place]] = []
    after_comma = True
    comma: Place | None = None
    for number, text in enumerate(_texts(option)):
        line, column = option.place_of(number)
        if not text.strip():
            raise RslError("wait takes numbers of jobs, and this is empty", (line, column))
        for piece in _PIECES.finditer(text):
            place = (line, column + piece.start())
            if lines := text.count("\n", 0, piece.start()):
                place = (line + lines, piece.start() - text.rfind("\n", 0, piece.start()))
            if piece[0] == ",":
                if after_comma:
                    raise RslError("a number of a job is missing at this comma", place)
                after_comma, comma = True, place
            elif _NUMBER.fullmatch(piece[0]) and int(piece[0]):
                found.append((int(piece[0]), place))
                after_comma, comma = False, None
            else:
                message = f"wait takes numbers of jobs, from 1 on, and {piece[0]!r:.60} is none"
                raise RslError(message, place)
    if comma is not None:
        raise RslError("a number of a job is missing at this comma", comma)
    return tuple(found)


def check_options(options: Iterable[Option], kind: str) -> None:
    """Raise RslError if options are there twice, stand in a wrong place, or have values that cannot be.

    Args:
        options: of one request.
        kind: ``program``, ``part`` (of a ``+``), ``job`` (a ``+``) or ``stages`` (a ``*``).
    """
    seen: set[str] = set()
    for option in options:
        name = option.name
        word = WORDS[name.replace("_", "")]
        if name in seen:
            raise RslError(f"{name} is there twice", option.place)
        seen.add(name)
        if word.at not in _ALLOWED[kind]:
            message = f"{name} is an option of {_KINDS[word.at]}, and not of {_PLACES[kind]}"
            raise RslError(message, option.place)
        if option.operator not in word.operators:
            allowed = " or ".join(word.operators)
            raise RslError(f"{name} takes {allowed}, not {option.operator}", option.place)
        word.read(option)


def read_option(option: Option) -> object:
    """Return what an option means.

    Raises:
        RslError: its values cannot be.
    """
    return WORDS[option.name.replace("_", "")].read(option)
