"""Programs that are started before all of their job are ready, and call the barrier themselves (COA-2).

A program is ready when it calls ``coallocation.barrier()``. It is told yes when all are ready. If they are
not in time, it is told no, and has a moment to end by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from attrs import evolve

from gspc_trio.components.rts.shell.direct import CallFailed, DirectWorker
from gspc_trio.core.barrier import BARRIER_VARIABLE, NO, YES
from gspc_trio.core.code import Program
from gspc_trio.core.current import current_address
from gspc_trio.nursery.scopes.scope import open_scope

REFUSED_END_S = 2.0
"""A program that was told no has so long to end, then it is stopped."""


class InsideBarrier:
    """The barrier of one program.

    Args:
        go: set when all programs of the job are ready.
        told: returns then what ``GSPC_RESOURCES`` has.
        report: called when this program is ready, once.

    Attributes:
        go: set when all programs of the job are ready.
        is_called: whether this one is.
        is_refused: whether it is told no, for not all were.
    """

    def __init__(self, go: trio.Event, told: Callable[[], str], report: Callable[[], None]) -> None:
        self.go: trio.Event = go
        self._told = told
        self._report = report
        self._waiting: list[Callable[[bytes], None]] = []
        self.is_refused: bool = False
        self.is_called: bool = False

    def call(self, answer: Callable[[bytes], None]) -> None:
        """A process of the program is ready; ``answer`` takes what it is told."""
        if self.go.is_set() or self.is_refused:
            answer(self._answer())
            return
        self._waiting.append(answer)
        if not self.is_called:
            self.is_called = True
            self._report()

    def end(self) -> None:
        """Tell whoever waits: yes if all are ready, else no, now and to later ones."""
        self.is_refused = not self.go.is_set()
        while self._waiting:
            self._waiting.pop()(self._answer())

    def _answer(self) -> bytes:
        return YES + self._told().encode() if self.go.is_set() else NO


async def run_inside(worker: DirectWorker, program: Program, barrier: InsideBarrier) -> Any:
    """Run a program that calls the barrier; cancelled, let it end by itself for a moment, then stop it.

    Args:
        worker: where it runs.
        program: what runs, with its environment.
        barrier: which it calls.

    Returns:
        dict: ``exit_status``, ``stdout`` and ``stderr``.

    Raises:
        CallFailed: it failed, or was lost or refused.
        PeerGone: its host is gone.
    """
    address = await worker.run(current_address)
    worker.on_barrier = barrier.call
    result: Any = None
    async with open_scope() as nursery:
        ended = trio.Event()
        running = trio.CancelScope(shield=True)

        async def run() -> None:
            nonlocal result
            with running:
                place = {BARRIER_VARIABLE: worker.barrier_place(address).to_text()}
                try:
                    result = await worker.run(evolve(program, environment={**program.environment, **place}))
                except CallFailed:
                    if not barrier.is_refused:
                        raise
                finally:
                    ended.set()

        async def answer() -> None:
            await barrier.go.wait()
            barrier.end()

        nursery.start_soon(run)
        nursery.start_soon(answer)
        try:
            await ended.wait()
        except trio.Cancelled:
            if not barrier.go.is_set():
                barrier.end()
                with trio.move_on_after(REFUSED_END_S, shield=True):
                    await ended.wait()
            raise
        finally:
            running.cancel()
            nursery.cancel_scope.cancel()
    return result
