"""Pilots: hosts that a batch system gives for one try of a request (``contact=slurm:PARTITION``).

All parts of a request that name one partition are the nodes of one batch job: the batch system starts them
together. A pilot counts when its RIF has reported to the run-time system, which knows it by batch job,
number of restarts and node. When the try is over its pilots are taken down.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from gspc_trio.components.coallocation.agents.words import PlacedPart, batch_queue
from gspc_trio.components.coallocation.shell.programs import NotReady
from gspc_trio.components.rts.messages import RtsStatus
from gspc_trio.components.rts.shell.client import RunTimeSystem, join_rts
from gspc_trio.core.ids import JobId, RifId
from gspc_trio.nursery.connections.connection_file import ConnectionFileError
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import open_scope

TEARDOWN_S = 15.0
"""So long pilots may take to go when their try is over."""

_PREFIX = "pilots-"
_GONE = (ConnectionFileError, ConnectionProblem, PeerGone, RemoteError)


def pilot_cores(parts: Sequence[PlacedPart]) -> dict[tuple[str, str], int]:
    """Return the batch systems and queues that parts name, and how many cores each node has there."""
    found: dict[tuple[str, str], int] = {}
    for part in parts:
        where = batch_queue(part.need.contact)
        if where is not None:
            found[where] = max(found.get(where, 0), part.need.count)
    return found


@asynccontextmanager
async def open_pilots(
    system: RunTimeSystem, file: Path | None, job: JobId, number: int, parts: Sequence[PlacedPart]
) -> AsyncIterator[Mapping[int, str]]:
    """Have pilots for as long as the block runs.

    Args:
        system: the run-time system that starts them.
        file: its connection file, if there is one: that of the site may be cut when they are to go.
        job: that of the site there.
        number: of the try; of each site another one.
        parts: those that name a batch system are considered.

    Yields:
        Part -> name of its host; of parts that name a batch system.

    Raises:
        NotReady: a batch system refuses, or a pilot did not report.
    """
    hosts: dict[int, str] = {}
    names: set[str] = set()
    try:
        async with open_scope() as nursery:
            for block, ((provider, queue), cores) in enumerate(pilot_cores(parts).items()):
                name = f"{_PREFIX}{job}-{number}-{block}"
                names.add(name)
                there = [part for part in parts if batch_queue(part.need.contact) == (provider, queue)]
                hosts |= {part.part: f"{name}.{node}" for node, part in enumerate(there)}
                nursery.start_soon(_start, system, name, provider, queue, cores, len(there))
        yield hosts
    finally:
        if names:
            with trio.move_on_after(TEARDOWN_S, shield=True), suppress(*_GONE):
                if file is None:
                    await _take_down(system, names)
                else:
                    async with join_rts(file) as again:
                        await _take_down(again, names)


async def _start(system: RunTimeSystem, name: str, provider: str, queue: str, cores: int, nodes: int) -> None:
    options = {"queue": queue} if queue else {}
    try:
        report = await system.bootstrap([name], provider, cores=cores, options=options, nodes=nodes)
    except RemoteError as error:
        raise NotReady(f"{provider}: {error.message}") from None
    if report.failed:
        raise NotReady(f"{provider}: {next(iter(report.failed.values()))}")
    if len(report.started) < nodes:
        raise NotReady(f"{provider}: only {len(report.started)} of {nodes} pilots have reported")


async def _take_down(system: RunTimeSystem, names: Container[str]) -> None:
    rifs = (await system.status()).rifs
    ours = [rif.rif_id for rif in rifs if rif.host.rpartition(".")[0] in names]
    if ours:
        await system.teardown(ours)


def left_pilots(status: RtsStatus) -> tuple[RifId, ...]:
    """Return the pilots of services that are gone: one that was killed had no time to take them down."""
    alive = {f"{_PREFIX}{entry.job}" for entry in status.jobs}
    return tuple(
        rif.rif_id
        for rif in status.rifs
        if rif.host.startswith(_PREFIX)
        and rif.host.rsplit("-", 2)[0] not in alive
        and rif.state != "stopping"
    )
