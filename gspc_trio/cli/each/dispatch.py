"""Which compute process of this host runs which command of a list next: a pure machine."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.machine import MachineBase, handles
from gspc_trio.policies.lookahead import WorkAhead

AHEAD = WorkAhead(ahead_s=0.01, tasks_max=32, longest_s=0.01, patrol_s=0.05, weight=0.3)
"""How much waits in a process behind the command that it runs.

What waits behind one that runs for longer than ``patrol_s`` is taken back once another process ends one."""

TRIES = 3
"""A command is given up when so many compute processes were lost while they ran it, and all commands when so
many processes in a row were lost before they ran any."""

Process: TypeAlias = int
Number: TypeAlias = int


class Added(Struct, frozen=True):
    """A command is to be run."""

    number: Number


class Opened(Struct, frozen=True):
    """A process that was asked for takes commands."""

    process: Process


class Ended(Struct, frozen=True):
    """The first command that a process had has ended."""

    process: Process
    number: Number


class Returned(Struct, frozen=True):
    """A process could not begin the first command that it had, through no fault of that."""

    process: Process
    number: Number


class TakenBack(Struct, frozen=True):
    """These had not been begun, and the process does not have them any more."""

    process: Process
    numbers: tuple[Number, ...]


class Lost(Struct, frozen=True):
    """A process is gone; ``begun``: while it ran the first command that it had."""

    process: Process
    begun: bool
    why: str


class Open(Struct, frozen=True):
    """Start this process."""

    process: Process


class Hand(Struct, frozen=True):
    """Have a process run these, in order, after what it has."""

    process: Process
    numbers: tuple[Number, ...]


class TakeBack(Struct, frozen=True):
    """Take back what this process has not begun, and say which."""

    process: Process


class GiveUp(Struct, frozen=True):
    """Try this command no more; without a number: none of them."""

    number: Number | None
    why: str


Event: TypeAlias = Added | Opened | Ended | Returned | TakenBack | Lost
Action: TypeAlias = Open | Hand | TakeBack | GiveUp


class _Process:
    """What is known of one process.

    Attributes:
        is_open: whether it takes commands; one that is being started does not yet.
        handed: commands that it has, in order: it runs the first one.
        since: when it began that, as far as is known here.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.handed: deque[Number] = deque()
        self.since = 0.0


