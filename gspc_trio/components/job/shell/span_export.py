"""Sends the spans of a job to a collector by OpenTelemetry, in a thread, and never for longer than allowed.

A collector that is down, slow or silent costs a job nothing but its spans: those are dropped when too many
wait, which is said once, at the end.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from gspc_trio.components.job.messages import JobStatus
from gspc_trio.components.job.shell.settings import ENDPOINT_VARIABLES, JobSettings
from gspc_trio.components.job.tracing import (
    BATCH_SPANS_MAX,
    LOOK_INTERVAL_S,
    JobTracer,
    SendingPace,
    Span,
    SpanQueue,
)
from gspc_trio.core.ids import JobId
from gspc_trio.core.trace_context import TRACEPARENT, TraceContext, parse_traceparent
from gspc_trio.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Event, ReadableSpan

log: logging.Logger = logging.getLogger(__name__)

END_S = 1.0
"""The end of a job waits at most so long until the last spans are sent."""

LOAD_S = 10.0
"""Before that it waits at most so long until OpenTelemetry is loaded: seconds, on a busy machine."""

CONNECT_S = 0.5
"""An endpoint that takes longer to accept a connection does not answer."""

_ENDPOINTS = (*reversed(ENDPOINT_VARIABLES),)
_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


@asynccontextmanager
async def open_tracer(
    settings: JobSettings, job: JobId, hosts: Mapping[str, str], status: Callable[[], JobStatus | None]
) -> AsyncIterator[JobTracer]:
    """Return what makes the spans of a job, and send them while the block runs.

    Args:
        settings: of the job; it is to send spans.
        job: its id.
        hosts: resource -> its host.
        status: returns how the job is; None: it has not begun.
    """
    above = parse_traceparent(settings.traceparent or os.environ.get(TRACEPARENT, ""))
    span_id = secrets.randbits(64) or 1
    if above is None:
        context, parent = TraceContext(secrets.token_hex(16), span_id), 0
    else:
        context, parent = TraceContext(above.trace_id, span_id, above.sampled), above.span_id
    tracer = JobTracer(context, parent, job, settings.name, time.time(), lambda name: hosts.get(name, ""))
    if not context.sampled:  # whoever began the trace does not want it recorded
        yield tracer
        return
    sender = SpanSender(tracer.queue, context.trace_id)
    sender.start()
    try:
        yield tracer
    finally:
        if (last := status()) is not None:
            counts = {state.value: number for state, number in last.tasks.items()}
            tracer.end(last.state, last.detail, counts, time.time())
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(sender.end, END_S)


def endpoint_address(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return host and port to which spans go.

    Args:
        environment: variables that the exporter reads.

    Returns:
        None: a proxy may stand between, or it is no address: only the exporter can tell.
    """
    from urllib.parse import urlsplit

    text = next(filter(None, map(environment.get, _ENDPOINTS)), "http://localhost:4318")
    try:
        parts = urlsplit(text)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    proxies = {f"{parts.scheme}_proxy", "all_proxy"}
    proxied = any(value for name, value in environment.items() if name.lower() in proxies)
    if proxied and environment.get("NO_PROXY", environment.get("no_proxy")) != "*":
        return None
    return (parts.hostname, port) if parts.hostname else None


class SpanSender:
    """A thread that sends what waits in a queue.

    It loads OpenTelemetry, which takes a good part of a second of a core, when something listens at the
    endpoint: one that is down costs a connection that is refused, now and then.

    Args:
        queue: of spans.
        trace_id: their trace.
    """

    def __init__(self, queue: SpanQueue, trace_id: str) -> None:
        self._queue = queue
        self._trace_id = int(trace_id, 16)
        self._ending = threading.Event()
        self._settled = threading.Event()  # it is loaded, or need not be
        self._over = threading.Event()  # there is nothing to wait for: all is sent, or nothing can be
        self._refused = 0
        self._in_hand = 0
        self._why = ""
        self._shut_down: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="gspc-otel", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    def end(self, within_s: float) -> None:
        """Send what waits, for at most so long once it can be sent; then say once how much was not."""
        self._ending.set()
        self._settled.wait(LOAD_S)
        self._over.wait(within_s)
        if self._thread.is_alive():
            self._shut_down()  # it may wait before it tries again, or for an answer: the latter it does alone
        unsent = self._refused + self._in_hand + len(self._queue)
        lost = self._queue.dropped + unsent
        if lost:
            parts = {"found too many others waiting": self._queue.dropped}
            parts[f"could not be sent{self._why}"] = unsent
            how = ", ".join(f"{number} {what}" for what, number in parts.items() if number)
            log.warning("OpenTelemetry: %d spans were dropped: %s", lost, how)

    def _run(self) -> None:
        """Send until the end; the libraries are loaded here, where nobody waits for them."""
        ours = threading.get_ident()
        hearing = logging.getLogger(_EXPORTER_LOG)

        def hear(record: logging.LogRecord) -> bool:
            if record.thread != ours:
                return True
            self._why = f": {record.getMessage():.500}"
            self._over.set()
            return False

        hearing.addFilter(hear)
        try:
            if self._await_endpoint():
                self._why = ""  # it may have been down at first
                self._over.clear()
                self._send_all()
        except Exception as error:  # an endpoint that is no address, a certificate that is not there
            self._why = f": {error}"
        finally:
            hearing.removeFilter(hear)
            self._settled.set()
            self._over.set()

    def _await_endpoint(self) -> bool:
        """Return when something listens at the endpoint, or when nothing does at the end: whether it does."""
        address = endpoint_address(os.environ)
        while address is not None:
            try:
                socket.create_connection(address, CONNECT_S).close()
                break
            except OSError as error:
                self._why = f": {address[0]}:{address[1]}: {error.strerror or error}"
                self._settled.set()
                self._over.set()
            if self._ending.wait(LOOK_INTERVAL_S):
                return False
        return True

    def _send_all(self) -> None:
        from opentelemetry import context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult

        exporter = OTLPSpanExporter()
        self._shut_down = exporter.shutdown
        convert = _Converter(self._trace_id)
        self._settled.set()
        context.attach(context.set_value("suppress_instrumentation", True))  # nobody traces these requests
        pace = SendingPace(time.monotonic(), time.process_time())
        while True:
            is_last = self._ending.is_set()
            begun_s = time.thread_time()
            while spans := self._queue.take(BATCH_SPANS_MAX if is_last else pace.batch_max):
                self._in_hand = len(spans)
                result = exporter.export(list(map(convert, spans)))
                self._in_hand = 0
                if result is SpanExportResult.SUCCESS:
                    self._why = ""
                    self._over.clear()
                else:
                    self._refused += len(spans)
                    if not is_last and not self._await_endpoint():
                        return
                    break
                if not self._ending.is_set():
                    break
            if is_last and (self._why or not len(self._queue)):
                return
            sent_s = time.thread_time() - begun_s
            self._ending.wait(pace.wait_s(time.monotonic(), time.process_time(), sent_s))


class _Converter:
    """Turns spans into those of OpenTelemetry."""

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
