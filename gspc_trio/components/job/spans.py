"""Spans of a job, and what its process and the one that sends them say to each other: light to load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.core.task import TaskError


class Span(Struct, frozen=True):
    """Something that took from one time to another, seconds since 1970.

    Attributes:
        span_id, parent_id: numbers; 0: there is no parent.
        attributes: name -> value.
        error: why it did not do what it was for; None: it did.
        link: number of the span of the attempt before; 0: there is none.
    """

    name: str
    span_id: int
    parent_id: int
    begin_s: float
    end_s: float
    attributes: Mapping[str, str | int]
    error: TaskError | None = None
    link: int = 0


class SpanOrder(Struct, frozen=True):
    """Spans of a trace will come, a sequence of them at a time.

    Attributes:
        trace_id: of the trace, 32 hexadecimal digits.
        path: where to look for modules, as who says this does; names of folders as the system has them.
    """

    trace_id: str
    path: Sequence[bytes]


class SpansTold(Struct, frozen=True):
    """What has become of the spans that came last; the first time, of what sends them.

    Attributes:
        are_sent: whether they were, or it can send; None: that is not known yet, for it tries again.
        why: they were not.
        cpu_s: CPU time that was spent since the last time this was said.
    """

    are_sent: bool | None
    why: str = ""
    cpu_s: float = 0.0


def framed(message: SpanOrder | SpansTold | Sequence[Span]) -> bytes:
    """Return a message as it travels between the two processes, behind its length."""
    data = msgspec.msgpack.encode(message)
    return FRAME_HEADER.pack(len(data)) + data
