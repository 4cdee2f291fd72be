from __future__ import annotations

import trio
from trio.testing import MockClock

from gspc_trio.iml.messages import ServerEntry
from gspc_trio.iml.shell.transfer import ServerLink, in_chunks
from gspc_trio.nursery.connections.buffers import Budget


async def test_chunks_of_all_connections_share_the_buffers_of_the_process(autojump_clock: MockClock) -> None:
    del autojump_clock
    buffers = Budget(1 << 23)
    links = [ServerLink(ServerEntry(rank, f"h{rank}", "memory:x", "", 0), buffers) for rank in range(4)]
    under_way, most, moved = 0, 0, 0

    async def move(_: int, size_bytes: int) -> None:
        nonlocal under_way, most, moved
        under_way += size_bytes
        most = max(most, under_way)
        await trio.sleep(1)
        under_way -= size_bytes
        moved += size_bytes

    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(in_chunks, link, 30_000_000, move)
    assert moved == 4 * 30_000_000
    assert most == 1 << 23
