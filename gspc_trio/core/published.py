"""What a task has of the memory layer of its job: data under names, and memory for what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from math import prod
from operator import index
from typing import Any, BinaryIO, Protocol

READER_MARK = b"\xc1\4"
"""Begins an argument that is none: the name of the host on which what takes the task's result is planned."""


class NamedData(Protocol):
    """The layer, as a task has it."""

    def memory(self, size_bytes: int) -> memoryview | None:
        """Return memory for a large result; None if it is small, or there is no room."""
        ...

    def open_stream(self, port: str) -> BinaryIO:
        """Return a file for an output, which leaves for its reader while it is written."""
        ...

    def publish(self, name: str, value: object, copies: int = 1, stripes: int = 1) -> None:
        """Keep a value under a name, on so many hosts."""
        ...

    def read_published(self, name: str) -> Any:
        """Return the value of a name."""
        ...

    def map_range(self, name: str, offset: int, size_bytes: int) -> memoryview:
        """Return the bytes of a range."""
        ...

    def put_range(self, name: str, offset: int, pieces: list[memoryview]) -> None:
        """Overwrite a range."""
        ...


_here: ContextVar[NamedData | None] = ContextVar("named data", default=None)


class NoNamedData(RuntimeError):
    """There is no memory layer to keep named data in; the message says what to do."""


NO_LAYER = (
    "data has names in a memory layer, and there is none here: within a task of a job that has one, "
    "Executor(data_bytes=...), open_rts(data_bytes=...) or gspc-jobserver run --iml"
)


def publish(name: str, value: object, *, copies: int = 1, stripes: int = 1) -> None:
    """Within a task: keep a value in the memory layer of its job under a name.

    Later tasks, of whatever job on that layer, and the application read it by its name. It stays when the
    task and its job have ended. Publishing again under the same name replaces the value.

    Args:
        name: of the data.
        value: ``bytes`` and memory are kept as they are, other values encoded; who reads large arrays has no
            copy of them.
        copies: on so many hosts all of it lies.
        stripes: over so many hosts it is spread, a stretch of it on each; who reads it gets all of it.

    Raises:
        BadValue: the value cannot be sent to another process.
        NoNamedData: this is no task of a job with a memory layer.
        NoRoom: it has no room, or there are fewer hosts than copies or stripes.
        ValueError: both copies and stripes are asked for.
    """
    if copies > 1 and stripes > 1:
        raise ValueError(f"{copies} copies and {stripes} stripes: ask for one of them")
    _layer().publish(name, value, copies, stripes)


def read_published(name: str) -> Any:
    """Within a task: return the value that was published under a name; of ``bytes`` a read-only memoryview.

    Raises:
        NoNamedData: this is no task of a job with a memory layer.
        NoRoom: this host has no room for it.
        UnknownName: nothing was published under this name.
    """
    return _layer().read_published(name)


def map_range(name: str, offset: int, size_bytes: int) -> memoryview:
    """Within a task: return a range of the data that was published under a name, as it is now.

    Only these bytes are fetched, unless all of the data lies on this host. What is written to them stays in
    this process.

    Args:
        name: of the data.
        offset, size_bytes: the range, of 1 byte or more.

    Raises:
        ImlError: there is no such data or range, or this host has no room for it.
        NoNamedData: this is no task of a job with a memory layer.
    """
    return _layer().map_range(name, offset, size_bytes)


def put_range(name: str, offset: int, pieces: list[memoryview]) -> None:
    """Within a task: overwrite a range of the data that was published under a name.

    When this has returned, whoever reads the range gets the new bytes.

    Args:
        name: of the data.
        offset: where the range begins.
        pieces: its bytes, 1 or more, one piece after another.

    Raises:
        ImlError: there is no such data or range, or no room for the bytes; then they are as they were, or the
            data is lost.
        NoNamedData: this is no task of a job with a memory layer.
    """
    _layer().put_range(name, offset, pieces)


def empty(shape: int | Sequence[int], dtype: Any = float) -> Any:
    """Return a new array as ``numpy.empty`` does; within a task, in the shared memory of its job's layer.

    A task that returns the array, or a view of half of it or more, returns it without a copy, also as a part
    of another value. All else is as with an array of NumPy: what the task keeps of it is its own from then
    on. Outside of tasks, without a memory layer, if the array is small or there is no room, the array
    is an ordinary one. Its elements may have any value at first.

    Args:
        shape: as NumPy takes it.
        dtype: of the elements; objects of Python have an ordinary array.

    Raises:
        ImportError: there is no NumPy.
    """
    import numpy

    kind = numpy.dtype(dtype)
    layer = _here.get()
    view = None
    if layer is not None and not kind.hasobject:
        lengths = _lengths(shape)
        if min(lengths, default=0) >= 0:
            view = layer.memory(prod(lengths) * kind.itemsize)
    if view is None:
        return numpy.empty(shape, kind)
    return numpy.ndarray(shape, kind, view)


def _lengths(shape: Any) -> tuple[int, ...]:
    """Return the lengths of a shape; none of one that is wrong, of which NumPy says what is wrong."""
    with suppress(TypeError):
        return (index(shape),)
    with suppress(TypeError):
        return tuple(map(index, shape))
    return ()


def offer(layer: NamedData) -> None:
    """Let the task that begins now, in this thread, use this."""
    _here.set(layer)


def layer_here() -> NamedData | None:
    """Return the layer that the task of this thread has; None: it has none, or there is no task."""
    return _here.get()


def _layer() -> NamedData:
    layer = _here.get()
    if layer is None:
        raise NoNamedData(NO_LAYER)
    return layer