class Dispatch(MachineBase[Event, Action]):
    """Hands the commands of a list to the processes of a host.

    Processes are started as they are needed. As long as there are commands that wait, no process is idle.
    Where commands are short, each process has some ahead: it need not wait for this one between two.

    Args:
        processes: how many there may be.
        ahead: whether a process may have more than the command that it runs.
    """

    noun = "the dispatch of a list of commands"

    def __init__(self, processes: int, *, ahead: bool) -> None:
        super().__init__()
        self._processes = [_Process() for _ in range(processes)]
        self._ahead = ahead
        self._unused = deque(range(processes))
        self._idle: deque[Process] = deque()
        self._waiting: deque[Number] = deque()
        self._losses: dict[Number, int] = {}
        self._lost_in_a_row = 0
        self._seconds = 0.0  # that a command takes, on average
        self._measured = 0  # so many have ended
        self._given_up = False

    @handles(Added)
    def _added(self, event: Added) -> None:
        self._waiting.append(event.number)
        if not self._idle and self._unused:
            self.actions.append(Open(self._unused.popleft()))

    @handles(Opened)
    def _opened(self, event: Opened) -> None:
        self._processes[event.process].is_open = True
        self._idle.append(event.process)
        self._take_back_what_is_behind()

    @handles(Ended)
    def _ended(self, event: Ended) -> None:
        process = self._take_first(event.process, event.number)
        self._seconds = AHEAD.learn(self._seconds, self._measured, self.now - process.since, 1)
        self._measured += 1
        process.since = self.now
        self._losses.pop(event.number, None)
        self._lost_in_a_row = 0
        self._take_back_what_is_behind()

    @handles(Returned)
    def _returned(self, event: Returned) -> None:
        self._take_first(event.process, event.number)
        self._waiting.appendleft(event.number)

    def _take_first(self, number: Process, command: Number) -> _Process:
        process = self._processes[number]
        assert process.handed[0] == command, f"command {command} of process {number} is not its first"
        process.handed.popleft()
        if not process.handed:
            self._idle.append(number)
        return process

    @handles(TakenBack)
    def _taken_back(self, event: TakenBack) -> None:
        if not event.numbers:
            return
        process, taken = self._processes[event.process], set(event.numbers)
        had_some = bool(process.handed)
        process.handed = deque(number for number in process.handed if number not in taken)
        self._waiting.extendleft(reversed(event.numbers))
        if had_some and not process.handed:
            self._idle.append(event.process)

    @handles(Lost)
    def _lost(self, event: Lost) -> None:
        process = self._processes[event.process]
        process.is_open = False
        if not process.handed:
            self._idle.remove(event.process)
        if event.begun and process.handed:
            self._lost_in_a_row = 0
            self._count_loss(process.handed.popleft(), event.why)
        else:
            self._lost_in_a_row += 1
        self._waiting.extendleft(reversed(process.handed))
        process.handed.clear()
        if self._lost_in_a_row >= TRIES:
            self._given_up = True
            self.actions.append(GiveUp(None, event.why))
        elif self._waiting:
            self.actions.append(Open(event.process))
        else:
            self._unused.append(event.process)

    def _count_loss(self, number: Number, why: str) -> None:
        losses = self._losses[number] = self._losses.get(number, 0) + 1
        if losses < TRIES:
            self._waiting.appendleft(number)
            return
        del self._losses[number]
        self.actions.append(GiveUp(number, f"lost {losses} times, the last time: {why}"))

    def _take_back_what_is_behind(self) -> None:
        """Take back what waits behind long commands; and all that waits behind any, if a process is idle."""
        if not self._ahead:
            return
        is_wanted = bool(self._idle) and not self._waiting
        for number, process in enumerate(self._processes):
            if len(process.handed) > 1 and (is_wanted or self.now - process.since > AHEAD.patrol_s):
                self.actions.append(TakeBack(number))

    def settle(self) -> None:
        """Give what waits to idle processes, and some of it to others ahead of time."""
        if self._given_up:
            return
        while self._idle and self._waiting:
            number = self._idle.popleft()
            process = self._processes[number]
            process.since = self.now
            self._hand(number, process)
        if self._waiting and self._ahead:
            self._hand_ahead()

    def _hand(self, number: Process, process: _Process) -> None:
        room = self._depth() - len(process.handed)
        share = -(-len(self._waiting) // len(self._processes))
        numbers = tuple(self._waiting.popleft() for _ in range(min(room, share)))
        process.handed.extend(numbers)
        self.actions.append(Hand(number, numbers))

    def _hand_ahead(self) -> None:
        depth = self._depth()
        for number, process in enumerate(self._processes):
            if not self._waiting:
                return
            # Several at a time, which costs less for each; behind a long one nothing.
            has_room = process.is_open and len(process.handed) <= depth // 2
            if has_room and self.now - process.since < AHEAD.patrol_s:
                self._hand(number, process)

    def _depth(self) -> int:
        """Return how many commands a process has at most."""
        return AHEAD.depth(self._measured, self._seconds, False)[1] if self._ahead else 1

    def check(self) -> None:
        """Assert that no command is twice, and that no process is idle while commands wait."""
        handed = [number for process in self._processes for number in process.handed]
        known = [*self._waiting, *handed]
        assert len(known) == len(set(known)), "a command is in two places"
        assert self._given_up or not (self._idle and self._waiting), "a process is idle while commands wait"
        for number, process in enumerate(self._processes):
            assert not process.handed or process.is_open, f"process {number} has commands and is not there"
            assert (number in self._idle) == (process.is_open and not process.handed)
            assert number not in self._unused or not process.is_open
        assert self._ahead or all(len(process.handed) <= 1 for process in self._processes)
