"""Has the spans of a job sent to a collector by another process, and never for longer than allowed.

A collector that is down, slow or silent costs a job nothing but its spans: those are dropped when too many
wait, which is said once, at the end.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import trio

from gspc_trio.components.job.messages import JobStatus
from gspc_trio.components.job.shell.settings import ENDPOINT_VARIABLES, JobSettings
from gspc_trio.components.job.spans import Span, SpanOrder, SpansTold, framed
from gspc_trio.components.job.tracing import (
    BATCH_SPANS_MAX,
    LOOK_INTERVAL_S,
    JobTracer,
    SendingPace,
    SpanQueue,
)
from gspc_trio.components.worker.shell.template_process import python_command
from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.core.ids import JobId
from gspc_trio.core.trace_context import TRACEPARENT, TraceContext, parse_traceparent
from gspc_trio.nursery.scopes.process import open_process
from gspc_trio.nursery.scopes.scope import open_scope

log: logging.Logger = logging.getLogger(__name__)

END_S = 1.0
"""The end of a job waits at most so long until the last spans are sent."""

LOAD_S = 10.0
"""Before that it waits at most so long until OpenTelemetry is loaded: seconds, on a busy machine."""

CONNECT_S = 0.5
"""An endpoint that takes longer to accept a connection does not answer."""

END_GRACE_S = 0.5
"""The process that sends may take so long to end."""

PROGRAM = "gspc_trio.integrations.span_process"

_ENDPOINTS = (*reversed(ENDPOINT_VARIABLES),)


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
    async with open_scope() as nursery:
        nursery.start_soon(sender.run)
        try:
            yield tracer
        finally:
            try:
                if (last := status()) is not None:
                    counts = {state.value: number for state, number in last.tasks.items()}
                    tracer.end(last.state, last.detail, counts, time.time())
                with trio.CancelScope(shield=True):
                    await sender.end(END_S)
            finally:  # also if Ctrl-C comes meanwhile
                sender.stop()


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
    """Has another process send what waits in a queue.

    That loads OpenTelemetry, which takes a good part of a second of a core, when something listens at the
    endpoint: one that is down costs a connection that is refused, now and then.

    Args:
        queue: of spans.
        trace_id: their trace.
    """

    def __init__(self, queue: SpanQueue, trace_id: str) -> None:
        self._queue = queue
        self._trace_id = trace_id
        self._ending = trio.Event()
        self._settled = trio.Event()  # the process has loaded all, or need not
        self._over = trio.Event()  # there is nothing to wait for: all is sent, or nothing can be
        self._scope = trio.CancelScope(shield=True)  # the last spans come when the job has ended
        self._refused = 0
        self._in_hand = 0
        self._why = ""

    async def end(self, within_s: float) -> None:
        """Send what waits, for at most so long once it can be sent; then say once how much was not."""
        self._ending.set()
        try:
            with trio.move_on_after(LOAD_S):
                await self._settled.wait()
            with trio.move_on_after(within_s):
                await self._over.wait()
        finally:
            self.stop()
        unsent = self._refused + self._in_hand + len(self._queue)
        lost = self._queue.dropped + unsent
        if lost:
            parts = {"found too many others waiting": self._queue.dropped}
            parts[f"could not be sent{self._why or ' in time'}"] = unsent
            how = ", ".join(f"{number} {what}" for what, number in parts.items() if number)
            log.warning("OpenTelemetry: %d spans were dropped: %s", lost, how)

    def stop(self) -> None:
        """Send no more, also if it waits for an answer, or before it tries again."""
        self._scope.cancel()

    async def run(self) -> None:
        """Send until :meth:`end` is called, and has waited for the rest."""
        with self._scope:
            try:
                if await self._await_endpoint():
                    self._go_on()  # it may have been down at first
                    await self._send_all()
            except Exception as error:  # whatever it is: the job does without spans
                self._give_up(str(error))
            finally:
                self._settled.set()
                self._over.set()

    def _go_on(self) -> None:
        """Spans can be sent."""
        self._why = ""
        if self._over.is_set():
            self._over = trio.Event()

    def _give_up(self, why: str) -> None:
        """Spans cannot be sent now: nobody is to wait for that."""
        self._why = f": {why}"
        self._over.set()

    async def _await_endpoint(self) -> bool:
        """Return when something listens at the endpoint, or when nothing does at the end: whether it does."""
        address = endpoint_address(os.environ)
        while address is not None:
            if await self._is_listening(address):
                break
            if await self._is_ending_within(LOOK_INTERVAL_S):
                return False
        return True

    async def _is_listening(self, address: tuple[str, int]) -> bool:
        """Return whether something listens; nobody is to wait for that when it takes long."""
        where = f"{address[0]}:{address[1]}"

        async def wait_no_longer() -> None:
            await trio.sleep(CONNECT_S)  # the name may be looked up for many seconds
            self._give_up(f"{where}: it does not answer")
            self._settled.set()

        async with open_scope() as nursery:
            nursery.start_soon(wait_no_longer)
            try:
                await trio.to_thread.run_sync(_connect, address, abandon_on_cancel=True)
            except OSError as error:
                self._give_up(f"{where}: {error.strerror or error}")
                self._settled.set()
                return False
            finally:
                nursery.cancel_scope.cancel()
        return True

    async def _is_ending_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self._ending.wait()
        return self._ending.is_set()

    async def _send_all(self) -> None:
        """Send all by a process that is started here.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = python_command(PROGRAM, theirs.fileno())
            async with open_process(command, pass_fds=(theirs.fileno(),), grace_s=END_GRACE_S):
                theirs.close()
                ours.setblocking(False)
                async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
                    try:
                        await self._send_by(_Sending(stream, self._give_up))
                    except (trio.BrokenResourceError, trio.EndOfChannel):
                        self._give_up(self._why[2:] or "the process that sends them has ended")

    async def _send_by(self, sending: _Sending) -> None:
        # What is no text is passed over when modules are looked for.
        path = [os.fsencode(entry) for entry in sys.path if isinstance(entry, str)]
        told = await sending.ask(SpanOrder(self._trace_id, path))
        self._settled.set()
        if not told.are_sent:
            self._give_up(told.why)
            return
        pace = SendingPace(time.monotonic(), time.process_time())
        while True:
            is_last, sent_s = self._ending.is_set(), 0.0
            while spans := self._queue.take(BATCH_SPANS_MAX):
                self._in_hand = len(spans)
                try:
                    told = await sending.ask(spans)
                except UnicodeEncodeError as error:  # a name has what no text may have
                    told = SpansTold(False, str(error))
                self._in_hand = 0
                sent_s += told.cpu_s
                if told.are_sent:
                    self._go_on()
                else:
                    self._refused += len(spans)
                    self._give_up(told.why or self._why[2:] or "the collector took none")
                    if not is_last and not await self._await_endpoint():
                        return
                    break
                if not self._ending.is_set():
                    break
            if is_last and (self._why or not len(self._queue)):
                return
            await self._is_ending_within(pace.wait_s(time.monotonic(), time.process_time(), sent_s))


