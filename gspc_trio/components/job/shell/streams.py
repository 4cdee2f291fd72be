"""What goes into a running job and comes out: iterators that fill its ports, and readers of its results."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from gspc_trio.core.similar import did_you_mean
from gspc_trio.iml.errors import ImlError
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.values import is_reference
from gspc_trio.workflow.tokens import Asker, Feed, Outputs, Plain, Token, Value

if TYPE_CHECKING:
    from gspc_trio.workflow.net import Net
    from gspc_trio.workflow.ports import Ports

TAKEN_AT_ONCE = 16
"""So many results are taken off a stream at a time: there is room for so many others then."""


class OutputPorts(Protocol):
    """What there is to read of a workflow engine, and to add to it."""

    @property
    def ports(self) -> Ports:
        """What comes from outside, and is taken off."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the workflow has ended although there may be more to do."""
        ...

    def output_ports(self) -> Sequence[str]:
        """Return the names of the output ports."""
        ...

    def output_tokens(self, port: str, seen: int) -> list[Token]:
        """Return the tokens at an output port but for the first ``seen``, oldest first."""
        ...

    def value_of(self, token: Token) -> Value:
        """Return the value of a token."""
        ...

    def dump(self) -> dict[str, Plain]:
        """Return the whole state as plain data."""
        ...

    def put(self, port: str, values: Iterable[object], asker: Asker | None = None) -> None:
        """Add tokens to an input port."""
        ...


def checked_port(ports: OutputPorts | None, port: str) -> str:
    """Return the name of an output port: the only one if "".

    Raises:
        ValueError: there is no such port.
    """
    names = ports.output_ports() if ports is not None else ()
    if not port and len(names) == 1:
        return names[0]
    there = ", ".join(names) or "none"
    if not port:
        raise ValueError(f"name one of the output ports: {there}" if names else "there is no output port")
    if port not in names:
        raise ValueError(f"no output port {port!r}{did_you_mean(port, names)}; output ports: {there}")
    return port


class StreamedJob(Protocol):
    """What feeds and readers need of a running job."""

    @property
    def has_ended(self) -> bool:
        """Whether the job is over."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the job takes nothing more: it has ended, or has just begun to."""
        ...

    def put(self, port: str, values: Iterable[object]) -> None:
        """Add tokens to an input port."""
        ...

    def close(self, port: str) -> None:
        """Say that no more tokens come to an input port."""
        ...

    def stop(self, reason: str) -> None:
        """End the job."""
        ...

    def look(self) -> None:
        """Tell the job that its engine has something new."""
        ...

    async def wait_news(self) -> None:
        """Wait until there may be new results."""
        ...

    async def wait_ended(self) -> object:
        """Wait for the end of the job."""
        ...

    async def wait_outputs(self) -> Outputs:
        """Wait for the end of the job and return what is at its output ports."""
        ...


async def results_of(job: StreamedJob, ports: OutputPorts, port: str) -> AsyncIterator[Value]:
    """Yield the values at a port; what ``Job.results`` does."""
    count = 0
    while True:
        has_ended = job.has_ended
        tokens = ports.output_tokens(port, count)
        for token in tokens:
            try:
                value = await open_token(ports, token)
            except ImlError:  # it is made again before the job ends
                for value in (await job.wait_outputs())[port][count:]:
                    yield value
                return
            count += 1
            yield value
        if tokens:
            continue
        if has_ended:
            break
        await job.wait_news()
    await job.wait_outputs()


class StreamReader(AsyncIterator[Value]):
    """Yields the values at a port that is a stream, and takes them off when more are asked for.

    From the first value to the last it holds the stream back, or until nobody has it any more.

    Args:
        job: that runs.
        ports: of its workflow.
        port: name of the output port.
    """

    def __init__(self, job: StreamedJob, ports: OutputPorts, port: str) -> None:
        self._job = job
        self._ports = ports
        self._port = port
        self._tokens: deque[Token] = deque()
        self._yielded = 0
        self._holds = False

    async def __anext__(self) -> Value:
        if not self._holds:
            self._ports.ports.hold(self._port, True)
            self._holds = True
        while not self._tokens:
            self._take_off()
            has_ended = self._job.has_ended
            self._tokens.extend(self._ports.ports.first(self._port, TAKEN_AT_ONCE))
            if self._tokens:
                break
            if has_ended:
                self.close()
                await self._job.wait_outputs()
                raise StopAsyncIteration
            await self._job.wait_news()
        value = await open_token(self._ports, self._tokens[0])
        self._tokens.popleft()
        self._yielded += 1
        return value

    def _take_off(self) -> None:
        if self._yielded:
            self._ports.ports.take_off(self._port, self._yielded)
            self._yielded = 0
            self._job.look()

    def close(self) -> None:
        """Take off what was yielded, and hold the stream back no longer."""
        if self._holds:
            self._holds = False
            self._take_off()
            self._tokens.clear()
            self._ports.ports.hold(self._port, False)
            self._job.look()

    def __del__(self) -> None:
        self.close()


class NotAnswered(LookupError):
    """What was asked of a job has no answer; the message says why."""


class OpenQuestion:
    """One question to a job.

    Args:
        asked: what was asked, for people.
    """

    def __init__(self, asked: str) -> None:
        self._asked = asked
        self._over = trio.Event()
        self._answer: Token | None = None
        self._why = ""

    def told(self, token: Token | None) -> None:
        """Take the answer, or that no token is left with which it was asked."""
        self._answer = token
        self._end("the workflow has used it up without an answer")

    def _end(self, why: str) -> None:
        if not self._over.is_set():
            self._why = why
            self._over.set()

    async def wait(self, job: StreamedJob) -> Token:
        """Wait for the answer.

        Raises:
            NotAnswered: there is none.
        """

        async def wait_for_end() -> None:
            await job.wait_ended()
            self._end("the job has ended before there was an answer")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_end)
            await self._over.wait()
            nursery.cancel_scope.cancel()
        if self._answer is None:
            raise NotAnswered(f"{self._asked} has no answer: {self._why}")
        return self._answer


