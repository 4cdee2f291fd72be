"""A memory layer of three processes at random, two of which are killed now and then."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.iml.errors import DataLost
from gspc_trio.iml.shell.client import Allocation, Iml
from gspc_trio.iml.shell.layer import open_iml
from tests.iml.shell.servers import HANG_S, Servers, open_servers
from tests.iml.shell.test_model import HOSTS, STEPS, Model

pytestmark = pytest.mark.process

SCALE = 32
"""Most data is long enough for the connections for chunks."""


class Processes:
    """What the model kills and starts: the servers by host."""

    def __init__(self, running: Servers, iml: Iml) -> None:
        self._running = running
        self._iml = iml
        self.servers = running.processes

    async def kill(self, host: str) -> None:
        """Kill a server, and wait until the coordinator knows."""
        await trio.to_thread.run_sync(self._running.kill, host)
        while host in {server.host for server in await self._iml.servers()}:
            await trio.lowlevel.checkpoint()


class ProcessModel(Model):
    """The model over processes; the first host has the coordinator, and stays."""

    async def is_whole(self, data: Allocation) -> bool:
        entries = (await self.iml.status()).data
        return any(it.data_id == data.data_id and not it.block_bytes for it in entries)

    async def kill(self, number: int) -> None:
        if number % len(HOSTS):
            await super().kill(number % len(HOSTS))

    async def add(self, host: str) -> None:
        await trio.to_thread.run_sync(self.stage._running.start, host)


async def run_steps(running: Servers, steps: list[Any], near: bool) -> None:
    async with open_iml(host="a" if near else "far", connection_file=running.file) as iml:
        model = ProcessModel(Processes(running, iml), iml, "", SCALE, "")
        for step in steps:
            await model.step(*step)
        for data, content in model.held:
            with suppress(DataLost):
                assert await iml.get(data) == content
            await iml.free(data)
        while any(it.held_bytes for it in (await iml.status()).servers):
            await trio.lowlevel.checkpoint()


@settings(max_examples=4)
@given(st.lists(STEPS, min_size=5, max_size=20), st.booleans())
def test_processes_return_the_last_acknowledged_put_or_an_error(steps: list[Any], near: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, open_servers(Path(folder)) as running:
        for host in HOSTS:
            running.start(host)

        async def bounded(work: Callable[[], Any]) -> None:
            with trio.fail_after(HANG_S):
                await work()

        trio.run(bounded, partial(run_steps, running, steps, near))
