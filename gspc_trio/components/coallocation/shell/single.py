"""Requests for one resource at a site, of which there may be many (COA-2).

Nothing of them needs a task that waits: each step is taken by whoever brings what it waits for. To wake a
task costs more than such a step, and most jobs have one resource.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

import trio

from gspc_trio.components.coallocation.agents.service import PeerSaid
from gspc_trio.components.coallocation.agents.words import (
    CancelParts,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
)
from gspc_trio.components.coallocation.running import PartProgram
from gspc_trio.components.coallocation.shell.kept import KeptGrant, KeptGrants, ReadyWorker
from gspc_trio.components.coallocation.shell.programs import named_at
from gspc_trio.components.rts.shell.acquire import Waiter
from gspc_trio.components.rts.shell.direct import STOP_S, CallFailed, result_of
from gspc_trio.core.code import Program
from gspc_trio.core.ids import ResourceId, TaskId
from gspc_trio.core.task import Outcome, Shape
from gspc_trio.nursery.connections.rpc import PeerGone


class SingleState(Enum):
    """How far such a request is."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    STOPPING = "stopping"
    OVER = "over"


class _Single:
    """One request: what it has, and how far it is."""

    __slots__ = ("kept", "program", "ready", "state", "told", "waiter", "wanted")

    def __init__(self, wanted: PartsRequest, program: PartProgram) -> None:
        self.wanted = wanted
        self.program = program
        self.state = SingleState.WAITING
        self.waiter: tuple[Shape, Waiter] | None = None
        self.kept: KeptGrant | None = None
        self.ready: tuple[ResourceId, ReadyWorker] | None = None
        self.told: TaskId = 0


class SingleRuns:
    """The requests for one resource of a site.

    Args:
        name: of the site.
        grants: by which resources are had.
        nursery: for what takes time.
        put: takes what is said to the service.
        host_of: returns the host of a resource.
        program_at: returns what a part runs in a process in a directory.
        prepare: serves a request whose grant has no process yet.
    """

    def __init__(
        self,
        name: str,
        grants: KeptGrants,
        nursery: trio.Nursery,
        put: Callable[[PeerSaid], None],
        host_of: Callable[[ResourceId], str],
        program_at: Callable[[bytes, PartProgram, str], Program],
        prepare: Callable[[PartsRequest, KeptGrant], None],
    ) -> None:
        self._name = name
        self._grants = grants
        self._nursery = nursery
        self._put = put
        self._host_of = host_of
        self._program_at = program_at
        self._prepare = prepare
        self._runs: dict[str, _Single] = {}

    def begin(self, wanted: PartsRequest, program: PartProgram, shape: Shape) -> None:
        """Take a request of one part and one resource, which starts together with others."""
        run = self._runs[wanted.request] = _Single(wanted, program)
        try:
            waiter = self._grants.ask(shape, partial(self._granted, run))
        except PeerGone as gone:
            self._granted(run, gone)
        else:
            if waiter is not None and run.kept is None:
                run.waiter = shape, waiter

    def go(self, message: PartsGo) -> None:
        """All parts are ready: start the program."""
        run = self._runs.get(message.request)
        if run is None or run.state is not SingleState.READY:
            return
        assert run.ready is not None
        resource, ready = run.ready
        ready.on_lost = None
        run.state = SingleState.RUNNING
        named = named_at(message.resources, run.program.part, 0)
        payload = run.wanted.parts[0].need.payload
        program = self._program_at(payload, run.program, ready.directory)
        try:
            run.told = ready.worker.begin(program, named, partial(self._ended, run))
        except (PeerGone, ValueError) as error:
            self._end(run, f"{run.program.program[0]} at {resource} was lost: {error}")

    def cancel(self, message: CancelParts) -> None:
        """Stop a request, and give back what it has."""
        run = self._runs.get(message.request)
        if run is None or run.state is SingleState.STOPPING:
            return
        if run.state is SingleState.RUNNING:
            assert run.ready is not None
            run.state = SingleState.STOPPING
            run.ready[1].worker.cancel(run.told)
            self._nursery.start_soon(self._give_up, run)
            return
        if run.waiter is not None:
            self._grants.withdraw(*run.waiter)
        self._end(run, "cancelled")

    def forget(self) -> None:
        """The run-time system is gone, and with it all that was had of it."""
        for run in self._runs.values():
            run.state = SingleState.OVER
        self._runs.clear()

    def _granted(self, run: _Single, kept: KeptGrant | Exception) -> None:
        run.waiter = None
        if run.state is not SingleState.WAITING:
            return
        if isinstance(kept, PeerGone):
            self._end(run, f"{self._name} is gone: {kept.reason}")
            return
        if isinstance(kept, Exception):
            self._end(run, f"site {self._name}: {kept}")
            return
        run.kept = kept
        resource = kept.held.resources[0]
        ready = kept.workers.get(resource)
        if ready is None:
            del self._runs[run.wanted.request]
            run.state = SingleState.OVER
            self._prepare(run.wanted, kept)
            return
        run.ready, run.state = (resource, ready), SingleState.READY
        if ready.is_gone:
            self._lost(run)
            return
        ready.on_lost = partial(self._lost, run)
        told = ((run.wanted.parts[0].part, (f"{resource}@{self._host_of(resource)}",)),)
        self._put(PeerSaid(self._name, PartsReady(run.wanted.request, told)))

    def _lost(self, run: _Single) -> None:
        """Its worker is gone before the start."""
        if run.state is SingleState.READY:
            assert run.ready is not None
            self._end(run, f"{run.ready[0]} was lost before all parts were ready")

    def _ended(self, run: _Single, outcome: Outcome | None) -> None:
        """The program runs no more."""
        if run.state not in (SingleState.RUNNING, SingleState.STOPPING):
            return
        assert run.ready is not None
        name, error, output = run.program.program[0], "", ""
        if outcome is None:
            error = f"{name} at {run.ready[0]} was lost: {run.ready[1].worker.reason}"
        else:
            try:
                output = str(result_of(outcome)["stdout"])
            except CallFailed as failed:
                output = outcome.stdout.decode(errors="replace")
                error = f"{name}: {failed}"
        if run.state is SingleState.STOPPING:
            error = "cancelled"
        self._end(run, error, output)

    async def _give_up(self, run: _Single) -> None:
        """What was stopped and does not end is left to the worker, which is given back."""
        await trio.sleep(STOP_S)
        if run.state is SingleState.STOPPING:
            self._end(run, "cancelled")

    def _end(self, run: _Single, error: str, output: str = "") -> None:
        ran = run.state in (SingleState.RUNNING, SingleState.STOPPING)
        run.state = SingleState.OVER
        del self._runs[run.wanted.request]
        outputs: tuple[tuple[int, str], ...] = ()
        kept, ready = run.kept, run.ready
        if kept is not None:
            if ready is not None:
                ready[1].on_lost = None
            kept.is_clean = error == ""
            self._grants.give_back(kept)
            outputs = ((run.wanted.parts[0].part, output),)
        self._put(PeerSaid(self._name, PartsDone(run.wanted.request, error, ran, outputs)))
