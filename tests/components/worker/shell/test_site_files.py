"""Files by way of a site directory: each comes once, tasks have links, results are noted (SWF-3)."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.provision.messages import FileMove, TurnOver, WantTurn
from gspc_trio.components.worker.shell.file_transfer import FileTransfer, Room
from gspc_trio.components.worker.shell.site_files import FileTurns, Site, SiteFiles
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.folders import Folder
from gspc_trio.core.messages import Done
from gspc_trio.core.staging import FilePiece, ReadFile, WriteFile
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.rpc import RemoteError


class Job:
    """The host of a job: answers what is asked, and counts it."""

    def __init__(self) -> None:
        self.files = {"in/a": b"aaa", "in/b": b"bb"}
        self.mark = "1"
        self.reads: list[str] = []
        self.delay_s = 0.0

    async def call(self, message: Any) -> Any:
        await trio.sleep(self.delay_s)
        if isinstance(message, ReadFile):
            if message.path not in self.files:
                raise RemoteError("ValueError", f"{message.path}: no such file")
            content = self.files[message.path]
            if message.size_bytes:
                self.reads.append(message.path)
            data = content[message.offset : message.offset + message.size_bytes]
            return FilePiece(len(content), self.mark, data)
        assert isinstance(message, WriteFile)
        before = self.files.get(message.path, b"") if message.offset else b""
        self.files[message.path] = before + message.data
        return Done()

    def post(self, message: Any) -> None:
        raise AssertionError(message)


@pytest.fixture
def job() -> Job:
    return Job()


def turns_at_once(told: list[WantTurn | TurnOver]) -> FileTurns:
    """Return turns that begin as soon as they are wanted."""

    def tell(said: WantTurn | TurnOver) -> None:
        told.append(said)
        if isinstance(said, WantTurn):
            turns.begins(said.number)

    turns = FileTurns({}, tell)
    return turns


def files_of(job: Any, directory: Path, told: list[WantTurn | TurnOver] | None = None) -> SiteFiles:
    site = Site(str(directory), turns_at_once([] if told is None else told))
    return site.files_of("j1", FileTransfer(lambda: job, Budget(1 << 20)))


@asynccontextmanager
async def task(files: SiteFiles, path: Path) -> AsyncIterator[Folder]:
    await files.prepare()
    await trio.Path(path).mkdir()
    folder = Folder(str(path))
    yield folder
    folder.remove()


async def test_what_two_tasks_need_comes_once_and_is_linked(job: Job, tmp_path: Path) -> None:
    site = tmp_path / "site"
    files, on_another_host = files_of(job, site), files_of(job, site)
    async with task(files, tmp_path / "t1") as first, task(on_another_host, tmp_path / "t2") as second:
        assert await files.link(first, ("data", "a"), "in/a") == 3
        assert await on_another_host.link(second, ("a",), "in/a") == 3
        assert (tmp_path / "t1" / "data" / "a").samefile(tmp_path / "t2" / "a")
        assert (tmp_path / "t2" / "a").read_bytes() == b"aaa"
        assert job.reads == ["in/a"]
        job.files["in/a"], job.mark = b"new", "2"
        assert await files.link(first, ("again",), "in/a") == 3
        assert (tmp_path / "t1" / "again").read_bytes() == b"new"
        assert (tmp_path / "t1" / "data" / "a").read_bytes() == b"aaa"


async def test_tasks_that_want_a_file_at_one_time_wait_for_it_together(job: Job, tmp_path: Path) -> None:
    files = files_of(job, tmp_path / "site")
    async with task(files, tmp_path / "t") as folder, trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(files.link, folder, (str(number),), "in/b")
    assert job.reads == ["in/b"]


async def test_a_copy_is_the_tasks_own(job: Job, tmp_path: Path) -> None:
    files = files_of(job, tmp_path / "site")
    async with task(files, tmp_path / "t") as folder:
        target = folder.create(("a",))
        await files.fetch(target, "in/a", Room(10))
        os.close(target)
        (tmp_path / "t" / "a").write_bytes(b"changed")
        assert await files.link(folder, ("b",), "in/a") == 3
        assert (tmp_path / "t" / "b").read_bytes() == b"aaa"


async def test_results_go_by_way_of_the_site_and_leave_nothing_there(job: Job, tmp_path: Path) -> None:
    files = files_of(job, tmp_path / "site")
    made = tmp_path / "made"
    made.write_bytes(b"result")
    source = os.open(made, os.O_RDONLY)
    await files.prepare()
    await files.ended("7-1")
    await files.send(source, 6, "out/r")
    await files.ended("8-1", "it was killed")
    os.close(source)
    home = tmp_path / "site" / "job-j1"
    assert job.files["out/r"] == b"result"
    assert list((home / "out").iterdir()) == []
    assert sorted((path.name, path.read_text()) for path in (home / "results").iterdir()) == [
        ("7-1", "success\n"),
        ("8-1", "error: it was killed\n"),
    ]


async def test_what_does_not_arrive_leaves_nothing_that_others_would_take(job: Job, tmp_path: Path) -> None:
    files = files_of(job, tmp_path / "site")
    async with task(files, tmp_path / "t") as folder:
        with pytest.raises(StagingError, match="in/c: no such file"):
            await files.link(folder, ("c",), "in/c")
        job.delay_s = 1.0
        with trio.move_on_after(0.02):
            await files.link(folder, ("a",), "in/a")
        job.delay_s = 0.0
        assert list((tmp_path / "site" / "job-j1" / "in").iterdir()) == []
        assert await files.link(folder, ("a",), "in/a") == 3


async def test_a_site_directory_that_cannot_be_made_is_no_fault_of_the_task(job: Job, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StagingError, match=r"the site directory .*: Not a directory") as caught:
        await files_of(job, tmp_path / "file").prepare()
    assert caught.value.returned
    assert caught.value.of_host, "the score of the site falls"


async def test_transfers_and_operations_have_their_turns_from_the_run_time_system(
    job: Job, tmp_path: Path
) -> None:
    told: list[WantTurn | TurnOver] = []
    files = files_of(job, tmp_path / "site", told)
    async with task(files, tmp_path / "t1") as folder:
        await files.link(folder, ("a",), "in/a")
    moves = [FileMove.OPERATION, FileMove.TRANSFER, FileMove.OPERATION]
    wanted = [(WantTurn(number, move), TurnOver(number)) for number, move in enumerate(moves, 1)]
    assert told == [said for both in wanted for said in both]


async def test_a_turn_waits_is_given_back_when_cancelled_and_told_again(autojump_clock: MockClock) -> None:
    del autojump_clock
    told: list[WantTurn | TurnOver] = []
    turns, done = FileTurns({"file_operations": None}, told.append), list[FileMove]()

    async def move(kind: FileMove) -> None:
        async with turns.turn(kind):
            done.append(kind)
            await trio.sleep(5)

    async with trio.open_nursery() as nursery:
        for kind in (FileMove.OPERATION, FileMove.TRANSFER, FileMove.TRANSFER):
            nursery.start_soon(move, kind)
        await trio.testing.wait_all_tasks_blocked()
        assert done == [FileMove.OPERATION], "no throttle limits it"
        turns.begins(1)
        await trio.testing.wait_all_tasks_blocked()
        wanted = told[:2]
        assert wanted == [WantTurn(1, FileMove.TRANSFER), WantTurn(2, FileMove.TRANSFER)]
        turns.tell_again()
        assert told[2:] == [WantTurn(1, FileMove.TRANSFER, True), WantTurn(2, FileMove.TRANSFER)]
        nursery.cancel_scope.cancel()
    assert sorted(said.number for said in told[4:] if isinstance(said, TurnOver)) == [1, 2]


async def test_nothing_is_done_to_a_slow_file_system_in_the_thread_of_the_host(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, touched = threading.get_ident(), list[str]()

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def do(path: Any, *arguments: Any, **more: Any) -> Any:
            if threading.get_ident() == here and str(tmp_path / "site") in str(path):
                touched.append(f"{name} {path}")
            return call(path, *arguments, **more)

        return do

    for name in ("open", "mkdir", "rename", "unlink"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    files = files_of(job, tmp_path / "site")
    async with task(files, tmp_path / "t1") as folder:
        assert await files.link(folder, ("a",), "in/a") == 3
        await files.fetch(folder.create(("b",)), "in/b", Room(100))
        source = os.open(tmp_path / "t1" / "b", os.O_RDONLY)
        await files.send(source, 2, "out/b")
        await files.ended("1-1")
    assert job.files["out/b"] == b"bb"
    assert touched == []
    assert files._arriving == {}, "nothing is kept of files that have come"
