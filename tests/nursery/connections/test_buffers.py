"""Buffers of transfers: never more than there are, first come first served."""

from __future__ import annotations

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.buffers import TRANSFER_BYTES, Budget, TransferBuffers
from gspc_trio.nursery.connections.network import Network


def test_a_process_has_64_mib_for_all_its_transfers() -> None:
    buffers = Network(wire_codec).buffers
    assert buffers.asked.size_bytes + buffers.served.size_bytes == TRANSFER_BYTES == 64 * 2**20
    odd = TransferBuffers(7)
    assert odd.asked.size_bytes + odd.served.size_bytes == 7


async def test_who_comes_first_is_served_first() -> None:
    budget, order = Budget(10), list[str]()

    async def use(name: str, size_bytes: int) -> None:
        async with budget.hold(size_bytes):
            order.append(name)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for name, size_bytes in (("first", 6), ("large", 100), ("small", 1)):
            nursery.start_soon(use, name, size_bytes)
            await trio.testing.wait_all_tasks_blocked()
    assert order == ["first", "large", "small"], "what is larger than all gets all, and is not passed by"
    assert (budget.held_bytes, budget.most_bytes) == (0, 10)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.floats(0, 9), st.floats(0, 9) | st.none()), max_size=20),
)
def test_whoever_is_cancelled_nothing_is_lost_and_nothing_is_exceeded(
    uses: list[tuple[int, float, float | None]],
) -> None:
    budget = Budget(10)

    async def use(size_bytes: int, lasts_s: float, cancelled_s: float | None) -> None:
        with trio.move_on_after(999 if cancelled_s is None else cancelled_s):
            async with budget.hold(size_bytes):
                assert budget.held_bytes <= 10
                await trio.sleep(lasts_s)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for one in uses:
                nursery.start_soon(use, *one)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert budget.held_bytes == 0
    assert budget.most_bytes <= 10
