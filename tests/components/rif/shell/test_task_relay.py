"""What tasks say to their job servers, as a RIF passes it on."""

from __future__ import annotations

import socket

import trio
import trio.testing

from gspc_trio.components.rif.shell.result_router import TaskRelay
from gspc_trio.components.worker.messages import FromTask
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.core.nested import CancelNested, TaskHello, encode
from gspc_trio.nursery.connections.rpc import Peer
from tests.nursery.connections.support import WEBSOCKET, Limits, connected

HANG_S = 60.0
WORDS = 5_000


async def test_a_task_that_says_much_waits_for_its_job_server() -> None:
    """Its connection takes no more at a time than it sends."""
    heard = 0
    finished = trio.Event()

    async def slow(peer: Peer) -> None:
        nonlocal heard
        await trio.testing.wait_all_tasks_blocked()  # nothing more is taken of what the task says
        while heard < WORDS + 1:
            heard += sum(isinstance(one, FromTask) for one in await peer.receive())
        finished.set()
        await peer.lost.wait()

    limits = Limits(outbox_items_max=400, inbox_items_max=100, frame_items_max=50)
    async with connected(WEBSOCKET, slow, limits=limits) as peer, trio.open_nursery() as nursery:
        ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
        async with trio.SocketStream(ours) as stream, trio.SocketStream(theirs) as task:
            line = TaskConnection(stream)
            line.hello = TaskHello("j1", 1, 1)
            nursery.start_soon(TaskRelay({"j1": peer}).run, "r1.core0", line)
            word = encode(CancelNested(1))
            with trio.fail_after(HANG_S):
                await task.send_all((FRAME_HEADER.pack(len(word)) + word) * WORDS)
                await finished.wait()
            assert not peer.reason
