"""State that simulated run-time systems leave for the next one: ``gspc-rts start --state``."""

from __future__ import annotations

from pathlib import Path
from random import Random

import trio
from msgspec.structs import replace

from gspc_trio.components.rts.shell.saved import RtsState
from gspc_trio.components.rts.shell.state_files import StateKeeper, load_state
from gspc_trio.records.shell.durable_files import FileSystem, make_directories
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.simulated.disk import SimulatedDisk
from gspc_trio.testing.simulated.process import SimulatedProcess

WALL_OFFSET_S = 1e9
"""What clocks on the wall show at the begin."""

FOLDER = Path("/state")


class RtsMemory:
    """The disk with the state of a run-time system; it outlives the processes that write it.

    Args:
        random: draws what is left of it when its host loses its power.

    Attributes:
        state: what was saved last; at the begin, what the first run-time system finds.
    """

    def __init__(self, random: Random | None = None) -> None:
        self.state: RtsState = RtsState(token="", instance="rts")
        self._disk = SimulatedDisk("the disk of the run-time system", random or Random(0))
        self._is_saved = False

    def keeper(self, process: SimulatedProcess, epoch: int) -> StateKeeper:
        """Return what keeps the state for a run-time system that begins.

        Raises:
            Broken: what was saved last is not there.
            StateError: nobody can read it.
        """
        files = self._disk.files(process)
        make_directories(files, FOLDER)
        if self._is_saved and load_state(FOLDER, files) != self.state:
            raise Broken("the state of the run-time system was saved, and is lost")
        return _Keeper(self, process, files, epoch)

    def saved(self, state: RtsState) -> None:
        """A run-time system has saved its state."""
        self._is_saved, self.state = True, state


class _Keeper(StateKeeper):
    """Keeps the state on a simulated disk."""

    def __init__(self, memory: RtsMemory, process: SimulatedProcess, files: FileSystem, epoch: int) -> None:
        super().__init__(FOLDER, memory.state, lambda: WALL_OFFSET_S + trio.current_time(), files)
        self.state = replace(memory.state, epoch=epoch)
        self._memory = memory
        self._process = process

    def _write(self, state: RtsState) -> None:
        super()._write(state)
        if self._process.alive:
            self._memory.saved(state)
