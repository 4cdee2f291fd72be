"""The one loop that feeds a machine and carries out what it decides."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import trio
from msgspec import Struct

from gspc_trio.core.machine import IllegalEvent, Machine, MachineBase, Performer, Tick
from gspc_trio.nursery.connections.rpc import Peer, drop_offender
from gspc_trio.nursery.scopes.observe import observed

E = TypeVar("E")
A = TypeVar("A")


class SaidBy(Struct, frozen=True):
    """What follows in an inbox is what this peer has said; None: this program itself.

    It stands before all that comes at one time: to wrap each event costs more than to handle a short one.
    """

    peer: Peer | None


OWN = SaidBy(None)


CHECK_VARIABLE = "GSPC_CHECK"
"""Environment variable; set to 1 every machine checks its invariants after each event."""

ROUNDS_MAX = 100
"""Batches of events fed at once within ``put``; while a machine feeds itself for longer others get a turn."""


RUN_MAX = 128
"""Events of one kind that are taken in one run at most: what follows from the first ones waits meanwhile."""


class Put(Protocol):
    """Takes an event, as :meth:`Inbox.put` does."""

    def __call__(self, event: Any, by: Peer | None = None) -> None:
        """Take an event that ``by`` has told of, or None of this program."""
        ...


class Inbox(Generic[E]):
    """Events for one driver: anyone puts without waiting.

    While the driver waits for events it is the one who puts that feeds the machine: waking a task costs more
    than an event, and one on its way through several machines would wake one after the other.
    """

    def __init__(self) -> None:
        self._events: list[E | SaidBy] = []
        self._wake: trio.Event | None = None
        self._pump: Callable[[], None] | None = None
        self.closed: bool = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: E, by: Peer | None = None) -> None:
        """Add an event; never blocks. After :meth:`close` it is dropped: nobody listens any more.

        When this returns the event may have been handled; it has not been if this is called while an
        earlier one is.

        Args:
            event: for the machine.
            by: who has said what it tells: should that be illegal, this connection ends, and nothing else.
        """
        if not self.closed:
            if by is None:
                self._events.append(event)
            else:
                self._events += (SaidBy(by), event, OWN)
            if self._pump is not None:
                self._pump()
            elif self._wake is not None:
                self._wake.set()

    def put_all(self, events: Iterable[E], by: Peer | None = None) -> None:
        """Add what a peer has said at one time: :meth:`put` for each, at the cost of one."""
        if not self.closed:
            self._events += events if by is None else (SaidBy(by), *events, OWN)
            if self._events:
                self._tell()

    def _tell(self) -> None:
        if self._pump is not None:
            self._pump()
        elif self._wake is not None:
            self._wake.set()

    def close(self) -> None:
        """Take no more events; those put before are still taken."""
        self.closed = True
        if self._wake is not None:
            self._wake.set()

    def take_nowait(self) -> list[E | SaidBy]:
        """Return all events that have gathered, maybe none."""
        events, self._events = self._events, []
        return events

    async def take(self) -> list[E | SaidBy]:
        """Wait for at least one event and return all that have gathered.

        Raises:
            trio.EndOfChannel: the inbox is closed and empty.
            trio.BusyResourceError: another task is taking.
        """
        if self._events or self.closed:
            self._check_free()
            # Others run first and may add to the batch.
            await trio.lowlevel.checkpoint()
        else:
            await self.wait()
        if not self._events:
            raise trio.EndOfChannel
        return self.take_nowait()

    async def wait(self, pump: Callable[[], None] | None = None) -> None:
        """Wait until there are events or none will come; meanwhile ``pump`` is called for each that is put.

        With ``pump``, which takes the events, this returns only when :meth:`close` or :meth:`wake` is called.

        Raises:
            trio.BusyResourceError: another task is taking.
        """
        self._check_free()
        self._wake, self._pump = trio.Event(), pump
        try:
            await self._wake.wait()
        finally:
            self._wake = self._pump = None

    def wake(self) -> None:
        """Let :meth:`wait` return, if somebody is in it."""
        if self._wake is not None:
            self._wake.set()

    def _check_free(self) -> None:
        if self._wake is not None:
            raise trio.BusyResourceError("another task takes from this inbox already")


async def drive(
    machine: Machine[E | Tick, A],
    inbox: Inbox[E],
    perform: Performer[A] | Callable[[A], None],
    *,
    check: bool | None = None,
    refused: Callable[[E | Tick, IllegalEvent], None] | None = None,
) -> None:
    """Feed the machine until its inbox is closed and empty.

    What a peer has said (``Inbox.put`` with ``by``) and the machine refuses as illegal has changed nothing:
    the peer's connection ends, with one line in the log, and all else goes on. Any other error is one of this
    program, and is raised.

    Args:
        machine: gets every event in the order of the inbox, and a :class:`~gspc_trio.core.machine.Tick` at
            its deadline.
        inbox: of events; put to from ``perform`` too.
        perform: a shell or a function; it carries out one action at once, in the task of whoever put the
            event; what takes time it starts in a nursery, and puts its end into the inbox.
        check: call ``machine.check()`` after each event; None: as the environment variable GSPC_CHECK says.
        refused: told of an event of this program's own that the machine refused as illegal; without it the
            error is raised.
    """
    if check is None:
        check = os.environ.get(CHECK_VARIABLE) == "1"
    await _Driver(observed(machine), inbox, perform, check, refused).run()


class _Driver(Generic[E, A]):
    """Feeds one machine: in a task of its own, and within ``Inbox.put`` while that task waits."""

    def __init__(
        self,
        machine: Machine[E | Tick, A],
        inbox: Inbox[E],
        perform: Performer[A] | Callable[[A], None],
        check: bool,
        refused: Callable[[E | Tick, IllegalEvent], None] | None,
    ) -> None:
        self._machine = machine
        self._inbox = inbox
        shell = perform if isinstance(perform, Performer) else None
        self._performers = None if shell is None else shell.performers()
        self._perform = perform.perform if isinstance(perform, Performer) else perform
        self._check = check
        self._refused = refused
        self._gathered = machine.gathered if isinstance(machine, MachineBase) else frozenset()
        self._run: list[E] = []  # events of one kind that are to be taken together
        self._said: list[Peer | None] = []  # who has said each
        self._feeding = False
        self._failure: BaseException | None = None
        self._until = trio.CancelScope()

    async def run(self) -> None:
        """Feed until the inbox is closed and empty."""
        machine, inbox = self._machine, self._inbox
        while True:
            due_s = machine.deadline()
            if due_s is not None and due_s <= trio.current_time():
                # Also when events never cease: a deadline is not starved.
                self._feed_all([Tick()])
                due_s = machine.deadline()
            if inbox or inbox.closed:
                try:
                    events = await inbox.take()
                except trio.EndOfChannel:
                    return
                self._feed_all(events)
            else:
                with trio.CancelScope(deadline=math.inf if due_s is None else due_s) as self._until:
                    await inbox.wait(self._pump)
            if self._failure is not None:
                raise self._failure

    def _pump(self) -> None:
        """Feed what has been put, unless that is being done already; what goes wrong is the driver's."""
        if self._feeding or self._failure is not None:
            return
        inbox = self._inbox
        try:
            for _ in range(ROUNDS_MAX):
                self._feed_all(inbox.take_nowait())
                if not inbox._events:
                    break
            else:
                inbox.wake()
        except BaseException as error:
            self._failure = error
            inbox.wake()
            return
        due_s = self._machine.deadline()
        deadline = math.inf if due_s is None else due_s
        if deadline != self._until.deadline:
            self._until.deadline = deadline

    def _feed_all(self, events: Sequence[Any]) -> None:
        """Feed these; what they have put is left."""
        gathered, run = self._gathered, self._run
        now = trio.current_time()
        by: Peer | None = None
        self._feeding = True
        try:
            for event in events:
                kind = event.__class__
                if kind is SaidBy:
                    by = event.peer
                    continue
                if run and (kind is not run[0].__class__ or len(run) == RUN_MAX):
                    self._feed_run(now)
                if kind in gathered:
                    run.append(event)
                    self._said.append(by)
                else:
                    self._feed(event, by, now)
            if run:
                self._feed_run(now)
        finally:
            run.clear()
            self._said.clear()
            self._feeding = False

    def _feed(self, event: E, by: Peer | None, now: float) -> None:
        try:
            actions = self._machine.handle(event, now)
        except IllegalEvent as error:
            self._refuse(event, by, error)
            return
        self._carry_out(actions)

    def _feed_run(self, now: float) -> None:
        """Feed what has been gathered; one event alone is no run."""
        run, said, machine = self._run, self._said, self._machine
        if len(run) == 1:
            event, by = run.pop(), said.pop()
            self._feed(event, by, now)
            return
        assert isinstance(machine, MachineBase)
        self._carry_out(
            machine.handle_run(run, now, lambda place, error: self._refuse(run[place], said[place], error))
        )
        run.clear()
        said.clear()

    def _refuse(self, event: E, by: Peer | None, error: IllegalEvent) -> None:
        """An event is illegal: the connection of who has said it ends.

        Raises:
            IllegalEvent: this program has said it, and nobody wants to be told.
        """
        if by is not None:
            drop_offender(by, f"{type(event).__name__}: {error}")
        elif self._refused is not None:
            self._refused(event, error)
        else:
            raise error

    def _carry_out(self, actions: Sequence[A]) -> None:
        if self._check:
            self._machine.check()
        performers = self._performers
        if performers is None:
            perform = self._perform
            for action in actions:
                perform(action)
        else:
            for action in actions:
                performers[type(action)](action)
