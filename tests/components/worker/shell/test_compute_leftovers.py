"""What a task leaves behind in its compute process: undone before the next, and forks that return end."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.components.worker.shell.compute import ProcessBackend, open_process_backend
from gspc_trio.components.worker.shell.compute_channel import ChannelCompute
from gspc_trio.compute import process_tree
from gspc_trio.compute.code import function_code, source_code
from gspc_trio.core.task import Outcome
from tests.components.tasks import leftovers
from tests.components.tasks.leftovers import (
    change_everything,
    change_everything_and_fail,
    environment_of_programs,
    fork_and_exit,
    fork_and_go_on,
    fork_and_raise,
    fork_and_return,
    look_late,
    state,
)
from tests.components.worker.shell import support
from tests.components.worker.shell.support import CORE, Recorder, a_job, submission, value_of
from tests.support import until

pytestmark = pytest.mark.process


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    async with open_process_backend() as opened:
        yield opened


class Worker:
    """A compute process that runs one function after the other."""

    def __init__(self, compute: ChannelCompute, recorder: Recorder) -> None:
        self.compute = compute
        self.recorder = recorder
        self.count = 0

    async def outcome(self, function: Callable[..., Any], *arguments: Any) -> Outcome:
        self.count += 1
        self.compute.define(self.count, function_code(function))
        self.compute.hand([submission(self.count, self.count, *arguments)])
        return (await self.recorder.wait(self.count))[self.count - 1]

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return value_of(await self.outcome(function, *arguments))


async def open_worker(backend: ProcessBackend, job: OpenJob | None = None) -> Worker:
    recorder = Recorder()
    return Worker(await backend.open(CORE, job or a_job(), recorder), recorder)


@pytest.fixture
async def worker(backend: ProcessBackend) -> Worker:
    return await open_worker(backend)


@pytest.mark.parametrize("function", [change_everything, change_everything_and_fail])
async def test_the_next_task_finds_its_process_as_the_last_one_did(
    worker: Worker, tmp_path: Path, function: Callable[[str], Any]
) -> None:
    before = await worker.run(state)
    for _ in range(2):
        outcome = await worker.outcome(function, str(tmp_path))
        assert (outcome.error is None) == (function is change_everything)
        assert await worker.run(state) == before


@pytest.mark.parametrize(
    "function",
    [
        leftovers.close_streams,
        leftovers.close_descriptors,
        leftovers.remove_streams,
        leftovers.wrap_streams,
        leftovers.redirect_descriptors,
        leftovers.redirect_to_empty_file,
        leftovers.redirect_to_pipe_and_fail,
    ],
)
async def test_what_a_task_does_to_its_streams_is_undone(
    worker: Worker, function: Callable[[], None]
) -> None:
    for _ in range(2):
        done = await worker.outcome(function)
        assert done.stdout == (b"wrapped" if function is leftovers.wrap_streams else b"")
        heard = await worker.outcome(leftovers.speak)
        assert (heard.error, heard.stderr) == (None, b"complained\n")
        assert heard.stdout == b"said\nwritten\nby name\n"


STREAM = """
import io, sys
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="ascii", errors="replace")
def speak():
    print("\u00e4", sys.stdout.encoding)
"""


async def test_a_stream_that_an_import_has_put_in_place_stays(worker: Worker) -> None:
    worker.compute.define(7, source_code("lasting.py", STREAM, "speak"))
    for count in (1, 2):
        worker.compute.hand([submission(count, 7)])
        assert (await worker.recorder.wait(count))[-1].stdout == b"? ascii\n"


async def test_a_task_sees_its_own_changes_and_so_do_the_programs_that_it_starts(
    worker: Worker, tmp_path: Path
) -> None:
    assert await worker.run(change_everything, str(tmp_path)) == str(tmp_path.parent)
    assert "GSPC_PAST" not in await worker.run(environment_of_programs)


async def test_builtin_functions_that_are_tasks_themselves_are_undone_too(
    worker: Worker, tmp_path: Path
) -> None:
    before = await worker.run(os.getcwd)
    await worker.run(os.chdir, str(tmp_path))
    assert await worker.run(os.getcwd) == before


LASTING = """
import os, signal
os.environ["GSPC_LASTS"] = "yes"
os.chdir({folder!r})
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
def look():
    return os.environ.get("GSPC_LASTS"), os.getcwd(), signal.getsignal(signal.SIGUSR1).name
"""


async def test_what_an_import_within_a_task_changes_stays(backend: ProcessBackend, tmp_path: Path) -> None:
    (tmp_path / "lasting.py").write_text(LASTING.format(folder=str(tmp_path)))
    worker = await open_worker(backend, a_job(sys_path=(str(tmp_path), *sys.path)))
    for _ in range(3):
        assert await worker.run(look_late) == ("yes", str(tmp_path), "SIG_IGN")


async def test_what_the_source_file_of_a_task_changes_stays(worker: Worker, tmp_path: Path) -> None:
    worker.compute.define(7, source_code("lasting.py", LASTING.format(folder=str(tmp_path)), "look"))
    for count in (1, 2):
        worker.compute.hand([submission(count, 7)])
        assert value_of((await worker.recorder.wait(count))[-1]) == ("yes", str(tmp_path), "SIG_IGN")


async def test_a_fork_that_returns_from_its_task_ends_there(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    outcome = await worker.outcome(fork_and_return, str(path))
    assert value_of(outcome) == worker.compute.pid
    assert outcome.stdout == b"returned\nreturned\n"
    (pid,) = map(int, support.lines_of(path, 1))
    await until(lambda: not process_tree.is_alive(pid))
    assert {await worker.run(os.getpid) for _ in range(20)} == {worker.compute.pid}
    assert len(worker.recorder.outcomes) == 21


@pytest.mark.parametrize(("function", "status"), [(fork_and_raise, 1), (fork_and_exit, 7)])
async def test_a_fork_that_raises_ends_with_a_status_of_its_own(
    worker: Worker, tmp_path: Path, function: Callable[[str], int], status: int
) -> None:
    outcome = await worker.outcome(function, str(tmp_path / "pids"))
    assert value_of(outcome) == status
    assert (b"LookupError: in the child" in outcome.stderr) == (function is fork_and_raise)


@pytest.mark.parametrize("threads", [False, True])
async def test_a_fork_that_returns_late_takes_no_task(
    backend: ProcessBackend, tmp_path: Path, threads: bool
) -> None:
    worker = await open_worker(backend, a_job(threads=threads))
    path = tmp_path / "pids"
    home = await worker.run(fork_and_go_on, str(path))
    (pid,) = [int(line) for line in await until(lambda: support.lines_of(path, 1))]
    (tmp_path / "pids.gate").touch()
    await until(lambda: not process_tree.is_alive(pid))
    assert {await worker.run(os.getpid) for _ in range(20)} == {home}
