"""Grants that a site keeps for the next request of their shape, with connections to their workers (COA-2).

To acquire a resource and to connect to its worker costs far more than to start a program there. So a grant
whose programs have ended well is handed to whoever waits for the same, or kept for a moment. It goes back as
soon as the resource manager recalls it, or somebody here has waited longer for something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import trio

from gspc_trio.components.coallocation.shell.programs import made_ready
from gspc_trio.components.rts.shell.acquire import HeldGrant, Resources, Waiter
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.direct import DirectWorker, open_worker
from gspc_trio.core.ids import GrantId, ResourceId
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError

KEEP_S = 0.25
"""A grant that nobody here wants goes back after so long."""

CODES_MAX = 256
"""A worker remembers each program that it has run; after so many its connection is made anew."""


class ReadyWorker:
    """A worker of a kept grant with a process that is ready.

    Attributes:
        worker: to speak to.
        is_gone: its connection is over.
        directory: where its process is.
        on_lost: called when the connection is over, by who waits without a task.
    """

    def __init__(self, worker: DirectWorker) -> None:
        self.worker: DirectWorker = worker
        self.is_gone: bool = False
        self.directory: str = ""
        self.on_lost: Callable[[], None] | None = None
        self._waiting: trio.CancelScope | None = None

    async def wait_for(self, event: trio.Event) -> bool:
        """Wait for an event; return whether it came before the connection was over."""
        if not (self.is_gone or event.is_set()):  # mostly it is: the service has said so while it was told
            with trio.CancelScope() as self._waiting:
                await event.wait()
            self._waiting = None
        return event.is_set()

    def lose(self) -> None:
        """The connection is over."""
        self.is_gone = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self.on_lost is not None:
            self.on_lost()


class KeptGrant:
    """A grant with its workers; what :meth:`KeptGrants.acquire` returns.

    Attributes:
        held: the grant.
        shape: of what was asked for.
        is_clean: all that ran on it has ended by itself.
    """

    def __init__(self, held: HeldGrant, shape: Shape) -> None:
        self.held: HeldGrant = held
        self.shape: Shape = shape
        self.is_clean: bool = True
        self.scope: trio.CancelScope = trio.CancelScope()
        self.workers: dict[ResourceId, ReadyWorker] = {}
        self.idle_since_s: float | None = None

    @property
    def can_be_kept(self) -> bool:
        """Whether it can serve somebody else."""
        return (
            self.is_clean
            and not (self.held.recalled.is_set() or self.held.lapsed.is_set() or self.held.memories)
            and not any(one.is_gone for one in self.workers.values())
            and all(one.worker.codes < CODES_MAX for one in self.workers.values())
        )


class KeptGrants:
    """The grants of a site.

    Args:
        system: the run-time system.
        resources: by which they are acquired.
        nursery: in which connections to workers are served; it ends with the run-time system.

    Attributes:
        held: class -> how many resources are held, used or not.
    """

    def __init__(
        self,
        system: RunTimeSystem,
        resources: Resources,
        nursery: trio.Nursery,
    ) -> None:
        self.held: Counter[str] = Counter()
        self._system = system
        self._resources = resources
        self._nursery = nursery
        self._idle: dict[Shape, list[KeptGrant]] = {}
        self._kept: dict[GrantId, KeptGrant] = {}
        self._sweeps = False

    async def acquire(self, needs: Sequence[Requirement], memories: Sequence[int]) -> KeptGrant:
        """Return a grant of these resources.

        Raises:
            AcquireRefused, ValueError, PeerGone: as :meth:`Resources.acquire`.
        """
        shape = Shape(tuple(needs), memories=tuple(memories))
        if (idle := self._take_idle(shape)) is not None:
            return idle
        try:
            held = await self._resources.acquire(*needs, memories=memories)
        except BaseException:
            for other in [one for one in self._kept.values() if one.held.released.is_set()]:
                self._release(other)  # it was handed on just when nobody wanted it any more
            raise
        return self._kept_of(held, shape)

    def ask(self, shape: Shape, take: Callable[[KeptGrant | Exception], None]) -> Waiter | None:
        """Have ``take`` called with a grant, or with why there is none, as soon as that is known.

        Args:
            shape: of what is wanted.
            take: called once; maybe before this returns.

        Returns:
            Waiter: for :meth:`withdraw`; None if it has been called.
        """
        if (idle := self._take_idle(shape)) is not None:
            take(idle)
            return None

        def taken(waiter: Waiter) -> None:
            if waiter.held is not None:
                take(self._kept_of(waiter.held, shape))
            else:
                assert waiter.error is not None
                take(waiter.error)

        return self._resources.ask(shape, taken)

    def withdraw(self, shape: Shape, waiter: Waiter) -> None:
        """Nobody waits any more for what was asked for."""
        self._resources.withdraw(shape, waiter)

    def _take_idle(self, shape: Shape) -> KeptGrant | None:
        idle = self._idle.get(shape)
        if not idle:
            return None
        kept = idle.pop()
        kept.idle_since_s = None
        return kept

    def _kept_of(self, held: HeldGrant, shape: Shape) -> KeptGrant:
        """Return what was kept of a grant that was handed on, or keep a new one from now on."""
        handed_on = self._kept.get(held.grant_id)
        if handed_on is not None:
            return handed_on
        kept = self._kept[held.grant_id] = KeptGrant(held, shape)
        self.held.update(need.resource_class for need in shape.requirements)
        self._nursery.start_soon(self._watch, kept)
        return kept

    async def worker(self, kept: KeptGrant, resource: ResourceId, directory: str) -> ReadyWorker:
        """Return the worker of a resource of a grant, with a process that is ready.

        Args:
            kept: the grant.
            resource: of it.
            directory: where a process is made ready, if there is none.

        Raises:
            CallFailed, ConnectionProblem, PeerGone, RemoteError, ValueError: it cannot be had.
        """
        found = kept.workers.get(resource)
        if found is not None:
            return found
        opened = await self._nursery.start(self._serve_worker, kept, resource, directory)
        if isinstance(opened, Exception):
            raise opened
        assert isinstance(opened, ReadyWorker)
        kept.workers[resource] = opened
        opened.directory = await made_ready(opened.worker)
        return opened

    def give_back(self, kept: KeptGrant) -> None:
        """Nothing runs on it any more: hand it on, keep it, or give it back."""
        if not kept.can_be_kept:
            self._release(kept)
        elif not self._resources.hand_on(kept.held, kept.shape):
            if self._resources.is_waiting:
                self._release(kept)
            else:
                self._keep(kept)

    def _keep(self, kept: KeptGrant) -> None:
        kept.idle_since_s = trio.current_time()
        self._idle.setdefault(kept.shape, []).append(kept)
        if not self._sweeps:
            self._sweeps = True
            self._nursery.start_soon(self._sweep)

    async def _sweep(self) -> None:
        """Give back what nobody has wanted for a while."""
        while self._idle:
            await trio.sleep(KEEP_S / 2)
            latest_s = trio.current_time() - KEEP_S
            for kept in [one for some in self._idle.values() for one in some]:
                if kept.idle_since_s is not None and kept.idle_since_s <= latest_s:
                    self._drop_idle(kept)
            self._idle = {shape: some for shape, some in self._idle.items() if some}
        self._sweeps = False

    def _drop_idle(self, kept: KeptGrant) -> None:
        if kept.idle_since_s is not None:
            kept.idle_since_s = None
            self._idle[kept.shape].remove(kept)
            self._release(kept)

    def _release(self, kept: KeptGrant) -> None:
        kept.scope.cancel()
        del self._kept[kept.held.grant_id]
        self.held.subtract(need.resource_class for need in kept.shape.requirements)
        held = kept.held
        if not (held.lapsed.is_set() or held.released.is_set()):
            with suppress(PeerGone):
                self._resources.release(held)

    async def _watch(self, kept: KeptGrant) -> None:
        """Give it back when it is recalled while nobody uses it."""
        with kept.scope:
            await kept.held.recalled.wait()
            self._drop_idle(kept)

    async def _serve_worker(
        self,
        kept: KeptGrant,
        resource: ResourceId,
        directory: str,
        *,
        task_status: trio.TaskStatus[ReadyWorker | Exception],
    ) -> None:
        """Have a connection to a worker, until the grant is given back or the worker is gone."""
        ready: ReadyWorker | None = None
        try:
            opening = open_worker(self._system, self._resources, kept.held, resource, directory=directory)
            async with opening as worker:
                ready = ReadyWorker(worker)
                task_status.started(ready)
                await worker.wait_gone()
        except (ConnectionProblem, PeerGone, RemoteError, ValueError) as error:
            if ready is None:
                task_status.started(error)
        finally:
            if ready is not None:
                ready.lose()
        self._drop_idle(kept)
