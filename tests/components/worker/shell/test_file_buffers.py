"""Files of many tasks at a time: their pieces have no more memory than the buffers of the process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from gspc_trio.components.job.shell.files import JobFiles
from gspc_trio.components.worker.shell.file_transfer import FileTransfer, Room
from gspc_trio.core.staging import CHUNK_BYTES, FilePatterns, ReadFile, StageLimits, WriteFile
from gspc_trio.nursery.connections.buffers import TransferBuffers
from gspc_trio.nursery.connections.rpc import Peer
from tests.components.job_files import connected_to

FILES = 24
SIZE_BYTES = 6 * CHUNK_BYTES + 5
BUFFERS_BYTES = 12 * CHUNK_BYTES


class Counting:
    """A connection that counts the bytes of pieces which are under way at a time."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.bytes = 0
        self.most_bytes = 0

    async def call(self, message: Any) -> Any:
        size_bytes = 0
        if isinstance(message, ReadFile):
            size_bytes = message.size_bytes
        elif isinstance(message, WriteFile):
            size_bytes = len(message.data)
        self.bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self.bytes)
        try:
            return await self.peer.call(message)
        finally:
            self.bytes -= size_bytes

    def post(self, message: Any) -> None:
        self.peer.post(message)


@asynccontextmanager
async def connected(
    directory: Path, buffers: TransferBuffers
) -> AsyncIterator[tuple[FileTransfer, Counting]]:
    """Connect what stages at a host with what serves the files of a job, over a websocket."""
    files = JobFiles(str(directory), StageLimits(), FilePatterns(("in/*",), ("out/*",)), buffers.served)
    async with connected_to(files, "ws://127.0.0.1:0") as peer:
        counting: Any = Counting(peer)
        yield FileTransfer(lambda: counting, buffers.asked), counting


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        (tmp_path / "in" / str(number)).write_bytes(bytes([number]) * SIZE_BYTES)
    return tmp_path


async def test_files_of_many_tasks_keep_within_the_buffers_of_the_process(directory: Path) -> None:
    """Both ways at once, here and there in one process, as in an embedded run-time system."""
    buffers = TransferBuffers(2 * BUFFERS_BYTES)

    async def there_and_back(number: int) -> None:
        path = directory / f"copy{number}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        await transfer.fetch(descriptor, f"in/{number}", Room(SIZE_BYTES))
        await transfer.send(descriptor, SIZE_BYTES, f"out/{number}")
        os.close(descriptor)

    with trio.fail_after(60):
        async with connected(directory, buffers) as (transfer, counting), trio.open_nursery() as nursery:
            for number in range(FILES):
                nursery.start_soon(there_and_back, number)
    for number in range(FILES):
        assert (directory / "out" / str(number)).read_bytes() == bytes([number]) * SIZE_BYTES
    assert BUFFERS_BYTES / 2 < counting.most_bytes <= BUFFERS_BYTES
    for budget in (buffers.asked, buffers.served):
        assert budget.held_bytes == 0
        assert budget.most_bytes <= budget.size_bytes == BUFFERS_BYTES


async def test_who_goes_in_the_midst_of_a_file_gives_its_buffers_back(directory: Path) -> None:
    buffers = TransferBuffers(2 * BUFFERS_BYTES)
    source = os.open(directory / "in" / "0", os.O_RDONLY)
    async with connected(directory, buffers) as (_, counting):
        await counting.call(WriteFile(1, "out/a", 0, False, b"begun"))
        assert buffers.served.held_bytes > 0
        counting.peer.drop()
        await counting.peer.lost.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert buffers.served.held_bytes == 0
    async with connected(directory, buffers) as (transfer, _):
        with trio.move_on_after(0):
            await transfer.send(source, SIZE_BYTES, "out/b")
        await transfer.send(source, SIZE_BYTES, "out/b")
    os.close(source)
    assert buffers.asked.held_bytes == 0
    assert (directory / "out" / "b").read_bytes() == bytes(SIZE_BYTES)
