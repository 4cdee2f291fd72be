"""Futures inside the lists, tuples, sets and dicts of an argument.

A value with a lock cannot be pickled, and every future has one. So nobody looks for futures in an argument
that can be encoded: it holds none. In one that cannot, each future becomes a hole in a pickle, and its result
an argument of its own, which the compute process puts there (``compute.code.call_filled``).
"""

from __future__ import annotations

import io
from concurrent.futures import Future

from gspc_trio.protocol.values import RAISED_BY_USERS, BadValue, text_of


def futures_in(value: object) -> list[Future[object]]:
    """Return the futures in a container and the containers in it, each once."""
    found: dict[int, Future[object]] = {}
    seen: set[int] = set()
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, Future):
            found[id(part)] = part
        elif isinstance(part, dict | list | tuple | set | frozenset) and id(part) not in seen:
            seen.add(id(part))
            pending += part
            if isinstance(part, dict):
                pending += part.values()
    return list(found.values())


def make_holes(value: object, futures: list[Future[object]]) -> bytes:
    """Return a value as a pickle with holes in place of these futures.

    Raises:
        BadValue: something else in it cannot be sent to another process.
    """
    import cloudpickle

    buffer = io.BytesIO()
    holes = {id(future): number for number, future in enumerate(futures)}
    try:
        pickler = cloudpickle.Pickler(buffer, protocol=5)
        pickler.persistent_id = lambda part: holes.get(id(part))
        pickler.dump(value)
    except RAISED_BY_USERS as error:
        kind = type(value).__name__
        raise BadValue(
            f"a value of type {kind} with futures in it cannot be sent to another process: {text_of(error)}"
        ) from error
    return buffer.getvalue()
