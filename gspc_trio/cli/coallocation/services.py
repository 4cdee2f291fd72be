"""``gspc-coallocate serve``, and what one asks a running service."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gspc_trio import coallocation
from gspc_trio.cli.arguments import LogJson, Port, Verbose
from gspc_trio.cli.common import (
    RUN_FILE,
    SERVICE_FILE,
    CommandError,
    DecidedStatus,
    UsageError,
    connection_path,
    listen_address,
    print_json,
    rts_given,
    running_connection,
    set_up_logging,
)
from gspc_trio.components.coallocation.agents.words import (
    CoJobEntry,
    GetRequest,
    GetService,
    ListRequests,
    RequestDetails,
    RequestEntry,
    ServiceDetails,
    StopRequest,
)
from gspc_trio.components.coallocation.shell.journal_file import CoallocationJournal
from gspc_trio.components.coallocation.shell.request import connect_service, site_names
from gspc_trio.components.coallocation.shell.service import is_name, open_coallocation_service
from gspc_trio.components.rts.messages import StopRts
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.held import RESOURCES_VARIABLE
from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.nursery.connections.connection_file import (
    ConnectionInfo,
    claim_connection_file,
    find_live_connection,
    remove_connection_file,
)
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, RemoteError
from gspc_trio.nursery.scopes.collector import tuned_collector
from gspc_trio.protocol.plain import to_plain
from gspc_trio.records.journal_frames import BadJournal
from gspc_trio.version import VERSION

WAITS_MAX = 20
"""Of more jobs that one waits for the first ones are shown."""

Json = Annotated[bool, Parameter(negative=(), help="Print one JSON object, not text.")]
ServiceFile = Annotated[
    Path | None,
    Parameter(
        name=["--service", "--connection-file"],
        help="Connection file of the service; by default that of the current user.",
    ),
]
SiteFiles = Annotated[list[str] | None, Parameter(name=["--rts"], negative=())]


def service_path(given: Path | None) -> Path:
    """Return the connection file of a service: the one given, or that of the user."""
    return given or connection_path(None).with_name(SERVICE_FILE)


def sites_given(given: list[str] | None, service: str) -> dict[str, RunTimeSystem | Path]:
    """Return the sites that --rts names, by default the run-time system of the user.

    Raises:
        UsageError: a name cannot be used, or is there twice.
        CommandError: there is no such connection file.
    """
    files = rts_given(given)
    given_files = files if isinstance(files, dict) else [running_connection(files)]
    try:
        found = site_names(given_files, service)
    except ValueError as error:
        raise UsageError(f"--rts: {error}") from error
    for file in found.values():
        if isinstance(file, Path):
            running_connection(file)
    return found


@asynccontextmanager
async def own_service(name: str, sites: Mapping[str, RunTimeSystem | Path]) -> AsyncIterator[Path | None]:
    """Run a service for one request, which gspc-top and others of the user can ask meanwhile.

    Yields:
        Its connection file; None if there is none, since another request of the user has it.
    """
    path, network = connection_path(None).with_name(RUN_FILE), Network(wire_codec, secrets.token_bytes(32))
    listen = str(listen_address("127.0.0.1", 0, False))
    async with AsyncExitStack() as stack:
        info = None
        with suppress(OSError):  # it can be run without being shown
            if await find_live_connection(path) is None:
                service = await stack.enter_async_context(
                    open_coallocation_service(name, sites, network=network, listen=listen)
                )
                info = ConnectionInfo.create(service.address, network.token, VERSION)
                if await claim_connection_file(path, info) is not None:
                    info = None
        try:
            yield path if info is not None else None
        finally:
            if info is not None:
                remove_connection_file(path, info)


async def serve(
    *,
    name: str,
    rts: SiteFiles = None,
    parent: Path | None = None,
    connection_file: Annotated[Path | None, Parameter(name=["--connection-file"])] = None,
    port: Port = 0,
    listen: str = "127.0.0.1",
    tls: Annotated[bool, Parameter(negative=())] = False,
    ask_credentials: Annotated[bool, Parameter(negative=())] = False,
    journal: Path | None = None,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run a co-allocation service in the foreground; with --parent it is below another one.

    It ends with Ctrl-C or gspc-coallocate stop. What runs for its clients, or for the service above, is
    stopped then.

    Parameters
    ----------
    name
        Name of the service; no other service or site of its tree has it.
    rts
        Connection file of a run-time system on which jobs run, a site; NAME=FILE names the site. Repeat it
        for several. By default the one that gspc-rts start writes.
    parent
        Connection file of the service above.
    connection_file
        Write address and secret to this file; by default coallocation.json in the user's runtime directory.
    port
        TCP port; 0 for any free one.
    listen
        Address to listen on; an address that other hosts can reach needs --tls.
    tls
        Encrypt all connections (TLS 1.3); certificates are kept beside the connection file.
    ask_credentials
        Give resources only to requests that bring a credential of the run-time system.
    journal
        Directory in which is noted what clients ask for and which jobs were started; a service that is
        started again with it goes on, and starts no job more often than it has attempts.
    """
    set_up_logging(verbose, log_json)
    _expect_name(name)
    path = service_path(connection_file)
    _refuse_second(await find_live_connection(path), path)
    sites = sites_given(rts, name)
    where = listen_address(listen, port, tls)
    issue = _issuer(path.parent) if tls else lambda _: ""
    network = Network(wire_codec, secrets.token_bytes(32), credentials=issue("coallocation"))
    async with AsyncExitStack() as stack:
        stack.enter_context(tuned_collector())
        kept = None if journal is None else stack.enter_context(_open_journal(journal))
        opening = partial(open_coallocation_service, name, sites, network=network, listen=str(where))
        service = await stack.enter_async_context(
            opening(parent=parent, lends=not ask_credentials, journal=kept)
        )
        info = ConnectionInfo.create(service.address, network.token, VERSION, issue("client"))
        _refuse_second(await claim_connection_file(path, info), path)
        try:
            about = f"service {name} at {service.address}, process {os.getpid()}: sites {', '.join(sites)}"
            print(about, flush=True)
            print(f"connection file {path}", flush=True)
            await service.stopped.wait()
        finally:
            remove_connection_file(path, info)


