"""The memory of a memory server is a grant of the resource manager (RM-8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.rm.messages import ClassStatus
from gspc_trio.components.rts.events import RifRestored
from gspc_trio.components.rts.shell.acquire import AcquireRefused, open_resources
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.service import RtsService, open_rts_service
from gspc_trio.components.rts.state import Limits
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.task import Requirement
from gspc_trio.iml.errors import NoRoom
from gspc_trio.iml.shell.arena import arena_at
from gspc_trio.nursery.connections.network import Network
from gspc_trio.workflow.net import Net
from tests.components.rts.shell.support import RTS, FakeRifs
from tests.components.tasks.sizes import large, small

MIB = 1 << 20
HANG_S = 100.0


async def memory_of(rts: RunTimeSystem, host: str) -> tuple[int, int]:
    """Return the bytes of a host, and those that nobody has."""
    (found,) = [entry for entry in (await rts.status()).memories.values() if entry.host == host]
    return found.total_bytes, found.free_bytes


async def servers_of(rts: RunTimeSystem) -> Any:
    found = (await rts.status()).classes.get("memory", ClassStatus(0, 0, 0, 0))
    return found.total, found.held


@pytest.mark.process
async def test_a_memory_server_has_its_memory_from_the_resource_manager(tmp_path: Path) -> None:
    publish = tmp_path / "run" / "rts.json"
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, host="alpha", publish=publish) as rts:
            total_bytes, free_bytes = await memory_of(rts, "alpha")
            assert free_bytes == total_bytes
            async with open_rts(connection_file=publish, host="alpha", data_bytes=64 * MIB) as joined:
                assert joined.data is not None
                assert await memory_of(rts, "alpha") == (total_bytes, total_bytes - 64 * MIB)
                assert await servers_of(rts) == (1, 1)
                async with open_resources(rts) as resources:
                    with pytest.raises(NoRoom, match=r"host alpha has no \d+ bytes of memory"):
                        async with open_rts(
                            connection_file=publish, host="alpha", data_bytes=total_bytes + 1
                        ):
                            raise AssertionError("more memory than there is")
                    held = await resources.acquire("core", memories=(total_bytes - 64 * MIB,))
                    assert (await memory_of(rts, "alpha"))[1] == 0
                    resources.release(held)
            assert await servers_of(rts) == (0, 0)
            assert await memory_of(rts, "alpha") == (total_bytes, total_bytes)


@pytest.mark.process
async def test_a_server_that_a_rif_starts_has_it_from_there_too(tmp_path: Path) -> None:
    net = Net("large")
    net.input("numbers", [1, 2])
    net.output("values")
    there = Requirement("core", ("r2.node",), hard=True)
    net.transition("large", large, inputs=["numbers"], outputs=["values"], requires=there)
    opened = open_rts(cores=1, host="alpha", data_bytes=64 * MIB, publish=tmp_path / "run" / "rts.json")
    with trio.fail_after(HANG_S):
        async with opened as rts:
            assert not (await rts.bootstrap(["beta"], "local", cores=1)).failed
            total_bytes, free_bytes = await memory_of(rts, "beta")
            assert free_bytes == total_bytes
            async with open_job(net, rts=rts) as job:
                result = await job.wait()
                assert sorted(map(bytes, result.outputs["values"])) == [large(1), large(2)]
                assert 0 < (await memory_of(rts, "beta"))[1] < total_bytes
                assert await servers_of(rts) == (2, 2)


def on_one_core(name: str, function: Callable[[int], Any]) -> Net:
    """Return a net of one task on a core of beta."""
    net = Net(name)
    net.input("numbers", [1])
    net.output("values")
    there = Requirement("core", ("r2.core0",), hard=True)
    net.transition(name, function, inputs=["numbers"], outputs=["values"], requires=there, loss_attempts=1)
    return net


@pytest.mark.process
async def test_results_travel_with_their_tasks_where_a_server_may_not_have_memory(tmp_path: Path) -> None:
    """Tasks have all memory of a host, so that the RIF there cannot start a server."""
    opened = open_rts(cores=1, host="alpha", data_bytes=64 * MIB, publish=tmp_path / "run" / "rts.json")
    with trio.fail_after(HANG_S):
        async with opened as rts:
            assert not (await rts.bootstrap(["beta"], "local", cores=2)).failed
            async with open_resources(rts) as resources:
                other = Requirement("core", ("r2.core1",), hard=True)
                with pytest.raises(AcquireRefused):
                    await resources.acquire(other, memories=(1 << 60,))
                await resources.acquire(other, memories=((await memory_of(rts, "beta"))[0],))
                async with open_job(on_one_core("small", small), rts=rts) as job:
                    assert (await job.wait()).outputs["values"] == [-1]
                async with open_job(on_one_core("large", large), rts=rts) as job:
                    (value,) = (await job.wait()).outputs["values"]
                    assert bytes(value) == large(1)


def taken_bytes(service: RtsService) -> int:
    """Return how much memory somebody has, of all hosts that are there."""
    memories = service.status().memories.values()
    return sum(memory.total_bytes - memory.free_bytes for memory in memories)


async def hold(network: Network, size_bytes: int, *, task_status: trio.TaskStatus[int]) -> None:
    """Hold memory of anna as a RIF does, until cancelled."""
    async with arena_at(network, RTS)("anna", "server", size_bytes) as quota:
        task_status.started(quota.memory_bytes)
        await trio.sleep_forever()


@pytest.fixture
def rifs() -> FakeRifs:
    rifs = FakeRifs(Network(wire_codec))
    rifs.memory_bytes = 64 * MIB
    return rifs


LATE_S = 20.0
SAVED = RifRestored("r1", 1, "anna", "fake", 2, {}, False)


def opened(rifs: FakeRifs, epoch: int = 1, *saved: RifRestored) -> Any:
    def prepare(service: RtsService) -> None:
        for one in saved:
            service.restore(one)

    limits = Limits(grace_s=2 * LATE_S)
    options: Any = {"strategies": {"fake": rifs}, "limits": limits, "epoch": epoch, "prepare": prepare}
    return open_rts_service(rifs.network, listen=(RTS,), **options)


async def test_a_server_holds_its_memory_again_whenever_its_rif_comes_back(
    rifs: FakeRifs, autojump_clock: trio.testing.MockClock
) -> None:
    """Who holds it may reach the run-time system that was started again long before the RIF does."""
    del autojump_clock
    async with trio.open_nursery() as nursery:
        async with opened(rifs) as first:
            await first.bootstrap(("anna",), "fake")
            assert await nursery.start(hold, rifs.network, 8 * MIB) == 8 * MIB
            assert taken_bytes(first) == 8 * MIB
        async with opened(rifs, 2, SAVED) as second:
            await trio.sleep(LATE_S)
            assert [rif.state for rif in second.status().rifs] == ["away"]
            nursery.start_soon(rifs.come_back, rifs.orders[0])
            await trio.sleep(LATE_S)
            assert taken_bytes(second) == 8 * MIB
        nursery.cancel_scope.cancel()


async def test_a_server_that_outlives_the_rif_of_its_host_holds_its_memory_at_the_next_one(
    rifs: FakeRifs, autojump_clock: trio.testing.MockClock
) -> None:
    """That of a job server does: it is no child of the RIF."""
    del autojump_clock
    async with trio.open_nursery() as nursery:
        async with opened(rifs) as service:
            await service.bootstrap(("anna",), "fake")
            await nursery.start(hold, rifs.network, 8 * MIB)
            rifs.scopes["r1"].cancel()
            await trio.sleep(LATE_S)
            assert [rif.incarnation for rif in service.status().rifs] == [2]
            assert taken_bytes(service) == 8 * MIB
            nursery.cancel_scope.cancel()


async def test_a_server_holds_its_memory_at_a_rif_that_comes_after_it(
    rifs: FakeRifs, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    async with trio.open_nursery() as nursery:
        async with opened(rifs) as service:
            assert await nursery.start(hold, rifs.network, 8 * MIB) == 8 * MIB
            await service.bootstrap(("anna",), "fake")
            await trio.sleep(2 * LATE_S)
            assert taken_bytes(service) == 8 * MIB
            nursery.cancel_scope.cancel()


async def test_a_server_can_start_though_its_run_time_system_goes_meanwhile(
    rifs: FakeRifs, autojump_clock: trio.testing.MockClock
) -> None:
    """That of a RIF must not end with an error: the tasks of all jobs there would be lost."""
    del autojump_clock
    async with trio.open_nursery() as nursery:
        async with opened(rifs) as first, trio.open_nursery() as tasks:
            await first.bootstrap(("anna",), "fake")
            await tasks.start(hold, rifs.network, 64 * MIB)
            nursery.start_soon(nursery.start, hold, rifs.network, 8 * MIB)  # it has to wait
            await trio.sleep(1)
            tasks.cancel_scope.cancel()
            await first.stop()
        async with opened(rifs, 2, SAVED) as second:
            nursery.start_soon(rifs.come_back, rifs.orders[0])
            await trio.sleep(LATE_S)
            assert taken_bytes(second) == 8 * MIB
            nursery.cancel_scope.cancel()


async def test_a_server_does_not_start_without_an_end_where_no_run_time_system_is(
    rifs: FakeRifs, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    with (
        trio.fail_after(HANG_S),
        pytest.raises(NoRoom, match="memory of host anna is not held: nothing"),
    ):
        async with arena_at(rifs.network, RTS)("anna", "server", MIB):
            raise AssertionError("nobody has said what there is")
