"""Tasks that fill ranges of data."""

from __future__ import annotations

from array import array


def fill(letter: str, count: int) -> dict[str, bytes]:
    if not letter:
        raise ValueError("no letter")
    return {"rows": letter.encode() * count}


def first_of(view: memoryview) -> tuple[str, int]:
    return bytes(view[:1]).decode(), len(view)


def fill_array(count: int) -> dict[str, memoryview]:
    numbers = array("d", range(count))
    return {"rows": memoryview(numbers)}


def last_of(view: memoryview) -> float:
    last: float = view.cast("d")[-1]
    return last


def fill_list(count: int) -> dict[str, list[int]]:
    return {"rows": list(range(count))}