def _expect_name(name: str) -> None:
    if not is_name(name):
        raise UsageError(f"--name {name}: letters, digits and . _ - make a name, at most 64")


@contextmanager
def _open_journal(directory: Path) -> Iterator[CoallocationJournal]:
    try:
        journal = CoallocationJournal(directory)
    except BadJournal as error:
        raise CommandError(f"--journal: {error}") from None
    with closing(journal):
        yield journal


def _issuer(folder: Path) -> Callable[[str], str]:
    from gspc_trio.nursery.connections.certificates import Authority

    return Authority(folder / "tls").issue


def _refuse_second(alive: ConnectionInfo | None, path: Path) -> None:
    if alive is not None:
        raise CommandError(
            f"a co-allocation service runs already (process {alive.pid}, {alive.address}, {path}); "
            "use another --connection-file"
        )


@asynccontextmanager
async def _connected(given: Path | None) -> AsyncIterator[Peer]:
    path = service_path(given)
    if not path.exists():
        raise CommandError(
            f"there is no connection file {path}: start a service with gspc-coallocate serve, "
            "or name the file of a running one"
        )
    async with connect_service(path) as peer:
        yield peer


async def list_requests(*, service: ServiceFile = None, json: Json = False) -> None:
    """List the requests of a running service, oldest first; of those that are over the last 100."""
    async with _connected(service) as peer:
        found = await peer.call(ListRequests())
    if json:
        print_json(to_plain(found))
        return
    for entry in found.requests:
        print(_line(entry))


async def status(request: str = "", *, service: ServiceFile = None, json: Json = False) -> None:
    """Show the jobs of a request; without one, the service, those below it, and what its sites have.

    Parameters
    ----------
    request
        Id of the request, as gspc-coallocate list shows it.
    """
    async with _connected(service) as peer:
        told: RequestDetails | ServiceDetails
        if request:
            told = await _asked(peer, GetRequest(request))
        else:
            told = await peer.call(GetService())
    if json:
        print_json(to_plain(told))
    elif isinstance(told, ServiceDetails):
        _print_service(told)
    else:
        print(_line(told.entry))
        for job in told.jobs:
            print(_job_line(job))


async def cancel(request: str, *, service: ServiceFile = None, json: Json = False) -> None:
    """Cancel a request; it returns when nothing of it runs any more.

    Parameters
    ----------
    request
        Id of the request, as gspc-coallocate list shows it.
    """
    async with _connected(service) as peer:
        await _asked(peer, StopRequest(request))
        told = await _asked(peer, GetRequest(request))
    if json:
        print_json(to_plain(told.entry))
    else:
        print(_line(told.entry))


async def stop(*, service: ServiceFile = None) -> None:
    """Stop a running service; what runs for its clients is stopped first."""
    async with _connected(service) as peer:
        await peer.call(StopRts())


async def _asked(peer: Peer, question: Question[AnswerT]) -> AnswerT:
    """Ask a service about a request.

    Raises:
        CommandError: there is no such request.
    """
    try:
        return await peer.call(question)
    except RemoteError as error:
        raise CommandError(error.message) from None


def _line(entry: RequestEntry) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(entry.states.items()))
    return f"{entry.request_id:<12} {'over' if entry.is_over else 'runs':<5} {states:<32} {entry.text[:60]}"


def _job_line(job: CoJobEntry) -> str:
    more = " and more" if len(job.waits) > WAITS_MAX else ""
    waits = f" after {', '.join(map(str, job.waits[:WAITS_MAX]))}{more}" if job.waits else ""
    sites = f" at {', '.join(job.sites)}" if job.sites else ""
    reason = f": {job.reason}" if job.reason and job.reason != job.state else ""
    return f"  job {job.number:<6} {job.name:<16} {job.state}{sites}{waits}{reason}"


def _print_service(told: ServiceDetails) -> None:
    above = f", below {' below '.join(told.above)}" if told.above else ""
    print(f"service {told.name}{above}: {told.requests} requests run")
    for name in told.children:
        print(f"  service {name}")
    for offer in told.offers:
        has = ", ".join(
            f"{count} {kind} ({max(0, offer.free.get(kind, 0))} free)" for kind, count in offer.there.items()
        )
        print(f"  site {'/'.join(offer.path):<24} {has or 'nothing'}")


def barrier() -> int:
    """Say that this program is ready, and wait for the others of its job: status 0 if all are, else 1.

    It is called within a program of a job with start=inside. If all are ready it prints what GSPC_RESOURCES
    has in other programs: id@host of all resources of the job, with commas between.
    """
    try:
        all_ready = coallocation.barrier()
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    if not all_ready:
        return DecidedStatus(1)
    print(os.environ[RESOURCES_VARIABLE])
    return DecidedStatus(0)
