"""Resources for one's own use, without a workflow: ``await resources.acquire("core")`` (RM-5 to RM-9).

Each call that waits is a credit of one; see section 3 of the house plan.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from gspc_trio.components.rm.messages import Demand, Grant, Interrupt, Lapsed, Recall, Refuse, Release
from gspc_trio.components.rts.messages import EndState, JobEnd, JobRegistered, LeaveJob, RegisterJob
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.nursery.connections.rpc import Peer, PeerGone
from gspc_trio.nursery.scopes.scope import open_scope

CREDITS_UNTOLD_MAX = 64
"""Of each so many waits that have ended without a grant of their own the resource manager is told."""

LEAVE_S = 5.0
"""How long the run-time system may take to say good-bye."""


class AcquireRefused(Exception):
    """No grant will come: the message says what was asked and what there is, ``kind`` why.

    ``kind`` is that of :class:`~gspc_trio.components.rm.messages.Refuse`.
    """

    def __init__(self, reason: str, kind: str) -> None:
        super().__init__(reason)
        self.kind = kind


class AcquireInterrupted(AcquireRefused):
    """The wait was ended by :meth:`Resources.interrupt`."""


class HeldGrant:
    """Resources that are held, until they are released.

    Attributes:
        grant_id: of the grant.
        resources: ids, one for each requirement, in order.
        memories: (memory id, offset) for each piece of memory.
        recalled: set when others wait: give it back when it is convenient.
        lapsed: set when it is no longer held: resources were removed.
        released: set when it was given back.
    """

    def __init__(self, grant: Grant) -> None:
        self.grant_id: GrantId = grant.grant_id
        self.resources: tuple[ResourceId, ...] = grant.resources
        self.memories: tuple[tuple[str, int], ...] = grant.memories
        self.recalled: trio.Event = trio.Event()
        self.lapsed: trio.Event = trio.Event()
        self.released: trio.Event = trio.Event()

    def __repr__(self) -> str:
        return f"HeldGrant({self.grant_id}, {self.resources})"


class Waiter:
    """Somebody who waits for resources, and what became of that.

    Args:
        number: earlier ones have lower numbers.
        over: called once when the wait is over; not if it is withdrawn.

    Attributes:
        number: see above.
        held: what it was granted.
        error: why it was granted nothing.
    """

    __slots__ = ("error", "held", "number", "over")

    def __init__(self, number: int, over: Callable[[], None]) -> None:
        self.number: int = number
        self.over: Callable[[], None] = over
        self.held: HeldGrant | None = None
        self.error: Exception | None = None


class Resources:
    """What one client of a resource manager waits for and holds; made by :func:`open_resources`.

    Attributes:
        job: its id at the run-time system.
    """

    def __init__(self, peer: Peer, job: JobId) -> None:
        self.job = job
        self._peer = peer
        self._seen: GrantId = NO_GRANT
        self._waiters: dict[Shape, deque[Waiter]] = {}
        self._told: dict[Shape, int] = {}
        self._held: dict[GrantId, HeldGrant] = {}
        self._last = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a call of :meth:`acquire` waits."""
        return bool(self._waiters)

    async def acquire(
        self,
        *requirements: str | Requirement,
        memories: Sequence[int] = (),
        same_host: bool = False,
        estimate_s: float | None = None,
        wait: bool = False,
    ) -> HeldGrant:
        """Wait for these resources, all or nothing, and hold them.

        Cancelled (by a time-out, say), it asks for nothing any more; a grant that is already on its way is
        given back.

        Args:
            requirements: a class each, or a Requirement with preferences.
            memories: sizes of pieces of memory on the host of the first resource.
            same_host: all from one host.
            estimate_s: for about how long; short ones may use gaps before larger requests. Is rounded up to a
                power of two.
            wait: wait for resources that may be added later instead of being refused.

        Raises:
            TypeError: a requirement is neither a class nor a Requirement.
            ValueError: a size or the estimate is not more than 0.
            AcquireRefused: what has been added can never meet this.
            AcquireInterrupted: by :meth:`interrupt`.
            PeerGone: the run-time system is gone.
        """
        shape = _shape(requirements or ("core",), memories, same_host, estimate_s, wait)
        done = trio.Event()
        waiter = self._wait(shape, done.set)
        try:
            self._demand(shape)
            await done.wait()
        except BaseException:
            self.withdraw(shape, waiter)
            raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.held is not None
        return waiter.held

    def ask(self, shape: Shape, take: Callable[[Waiter], None]) -> Waiter:
        """Wait as :meth:`acquire` does, without a task that waits.

        Args:
            shape: of what is wanted.
            take: called once, when it is held or will not come; maybe before this returns.

        Returns:
            Waiter: for :meth:`withdraw`.

        Raises:
            PeerGone: the run-time system is gone.
        """
        waiter = self._wait(shape, lambda: take(waiter))
        count = len(self._waiters[shape])
        # Of many that wait the resource manager hears as they get fewer: it can meet few of them at a time.
        if count <= CREDITS_UNTOLD_MAX or count >= self._told.get(shape, 0) + CREDITS_UNTOLD_MAX:
            self._demand(shape)
        return waiter

    def _wait(self, shape: Shape, over: Callable[[], None]) -> Waiter:
        self._last += 1
        waiter = Waiter(self._last, over)
        self._waiters.setdefault(shape, deque()).append(waiter)
        return waiter

    def release(self, *grants: HeldGrant, resources: Sequence[ResourceId] = ()) -> None:
        """Give these grants back, or of a single one these resources.

        Raises:
            ValueError: a grant is not held, or resources of several grants are named.
            PeerGone: the run-time system is gone.
        """
        if resources and len(grants) != 1:
            raise ValueError("resources of one grant at a time")
        for grant in grants:
            if self._held.get(grant.grant_id) is not grant:
                raise ValueError(f"{grant} is not held")
            if not set(resources) <= set(grant.resources):
                raise ValueError(f"{', '.join(resources)}: not all are held by {grant}")
        for grant in grants:
            grant.resources = tuple(name for name in grant.resources if resources and name not in resources)
            if not grant.resources:
                del self._held[grant.grant_id]
                grant.released.set()
            self._peer.post(Release(self.job, grant.grant_id, tuple(resources)))

    def hand_on(self, held: HeldGrant, shape: Shape) -> bool:
        """Give a held grant to the call of :meth:`acquire` that has waited longest for its shape.

        Returns:
            bool: False if none waits for this shape, or one has waited longer for another, or if it is to be
            given back: then it is still held by whoever has it.
        """
        waiting = self._waiters.get(shape)
        if not waiting or held.recalled.is_set() or self._held.get(held.grant_id) is not held:
            return False
        if len(self._waiters) > 1:
            first = waiting[0].number
            if any(some[0].number < first for some in self._waiters.values()):
                return False
        waiter = waiting.popleft()
        waiter.held = held
        if not waiting:
            del self._waiters[shape]
        if not len(waiting) % CREDITS_UNTOLD_MAX:
            with suppress(PeerGone):
                self._demand(shape)  # what is said later of others says this too
        waiter.over()
        return True

    def interrupt(self) -> None:
        """End every wait of this client with :class:`AcquireInterrupted`; what is held stays (RM-9).

        Raises:
            PeerGone: the run-time system is gone.
        """
        self._peer.post(Interrupt(self.job))

    def _demand(self, shape: Shape) -> None:
        count = len(self._waiters.get(shape, ()))
        if count:
            self._told[shape] = count
        else:
            self._told.pop(shape, None)
        self._peer.post(Demand(self.job, shape, count, self._seen))

    def withdraw(self, shape: Shape, waiter: Waiter) -> None:
        """Nobody waits here any more: withdraw the credit, or give back what came in the same moment.

        Args:
            shape: of what was wanted.
            waiter: that waited for it.
        """
        waiting = self._waiters.get(shape)
        try:
            if waiter.held is not None:
                self.release(waiter.held)
            elif waiting is not None and waiter in waiting:
                waiting.remove(waiter)
                self._demand(shape)
                if not waiting:
                    del self._waiters[shape]
        except PeerGone:
            pass  # and everything has come back

    def take(self, message: object) -> None:
        """Take what the resource manager says."""
        if isinstance(message, Grant):
            self._granted(message)
        elif isinstance(message, Refuse):
            kind = AcquireInterrupted if message.kind == "interrupted" else AcquireRefused
            self._told.pop(message.shape, None)
            for waiter in self._waiters.pop(message.shape, ()):
                waiter.error = kind(message.reason, message.kind)
                waiter.over()
        elif isinstance(message, Recall | Lapsed):
            for grant_id in message.grant_ids:
                held = self._held.get(grant_id)
                if held is not None and isinstance(message, Recall):
                    held.recalled.set()
                elif held is not None:
                    del self._held[grant_id]
                    held.lapsed.set()

    def _granted(self, grant: Grant) -> None:
        self._seen = grant.grant_id
        waiting = self._waiters.get(grant.shape)
        if not waiting:  # withdrawn while it was on its way
            self._peer.post(Release(self.job, grant.grant_id))
            return
        waiter = waiting.popleft()
        told = self._told[grant.shape] = self._told.get(grant.shape, 0) - 1
        if not waiting:
            del self._waiters[grant.shape]
        elif told <= 0:
            self._demand(grant.shape)  # of those that it was not told of
        waiter.held = self._held[grant.grant_id] = HeldGrant(grant)
        waiter.over()

    def fail(self, error: Exception) -> None:
        """The connection is over: nobody waits any more, nothing is held."""
        waiters = [waiter for waiting in self._waiters.values() for waiter in waiting]
        self._waiters.clear()
        for held in self._held.values():
            held.lapsed.set()
        self._held.clear()
        for waiter in waiters:
            waiter.error = error
            waiter.over()


