"""The memory server of a host is found or started, also where that did not succeed at first (IML-2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing

import pytest
import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import ImlError, LayerGone, NoRoom
from gspc_trio.iml.local import LocalClient, socket_address_of
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell import host as iml_host
from gspc_trio.iml.shell.host import HostLayers
from gspc_trio.iml.shell.platform import PLATFORM, Platform
from gspc_trio.iml.shell.server_process import ServerProcess
from gspc_trio.nursery.connections.network import Network
from tests.iml.shell.support import TOKEN, Stage, open_stage

MIB = 1 << 20
HANG_S = 60.0
LISTEN = "ws://127.0.0.1:0"


class Here(Platform):
    """Runs memory servers in this process."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def network(self, layer: DataLayer) -> Network:
        return self._stage.network if layer.token == TOKEN else Network(wire_codec, layer.token)

    def open_server(
        self, host: str, quota: Quota, layer: DataLayer
    ) -> AbstractAsyncContextManager[ServerProcess]:
        return self._opened(host, quota, layer)

    @asynccontextmanager
    async def _opened(self, host: str, quota: Quota, layer: DataLayer) -> AsyncIterator[ServerProcess]:
        server = await self._stage.add(host, quota.memory_bytes, local=True)
        try:
            yield ServerProcess(layer, host, server.local_address, server.gone.wait)
        finally:
            with trio.CancelScope(shield=True):
                await self._stage.kill(host)


@asynccontextmanager
async def layers_of(stage: Stage, arena: iml_host.Arena) -> AsyncIterator[HostLayers]:
    """What a RIF of host north has."""
    token = PLATFORM.set(Here(stage))
    try:
        async with trio.open_nursery() as nursery:
            yield HostLayers("north", nursery, MIB, arena)
            nursery.cancel_scope.cancel()
    finally:
        PLATFORM.reset(token)


class FullHost:
    """A host whose memory others have, for a while."""

    def __init__(self) -> None:
        self.is_full = True

    @asynccontextmanager
    async def hold(self, host: str, name: str, memory_bytes: int) -> AsyncIterator[Quota]:
        del name
        if self.is_full:
            raise NoRoom(f"host {host} has no {memory_bytes} bytes of memory")
        yield Quota(memory_bytes)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iml_host, "AGAIN_S", 0.0)
    monkeypatch.setattr(iml_host, "PAUSE_S", 0.0)


async def test_a_host_that_had_no_memory_for_a_server_is_tried_again_for_the_next_job() -> None:
    """A RIF lives as long as its run-time system; what one job could not have, another may."""
    host = FullHost()
    with trio.fail_after(HANG_S):
        async with (
            open_stage("south", listen=LISTEN) as stage,
            layers_of(stage, host.hold) as layers,
        ):
            layer = DataLayer(stage.coordinator.address, TOKEN)
            for _ in range(2):
                with pytest.raises(LayerGone, match=r"north has no memory server: .* 1048576 bytes"):
                    await layers.settle(layer)
            host.is_full = False
            settled = await layers.settle(layer)
            assert stage.servers["north"].local_address == settled.local_address
            await layers.link(layer)


async def test_a_host_that_had_no_memory_for_a_server_is_tried_again_for_who_asks_there() -> None:
    """A job server settles once; its results are opened there in the end."""
    host = FullHost()
    async with (
        open_stage("south", listen=LISTEN) as stage,
        layers_of(stage, host.hold) as layers,
    ):
        layer = DataLayer(stage.coordinator.address, TOKEN)
        address = socket_address_of(TOKEN, layer.address, "north")

        def ask() -> None:
            with closing(LocalClient(address, "")) as client:
                client.look_up("nothing")

        with trio.fail_after(HANG_S):
            with pytest.raises(LayerGone, match="north has no memory server"):
                await layers.settle(layer)
            await refused(ask, "NoRoom")
            host.is_full = False
            await refused(ask, "UnknownName")
            assert "north" in stage.servers


async def refused(ask: Callable[[], None], kind: str) -> None:
    """Ask until that is refused for this reason; in between there may be nobody to ask."""
    while True:
        try:
            await trio.to_thread.run_sync(ask)
        except ImlError as error:
            if type(error).__name__ == kind:
                return


async def test_a_layer_in_the_place_of_one_that_is_gone_has_servers_of_its_own() -> None:
    """``gspc-iml start --port`` has the same address each time, and another token."""
    async with (
        open_stage("south", listen=LISTEN) as stage,
        layers_of(stage, iml_host.no_arena) as layers,
    ):
        address = stage.coordinator.address
        with trio.fail_after(HANG_S):
            with pytest.raises(LayerGone, match="host north has no memory server"):
                await layers.settle(DataLayer(address, b"gone" * 8))
            await layers.settle(DataLayer(address, TOKEN))
            assert list(stage.servers) == ["south", "north"]