async def open_token(ports: OutputPorts, token: Token) -> Value:
    """Return the value of a token; what lies in a memory layer is never read in trio's thread."""
    if token.data is not None and is_reference(token.data):
        from gspc_trio.iml.shell.platform import platform  # few jobs read such results

        return await platform().in_thread(lambda: ports.value_of(token))
    return ports.value_of(token)


@asynccontextmanager
async def feeding(
    job: StreamedJob, ports: OutputPorts, net: Net, values: Mapping[str, object]
) -> AsyncIterator[None]:
    """Fill input ports of a job from the iterators among its values, while the block runs and after it."""
    feeds = {port: fed for port in ports.ports.open if isinstance(fed := values.get(port), Feed)}
    if not feeds:
        yield
        return
    async with open_scope() as nursery:
        for port, fed in feeds.items():
            nursery.start_soon(feed, job, ports, port, fed, net.places[port].read_ahead)
        yield


async def feed(job: StreamedJob, ports: OutputPorts, port: str, values: Feed, most: int) -> None:
    """Put the values of an iterator to an input port while there is room, and close it at the end.

    A job that is resumed has had some of them: an iterator that begins anew is read so far without putting
    what it gives.

    Args:
        job: that runs.
        ports: of its workflow.
        port: name of the input port.
        values: the iterator.
        most: how many values wait at the port at most.
    """
    had = ports.ports.received.get(port, 0)
    try:
        if values.read > had:
            raise ValueError(
                "the iterator has given values that the journal has not: resume in a new process"
            )
        if isinstance(values.source, Iterator):
            await _feed_from_thread(job, ports, port, values, values.source, had, most)
        else:
            async for value in values.source:
                values.read += 1
                if values.read <= had:
                    continue
                while not (ports.ports.has_room(port) or job.is_over):
                    await job.wait_news()
                if job.is_over:
                    return
                job.put(port, [value])
        if not job.is_over:
            job.close(port)
    except Exception as error:
        if not job.is_over:
            job.stop(f"the iterator for the input port {port!r} raised {type(error).__name__}: {error}")


async def _feed_from_thread(
    job: StreamedJob,
    ports: OutputPorts,
    port: str,
    values: Feed,
    source: Iterator[object],
    had: int,
    most: int,
) -> None:
    news = trio.Event()

    async def wake_at_end() -> None:
        await job.wait_ended()
        news.set()

    async with trio.open_nursery() as nursery:
        token = trio.lowlevel.current_trio_token()
        reader = _ThreadReader(source, values, had, lambda: token.run_sync_soon(lambda: news.set()))
        nursery.start_soon(wake_at_end)
        nursery.start_soon(partial(trio.to_thread.run_sync, reader.run, abandon_on_cancel=True))
        put = 0
        while not job.is_over:
            if not ports.ports.has_room(port):
                await job.wait_news()
                continue
            room = most - ports.ports.waiting(port)
            reader.allow(put + room)
            news = trio.Event()
            found, over = reader.take()
            if found:
                job.put(port, found)
                put += len(found)
            elif over:
                break
            elif reader.given >= put + room:
                await job.wait_news()
            else:
                await news.wait()
        reader.stop()
        nursery.cancel_scope.cancel()
    if reader.error is not None:
        raise reader.error


class _ThreadReader:
    """Reads an iterator in a thread of its own, which may wait for values for long.

    Args:
        source: the iterator.
        values: counts what has come from it.
        had: so many values are not wanted.
        wake: tells trio that there is something to take; called in the thread.

    Attributes:
        given: how many values it has read that are wanted.
        error: what the iterator raised.
    """

    def __init__(self, source: Iterator[object], values: Feed, had: int, wake: Callable[[], None]) -> None:
        self.given = 0
        self.error: Exception | None = None
        self._source = source
        self._values = values
        self._had = had
        self._wake = wake
        self._found: deque[object] = deque()
        self._changed = threading.Condition()
        self._allowed = 0
        self._over = self._is_stopped = self._is_waited_for = False

    def run(self) -> None:
        """Read as long as it is allowed, until the end."""
        try:
            while self._may_go_on():
                value = next(self._source)
                self._values.read += 1
                if self._values.read > self._had:
                    self.given += 1
                    self._found.append(value)
                    self._tell()
        except StopIteration:
            pass
        except Exception as error:
            self.error = error
        self._over = True
        self._tell()

    def _may_go_on(self) -> bool:
        if self.given < self._allowed and not self._is_stopped:
            return True
        with self._changed:
            self._changed.wait_for(lambda: self.given < self._allowed or self._is_stopped)
        return not self._is_stopped

    def _tell(self) -> None:
        if self._is_waited_for:
            self._is_waited_for = False
            with suppress(trio.RunFinishedError):
                self._wake()

    def allow(self, number: int) -> None:
        """Let it read so many values that are wanted, altogether."""
        if number > self._allowed:
            with self._changed:
                self._allowed = number
                self._changed.notify()

    def take(self) -> tuple[list[object], bool]:
        """Return what was read since the last call, and whether that was all; if nothing, it will tell."""
        self._is_waited_for = True  # before it is looked: what is read afterwards is told
        over = self._over
        found = [self._found.popleft() for _ in range(len(self._found))]
        if found:
            self._is_waited_for = False
        return found, over

    def stop(self) -> None:
        """Read nothing more; a thread that waits for a value ends when that has come."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
