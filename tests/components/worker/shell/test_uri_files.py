"""Transfers of a RIF: what is tried again and what is not, and what becomes of the processes."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio.components.worker.shell.file_transfer import Room
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.components.worker.shell.uri_files import UriTransfers
from gspc_trio.compute.channel import CONTROL_BYTES_MAX, DONE, FAILED, FOUND, MOVED, pack, unpack
from gspc_trio.compute.folders import Folders
from gspc_trio.core.uri import parts_of_uri, path_of, unfinished

URI = "https://u:pw@h/x?q=secret"


class Process:
    """Answers orders as a script says, in place of a process.

    Args:
        log: of what has happened.
    """

    def __init__(self, number: int, log: list[str]) -> None:
        self.number, self.log = number, log
        self.exited = trio.Event()

    async def end(self, drained: trio.Event) -> None:
        del drained
        self.log.append(f"end {self.number}")
        self.exited.set()

    def why(self) -> str:
        return "it was killed by SIGKILL"


def drip(seconds: int) -> list[list[Any] | float]:
    """Return what a server answers that sends a byte a second, beginning anew when it is asked again."""
    return [each for moved in range(1, seconds + 1) for each in (0.999, [MOVED, moved])] + [[]]


def _write(path: str) -> None:
    Path(path).write_text("x")


@asynccontextmanager
async def transfers(
    tmp_path: Path, log: list[str], script: Sequence[list[Any] | float | None]
) -> AsyncIterator[UriTransfers]:
    """Transfers whose processes give these answers, one after another.

    None ends a process, [] is silence, a number a pause in seconds.
    """
    answers = iter(script)
    count = 0

    async def serve(process: Process, channel: trio.socket.SocketType) -> None:
        with channel, suppress(ConnectionResetError, BrokenPipeError):
            while data := await channel.recv(CONTROL_BYTES_MAX):
                kind, uri, host, allowed, temporary, amount = unpack(data)
                assert (host, allowed) == ("h1", ["/job"])
                if uri != URI:  # a file of this host, on a file system where it has a name from the beginning
                    _write(unfinished(path_of(parts_of_uri(uri)[0]), temporary))
                assert os.listdir(temporary) == []
                log.append(f"order {kind} {amount} at {trio.current_time() - begun:g} of {process.number}")
                for said in answers:
                    if isinstance(said, float):
                        await trio.sleep(said)
                        continue
                    if said is None:
                        process.exited.set()
                        return
                    if said:
                        await channel.send(pack(said))
                    if not said or said[0] != MOVED:
                        break

    async with trio.open_nursery() as nursery:
        begun = trio.current_time()

        async def fork(descriptor: int) -> Any:
            nonlocal count
            count += 1
            process = Process(count, log)
            channel = trio.socket.from_stdlib_socket(
                socket.fromfd(descriptor, socket.AF_UNIX, socket.SOCK_SEQPACKET)
            )
            nursery.start_soon(serve, process, channel)
            return process

        folders = Folders(str(tmp_path))
        made = UriTransfers(fork, folders, "h1", ("/job", ""), trio.CapacityLimiter(1))
        yield made
        made.close()
        folders.close()
    assert os.listdir(tmp_path) == []


async def cancelled_when_asked(log: list[str], call: Callable[[], Awaitable[None]]) -> None:
    """Cancel a transfer once its process has its order."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        while not log:  # who runs all the time lets no clock jump while a thread works
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_what_may_pass_is_tried_again_after_a_while(tmp_path: Path, autojump_clock: Any) -> None:
    del autojump_clock
    log: list[str] = []
    script = [[MOVED, 70], [FAILED, True, "503"], None, [MOVED, 30], [DONE, 60]]
    room = Room(100)
    async with transfers(tmp_path, log, script) as made:
        await made.fetch(0, URI, room)
    assert log == ["order 0 100 at 0 of 1", "order 0 100 at 0.5 of 1", "end 1", "order 0 100 at 0.5 of 2"]
    assert room.left_bytes == 40


@pytest.mark.parametrize(
    ("script", "why", "log"),
    [
        (
            [[FAILED, False, f"no {URI}"]],
            r"https://u:\*\*\*@h/x\?\*\*\*: no https://u:\*\*\*@h/x\?\*\*\*$",
            ["0"],
        ),
        ([[FAILED, True, "503"]] * 4, "503, tried 4 times", ["0", "0.5", "2.5", "10.5"]),
        ([[]] * 4, "nothing has moved for 60 s, tried 4 times", ["0", "60.5", "122.5", "190.5"]),
        (drip(60) * 4, "only 60 bytes have moved for 60 s, tried 4", ["0", "60.5", "122.5", "190.5"]),
        ([[MOVED, 50], [MOVED, 101], [DONE, 101]], "51 bytes in a file are more than it may have", ["0"]),
    ],
)
async def test_what_does_not_pass_fails_the_task(
    tmp_path: Path, autojump_clock: Any, script: list[Any], why: str, log: list[str]
) -> None:
    del autojump_clock
    said: list[str] = []
    async with transfers(tmp_path, said, script) as made:
        with pytest.raises(StagingError, match=why):
            await made.fetch(0, URI, Room(100))
    assert [line.split()[4] for line in said if line.startswith("order")] == log


async def test_a_transfer_may_be_slow_and_tell_of_large_pieces_alone(
    tmp_path: Path, autojump_clock: Any
) -> None:
    del autojump_clock
    log: list[str] = []
    pieces: list[list[Any] | float] = []
    for piece in range(1, 21):
        pieces += [50.0, [MOVED, 61_440 * piece]]
    async with transfers(tmp_path, log, [*pieces, 59.0, [DONE, 1_228_801]]) as made:
        await made.fetch(0, URI, Room(2_000_000))
        assert trio.current_time() > 1000
    assert log == ["order 0 2000000 at 0 of 1"]


async def test_a_process_is_used_again_and_one_that_had_ended_is_no_failure(
    tmp_path: Path, autojump_clock: Any
) -> None:
    del autojump_clock
    log: list[str] = []
    async with transfers(tmp_path, log, [[FOUND, False, ["b"]], [DONE, 5], None, [DONE, 5]]) as made:
        assert await made.find(URI, 9) == ["b"]
        await made.store(0, 5, URI)
        await made.store(0, 5, URI)
    assert log == [
        *("order 2 9 at 0 of 1", "order 1 5 at 0 of 1", "order 1 5 at 0 of 1"),
        *("end 1", "order 1 5 at 0 of 2"),
    ]


async def test_who_is_cancelled_ends_the_process(tmp_path: Path, autojump_clock: Any) -> None:
    del autojump_clock
    log: list[str] = []
    async with transfers(tmp_path, log, [[], [DONE, 1]]) as made:
        await cancelled_when_asked(log, partial(made.fetch, 0, URI, Room(100)))
        await made.fetch(0, URI, Room(100))
    assert log == ["order 0 100 at 0 of 1", "end 1", "order 0 100 at 0 of 2"]


async def test_nothing_is_left_of_a_file_that_was_being_written(tmp_path: Path, autojump_clock: Any) -> None:
    del autojump_clock
    target = tmp_path / "made"
    target.mkdir()
    log: list[str] = []
    async with transfers(tmp_path / "made", log, [[]]) as made:
        await cancelled_when_asked(log, partial(made.store, 0, 5, (target / "a b").as_uri()))


async def test_a_uri_that_cannot_be_used_asks_nobody(tmp_path: Path) -> None:
    async with transfers(tmp_path, [], []) as made:
        with pytest.raises(StagingError, match="git:// is not for data of tasks"):
            await made.find("git://x", 1)
