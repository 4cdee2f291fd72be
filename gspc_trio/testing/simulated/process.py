"""A simulated process: what runs in it, which connections it has, and its sudden end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from typing import Protocol

import trio

from gspc_trio.nursery.scopes.observe import OBSERVER, MachineObserver
from gspc_trio.nursery.scopes.scope import leaves

RUNNING: ContextVar[SimulatedProcess | None] = ContextVar("RUNNING", default=None)
"""The simulated process in whose name a trio task runs."""


class Connection(Protocol):
    """A connection, seen by those that break it."""

    def cut(self) -> None:
        """Break it for both sides."""
        ...


class Direction(Protocol):
    """One direction of a connection."""

    def hold(self, until_s: float) -> None:
        """Let nothing arrive before a time."""
        ...


class ConnectionEnd(Protocol):
    """A process's end of a connection."""

    @property
    def process(self) -> SimulatedProcess:
        """Whose end it is."""
        ...

    @property
    def other(self) -> ConnectionEnd:
        """The other end."""
        ...

    @property
    def wire(self) -> Connection:
        """The connection."""
        ...

    @property
    def sends(self) -> Direction:
        """What goes to the other end."""
        ...

    @property
    def receives(self) -> Direction:
        """What comes from the other end."""
        ...

    def sever(self, *, silently: bool = False) -> None:
        """The process is no more; ``silently``: the other end is not told."""
        ...


class ListeningPort(Protocol):
    """A port at which a process listens."""

    @property
    def where(self) -> tuple[str, int]:
        """Host and port."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


class SimulatedProcess:
    """Stands for one process of the cluster.

    Killed, its connections break at once and nothing that it still does can be seen from outside; what its
    own code does to clear up happens behind closed doors.

    Args:
        name: unique in the simulation.
        role: ``rts``, ``rif`` or ``job``.
        host: where it runs.
        observer: of its machines.
        on_step: told of each of its steps: a send, a receive, an event of a machine.

    Attributes:
        alive: whether anybody can see what it does.
        killed: whether it was killed; ``dark``: together with its host, so that nobody learns of its end.
        ended: set when it is over; ``noticed``: when others can know it.
        reason, error: why it ended by itself.
        context: to do something in its name.
    """

    def __init__(
        self,
        name: str,
        role: str,
        host: str,
        observer: MachineObserver,
        on_step: Callable[[SimulatedProcess], None],
    ) -> None:
        self.name = name
        self.role = role
        self.host = host
        self.ends: dict[ConnectionEnd, None] = {}
        self.listeners: dict[ListeningPort, None] = {}
        self.on_kill: list[Callable[[], object]] = []
        self.alive: bool = True
        self.killed: bool = False
        self.dark: bool = False
        self.ended: trio.Event = trio.Event()
        self.noticed: trio.Event = trio.Event()
        self.reason = ""
        self.error: BaseException | None = None
        self.context: Context = Context()
        self._observer = observer
        self._on_step = on_step
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<process {self.name}{'' if self.alive else ', over'}>"

    def step(self) -> None:
        """Count a step; it may be the last one."""
        if self.alive:
            self._on_step(self)

    def kill(self, *, silently: bool = False) -> None:
        """End it like SIGKILL; ``silently``: like its host's power, so that nobody is told."""
        if not self.alive:
            return
        self.alive = False
        self.killed = True
        self.dark = silently
        for end in list(self.ends):
            end.sever(silently=silently)
        for listener in list(self.listeners):
            listener.close()
        for callback in self.on_kill:
            callback()
        self._tell()
        self._scope.cancel()

    def stop(self) -> None:
        """Cancel it: it may clear up in good order."""
        self._scope.cancel()

    async def run(self, main: Callable[[], Awaitable[object]]) -> None:
        """Run ``main`` as this process until it ends, is stopped or killed; ``error`` keeps its errors."""
        RUNNING.set(self)
        OBSERVER.set(self._observer)
        self.context = copy_context()
        try:
            with self._scope:
                await main()
        except Exception as error:
            if not self.killed:
                self.error = error
        finally:
            self._end()

    def _end(self) -> None:
        self.alive = False
        for end in list(self.ends):
            end.sever()
        for listener in list(self.listeners):
            listener.close()
        self._tell()

    def _tell(self) -> None:
        self.ended.set()
        if not self.dark:
            self.noticed.set()

    def problem(self) -> str:
        """Return the first line of the error that ended it, or ""."""
        if self.error is None:
            return ""
        first = next(leaves(self.error))
        return next(iter(str(first).splitlines()), "") or type(first).__name__


async def first_of(*events: trio.Event) -> None:
    """Wait until one of the events is set."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)
