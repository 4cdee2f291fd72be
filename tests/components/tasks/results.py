"""Tasks with results to wait for."""

from __future__ import annotations

from pathlib import Path


def pass_gate(item: tuple[str, int]) -> int:
    gate, number = item
    if gate:
        Path(gate).read_text()
    return number


def fail_at_three(number: int) -> int:
    if number == 3:
        raise LookupError("three")
    return number


def both(item: object) -> dict[str, object]:
    return {"one": item, "two": item}


def blob(size_bytes: int) -> bytes:
    return b"x" * size_bytes


def blob_and_more(size_bytes: int, more: int) -> bytes:
    return b"x" * size_bytes * more
