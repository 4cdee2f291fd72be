"""How the programs of a request are made ready, started and stopped at their workers (COA-2).

A program with ``start=inside`` is ready when it calls ``coallocation.barrier()``. It is told yes when all are
ready. If they are not in time, it is told no, and has a moment to end by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from attrs import evolve

from gspc_trio.components.coallocation.agents.words import PartResources
from gspc_trio.components.rts.shell.direct import CallFailed, DirectWorker
from gspc_trio.compute.commands import working_directory
from gspc_trio.core.code import Program
from gspc_trio.core.current import current_address
from gspc_trio.core.held import RESOURCES_VARIABLE
from gspc_trio.core.nested import BARRIER_VARIABLE, NO, YES
from gspc_trio.nursery.scopes.scope import open_scope

REFUSED_END_S = 2.0
"""A program that was told no has so long to end, then it is stopped."""


REFUSED_S = 0.02
"""A worker that still stops what it ran before is asked again after so long, until the barrier times out."""


PART_VARIABLE, RANK_VARIABLE = "GSPC_PART", "GSPC_RANK"
"""Environment variables of programs: of the part in its job, and of the program in its part; from 0."""


class NotReady(Exception):
    """The parts of a request could not be had or made ready; the message says why."""


class ProgramFailed(Exception):
    """A program has failed, or was lost; the message says how."""


def named_at(resources: PartResources, part: int, rank: int) -> dict[str, object]:
    """Return what a program is told by variables of its environment.

    Args:
        resources: of all parts of its job.
        part: its own, from 0.
        rank: its number in the part, from 0.
    """
    told = ",".join([one for _, names in resources for one in names])
    return {RESOURCES_VARIABLE: told, PART_VARIABLE: part, RANK_VARIABLE: rank}


class InsideBarrier:
    """The barrier of one program.

    Args:
        go: set when all programs of the job are ready.
        refused: set when they will not be.
        told: returns then what ``GSPC_RESOURCES`` has.
        report: called when this program is ready, once.

    Attributes:
        go, refused: see above.
        is_called: whether this program is ready.
    """

    def __init__(
        self, go: trio.Event, refused: trio.Event, told: Callable[[], str], report: Callable[[], None]
    ) -> None:
        self.go: trio.Event = go
        self.refused: trio.Event = refused
        self.is_called: bool = False
        self._told = told
        self._report = report
        self._waiting: list[Callable[[bytes], None]] = []

    def call(self, answer: Callable[[bytes], None]) -> None:
        """A process of the program is ready; ``answer`` takes what it is told."""
        self._waiting.append(answer)
        if self.go.is_set() or self.refused.is_set():
            self.tell()
        elif not self.is_called:
            self.is_called = True
            self._report()

    def tell(self) -> None:
        """Tell whoever waits: yes if all are ready, else no."""
        answer = YES + self._told().encode() if self.go.is_set() else NO
        while self._waiting:
            self._waiting.pop()(answer)


async def run_inside(
    worker: DirectWorker, program: Program, barrier: InsideBarrier, named: Mapping[str, object] | None = None
) -> Any:
    """Run a program that calls the barrier; once it is refused, it may end by itself, then it is stopped.

    Args:
        worker: where it runs.
        program: what runs, with its environment.
        barrier: which it calls.
        named: values of its placeholders.

    Returns:
        dict: ``exit_status``, ``stdout`` and ``stderr``; None if the barrier was refused.

    Raises:
        CallFailed: it failed, or was lost or refused.
        PeerGone: its host is gone.
    """
    address = await worker.run(current_address)
    worker.on_barrier = barrier.call  # of the program that runs, until another one does
    place = {BARRIER_VARIABLE: worker.barrier_place(address).to_text()}
    result: Any = None
    async with open_scope() as nursery:

        async def answer() -> None:
            await barrier.go.wait()
            barrier.tell()

        async def refuse() -> None:
            await barrier.refused.wait()
            barrier.tell()
            if barrier.is_called:
                await trio.sleep(REFUSED_END_S)
            nursery.cancel_scope.cancel()

        nursery.start_soon(answer)
        nursery.start_soon(refuse)
        try:
            whole = evolve(program, environment={**program.environment, **place})
            result = await worker.run(whole, named=named or {})
        except CallFailed:
            if not barrier.refused.is_set():
                raise
        nursery.cancel_scope.cancel()
    return None if barrier.refused.is_set() else result


async def made_ready(worker: DirectWorker) -> str:
    """Make a process ready, and return its directory; what was stopped there a moment ago may take a little
    to end."""
    while True:
        try:
            return str(await worker.run(working_directory))
        except CallFailed as error:
            if error.kind != "refused":
                raise
            await trio.sleep(REFUSED_S)


async def in_time(name: str, max_time_s: float | None, run: Callable[[], Awaitable[Any]]) -> Any:
    """Run a program, at most for so long; return what it returns."""
    if max_time_s is None:
        return await run()
    with trio.move_on_after(max_time_s):
        return await run()
    raise ProgramFailed(f"{name} ran longer than max_time, {max_time_s:g} s")
