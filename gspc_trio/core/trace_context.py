"""Trace contexts as W3C describes them: the trace and the span that a piece of work belongs to, as one text.

The number of the span of an attempt follows from that of its job. So the process that runs a task and the
job server that reports it agree on it, and nothing travels with the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gspc_trio.core.ids import Attempt, TaskId

TRACEPARENT = "TRACEPARENT"
"""Environment variable that has the context."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SPANS = (1 << 64) - 1
_ATTEMPT_BITS, _PART_BITS = 20, 2


class TraceContext(NamedTuple):
    """A span of a trace.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: number of the span, from 1 to 2 ** 64 - 1.
        sampled: whether spans below it are to be recorded.
    """

    trace_id: str
    span_id: int
    sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id:016x}-0{self.sampled:d}"

    def span_of(self, task_id: TaskId, attempt: Attempt, part: int = 0) -> int:
        """Return the number of the span of an attempt of a task of this job, or of one of its parts, 1 to 3.

        ``attempt`` is that of the submission, which names it between the job and its workers.
        """
        number = ((task_id << _ATTEMPT_BITS) | attempt) << _PART_BITS | part
        return (self.span_id ^ number) & _SPANS or 1

    def text_of(self, task_id: TaskId, attempt: Attempt) -> str:
        """Return the context of an attempt of a task of this job."""
        return self.texts()(task_id, attempt).decode()

    def texts(self) -> Callable[[TaskId, Attempt], bytes]:
        """Return what does the same as :meth:`text_of`, in bytes and in a sixth of the time."""
        span_id, head, tail = self.span_id, f"00-{self.trace_id}-", f"-0{self.sampled:d}"

        def text(task_id: TaskId, attempt: Attempt, spans: int = _SPANS) -> bytes:
            number = (span_id ^ (task_id << _ATTEMPT_BITS | attempt) << _PART_BITS) & spans or 1
            return (head + number.to_bytes(8).hex() + tail).encode()  # half of what a format takes

        return text


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the context that a text says; None if it is no valid ``traceparent``."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, int(span_id, 16), bool(int(flags, 16) & 1))
