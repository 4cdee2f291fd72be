"""A cache of results: its settings, how an entry is written down, and what is counted."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Literal, TypeAlias, get_args

import msgpack
from msgspec import Struct, field

from gspc_trio.protocol.values import is_reference

CompareFiles: TypeAlias = Literal["auto", "content", "time"]
"""How files are told to be the same: by their bytes, by modification time and size, or as is cheaper."""

SIZE_BYTES = 10 << 30
"""Bytes that a cache has at most, unless more are stated."""

REASONS_MAX = 3
"""Reasons that are told at the end of a run, those first that held for most tasks."""

_REASON_CHARACTERS_MAX = 200
_MAGIC = b"gspc-trio result 1\n"
_CHECK_BYTES = 16

Key: TypeAlias = bytes
StoredFiles: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, identity) of the files that a task has stored on the host of its job."""


class CacheError(ValueError):
    """The directory cannot be used as a cache; one line says why, and what to do."""


class NotCacheable(ValueError):
    """A task has no key, or its result cannot be kept; the message is the reason, for people."""


class CacheSettings(Struct, frozen=True):
    """A cache of results.

    Attributes:
        directory: where it is; made if need be. Only the user may have access to it.
        size_bytes: its entries have at most so many; those that were not used for longest go first.
        files: how files that tasks read are compared: ``"content"``; ``"time"``, modification time and size;
            or ``"auto"``, the content of files up to 64 MiB and the time of larger ones.

    Raises:
        ValueError: it has no size, or there is no such way to compare files.
    """

    directory: str
    size_bytes: int = SIZE_BYTES
    files: CompareFiles = "auto"

    def __post_init__(self) -> None:
        if type(self.size_bytes) is not int or self.size_bytes < 1:
            raise ValueError(f"size_bytes of a cache is a whole number, 1 or more, not {self.size_bytes!r}")
        if self.files not in get_args(CompareFiles):
            choice = ", ".join(map(repr, get_args(CompareFiles)))
            raise ValueError(f"files of a cache are compared by one of {choice}, not {self.files!r}")


class CacheCounts(Struct, frozen=True):
    """What a cache has been good for in a run.

    Attributes:
        found: tasks whose results came from it.
        kept: results that were added to it.
        not_cacheable: tasks that it could not know, or whose results it could not keep.
        reasons: why, the most frequent ones, with the number of tasks.
    """

    found: int = 0
    kept: int = 0
    not_cacheable: int = 0
    reasons: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        text = f"{self.found} from the cache, {self.kept} kept"
        if self.not_cacheable:
            alone = len(self.reasons) == 1
            reasons = "; ".join(why if alone else f"{why} ({number})" for why, number in self.reasons)
            text += f", {self.not_cacheable} not cacheable: {reasons}"
        return text


class Counting(Struct):
    """The same while it changes."""

    found: int = 0
    kept: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def refuse(self, reason: str) -> None:
        """Count a task that is not cacheable."""
        self.reasons[reason[:_REASON_CHARACTERS_MAX]] += 1

    def counts(self) -> CacheCounts:
        """Return what was counted."""
        reasons = tuple(self.reasons.most_common(REASONS_MAX))
        return CacheCounts(self.found, self.kept, self.reasons.total(), reasons)


class CacheEntry(Struct, frozen=True):
    """A result that is kept.

    Attributes:
        name: of the task.
        values: for each output of the task, the encoded values.
        stored: the files that the task has stored on the host of its job.
        duration_s: for how long it ran.
    """

    name: str
    values: tuple[tuple[bytes, ...], ...]
    stored: StoredFiles = ()
    duration_s: float = 0.0


def encode_entry(entry: CacheEntry) -> bytes:
    """Return an entry as bytes that tell whether they are whole."""
    packed: bytes = msgpack.packb((entry.name, entry.values, entry.stored, entry.duration_s))
    return _MAGIC + blake2b(packed, digest_size=_CHECK_BYTES).digest() + packed


def decode_entry(data: bytes) -> CacheEntry | None:
    """Return the entry, or None if the bytes are not one, or not all of it."""
    begin = len(_MAGIC) + _CHECK_BYTES
    packed = memoryview(data)[begin:]
    if data[:begin] != _MAGIC + blake2b(packed, digest_size=_CHECK_BYTES).digest():
        return None
    return CacheEntry(*msgpack.unpackb(packed, use_list=False))


def check_result(values: tuple[tuple[bytes, ...], ...]) -> None:
    """Raise NotCacheable if values cannot be kept."""
    if any(is_reference(value) for output in values for value in output):
        raise NotCacheable("its result lies in a memory layer")
