"""Files of a job's host, as its RIFs ask for them: none but those that its tasks state, and those whole."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio.components.job.shell.files import LIST_BYTES, JobFiles, take_message
from gspc_trio.core.staging import (
    CHUNK_BYTES,
    DropFile,
    FileList,
    FilePatterns,
    FilePiece,
    ListFiles,
    ReadFile,
    StageLimits,
    WriteFile,
)
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.rpc import Peer, RemoteError
from tests.components.job_files import connected_to

PATTERNS = FilePatterns(("in/{name}", "set/{name}/*"), ("out/{name}",))
Ask = Callable[[Any], Awaitable[Any]]


@asynccontextmanager
async def asking(directory: Path, file_bytes_max: int = 1 << 20) -> AsyncIterator[tuple[Ask, Peer, JobFiles]]:
    """Connect to what serves the files of a directory, as a RIF does."""
    files = JobFiles(str(directory), StageLimits(3000, file_bytes_max), PATTERNS, Budget(1 << 20))
    async with connected_to(files) as peer:
        yield peer.call, peer, files


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "job"
    (path / "in").mkdir(parents=True)
    (path / "in" / "a").write_bytes(b"0123456789")
    (path / "secret").write_text("secret")
    (path / "in" / "link").symlink_to(path / "secret")
    return path


async def test_a_file_is_read_in_pieces(directory: Path) -> None:
    async with asking(directory) as (ask, _, _):
        first: FilePiece = await ask(ReadFile("in/a", 0, 4))
        last: FilePiece = await ask(ReadFile("in/a", 8, 100))
        assert (first.size_bytes, first.data, last.data) == (10, b"0123", b"89")
        assert first.mark == last.mark
        (directory / "in" / "a").write_bytes(b"01234567890")
        changed: FilePiece = await ask(ReadFile("in/a", 0, 4))
        assert changed.mark != first.mark
        assert len((await ask(ReadFile("in/a", 0, 1 << 60))).data) <= CHUNK_BYTES


@pytest.mark.parametrize(
    "path",
    ["secret", "in/../secret", "/etc/passwd", "in/link", "in", "in/nothing", "in/\0", "", "out/x", "in/a/b"],
)
async def test_nothing_else_is_read(directory: Path, path: str) -> None:
    async with asking(directory) as (ask, _, _):
        with pytest.raises(RemoteError):
            await ask(ReadFile(path, 0, 10))


@pytest.mark.parametrize(("offset", "size_bytes"), [(-1, 10), (1 << 62, 10), (1 << 70, 10), (0, -1)])
async def test_an_offset_that_makes_no_sense_harms_nobody(
    directory: Path, offset: int, size_bytes: int
) -> None:
    async with asking(directory) as (ask, _, _):
        with suppress(RemoteError):
            assert (await ask(ReadFile("in/a", offset, size_bytes))).data == b""
        assert (await ask(ReadFile("in/a", 0, 10))).data == b"0123456789"


async def test_files_are_listed_that_a_task_states(directory: Path) -> None:
    many = [f"set/x/{number:04}-{'n' * 200}" for number in range(3000)]
    (directory / "set" / "x").mkdir(parents=True)
    for name in many:
        (directory / name).touch()
    async with asking(directory) as (ask, _, _):
        found: list[str] = []
        while True:
            answer: FileList = await ask(ListFiles("set/x/*", found[-1] if found else ""))
            assert sum(map(len, answer.paths)) <= LIST_BYTES
            found += answer.paths
            if answer.is_whole:
                break
        assert found == many
        assert await ask(ListFiles("set/y/*")) == FileList((), there="there is no directory set/y")
        assert await ask(ListFiles("set/x/*", many[-1])) == FileList(())
        (directory / "set" / "x" / "one-more").touch()
        with pytest.raises(RemoteError, match="stands for more files than a task may have"):
            await ask(ListFiles("set/x/*"))


@pytest.mark.parametrize(
    "pattern",
    ["*", "in/*", "set/../*", "/etc/*", "set/x/**", "set/x/", "set/linked/*", "", "set/\0/*", "set/*/*"],
)
async def test_no_other_files_are_listed(directory: Path, pattern: str) -> None:
    (directory / "set").mkdir()
    (directory / "set" / "linked").symlink_to("/etc")
    async with asking(directory) as (ask, _, _):
        with pytest.raises(RemoteError):
            await ask(ListFiles(pattern))


async def test_a_file_is_seen_when_it_is_whole(directory: Path) -> None:
    async with asking(directory) as (ask, _, _):
        await ask(WriteFile(1, "out/b", 0, False, b"half "))
        assert os.listdir(directory / "out") == []
        await ask(WriteFile(1, "out/b", 5, True, b"and half"))
        assert os.listdir(directory / "out") == ["b"]
        assert (directory / "out" / "b").read_bytes() == b"half and half"


async def test_pieces_that_are_under_way_together_are_written_in_their_order(directory: Path) -> None:
    pieces = [bytes([number]) * 1000 for number in range(50)]
    async with asking(directory) as (ask, _, _):
        async with trio.open_nursery() as nursery:
            # Whoever asks first is served first: trio would begin these in any order.
            turn = trio.Lock()

            async def send(numbers: Iterator[int]) -> None:
                while True:
                    async with turn:
                        number = next(numbers, None)
                        if number is None:
                            return
                        await trio.lowlevel.checkpoint()
                    await ask(WriteFile(1, "out/b", 1000 * number, number == 49, pieces[number]))

            numbers = iter(range(50))
            for _ in range(10):
                nursery.start_soon(send, numbers)
        assert (directory / "out" / "b").read_bytes() == b"".join(pieces)


async def test_what_is_given_up_while_a_piece_is_written_leaves_nothing(directory: Path) -> None:
    async with asking(directory) as (ask, peer, files):
        with trio.move_on_after(0) as scope:
            scope.shield = True
            await ask(WriteFile(1, "out/b", 0, False, b"x" * CHUNK_BYTES))
        peer.post(DropFile(1))
        await ask(WriteFile(2, "out/c", 0, True, b"y"))
        while files._pieces:
            await trio.lowlevel.checkpoint()
        assert not files._transfers
        assert os.listdir(directory / "out") == ["c"]


async def test_pieces_that_were_under_way_when_a_file_was_refused_say_why_it_was(directory: Path) -> None:
    async with asking(directory, file_bytes_max=1000) as (ask, peer, files):
        await ask(WriteFile(1, "out/b", 0, False, b"x" * 900))
        why = r"out/b: the file has more bytes than it may have \(1000\)"
        for offset in (900, 1100, 1300):
            with pytest.raises(RemoteError, match=why):
                await ask(WriteFile(1, "out/b", offset, False, b"x" * 200))
        peer.post(DropFile(1))
        await ask(WriteFile(2, "out/c", 0, True, b"y"))
        assert not files._transfers
        assert os.listdir(directory / "out") == ["c"]


@pytest.mark.parametrize(
    "path", ["secret", "in/b", "out/../secret", "/tmp/x", "out/", "out/" + "x" * 300, "out/\0"]
)
async def test_nothing_else_is_written(directory: Path, path: str) -> None:
    async with asking(directory) as (ask, _, _):
        with pytest.raises(RemoteError):
            await ask(WriteFile(1, path, 0, True, b"x"))
    assert sorted(os.listdir(directory)) == ["in", "secret"]
    assert (directory / "secret").read_text() == "secret"


@pytest.mark.parametrize(
    "pieces",
    [
        [(5, False, b"x")],  # not begun
        [(0, False, b"xx"), (1, True, b"x")],
        [(0, False, b"xx"), (5, True, b"x")],
        [(0, False, b"x" * 900), (900, True, b"x" * 200)],  # too large
    ],
)
async def test_pieces_that_do_not_go_together_leave_nothing(
    directory: Path, pieces: list[tuple[int, bool, bytes]]
) -> None:
    async with asking(directory, file_bytes_max=1000) as (ask, _, _):
        *fine, bad = pieces
        for piece in fine:
            await ask(WriteFile(1, "out/b", *piece))
        with pytest.raises(RemoteError):
            await ask(WriteFile(1, "out/b", *bad))
        with pytest.raises(RemoteError):
            await ask(WriteFile(1, "out/b", 900, True, b""))
    assert not (directory / "out").exists() or os.listdir(directory / "out") == []


async def test_what_is_given_up_leaves_nothing(directory: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with asking(directory) as (ask, peer, _):
        await ask(WriteFile(1, "out/b", 0, False, b"half"))
        peer.post(DropFile(1))
        await ask(WriteFile(2, "out/c", 0, False, b"half"))  # the connection ends with it
        await ask(ReadFile("in/a", 0, 1))
        with pytest.raises(RemoteError):
            await ask(WriteFile(1, "out/b", 4, True, b"half"))
    assert os.listdir(directory / "out") == []
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_job_without_files_serves_none() -> None:
    async with trio.open_nursery() as nursery:
        assert not take_message(None, nursery, None, DropFile(1))
