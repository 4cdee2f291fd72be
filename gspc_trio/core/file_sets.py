"""Sets of files: patterns that stand for several files, and what each is called where it goes.

A pattern is a path with ``*``, ``?``, ``[...]`` in its parts, ``**`` for any number of directories. A path
with a slash at its end stands for a directory with all that is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from gspc_trio.core.rules import fill, placeholders

HERE = "./"
"""The directory itself, as a place for files or with all that is in it."""

INDEX = "index"
"""Name of the placeholder that numbers the files of a set."""

_MAGIC = re.compile(r"([*?[])")
_INDEX = re.compile(r"\{index(?::(0?[0-9]{1,2}))?\}")
_TOKEN = re.compile(r"(\{[A-Za-z_][A-Za-z0-9_]*(?::0?[0-9]{1,2})?\}|\*\*/|\*+|\?|\[!?\]?[^]/]*\])")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?::0?[0-9]{1,2})?\}")


class NameClash(ValueError):
    """Two files would have one name, or a file would have none; the message says which."""


def is_glob(path: str) -> bool:
    """Return whether a path has ``*``, ``?`` or ``[``: it stands for all files that match."""
    return _MAGIC.search(path) is not None


def is_directory(path: str) -> bool:
    """Return whether a path stands for a directory."""
    return path.endswith("/")


def has_index(target: str) -> bool:
    """Return whether a target numbers its files: it has ``{index}``, or ``{index:03}``."""
    return _INDEX.search(target) is not None


def takes_several(target: str) -> bool:
    """Return whether a target has names for several files."""
    return is_directory(target) or has_index(target)


def without_slash(path: str) -> str:
    """Return the path of a directory without the slash at its end, "" for that where all begins."""
    return "" if path == HERE else path.removesuffix("/")


def escape(text: str) -> str:
    """Return a pattern that only this text matches."""
    return _MAGIC.sub(r"[\1]", text)


def fill_pattern(pattern: str, values: Mapping[str, object], *, plain: bool = False) -> tuple[str, ...]:
    """Return a pattern filled with values, none of which has a meaning in it unless they are taken ``plain``.

    For a list of values there is a pattern for each; for several lists one for each combination.
    """
    names = [name for name in placeholders(pattern) if name in values]
    choices = [_listed(values[name]) for name in names]
    taken = str if plain else _escaped
    return tuple(
        fill(pattern, {name: taken(value) for name, value in zip(names, chosen, strict=True)})
        for chosen in product(*choices)
    )


def _escaped(value: object) -> str:
    return escape(str(value))


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)


def name_files(target: str, names: Iterable[str], first: int = 0) -> list[str]:
    """Return what files are called.

    Args:
        target: a name with ``{index}``, or a directory, or the name of a lone file.
        names: of the files where they come from, below what was asked for; "" for one that has none.
        first: number of the first one.

    Raises:
        NameClash: a file has no name, which it needs.
    """
    made = []
    for number, name in enumerate(names, first):
        if has_index(target):
            made.append(_numbered(target, number))
        elif not is_directory(target):
            made.append(target)
        elif name:
            made.append(("" if target == HERE else target) + name)
        else:
            raise NameClash(
                f"value {number} for {target} has no name: number the files, as in {target}part-{{index}}, "
                "or pass a mapping of names to contents"
            )
    return made


def _numbered(target: str, number: int) -> str:
    return _INDEX.sub(lambda found: format(number, found[1] or "d"), target)


def all_of_target(target: str) -> str:
    """Return the pattern of all files that a target can have named."""
    return "*".join(escape(part) for part in _INDEX.split(target)[::2])


def check_distinct(files: Iterable[tuple[str, str]]) -> None:
    """See that no two files have one name.

    Args:
        files: (name, from where).

    Raises:
        NameClash: not so.
    """
    known: dict[str, str] = {}
    for name, source in files:
        if name in known:
            raise NameClash(
                f"{known[name]} and {source} would both be {name}: put them into directories of their own, "
                "or number the files of a set with {index} in its name"
            )
        known[name] = source
    for name, source in known.items():
        for end in (at for at, letter in enumerate(name) if letter == "/"):
            if name[:end] in known:
                raise NameClash(
                    f"{known[name[:end]]} would be {name[:end]}, which is the directory of {source}"
                )


def fills(pattern: str, text: str, *, escaped: bool = False) -> bool:
    """Return whether a text is what a pattern becomes when it is filled with inputs.

    Args:
        pattern: of the author.
        text: that may be made of it.
        escaped: whether it is a pattern again, in which inputs have no meaning of their own.
    """
    filling = r"(?:[^*?\[]|\[[*?[]\])+" if escaped else ".+"
    literal = map(re.escape, _PLACEHOLDER.split(pattern))
    return re.fullmatch(filling.join(literal), text, re.DOTALL) is not None


def matches(pattern: str, path: str) -> bool:
    """Return whether a path is one of those that a pattern of the author stands for, however it is filled."""
    if fills(pattern, path):
        return True
    if not is_glob(pattern) and not takes_several(pattern):
        return False
    text = "".join(map(_expression, _TOKEN.split("" if pattern == HERE else pattern)))
    return re.fullmatch(text + (".+" if is_directory(pattern) else ""), path, re.DOTALL) is not None


def _expression(token: str) -> str:
    if token == "**/":
        return "(?:.*/)?"
    if token.startswith("*"):
        return "[^/]*" if token == "*" else ".*"
    if token == "?":
        return "[^/]"
    if token.startswith("[") and token.endswith("]") and len(token) > 2:
        inner = token[1:-1]
        sign = "^" if inner.startswith("!") else ""
        inner = inner.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
        return f"(?!/)[{sign}{inner.replace(']', chr(92) + ']')}]"
    return ".+" if _PLACEHOLDER.fullmatch(token) else re.escape(token)
