"""A co-allocation request that runs: ``async with open_coallocation(text, jobs=..., rts=[...])``.

Who runs it is a co-allocation service: one that listens elsewhere, or one in this process for the time of the
request. Either is spoken to over one connection.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import trio
from attrs import frozen

from gspc_trio.components.coallocation.agents.delegation import Credential
from gspc_trio.components.coallocation.agents.words import (
    AttachRequest,
    CancelRequest,
    JobsEnded,
    RequestDone,
    RequestTaken,
    SubmitRequest,
)
from gspc_trio.components.coallocation.flow import (
    BeginFlow,
    CancelFlow,
    CoJobEnded,
    CoJobState,
    RequestFlow,
)
from gspc_trio.components.coallocation.jobs import CoJob, NamedJobs, jobs_with_options
from gspc_trio.components.coallocation.language import order_of, parse_coallocation
from gspc_trio.components.coallocation.shell.service import (
    SERVICE_ROLE,
    is_name,
    open_coallocation_service,
)
from gspc_trio.components.coallocation.text import print_text
from gspc_trio.components.coallocation.tree import Request, RslError
from gspc_trio.components.rts.shell.client import RunTimeSystem, join_rts
from gspc_trio.components.rts.shell.delegation import minted
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.connection_file import ConnectionFileError, read_connection_file
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, PeerGone
from gspc_trio.nursery.scopes.loop import require_trio
from gspc_trio.nursery.scopes.scope import open_scope

STOP_S = 10.0
"""How long what still runs may take to stop when the block of a request is left."""

COME_BACK_S = 30.0
"""A service with a journal that is gone may come back for so long."""

LOOK_AGAIN_S = 0.5
"""How often it is looked for."""

HERE = "here"
"""Name of a service in this process."""

_REQUEST = "request"


@frozen
class CoJobEnd:
    """How a job of a request has ended.

    Attributes:
        number: of the job.
        name: for people.
        state: finished, failed, not run or cancelled.
        reason: why it failed, or why it was not run; "" if it has finished.
        output: what its programs have printed, part after part, the last 64 KiB of each.
    """

    number: int
    name: str
    state: CoJobState
    reason: str = ""
    output: str = ""


class RunningCoallocation:
    """A request that runs; :func:`open_coallocation` opens it.

    Args:
        jobs: its jobs.
        flow: their order.
        peer: the service that runs it.
        service: its connection file, None if it is in this process.
        on_change: called with a job and how it has ended.

    Attributes:
        jobs: its jobs, in the order of the text.
        request_id: by which its service knows it, "" before it does.
    """

    def __init__(
        self,
        jobs: Sequence[CoJob],
        flow: RequestFlow,
        peer: Peer,
        on_change: Callable[[CoJob, CoJobEnd], object] | None,
        service: Path | None = None,
    ) -> None:
        self._service = service
        self._is_kept = self._cancelled = False
        self.jobs: Sequence[CoJob] = jobs
        self.request_id: str = ""
        self._flow = flow
        self._peer = peer
        self._on_change = on_change
        self._ends: dict[int, CoJobEnd] = {}
        self._over = trio.Event()
        self._failure: Exception | None = None

    def states(self) -> tuple[CoJobState, ...]:
        """Return the state of each job, in the order of the text, as far as its service has told."""
        return tuple(
            self._ends[job.number].state if job.number in self._ends else state
            for job, state in zip(self.jobs, self._flow.states, strict=True)
        )

    async def wait(self) -> tuple[CoJobEnd, ...]:
        """Wait until nothing runs any more, and nothing will; return how each job has ended.

        Raises:
            PeerGone: the service is gone.
            RslError: the service refuses the request.
        """
        await self._over.wait()
        if self._failure is not None:
            raise self._failure
        return tuple(self._ends[job.number] for job in self.jobs)

    async def cancel(self) -> tuple[CoJobEnd, ...]:
        """Start nothing more and stop what runs; return when nothing runs any more."""
        if not self._over.is_set():
            self._flow.handle(CancelFlow(), trio.current_time())
            self._cancelled = True
            self._ask_to_cancel()
        return await self.wait()

    def submit(self, told: SubmitRequest) -> None:
        """Give it to the service; before all else."""
        self._flow.handle(BeginFlow(), trio.current_time())
        self._peer.post(told)

    async def listen(self) -> None:
        """Take what the service tells, until nothing runs any more; one with a journal may come back."""
        try:
            try:
                await self._listen()
            except PeerGone:
                if not self._is_kept:
                    raise
                await self._come_back()
        except PeerGone as gone:
            self._failure = PeerGone(f"the co-allocation service is gone: {gone.reason}")
            self._over.set()

    async def _listen(self) -> None:
        while not self._over.is_set():
            for message in await self._peer.receive():
                self._take(message)

    async def _come_back(self) -> None:
        """Look for the service that is started again, and hear from it how the request goes on.

        Raises:
            PeerGone: it does not come back.
        """
        assert self._service is not None
        until_s = trio.current_time() + COME_BACK_S
        while not self._over.is_set():
            try:
                async with connect_service(self._service) as self._peer:
                    until_s = trio.current_time() + COME_BACK_S
                    self._peer.post(AttachRequest(_REQUEST, self.request_id))
                    if self._cancelled:
                        self._peer.post(CancelRequest(_REQUEST))
                    await self._listen()
            except (ConnectionFileError, ConnectionProblem, PeerGone) as error:
                if trio.current_time() > until_s:
                    raise PeerGone(f"it has not come back within {COME_BACK_S:g} s: {error}") from None
                await trio.sleep(LOOK_AGAIN_S)

    def _take(self, message: object) -> None:
        if isinstance(message, RequestTaken):
            self.request_id, self._is_kept = message.request_id, message.is_kept
        elif isinstance(message, JobsEnded):
            for report in message.ends:
                if report.number in self._ends:
                    continue  # it was told of before its service was started again
                job, state = self.jobs[report.number - 1], CoJobState(report.state)
                if self._flow.states[report.number - 1] is CoJobState.STARTED:
                    failure = "" if state is CoJobState.FINISHED else report.reason or str(state)
                    self._flow.handle(CoJobEnded(report.number, failure), trio.current_time())
                end = CoJobEnd(report.number, job.name, state, report.reason, report.output)
                self._ends[report.number] = end
                if self._on_change is not None:
                    self._on_change(job, end)
        elif isinstance(message, RequestDone):
            if message.error:
                self._failure = RslError(message.error)
            self._over.set()

    def _ask_to_cancel(self) -> None:
        with suppress(PeerGone):  # it may come back, and is asked then
            self._peer.post(CancelRequest(_REQUEST))

    async def stop(self) -> None:
        """Stop what still runs, for at most :data:`STOP_S`."""
        if not self._over.is_set():
            with trio.move_on_after(STOP_S, shield=True):
                self._ask_to_cancel()
                await self._over.wait()


def read_jobs(path: Path | str) -> NamedJobs:
    """Return the jobs that a file in TOML describes: a table of options each, or a text.

    Raises:
        RslError: it cannot be read.
    """
    try:
        jobs: NamedJobs = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RslError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RslError(f"{path}: {error}") from error
    return jobs


@asynccontextmanager
async def open_coallocation(
    request: str | bytes | Request,
    *,
    jobs: NamedJobs | Path | str | None = None,
    rts: Sequence[RunTimeSystem | Path | str] | Mapping[str, RunTimeSystem | Path | str] = (),
    service: Path | str | None = None,
    on_change: Callable[[CoJob, CoJobEnd], object] | None = None,
) -> AsyncIterator[RunningCoallocation]:
    """Run a co-allocation request; its jobs start at once, in their order.

    Leaving the block stops what still runs.

    Args:
        request: its text, its XML, or its tree.
        jobs: jobs that it names: name -> options, or text; or a file in TOML that describes them.
        rts: the run-time systems that its jobs run on: such that ``open_rts`` has opened, or their connection
            files; with names of the sites that they are, or without. With a service: those, with names, of
            which a credential is brought.
        service: connection file of the co-allocation service that runs it; None: one in this process.
        on_change: called when a job has ended, with the job and how it has ended.

    Raises:
        ConnectionFileError, ConnectFailed: there is no such running run-time system, or no such service.
        NotInTrio: this is no task of trio.
        RslError: the request cannot be read, or a job is unknown or lacks what it needs.
        ValueError: there is neither a run-time system nor a service, or names are wrong.
    """
    require_trio("open_coallocation")
    tree = parse_coallocation(request) if isinstance(request, str | bytes) else request
    named = await trio.to_thread.run_sync(read_jobs, jobs) if isinstance(jobs, str | Path) else jobs
    found = jobs_with_options(tree, named or {})
    if service is None and not rts:
        raise ValueError("a request runs on a run-time system at least, or by a service")
    sites = site_names(rts, HERE)
    async with AsyncExitStack() as stack:
        credentials: dict[str, Credential] = {}
        listens = None if service is None else Path(service)
        if service is None:
            peer = await _own_service(stack, sites)
        else:
            peer = await stack.enter_async_context(connect_service(Path(service)))
            credentials = {name: await _minted(one) for name, one in sites.items()}
        told = SubmitRequest(_REQUEST, print_text(tree), _as_json(named or {}), os.getcwd(), credentials)
        nursery = await stack.enter_async_context(open_scope())
        running = RunningCoallocation(found, RequestFlow(order_of(tree)), peer, on_change, listens)
        running.submit(told)
        nursery.start_soon(running.listen)
        try:
            yield running
        finally:
            await running.stop()
            nursery.cancel_scope.cancel()


def _as_json(jobs: NamedJobs) -> str:
    try:
        return json.dumps(dict(jobs))
    except (TypeError, ValueError) as error:
        raise RslError(f"jobs are described by texts, numbers and lists: {error}") from None


@asynccontextmanager
async def connect_service(path: Path) -> AsyncIterator[Peer]:
    """Connect to a running co-allocation service by its connection file.

    Raises:
        ConnectionFileError: the file is missing, unsafe or not a connection file.
        ConnectFailed: nobody answers there, or the one who does is not ours.
    """
    info = read_connection_file(path)
    network = Network(wire_codec, info.token, credentials=info.credentials)
    async with network.connect(info.address, role="control", name="client", expect=SERVICE_ROLE) as peer:
        yield peer


async def _own_service(stack: AsyncExitStack, sites: Mapping[str, RunTimeSystem | Path]) -> Peer:
    """Run a service in this process, and connect to it."""
    network = Network(wire_codec)
    service = await stack.enter_async_context(open_coallocation_service(HERE, sites, network=network))
    return await stack.enter_async_context(
        network.connect(service.address, role="control", name="client", expect=SERVICE_ROLE)
    )


async def _minted(rts: RunTimeSystem | Path) -> Credential:
    """Return a credential of a run-time system for one request."""
    if isinstance(rts, Path):
        async with join_rts(rts) as system:
            return await minted(system)
    return await minted(rts)


def site_names(
    rts: Sequence[RunTimeSystem | Path | str] | Mapping[str, RunTimeSystem | Path | str], service: str
) -> dict[str, RunTimeSystem | Path]:
    """Return the names of run-time systems as sites.

    Those that have none are called as their connection files, or ``rts1`` and so on; one whose file is
    ``rts.json`` is called as its service, with ``.rts`` behind it.

    Raises:
        ValueError: two have one name, or one has a name that cannot be.
    """
    pairs = list(rts.items()) if isinstance(rts, Mapping) else [("", one) for one in rts]
    found: dict[str, RunTimeSystem | Path] = {}
    for number, (name, one) in enumerate(pairs, 1):
        system = Path(one) if isinstance(one, str) else one
        if not name:
            name = system.stem if isinstance(system, Path) else f"rts{number}"
            name = f"{service}.rts" if name == "rts" else name
        if not is_name(name):
            raise ValueError(f"{name!r} is no name of a site: letters, digits and . _ - are")
        if name in found:
            raise ValueError(f"two run-time systems are called {name}: give them names, as in hot=FILE")
        found[name] = system
    return found
