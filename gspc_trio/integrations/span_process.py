"""The process that sends the spans of a job by OpenTelemetry: the job server starts it.

Here alone OpenTelemetry is loaded. In the process of the job its objects would be a third more for the
garbage collector to look at, and all threads of that would wait while spans are encoded.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from gspc_trio.components.job.spans import Span, SpanOrder, SpansTold, framed
from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.compute.system import set_name, set_parent_death_signal
from gspc_trio.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Event, ReadableSpan

T = TypeVar("T")

_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


def main() -> None:
    """Send what comes through the socket whose number is the argument, until that is closed."""
    set_parent_death_signal(signal.SIGKILL)
    set_name("gspc-spans")
    with socket.socket(fileno=int(sys.argv[1])) as line, line.makefile("rb") as said:
        with suppress(BrokenPipeError, ConnectionResetError):  # nobody wants to know any more
            _send_all(said, lambda told: line.sendall(framed(told)))


def _next(said: BinaryIO, kind: type[T]) -> T | None:
    """Return the message that comes next, None when no other will."""
    head = said.read(FRAME_HEADER.size)
    if len(head) < FRAME_HEADER.size:
        return None
    (size_bytes,) = FRAME_HEADER.unpack(head)
    data = said.read(size_bytes)
    return msgspec.msgpack.decode(data, type=kind) if len(data) == size_bytes else None


def _send_all(said: BinaryIO, tell: Callable[[SpansTold], None]) -> None:
    order = _next(said, SpanOrder)
    if order is None:
        return
    sys.path[:] = map(os.fsdecode, order.path)

    def hear(record: logging.LogRecord) -> bool:
        tell(SpansTold(None, f"{record.getMessage():.500}"))
        return False

    try:
        from opentelemetry import context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult

        logging.getLogger(_EXPORTER_LOG).addFilter(hear)
        exporter, convert = OTLPSpanExporter(), Converter(int(order.trace_id, 16))
        context.attach(context.set_value("suppress_instrumentation", True))  # nobody traces these requests
    except Exception as error:  # an endpoint that is no address, a certificate that is not there
        tell(SpansTold(False, str(error)))
        return
    gc.freeze()
    gc.enable()
    tell(SpansTold(True))
    begun_s = time.process_time()
    while (spans := _next(said, list[Span])) is not None:
        why = ""
        try:
            are_sent = exporter.export(list(map(convert, spans))) is SpanExportResult.SUCCESS
        except Exception as error:  # what the exporter does not expect itself
            are_sent, why = False, f"{type(error).__name__}: {error}"
        now_s = time.process_time()
        tell(SpansTold(are_sent, why, now_s - begun_s))
        begun_s = now_s


class Converter:
    """Turns spans into those of OpenTelemetry.

    Args:
        trace_id: number of their trace.
    """

    def __init__(self, trace_id: int) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

        self._scope = InstrumentationScope("gspc_trio", VERSION)
        service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "gspc-trio"}
        found = Resource.create(service)
        # The same for all spans: the exporter hashes it for each, which took a tenth of its time.
        hashed_quickly = type("OneResource", (Resource,), {"__hash__": object.__hash__})
        self._resource = hashed_quickly(found.attributes, found.schema_url)
        flags = TraceFlags(TraceFlags.SAMPLED)
        self._context: Callable[[int], SpanContext] = lambda number: SpanContext(
            trace_id, number, False, flags
        )
        self._event, self._span, self._link, self._status = Event, ReadableSpan, Link, Status
        self._fine, self._error = Status(), StatusCode.ERROR

    def __call__(self, span: Span) -> ReadableSpan:
        context, error, status = self._context, span.error, self._fine
        events: tuple[Event, ...] = ()
        if error is not None:
            status = self._status(self._error, f"{error.kind}: {error.message}")
            told = {"exception.type": error.kind, "exception.message": error.message}
            if error.traceback:
                told["exception.stacktrace"] = error.traceback
            events = (self._event("exception", told, int(span.end_s * 1e9)),)
        link = (self._link(context(span.link), {"gspc.link": "attempt before"}),) if span.link else ()
        return self._span(
            span.name,
            context(span.span_id),
            context(span.parent_id) if span.parent_id else None,
            self._resource,
            span.attributes,
            events,
            link,
            status=status,
            start_time=int(span.begin_s * 1e9),
            end_time=int(span.end_s * 1e9),
            instrumentation_scope=self._scope,
        )
