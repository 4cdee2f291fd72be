"""Lists of commands: a template is filled with each item, and what an earlier run has done is left out."""

from __future__ import annotations

import json
import os
import re
import shlex
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

Context: TypeAlias = Literal["", "'", '"']
"""Quotes in which a replacement string of a template stands, if any."""

_REPLACED: dict[str, Callable[[str, int], str]] = {
    "{}": lambda item, _: item,
    "{.}": lambda item, _: _without_extension(item),
    "{/}": lambda item, _: os.path.basename(item),
    "{//}": lambda item, _: os.path.dirname(item) or ".",
    "{/.}": lambda item, _: _without_extension(os.path.basename(item)),
    "{#}": lambda _, number: str(number),
}
"""Replacement string -> what takes its place, as GNU parallel has them."""

_STRINGS = re.compile("|".join(map(re.escape, _REPLACED)))

_BY_SHELL = re.compile(r"""[^\w\s@%+:,./=-]|\n""")
"""Characters that may mean something to a shell."""

_BUILTINS = frozenset(
    re.findall(
        r"\S+",
        ". : [ alias bg break case cd command continue do done echo elif else esac eval exec exit export fc "
        "fg fi for function getopts hash if in jobs kill local printf pwd read readonly return set shift "
        "test then time times trap type ulimit umask unalias unset until wait while",
    )
)
"""Words that a shell does itself, or otherwise than the program of that name."""


class BadHalt(ValueError):
    """What says when to halt cannot be read."""


def _without_extension(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    base = name.rpartition(".")[0]
    return directory + slash + (base or name)


class Template:
    """A command with replacement strings; an item takes their places, quoted as its place needs it.

    Args:
        text: the command. Without a replacement string the item comes at its end.
    """

    def __init__(self, text: str) -> None:
        if not _STRINGS.search(text):
            text += " {}"
        self._parts: list[tuple[str, str, Context]] = []
        end = 0
        context: Context = ""
        for found in _STRINGS.finditer(text):
            before = text[end : found.start()]
            context = _context_after(before, context)
            self._parts.append((before, found.group(), context))
            end = found.end()
        self._rest = text[end:]

    def fill(self, item: str, number: int) -> str:
        """Return the command for an item.

        Args:
            item: a file name, for instance; whatever is in it stays one word.
            number: of the item, counted from 1.
        """
        filled = [
            before + _quoted(_REPLACED[string](item, number), context)
            for before, string, context in self._parts
        ]
        return "".join(filled) + self._rest


def _context_after(text: str, context: Context) -> Context:
    """Return in which quotes a shell is after a text that began in some."""
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and context != "'":
            position += 1
        elif character == context:
            context = ""
        elif not context and character == "'":
            context = "'"
        elif not context and character == '"':
            context = '"'
        position += 1
    return context


def _quoted(text: str, context: Context) -> str:
    if context == "'":
        return text.replace("'", "'\"'\"'")
    if context == '"':
        return re.sub(r'([\\"$`])', r"\\\1", text)
    return shlex.quote(text)


def words_of(command: str) -> list[str] | None:
    """Return the words of a command that a shell would only start, None if the shell has something to do."""
    if _BY_SHELL.search(command):
        return None
    words = command.split()
    return None if not words or words[0] in _BUILTINS or "=" in words[0] else words


class Items:
    """Cuts what is read into items, as it comes: lines, or what ends with zero bytes; not empty ones.

    Args:
        end: the byte that ends an item.
    """

    def __init__(self, end: bytes = b"\n") -> None:
        self._end = end
        self._rest = bytearray()

    def read(self, data: bytes) -> Iterator[str]:
        """Return the items that end in what was read; no data at the end of the input."""
        if not data:
            data = self._end if self._rest else b""
        if self._end not in data:
            self._rest += data
            return
        *items, rest = (bytes(self._rest) + data).split(self._end)
        self._rest = bytearray(rest)
        for item in items:
            if item.strip():
                yield os.fsdecode(item)


class Halt(NamedTuple):
    """When to halt.

    Attributes:
        when: ``never``; ``soon``: what runs is let end; ``now``: it is killed.
        failures: after so many commands have failed.
    """

    when: str = "never"
    failures: int = 1

    @classmethod
    def parse(cls, text: str) -> Halt:
        """Return what ``soon`` or ``now,fail=3`` means.

        Raises:
            BadHalt: it is something else.
        """
        found = re.fullmatch(r"(never|soon|now)(?:,fail=([1-9]\d*))?", text)
        if found is None:
            raise BadHalt("it is never, soon or now, with ,fail=N after N failures: now,fail=3")
        return cls(found[1], int(found[2] or 1))

    def is_due(self, failures: int) -> bool:
        """Return whether to halt after so many failures."""
        return self.when != "never" and failures >= self.failures


class Entry(NamedTuple):
    """What a journal says of a command: a line of JSON.

    Attributes:
        number: in the list, counted from 1.
        command: as a shell has it.
        status: its exit status; minus the number of the signal that ended it; None: it has none.
        seconds: how long it ran.
    """

    number: int
    command: str
    status: int | None
    seconds: float

    def text(self) -> str:
        """Return the line of the journal."""
        return json.dumps(self._asdict()) + "\n"

    @staticmethod
    def may_be(line: str) -> bool:
        """Return whether this is a line of a journal, or the beginning of one that was being written."""
        start, line = '{"number": ', line.rstrip("\n")
        return line.startswith(start) or start.startswith(line)


class DoneBefore:
    """The commands that have succeeded in earlier runs, in 12 bytes each.

    Args:
        lines: of a journal; what is no entry, like the end of a line that was being written, is left out.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        counts = Counter(map(_digest, _succeeded(lines)))
        self._digests = array("Q", sorted(counts))
        self._counts = array("L", (counts[digest] for digest in self._digests))

    def take(self, command: str) -> bool:
        """Return whether a command was done, for each time that it was."""
        if not self._digests:
            return False
        digest = _digest(command)
        position = bisect_left(self._digests, digest)
        if position == len(self._digests) or self._digests[position] != digest or not self._counts[position]:
            return False
        self._counts[position] -= 1
        return True


def _succeeded(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        try:
            entry = json.loads(line)
            if entry["status"] == 0:
                yield str(entry["command"])
        except (ValueError, TypeError, KeyError):
            continue


def _digest(command: str) -> int:
    return int.from_bytes(blake2b(os.fsencode(command), digest_size=8).digest(), "little")