def _shape(
    requirements: Sequence[str | Requirement],
    memories: Sequence[int],
    same_host: bool,
    estimate_s: float | None,
    wait: bool,
) -> Shape:
    """Refuse here what the run-time system would take for an offence."""
    for need in requirements:
        if not isinstance(need, str | Requirement):
            raise TypeError(f"what is acquired is a resource class or a Requirement each, not {need!r}")
    if not all(isinstance(size, int) and size > 0 for size in memories):
        raise ValueError(f"memories are sizes in bytes, each more than 0, not {memories!r}")
    if estimate_s is not None:
        if not 0 < estimate_s < math.inf:
            raise ValueError(f"estimate_s is a number of seconds more than 0, not {estimate_s!r}")
        estimate_s = 2.0 ** math.ceil(math.log2(estimate_s))
    needs = tuple(Requirement(need) if isinstance(need, str) else need for need in requirements)
    return Shape(needs, 0, estimate_s, wait, same_host, tuple(memories))


@asynccontextmanager
async def open_resources(
    rts: RunTimeSystem, name: str = "resources", weight: float = 1.0
) -> AsyncIterator[Resources]:
    """Acquire and release resources of a run-time system while the block runs; then all come back.

    Args:
        rts: the run-time system.
        name: of this client, for people.
        weight: its share relative to jobs and other clients.

    Raises:
        RemoteError: the run-time system does not let it join.
        PeerGone: the run-time system is gone.
    """
    async with rts.join() as peer:
        here = rts.network.process_info()
        order = RegisterJob(name, here.pid, here.host, "", weight)
        answer: JobRegistered = await peer.call(order)
        resources = Resources(peer, answer.job)
        async with open_scope() as nursery:
            nursery.start_soon(_listen, peer, resources)
            end = JobEnd(EndState.STOPPED)
            try:
                yield resources
                end = JobEnd()
            except Exception as error:
                end = JobEnd(EndState.FAILED, f"{type(error).__name__}: {error}")
                raise
            finally:
                with trio.move_on_after(LEAVE_S, shield=True):
                    await _leave(peer, end)
                nursery.cancel_scope.cancel()


async def _listen(peer: Peer, resources: Resources) -> None:
    try:
        await peer.listen(resources.take)
    except PeerGone as gone:
        resources.fail(gone)


async def _leave(peer: Peer, end: JobEnd) -> None:
    with suppress(PeerGone):
        await peer.call(LeaveJob(end=end))
