"""The memory of a server as a grant of the resource manager (RM-8): each byte of a host has one owner.

The server stands in the resource manager as a resource of class ``memory`` on its host. Its grant has a piece
of that host's memory, in which the server alone allocates; tasks that ask for memory get what is left.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio
from msgspec.structs import replace

from gspc_trio.components.rts.messages import GetResources, RifStatus
from gspc_trio.components.rts.shell.acquire import AcquireRefused, HeldGrant, Resources, open_resources
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.state import RifState
from gspc_trio.core.resources import MEMORY_CLASS, Resource
from gspc_trio.core.task import Requirement
from gspc_trio.iml.errors import NoRoom
from gspc_trio.iml.quota import Quota, quota_of
from gspc_trio.iml.shell.host import Arena
from gspc_trio.iml.shell.platform import platform
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import open_scope

log: logging.Logger = logging.getLogger(__name__)

WAIT_S = 5.0
"""How long a server waits for memory that tasks have, and for a RIF that is not there."""

WAITS = 5
"""In so many parts it waits for memory: when the machine was suspended meanwhile one of them is lost."""

AGAIN_S = 0.5
"""How long until a server looks again for a run-time system that has gone, or for a RIF."""

LOOK_S = 30.0
"""How long until who runs a server where there was no host of the run-time system looks again for one."""

LEAVE_S = 2.0
"""How long the run-time system may take at the end to take back what was held."""

PATIENCE_S = 30.0
"""How long a RIF tries to have memory for a new server while its run-time system is away, as it may be."""


def arena_of(rts: RunTimeSystem) -> Arena:
    """Return what holds memory at a run-time system for servers on its hosts, as long as that lives."""

    @asynccontextmanager
    async def hold(host: str, name: str, memory_bytes: int) -> AsyncIterator[Quota]:
        async with _held(rts, host, name, memory_bytes, WAIT_S) as (quota, _):
            yield quota

    return hold


@asynccontextmanager
async def _held(
    rts: RunTimeSystem, host: str, name: str, memory_bytes: int, patience_s: float
) -> AsyncIterator[tuple[Quota, HeldGrant | None]]:
    """Hold memory of a host; yield what a server may use, and what is held of it, None for nothing.

    Args:
        rts: the run-time system.
        host, name, memory_bytes: as an :data:`Arena` takes them.
        patience_s: how long a RIF is awaited that starts or cannot be heard; without it nothing is held.
    """
    rif_id, options, there = await _rif_of(rts, host, patience_s)
    quota = quota_of(options)
    quota = replace(quota, memory_bytes=memory_bytes or quota.memory_bytes or platform().memory_bytes())
    if not there:  # no host of the run-time system, or nobody knows what it has
        yield quota, None
        return
    resource = Resource(f"{rif_id}.memory-{name[-8:]}", MEMORY_CLASS)
    if resource not in there:  # it may have come back with its RIF to a run-time system that is new
        await rts.add(rif_id, (resource,))
    try:
        async with open_resources(rts, f"memory of {host}") as resources:
            yield quota, await _acquire(resources, resource, host, quota.memory_bytes)
    finally:
        with suppress(PeerGone, RemoteError), trio.move_on_after(WAIT_S, shield=True):
            await rts.remove(rif_id, (resource.resource_id,))


async def _acquire(resources: Resources, resource: Resource, host: str, memory_bytes: int) -> HeldGrant:
    need = Requirement(MEMORY_CLASS, (resource.resource_id,), hard=True)
    try:
        for _ in range(WAITS):
            with trio.move_on_after(WAIT_S / WAITS):
                return await resources.acquire(need, memories=(memory_bytes,))
    except AcquireRefused as refused:
        raise NoRoom(f"{_wanted(host, memory_bytes)}: {refused}") from refused
    problem = "that much is not free: tasks, or other memory servers, have it"
    raise NoRoom(f"{_wanted(host, memory_bytes)}: {problem}")


def arena_at(network: Network, address: str, *, of_rif: bool = False) -> Arena:
    """Return the same for a run-time system that may go and come back: then it is held there again.

    So it is when the RIF of the host was started again, or has come at last.

    Args:
        network: by which the run-time system is reached.
        address: of it.
        of_rif: for a RIF: it works on while its run-time system is away, and takes what it has with it.
    """

    @asynccontextmanager
    async def hold(host: str, name: str, memory_bytes: int) -> AsyncIterator[Quota]:
        async with open_scope() as nursery:
            keeper = _Keeper(network, address, (host, name, memory_bytes))
            quota = await nursery.start(keeper.run, PATIENCE_S if of_rif else WAIT_S)
            keeper.scope.shield = not of_rif
            try:
                yield quota
            finally:
                keeper.end()

    return hold


class _Keeper:
    """Holds memory until it is told to end; what it holds is given back in good order then.

    Args:
        network, address: of the run-time system.
        what: host, name and bytes, as an :data:`Arena` takes them.

    Attributes:
        scope: in which it does all that.
    """

    def __init__(self, network: Network, address: str, what: tuple[str, str, int]) -> None:
        self.scope = trio.CancelScope()
        self._network = network
        self._address = address
        self._what = what
        self._holds = False
        self._end = trio.Event()

    def end(self) -> None:
        """Give back what is held, and end."""
        self._end.set()
        self.scope.deadline = trio.current_time() + (LEAVE_S if self._holds else 0.0)

    async def run(self, patience_s: float, *, task_status: trio.TaskStatus[Quota]) -> None:
        """Hold memory; raise only if that does not succeed the first time.

        A run-time system that comes back may be reached here before the RIF of this host has reached it.

        Raises:
            NoRoom: there is not so much, or for so long nobody who could give it.
        """
        started, until_s = False, trio.current_time() + patience_s
        with self.scope:
            while not self._end.is_set():
                pause_s = AGAIN_S
                try:
                    async with self._held(math.inf if started else WAIT_S) as (quota, ended):
                        if not started:
                            started = True
                            self._what = (*self._what[:2], quota.memory_bytes)
                            task_status.started(quota)
                        await ended()
                except (ConnectionProblem, PeerGone, RemoteError, NoRoom) as error:
                    if not started and isinstance(error, NoRoom):
                        raise
                    if not started and trio.current_time() >= until_s:
                        raise NoRoom(f"the memory of host {self._what[0]} is not held: {error}") from error
                    log.info("the memory of host %s is not held: %s", self._what[0], error)
                    if isinstance(error, NoRoom):
                        pause_s = WAIT_S
                await trio.sleep(pause_s)

    @asynccontextmanager
    async def _held(self, patience_s: float) -> AsyncIterator[tuple[Quota, Callable[[], Awaitable[None]]]]:
        """Hold it over a connection of its own; yield what waits until it is not held any more."""
        connection = self._network.connect(
            self._address, role="control", name=f"memory of {self._what[0]}", expect="rts"
        )
        async with connection as peer:
            rts = RunTimeSystem(self._network, self._address, peer)
            async with _held(rts, *self._what, patience_s) as (quota, held):
                self._holds = True
                try:
                    yield (
                        quota,
                        partial(_first, LOOK_S if held is None else math.inf, *_ends(peer, held), self._end),
                    )
                finally:
                    self._holds = False


def _ends(peer: Peer, held: HeldGrant | None) -> tuple[trio.Event, ...]:
    return (peer.lost,) if held is None else (peer.lost, held.lapsed)


async def _first(timeout_s: float, *events: trio.Event) -> None:
    """Wait for the first of these, or for so long."""
    with trio.move_on_after(timeout_s):
        async with trio.open_nursery() as nursery:
            for event in events:
                nursery.start_soon(_end_with, event, nursery.cancel_scope)


async def _end_with(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _wanted(host: str, memory_bytes: int) -> str:
    return f"host {host} has no {memory_bytes} bytes of memory for a memory server (data_bytes, --memory)"


async def _rif_of(
    rts: RunTimeSystem, host: str, patience_s: float
) -> tuple[str, dict[str, str], tuple[Resource, ...]]:
    """Return the RIF of a host, its options, and what it has if it says how much memory there is."""
    with trio.move_on_after(patience_s):
        while rif := await _expected(rts, host):
            if rif.state == RifState.UP:
                found = await rts.peer.call(GetResources(rif.rif_id))
                has_memory = any(resource.memory_bytes for resource in found.resources)
                return rif.rif_id, rif.options, found.resources if has_memory else ()
            await trio.sleep(AGAIN_S)
    return "", {}, ()


async def _expected(rts: RunTimeSystem, host: str) -> RifStatus | None:
    """Return what the run-time system says of the RIF of a host, unless it is to be there no more."""
    for rif in (await rts.status()).rifs:
        if rif.host == host and rif.state not in (RifState.FAILED, RifState.STOPPING):
            return rif
    return None
