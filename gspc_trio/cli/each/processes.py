"""The commands of a list in compute processes of this host: all that ``gspc-jobserver each`` needs by itself.

No run-time system is started for them, for there is nobody to share this host with: to load one would take
longer than many lists do. The compute processes are those of a run-time system, and end in the same way.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import cast

import trio

from gspc_trio.cli.common import CommandError
from gspc_trio.cli.each.dispatch import (
    Action,
    Added,
    Dispatch,
    Ended,
    Event,
    GiveUp,
    Hand,
    Lost,
    Open,
    Opened,
    Returned,
    TakeBack,
    TakenBack,
)
from gspc_trio.components.provision.shell.hardware import discover_hardware
from gspc_trio.components.worker.messages import OpenJob, Submission
from gspc_trio.components.worker.shell.compute import (
    Compute,
    ComputeBackend,
    ComputeError,
    open_process_backend,
)
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.compute.code import function_code
from gspc_trio.compute.commands import Fields, run_command
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason
from gspc_trio.executor.flight import IN_FLIGHT_FACTOR, IN_FLIGHT_MIN, Flight, PoolCall
from gspc_trio.nursery.scopes.loop import real_time
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.values import dumps, loads

CODE_ID = 0
"""There is one code: what runs a command."""


@asynccontextmanager
async def open_processes(
    processes: int, template: StartedTemplate | None, *, ahead: bool
) -> AsyncIterator[CommandProcesses]:
    """Compute processes of this host, as long as the block runs; after it nothing of them is left.

    Args:
        processes: how many there are at most; 0: one for each core that this process may use.
        template: that was started for them; None: one is started.
        ahead: whether a process may have commands beside that which it runs.

    Raises:
        CommandError: compute processes cannot be started.
        UnsupportedSystem: not on Linux.
    """
    cores = [each for each in discover_hardware("r1", processes) if each.resource_class == "core"]
    with real_time():
        async with open_process_backend(template) as backend, open_scope() as nursery:
            yield CommandProcesses(nursery, backend, cores, ahead=ahead)
            nursery.cancel_scope.cancel()


class _Process:
    """One compute process: told of what it has done, and of its end.

    Args:
        number: of it.
        tell: told of events.
        finish: told how a command has ended.
    """

    def __init__(self, number: int, tell: Callable[[Event], None], finish: Callable[[Outcome], None]) -> None:
        self.number = number
        self.compute: Compute
        self._tell = tell
        self._finish = finish

    def computed(self, outcomes: tuple[Outcome, ...]) -> None:
        """Pass on what has ended."""
        for outcome in outcomes:
            if outcome.reason is Reason.RETURNED:
                self._tell(Returned(self.number, outcome.task_id))
            else:
                self._finish(outcome)
                self._tell(Ended(self.number, outcome.task_id))

    def compute_lost(
        self, detail: str, begun: bool = True, printed: tuple[bytes, bytes] = (b"", b"")
    ) -> None:
        """Pass on that it is gone."""
        del printed  # commands have pipes of their own
        self._tell(Lost(self.number, begun, detail))

    def speaks(self, line: TaskConnection) -> None:
        """Pay no heed: what runs here says nothing."""


class CommandProcesses:
    """Has compute processes run commands; :func:`open_processes` opens it.

    Args:
        nursery: for what runs meanwhile.
        backend: makes the processes.
        cores: one for each process.
        ahead: as for :func:`open_processes`.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        backend: ComputeBackend,
        cores: Iterable[Resource],
        *,
        ahead: bool,
    ) -> None:
        self._nursery = nursery
        self._backend = backend
        self._cores = tuple(cores)
        self._code = function_code(run_command)
        self._dispatch = Dispatch(len(self._cores), ahead=ahead)
        self._processes = [_Process(each, self._handle, self._finish) for each in range(len(self._cores))]
        self._job = OpenJob("each", cwd=os.getcwd())
        self._calls: dict[int, tuple[PoolCall, bytes]] = {}  # with the item, encoded
        self._number = 0
        self._events = deque[Event]()  # the first one is being handled

    def capacity(self) -> int:
        """Return how many can run at a time."""
        return len(self._cores)

    async def outcomes(
        self, items: AsyncIterable[Fields], *, ordered: bool, in_flight: int | None
    ) -> AsyncGenerator[tuple[Fields, Fields | BaseException], None]:
        """Yield the fields of each command beside how it has ended: fields, or why there are none.

        Args:
            items: fields of commands; they are read as there is room for them.
            ordered: in their order; False: as they end.
            in_flight: so many are at most read and not yielded.

        Raises:
            Exception: what reading them raises.
        """
        limit = in_flight or max(IN_FLIGHT_MIN, IN_FLIGHT_FACTOR * self.capacity())
        flight = Flight(None, limit, ordered, self._send)
        self._nursery.start_soon(flight.feed, items)
        try:
            while (call := await flight.next()) is not None:
                yield cast(Fields, call.item), _how(call)
        finally:
            flight.feeding.cancel()

    async def _send(self, item: Fields, on_end: Callable[[PoolCall], object]) -> PoolCall:
        call = PoolCall("", on_end)
        call.item = item
        self._number += 1
        self._calls[self._number] = call, dumps(item)
        self._handle(Added(self._number))
        return call

    def _finish(self, outcome: Outcome) -> None:
        call, _ = self._calls.pop(outcome.task_id)
        if outcome.error is None:
            call.finish(outcome.values[0][0])
        else:
            call.fail(RuntimeError(f"{outcome.error.kind}: {outcome.error.message}"))

    def _handle(self, event: Event) -> None:
        """Tell the machine what has happened; what comes of its actions it hears when all are performed."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            for action in self._dispatch.handle(self._events[0], trio.current_time()):
                self._perform(action)
            self._events.popleft()

    def _perform(self, action: Action) -> None:
        match action:
            case Hand(process, numbers):
                encoded = ((number, self._calls[number][1]) for number in numbers)
                self._processes[process].compute.hand(
                    [Submission(number, 1, CODE_ID, (item,)) for number, item in encoded]
                )
            case TakeBack(process):
                taken = self._processes[process].compute.retract()
                self._handle(TakenBack(process, tuple(number for number, _ in taken)))
            case Open(process):
                self._nursery.start_soon(self._open, self._processes[process])
            case GiveUp(None, why):
                self._nursery.start_soon(self._fail, why)
            case GiveUp(int(number), why):
                call, _ = self._calls.pop(number)
                call.fail(RuntimeError(why))

    async def _open(self, process: _Process) -> None:
        try:
            process.compute = await self._backend.open(self._cores[process.number], self._job, process)
        except ComputeError as error:
            raise CommandError(str(error)) from error
        process.compute.define(CODE_ID, self._code)
        self._handle(Opened(process.number))

    async def _fail(self, why: str) -> None:
        raise CommandError(f"compute processes end before they have run a command: {why}")


def _how(call: PoolCall) -> Fields | BaseException:
    if call.data is None:
        assert call.error is not None
        return call.error
    return cast(Fields, loads(call.data))
