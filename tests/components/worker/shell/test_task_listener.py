"""The socket of a host for its tasks: who is let in, and who is not."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
import trio

from gspc_trio.components.worker.shell.task_listener import TaskConnection, TaskListener
from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.core.nested import TaskHello, TaskWaits, encode
from gspc_trio.protocol.limits import DEFAULT_LIMITS

HERE = TaskHello("j1", 7, 1)
HANG_S = 60.0


class Host:
    """A listener, and the connections of the tasks that came in."""

    def __init__(self) -> None:
        self.listener = TaskListener(lambda hello: self._take if hello == HERE else None)
        self.send, self.lines = trio.open_memory_channel[TaskConnection](10)

    def _take(self, line: TaskConnection) -> None:
        self.send.send_nowait(line)

    async def connect(self, *said: bytes) -> trio.SocketStream:
        process = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        await process.connect("\0" + self.listener.address)
        stream = trio.SocketStream(process)
        for data in said:
            await stream.send_all(FRAME_HEADER.pack(len(data)) + data)
        return stream


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            opened = Host()
            await nursery.start(opened.listener.run)
            yield opened
            nursery.cancel_scope.cancel()


async def test_a_task_that_runs_here_is_heard_and_answered(host: Host) -> None:
    async with await host.connect(encode(HERE), encode(TaskWaits(True))) as process:
        line = await host.lines.receive()
        assert line.hello == HERE
        assert await line.receive() == encode(TaskWaits(True))
        line.send(b"yes")
        assert await process.receive_some() == FRAME_HEADER.pack(3) + b"yes"
        line.close()
        assert await process.receive_some() == b""
        assert await line.receive() == b""


@pytest.mark.parametrize(
    "said", [encode(TaskHello("j1", 7, 2)), encode(TaskWaits(True)), b"\xc1", b"", encode(HERE)[:-1]]
)
async def test_others_are_sent_away(host: Host, said: bytes) -> None:
    async with await host.connect(said) as process:
        assert await process.receive_some() == b""


async def test_nobody_is_let_in_for_another_user(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 12345)  # this process is another user's then
    async with await host.connect(encode(HERE)) as process:
        with pytest.raises(trio.BrokenResourceError):  # closed with the hello unread
            await process.receive_some()


async def test_what_is_too_long_ends_the_connection(host: Host) -> None:
    async with await host.connect(encode(HERE)) as process:
        line = await host.lines.receive()
        await process.send_all(FRAME_HEADER.pack(DEFAULT_LIMITS.message_bytes_max + 1))
        assert await line.receive() == b""
