"""Where RIFs of blocks enrol, over connections in memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing

from gspc_trio.components.provision.blocks import SavedBlock
from gspc_trio.components.provision.enrolment import CLOSED_MAX
from gspc_trio.components.provision.messages import Enrol, Enrolled
from gspc_trio.components.provision.shell.enrolments import EnrolmentService
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

AT = "memory:rts"


class Side:
    """A block whose orders can be taken back."""

    def __init__(self) -> None:
        self.orders = {0: "the order"}
        self.seen: list[str] = []
        self.strays: list[str] = []

    def order_for(self, node: int) -> str | None:
        return self.orders.get(node)

    def end_node(self, node: int, incarnation: int, reason: str) -> None:
        raise AssertionError((node, incarnation, reason))

    def job_seen(self, job_id: str) -> None:
        self.seen.append(job_id)

    def connected_changed(self, count: int) -> None:
        raise AssertionError(count)

    def stray_canceller(self) -> Callable[[str], None]:
        return self.strays.append

    def save(self, restarts: int) -> SavedBlock:
        return SavedBlock("s/b1", 1, "name", "17", "aa" * 32, "/folder", restarts)


def new_service(side: Side) -> EnrolmentService:
    enrolments = EnrolmentService(lambda _: "")
    enrolments.open_block(side, "s/b1", 1, bytes(32), "", 0)
    enrolments.hand_in("s/b1", 0, 1, taken=False)
    return enrolments


async def enrol(network: Network, job_id: str = "17") -> Enrolled:
    async with network.connect(AT, role="enrol", name="s/b1", expect="rts") as rts:
        return await rts.call(Enrol(0, job_id, 0))


async def test_what_is_saved_is_known_before_the_service_is_driven(autojump_clock):
    enrolments = new_service(Side())
    (saved,) = enrolments.saved_blocks()
    assert saved.block == "s/b1"


@pytest.mark.parametrize("is_closed", [False, True])
async def test_an_order_that_was_taken_back_meanwhile_is_refused(autojump_clock, is_closed):
    network, side = Network(wire_codec), Side()
    enrolments, refused = new_service(side), trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(network.listen, AT, enrolments.serve, role="rts", name="rts"))

        async def try_it() -> None:
            with pytest.raises(RemoteError, match="not wanted any more"):
                await enrol(network)
            refused.set()

        nursery.start_soon(try_it)
        await trio.sleep(1)  # nobody drives the service yet
        if is_closed:
            enrolments.close_block("s/b1")
        else:
            enrolments.take_back("s/b1", 0, 1)
            side.orders.clear()
        enrolments.open(nursery)
        await refused.wait()
        nursery.cancel_scope.cancel()


async def test_of_a_closed_block_only_is_kept_what_cancels_its_job_until_it_is_forgotten(
    autojump_clock,
):
    network, side = Network(wire_codec), Side()
    enrolments, strays, kept = new_service(side), side.strays, weakref.ref(side)
    other = Side()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(network.listen, AT, enrolments.serve, role="rts", name="rts"))
        enrolments.open(nursery)
        enrolments.close_block("s/b1")
        del side
        gc.collect()
        assert kept() is None
        with pytest.raises(RemoteError, match="not wanted any more"):
            await enrol(network, "18")
        assert strays == ["18"]
        ticket = enrolments.token_of("enrol", "s/b1")
        assert ticket == bytes(32)
        for number in range(2, CLOSED_MAX + 2):
            enrolments.open_block(other, f"s/b{number}", 1, bytes(32), "", 0)
            enrolments.close_block(f"s/b{number}")
        await trio.testing.wait_all_tasks_blocked()
        assert enrolments.token_of("enrol", "s/b1") != ticket
        assert enrolments.token_of("enrol", "s/b2") == bytes(32)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("job_id", ["--user=all", "17 18", "17,a=b", "x" * 300, "a\nb"])
async def test_who_gives_a_job_an_id_that_none_has_is_dropped(autojump_clock, job_id):
    network, side = Network(wire_codec), Side()
    enrolments = new_service(side)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(network.listen, AT, enrolments.serve, role="rts", name="rts"))
        enrolments.open(nursery)
        with pytest.raises(PeerGone):
            await enrol(network, job_id)
        assert await enrol(network, "17[].server-1") == Enrolled("the order")
        assert side.seen == ["17[].server-1"]
        nursery.cancel_scope.cancel()


def test_nothing_that_is_printed_of_a_block_has_its_ticket():
    assert "aaaa" not in repr(Side().save(0))
    assert "secret" not in repr(Enrolled("secret"))
