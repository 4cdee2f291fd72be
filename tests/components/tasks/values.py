"""Tasks with values that lie in a memory layer."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

MIB = 1 << 20


class Array:
    """Stands for an array: pickled with its buffer out of band."""

    def __init__(self, content: Any) -> None:
        self.content = memoryview(content)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Array, (pickle.PickleBuffer(self.content),)


def make_array(size_bytes: int) -> Array:
    return Array(bytes(range(256)) * (size_bytes // 256))


def describe_array(array: Array) -> tuple[int, bool, bytes, bool]:
    maps = Path("/proc/self/maps").read_text()
    return (
        array.content.nbytes,
        array.content.readonly,
        bytes(array.content[254:258]),
        "memfd:gspc-iml" in maps,
    )


def make_bytes(size_bytes: int) -> bytes:
    return os.urandom(1) * size_bytes


def make_list(length: int) -> list[int]:
    return list(range(length))


def sum_of(view: memoryview) -> tuple[int, bool]:
    return sum(view), view.readonly


def length_of(value: Any) -> int:
    return len(value)


def total(values: list[int]) -> int:
    return sum(values)


class Fatal:
    """Kills the process that takes it apart."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        return Fatal, ()


def make_and_die(marker: str) -> dict[str, Any]:
    """Return two results; the first time the process dies between the first and the second."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return {"large": bytes(MIB), "other": 1}
    return {"large": bytes(MIB), "other": Fatal()}
