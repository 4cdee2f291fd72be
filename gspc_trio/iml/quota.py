"""Quota of a memory server (memory, spill file), and the options in which people write it down."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B?|B)?", re.IGNORECASE)
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Quota(Struct, frozen=True):
    """What a memory server may use.

    Attributes:
        memory_bytes: shared memory; 0: nobody has said.
        spill_bytes: what it may keep on disk when that is full; 0: nothing.
        spill_directory: where; "" for the system's directory for temporary files.
    """

    memory_bytes: int = 0
    spill_bytes: int = 0
    spill_directory: str = ""


def parse_size(text: str) -> int:
    """Return the bytes that a text like ``4GiB``, ``512M`` or ``1000000`` means; units are powers of 1024.

    Raises:
        ValueError: it has another form; the message is one line for people.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size; write for example 4GiB, 512MiB or 1000000")
    return int(float(found[1]) * _UNITS[(found[2] or "")[:1].upper()])


def quota_of(options: Mapping[str, str]) -> Quota:
    """Return what the options of a RIF say about the memory servers of its host.

    Args:
        options: ``memory`` and ``spill``, sizes, and ``spill_directory``; each may be missing.

    Raises:
        ValueError: one is no size.
    """
    memory_bytes, spill_bytes = (parse_size(options.get(name) or "0") for name in ("memory", "spill"))
    return Quota(memory_bytes, spill_bytes, options.get("spill_directory", ""))
