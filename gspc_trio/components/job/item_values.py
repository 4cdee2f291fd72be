"""How arguments and results of many items travel together."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

from gspc_trio.compute.code import ANSWER_HEAD
from gspc_trio.core.task import TaskError
from gspc_trio.protocol.values import ATOMS, Value, dumps, loads, pickled

BLOCK_ITEMS = 8192
"""Items that are packed together, of which ranges are cut."""

SHORT_BYTES, RANGE_BYTES = 1024, 48_000
"""Of items up to the first length about so many bytes are in a range at most: it fits into one packet."""

LONG_RANGE_BYTES = 1_000_000
"""The same of longer ones: few items in each range would cost more than its way through a file in memory."""

ITEM_BYTES_MAX = 16_384
"""Items that are longer on average are tasks of their own."""

PLAIN, ENCODED, AWAITED = dumps(False), dumps(True), dumps(None)
"""The first argument of a range: whether the others are encoded values.

AWAITED: they are not, and somebody may wait for one of the items alone.
"""

Results: TypeAlias = tuple[list[Value], dict[int, bytes], dict[int, list[Value]]]
"""Results of items, None for those of the next two; number -> encoded result; number -> error."""


def can_share(column: Sequence[object]) -> bool:
    """Whether arguments may be pickled together: no item can change any of them for another one."""
    if type(column) is range:
        return True
    kinds = set(map(type, column))
    if tuple not in kinds:
        return kinds <= ATOMS
    inner = chain.from_iterable(value for value in column if type(value) is tuple)
    return kinds <= {tuple, *ATOMS} and set(map(type, inner)) <= ATOMS


def packed(values: Sequence[object]) -> bytes:
    """Return such arguments as one value; of tuples, pickle needs a hundredth of the time of msgpack."""
    return pickled(pickle.dumps(values, 5))


def together_max(bytes_each: int) -> int:
    """Return how many items are in a range at most, by the length of one."""
    bytes_max = RANGE_BYTES if bytes_each <= SHORT_BYTES else LONG_RANGE_BYTES
    return max(1, min(BLOCK_ITEMS, bytes_max // max(1, bytes_each)))


def open_answer(data: bytes) -> tuple[int, int, memoryview]:
    """Return how many items a range has computed, how many of these have failed, and what they returned."""
    answer: bytes = loads(data)
    done, failed = ANSWER_HEAD.unpack_from(answer)
    return done, failed, memoryview(answer)[ANSWER_HEAD.size :]


def errors_in(found: memoryview) -> dict[int, TaskError]:
    """Return place -> why the item there has failed, of the items that a range has computed."""
    return {place: TaskError(*fields) for place, fields in open_results(found)[2].items()}


def open_results(found: memoryview) -> Results:
    """Return the results of the items that a range has computed."""
    results: Results = loads(found)
    return results
