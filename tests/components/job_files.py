"""Files of a job's host, served to whoever stages at another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from gspc_trio.components.job.shell.files import JobFiles, take_message
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer


@asynccontextmanager
async def connected_to(files: JobFiles, listens_at: str = "memory:job") -> AsyncIterator[Peer]:
    """Connect to what serves the files, as a RIF does."""
    network = Network(wire_codec, b"x" * 32)
    async with trio.open_nursery() as nursery:

        async def serve(peer: Peer) -> None:
            try:
                while True:
                    for message in await peer.receive():
                        assert take_message(files, nursery, peer, message)
            finally:
                files.forget(peer)

        async def listen(*, task_status: trio.TaskStatus[str]) -> None:
            await network.listen(listens_at, serve, role="job", name="j1", task_status=task_status)

        address = await nursery.start(listen)
        async with network.connect(address, role="rif", name="r1", expect="job") as peer:
            yield peer
        nursery.cancel_scope.cancel()
