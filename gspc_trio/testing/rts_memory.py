"""What simulated run-time systems leave behind for the next one: ``gspc-rts start --state``."""

from __future__ import annotations

from pathlib import Path

import trio
from attrs import evolve

from gspc_trio.components.rts_state import RtsState, StateKeeper
from gspc_trio.testing.process import SimulatedProcess

WALL_OFFSET_S = 1e9
"""What clocks on the wall show at the begin."""


class RtsMemory:
    """The file of the state of a run-time system; it outlives the processes that write it.

    Attributes:
        state: what was saved last.
    """

    def __init__(self) -> None:
        self.state = RtsState(token="", instance="rts")

    def keeper(self, process: SimulatedProcess, epoch: int) -> StateKeeper:
        """Return what keeps the state for a run-time system that begins."""
        return _Keeper(self, process, epoch)


class _Keeper(StateKeeper):
    """Keeps the state in memory, for as long as its process lives."""

    def __init__(self, memory: RtsMemory, process: SimulatedProcess, epoch: int) -> None:
        super().__init__(Path(), memory.state, lambda: WALL_OFFSET_S + trio.current_time())
        self.state = evolve(memory.state, epoch=epoch)
        self._memory = memory
        self._process = process

    def _write(self, state: RtsState) -> None:
        if self._process.alive:
            self._memory.state = state
