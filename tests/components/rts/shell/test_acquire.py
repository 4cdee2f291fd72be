"""Acquiring resources for one's own use: every form, time-outs, interruption, release of parts.

Requirements: RM-5 to RM-9.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
import trio

from gspc_trio.components.rm.events import Added, Removed
from gspc_trio.components.rts.shell.acquire import (
    AcquireInterrupted,
    AcquireRefused,
    HeldGrant,
    Resources,
    open_resources,
)
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.service import RtsService, open_rts_service
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import PeerGone
from tests.components.rts.shell.support import RTS, FakeRifs

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("GSPC_CHECK", "1")


class Place:
    """A run-time system with a host of two cores and 100 bytes of memory."""

    def __init__(self, network: Network, service: RtsService, rts: RunTimeSystem) -> None:
        self.network = network
        self.service = service
        self.rts = rts

    def client(self, name: str = "client") -> AbstractAsyncContextManager[Resources]:
        return open_resources(self.rts, name)

    def free(self, name: str = "core") -> int:
        free: int = self.service.status().classes[name].free
        return free


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    network = Network(wire_codec)
    strategies = {"fake": FakeRifs(network)}
    async with open_rts_service(network, listen=(RTS,), strategies=strategies, epoch=3) as service:
        node = Resource("r1.node", "node", memory_bytes=100)
        cores = [Resource(f"r1.core{number}", "core", ("r1.node",)) for number in range(2)]
        service.rm.inbox.put(Added((node, *cores)))
        async with network.connect(RTS, role="control", name="client", expect="rts") as peer:
            yield Place(network, service, RunTimeSystem(network, RTS, peer))


async def test_one_of_a_class(place, autojump_clock):
    async with place.client() as resources:
        held = await resources.acquire("core")
        assert held.resources == ("r1.core0",)
        assert (await resources.acquire()).resources == ("r1.core1",)
        resources.release(held)
        assert (await resources.acquire("core")).resources == ("r1.core0",)


async def test_several_with_preferences_and_with_memory(place, autojump_clock):
    async with place.client() as resources:
        both = await resources.acquire("core", Requirement("core", ("r1.core0",), hard=True))
        assert both.resources == ("r1.core1", "r1.core0")
        resources.release(both)
        held = await resources.acquire("core", memories=[60, 30])
        assert held.memories == (("r1.node", 0), ("r1.node", 60))
        resources.release(held)
        assert (await resources.acquire("node")).resources == ("r1.node",)


@pytest.mark.parametrize("patience_s", [0.0, 2.0])
async def test_a_preferred_resource_is_waited_for_as_long_as_it_says(place, autojump_clock, patience_s):
    async with place.client() as resources, place.client() as other:
        await other.acquire("core")
        begun = trio.current_time()
        held = await resources.acquire(Requirement("core", ("r1.core0",), patience_s=patience_s))
        assert held.resources == ("r1.core1",)
        assert trio.current_time() - begun == pytest.approx(patience_s, abs=0.01)


async def test_a_time_out_withdraws_the_request(place, autojump_clock):
    async with place.client("one") as one, place.client("other") as other:
        node = await one.acquire("node")
        with trio.move_on_after(1) as scope:
            await other.acquire("core")
        assert scope.cancelled_caught
        one.release(node)
        again = await one.acquire("node")
        assert again.resources == ("r1.node",), "nobody else asks for a core any more"


async def test_what_comes_for_a_wait_that_has_been_given_up_goes_back(place, autojump_clock):
    async with place.client() as resources, place.client("other") as other:
        held = await other.acquire("node")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resources.acquire, "core")
            await trio.testing.wait_all_tasks_blocked()
            other.release(held)
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert place.free() == 2


async def test_interrupt_wakes_all_that_wait_and_leaves_what_is_held(place, autojump_clock):
    ended: list[str] = []

    async def wait(resources: Resources, *classes: str) -> None:
        with pytest.raises(AcquireInterrupted, match="withdrew its demand for"):
            await resources.acquire(*classes)
        ended.append("+".join(classes))

    async with place.client() as resources:
        both = [await resources.acquire("core") for _ in range(2)]
        async with trio.open_nursery() as nursery:
            for classes in (("core",), ("core",), ("node",), ("core", "core")):
                nursery.start_soon(wait, resources, *classes)
            await trio.testing.wait_all_tasks_blocked()
            resources.interrupt()
        assert sorted(ended) == ["core", "core", "core+core", "node"]
        resources.release(*both)
        await resources.acquire("node")


async def test_part_of_a_grant_can_be_given_back(place, autojump_clock):
    async with place.client() as resources:
        both = await resources.acquire("core", "core")
        resources.release(both, resources=["r1.core0"])
        assert both.resources == ("r1.core1",)
        assert (await resources.acquire("core")).resources == ("r1.core0",)
        resources.release(both)
        with pytest.raises(ValueError, match="is not held"):
            resources.release(both)


async def test_parts_of_what_is_not_held_are_refused_here(place, autojump_clock):
    async with place.client() as resources:
        one, other = await resources.acquire("core"), await resources.acquire("core")
        with pytest.raises(ValueError, match=r"r1\.core1: not all are held by"):
            resources.release(one, resources=["r1.core1"])
        with pytest.raises(ValueError, match="one grant at a time"):
            resources.release(one, other, resources=["r1.core1"])


async def test_what_can_never_be_met_is_refused_and_what_may_come_is_waited_for(place, autojump_clock):
    async with place.client() as resources:
        with pytest.raises(AcquireRefused, match="there is no gpu") as caught:
            await resources.acquire("gpu")
        assert caught.value.kind == "unknown class"
        held: list[HeldGrant] = []

        async def wait() -> None:
            held.append(await resources.acquire("gpu", wait=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            place.service.rm.inbox.put(Added((Resource("r2.gpu0", "gpu"),)))
        assert held[0].resources == ("r2.gpu0",)


async def test_others_that_wait_have_it_recalled(place, autojump_clock):
    async with place.client("one") as one, place.client("other") as other:
        held = await one.acquire("node")

        async def give_back() -> None:
            await held.recalled.wait()
            one.release(held)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_back)
            assert (await other.acquire("core")).resources == ("r1.core0",)


async def test_removed_resources_lapse(place, autojump_clock):
    async with place.client() as resources:
        held = await resources.acquire("core")
        place.service.rm.inbox.put(Removed(("r1.core0",)))
        await held.lapsed.wait()
        with pytest.raises(ValueError, match="is not held"):
            resources.release(held)
        assert (await resources.acquire("core")).resources == ("r1.core1",)


async def test_on_exit_everything_comes_back(place, autojump_clock):
    async with place.client() as resources:
        await resources.acquire("core")
        await resources.acquire("core")
        assert place.free() == 0
    async with place.client() as resources, trio.open_nursery() as nursery:
        nursery.start_soon(resources.acquire, "node")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_a_run_time_system_that_goes_ends_every_wait(place, autojump_clock):
    ended = trio.Event()

    async def wait(resources: Resources) -> None:
        with pytest.raises(PeerGone):
            await resources.acquire("core")
        ended.set()

    async with place.client() as resources, trio.open_nursery() as nursery:
        held = await resources.acquire("node")
        nursery.start_soon(wait, resources)
        await trio.testing.wait_all_tasks_blocked()
        await place.service.peers.dismiss_jobs("it goes")
        with trio.fail_after(100):
            await ended.wait()
            await held.lapsed.wait()


@pytest.mark.parametrize(
    ("requirements", "options", "error", "words"),
    [
        ((["core", "core"],), {}, TypeError, "a resource class or a Requirement each"),
        ((None,), {}, TypeError, "not None"),
        (("core",), {"memories": [10, 0]}, ValueError, "more than 0"),
        (("core",), {"memories": ["10"]}, ValueError, "sizes in bytes"),
        (("core",), {"estimate_s": 0}, ValueError, "more than 0, not 0"),
        (("core",), {"estimate_s": float("nan")}, ValueError, "not nan"),
        (("core",), {"estimate_s": float("inf")}, ValueError, "not inf"),
    ],
)
async def test_what_nobody_can_mean_is_refused_here_and_costs_nothing(
    place, autojump_clock, requirements, options, error, words
):
    async with place.client() as resources:
        held = await resources.acquire("core")
        with pytest.raises(error, match=words):
            await resources.acquire(*requirements, **options)
        assert not held.lapsed.is_set()
        assert (await resources.acquire("core", estimate_s=0.3)).resources == ("r1.core1",)


def test_one_preference_is_not_taken_for_its_letters():
    with pytest.raises(TypeError, match=r"\('r1\.core0',\) for this one"):
        Requirement("core", "r1.core0")
    assert Requirement("core", ["r1.core0"]).preferences == ("r1.core0",)
