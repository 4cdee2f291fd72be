"""The memory layers of one simulated run: one after another, each until it is struck."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio
from attrs import astuple

from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.platform import Sizes
from gspc_trio.nursery.scopes.scope import leaves
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.faults import LATER_LAYER_KINDS, LAYER_KINDS, LAYER_ROLES, Fault, Faults
from gspc_trio.testing.layer.users import LayerUser, fill_again, free_published
from gspc_trio.testing.layer.world import LayerWorld

if TYPE_CHECKING:
    from gspc_trio.testing.simulated.process import SimulatedProcess

AGAIN_S = 0.3
"""Pause before another layer is started."""

REST_S = 100.0
"""Within so many seconds after the last job all its data is gone."""

COLLECT_S = 1.0
"""Between two collections of cyclic garbage."""

USERS = 2
"""Clients that use the layer beside the jobs."""

LIVES = 1
"""How often each of them comes."""

QUOTA = Quota(1 << 22)

SMALL_QUOTAS = (QUOTA, Quota(1 << 18), Quota(1 << 18, 1 << 19), Quota(1 << 17, 1 << 20))
"""What servers may use in runs with little room."""

SMALL_BYTES = 1 << 18
"""Clients fill servers that have no more memory."""

SMALL_SIZES = (Sizes(), Sizes(1_000, 500, 3_000))
"""How bytes go from host to host in these."""

SMALL = 0.7
"""So many of the runs with a layer are such runs."""

TELLING = 0.5
"""In so many of the runs with a layer hosts tell how much memory they have."""

SERVERS_MAX = 8
"""There is memory for so many servers then: those of layers that go and come, and of RIFs that do."""


class LayerLife:
    """Starts memory layers.

    Args:
        random: to draw from.
        later, latest: the same for what came later.
        menu: what may be.
        room: how many times as much room each server has as in a cluster of usual size.
    """

    def __init__(self, random: Random, later: Random, latest: Random, menu: Faults, room: int = 1) -> None:
        small = menu.small and later.random() < SMALL
        drawn = later.choice(SMALL_QUOTAS) if small else QUOTA
        quota = Quota(room * drawn.memory_bytes, room * drawn.spill_bytes)
        telling = menu.grants and latest.random() < TELLING
        self.world: LayerWorld = LayerWorld(
            random,
            quota=quota,
            is_small=drawn.memory_bytes <= SMALL_BYTES,
            host_memory_bytes=SERVERS_MAX * quota.memory_bytes if telling else 0,
            sizes=later.choice(SMALL_SIZES) if small else SMALL_SIZES[0],
            bytes_min=random.choice((1, 1, 30, 5000)),
            copies=random.choice((1, 1, 1, 2)),
        )
        self._random = random
        self._later = later
        self._up = trio.Event()

    def draw(self, menu: Faults, steps: int) -> tuple[Fault, ...]:
        """Make a schedule of what happens to the layer's own processes, with about so many steps each."""
        each = dict.fromkeys(LAYER_ROLES, steps)
        drawn = menu.draw(self._random, each, LAYER_KINDS)
        return drawn + (menu.draw(self._later, each, LATER_LAYER_KINDS) if menu.small else ())

    async def keep(self) -> None:
        """Start a layer, another one when it is gone, until cancelled."""
        while True:
            process = await self.world.start_layer()
            if self.world.layer is not None:
                self._up.set()
            await process.ended.wait()
            if self.world.layer is not None:
                self.world.layer = None
                self._up = trio.Event()
            await trio.sleep(AGAIN_S)

    async def collect(self) -> None:
        """Collect cyclic garbage at times that follow from the seed: what it keeps mapped is not free."""
        gc.disable()
        try:
            while True:
                await trio.sleep(COLLECT_S)
                gc.collect(0)
        finally:
            gc.enable()

    async def keep_users(self, fail: Callable[[BaseException], None]) -> None:
        """Let other clients use the layers, until they have done what they want or it is cancelled."""
        async with trio.open_nursery() as nursery:
            for number in range(USERS):
                nursery.start_soon(self._keep_user, number, fail)

    async def _keep_user(self, number: int, fail: Callable[[BaseException], None]) -> None:
        for life in range(LIVES):
            layer, random = await self.settled(), Random(self._random.getrandbits(64))
            host = random.choice(("store", "desk", "h1"))
            user, job = LayerUser(self.world, random, host, fail), f"tenant{number}.{life}"
            process = self.world.spawn("user", "user", host, partial(user.run, layer=layer, job=job))
            await process.ended.wait()
            await trio.sleep(AGAIN_S)

    async def settled(self) -> DataLayer:
        """Return the layer that is there, once one is."""
        while self.world.layer is None:
            await self._up.wait()
            await trio.lowlevel.checkpoint()
        return self.world.layer

    async def come_to_rest(self) -> None:
        """Nothing is allocated when no job is left, and each server holds its memory.

        Raises:
            Broken: something is.
        """
        deadline_s = trio.current_time() + REST_S
        if self.world.layer is not None:  # what was published stays until somebody frees it
            main = partial(free_published, self.world, self.world.layer)
            await self.world.spawn("janitor", "client", "desk", main).ended.wait()
        while True:
            left = self._left() + self.world.not_held()
            if not left:
                break
            gc.collect()
            if trio.current_time() > deadline_s:
                raise Broken(f"memory is not all back: {'; '.join(left)}", *left)
            await trio.sleep(1.0)
        if self.world.layer is not None and self.world.is_small:
            main = partial(fill_again, self.world, self.world.layer)
            filler = self.world.spawn("filler", "client", "desk", main)
            await filler.ended.wait()
            errors = leaves(filler.error) if filler.error is not None else ()
            for broken in (error for error in errors if isinstance(error, Broken)):
                raise broken

    def _left(self) -> list[str]:
        """Return what is still allocated in the layer that is there."""
        if self.world.layer is None or self.world.coordinator is None:
            return []
        status = self.world.coordinator.machine.status()
        found = [f"data {entry.data_id} of {entry.job}" for entry in status.data]
        for process, server in self.world.servers.items():
            store = server.machine.statistics()
            if process.alive and any(astuple(store)):
                found.append(f"{process.name} has {store}")
        return found

    def stop(self) -> None:
        """End the layer."""
        if self.world.coordinator is not None:
            self.world.coordinator.stopped.set()

    def gone(self, process: SimulatedProcess) -> None:
        """A process is over: nothing of its memory is left.

        Raises:
            Broken: something is.
        """
        self.world.servers.pop(process, None)
        self.world.owners.pop(process, None)
        for pool in self.world.pools.pop(process, ()):
            if pool.living:
                raise Broken(f"{process.name} is over, and {pool.living} segments of it are left")