class _Sending:
    """Our end of the process that sends.

    Args:
        stream: leads to it.
        on_trouble: told why it could not send, when it tries again.
    """

    def __init__(self, stream: trio.SocketStream, on_trouble: Callable[[str], None]) -> None:
        self._stream = stream
        self._on_trouble = on_trouble
        self._unread = bytearray()

    async def ask(self, message: SpanOrder | Sequence[Span]) -> SpansTold:
        """Return what became of it.

        Raises:
            BrokenResourceError, EndOfChannel: the process has ended.
        """
        await self._stream.send_all(framed(message))
        while True:
            (size_bytes,) = FRAME_HEADER.unpack(await self._receive(FRAME_HEADER.size))
            told = msgspec.msgpack.decode(await self._receive(size_bytes), type=SpansTold)
            if told.are_sent is not None:
                return told
            self._on_trouble(told.why)

    async def _receive(self, size_bytes: int) -> bytes:
        while len(self._unread) < size_bytes:
            data = await self._stream.receive_some()
            if not data:
                raise trio.EndOfChannel
            self._unread += data
        taken = bytes(self._unread[:size_bytes])
        del self._unread[:size_bytes]
        return taken


def _connect(address: tuple[str, int]) -> None:
    socket.create_connection(address, CONNECT_S).close()
