"""Compute in threads of one host process per job (RIF-2)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from gspc_trio.components.worker.shell.compute import ProcessBackend, open_process_backend
from gspc_trio.components.worker.shell.compute_channel import ChannelCompute, Printed
from gspc_trio.compute import process_tree
from gspc_trio.compute.code import function_code, program_code
from gspc_trio.core.code import Program
from gspc_trio.core.current import current_place
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Reason, TaskOptions
from tests.components.tasks import behaviour
from tests.components.worker.shell import support
from tests.components.worker.shell.support import PATIENCE_S, Recorder, a_job, submission, value_of
from tests.support import until

pytestmark = pytest.mark.process


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    async with open_process_backend() as opened:
        yield opened


class Worker:
    """A compute in a thread and what it reports."""

    compute: ChannelCompute

    def __init__(self, number: int) -> None:
        self.recorder = Recorder()
        cpu = sorted(os.sched_getaffinity(0))[0]
        self.resource = Resource(f"r1.core{number}", "core", cpus=(cpu,))

    async def open(self, backend: ProcessBackend, job: str = "j1") -> Worker:
        self.compute = await backend.open(self.resource, a_job(job, threads=True), self.recorder)
        return self

    async def begin(self, code: bytes, path: Path, lines: int = 1) -> list[int]:
        self.compute.define(7, code)
        self.compute.hand([submission(7, 7, str(path))])
        return [int(line) for line in await until(lambda: support.lines_of(path, lines))]

    async def answers(self) -> bool:
        """Whether it still runs a task."""
        before = len(self.recorder.outcomes)
        self.compute.define(8, function_code(behaviour.process_id))
        self.compute.hand([submission(1000 + before, 8)])
        return value_of((await self.recorder.wait(before + 1))[before]) == self.compute.pid


@pytest.fixture
async def one(backend: ProcessBackend) -> Worker:
    return await Worker(1).open(backend)


@pytest.fixture
async def two(backend: ProcessBackend, one: Worker) -> Worker:
    del one  # it opens first
    return await Worker(2).open(backend)


async def test_workers_of_a_job_are_threads_of_one_process(
    backend: ProcessBackend, one: Worker, two: Worker
) -> None:
    other_job = await Worker(1).open(backend, "j2")
    assert one.compute.pid == two.compute.pid != other_job.compute.pid
    for worker in (one, two):
        worker.compute.define(1, function_code(threading.get_ident))
        worker.compute.define(2, function_code(lambda: tuple(os.sched_getaffinity(0))))
        worker.compute.hand([submission(1, 1), submission(2, 2)])
        await worker.recorder.wait(2)
        assert value_of(worker.recorder.outcomes[1]) == worker.resource.cpus
    assert value_of(one.recorder.outcomes[0]) != value_of(two.recorder.outcomes[0])


async def test_output_belongs_to_the_thread_that_prints(one: Worker, two: Worker, tmp_path: Path) -> None:
    def talk(word: str, mine: str, theirs: str) -> bool:
        print(word, "first")
        behaviour.note(mine)
        behaviour.wait_for_file(mine, theirs)
        found: list[object] = []

        def talk_for_it() -> None:
            print(word, "last")
            found.append(current_place())

        other = threading.Thread(target=talk_for_it)
        other.start()
        other.join()
        return found == [current_place()]

    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    for worker, word, names in ((one, "un", paths), (two, "deux", paths[::-1])):
        worker.compute.define(1, function_code(talk))
        worker.compute.hand([submission(1, 1, word, *names)])
    assert (await one.recorder.wait(1))[0].stdout == b"un first\nun last\n"
    assert (await two.recorder.wait(1))[0].stdout == b"deux first\ndeux last\n"
    assert [value_of(worker.recorder.outcomes[0]) for worker in (one, two)] == [True, True]


async def test_what_a_thread_prints_is_seen_while_it_runs_and_when_it_was_killed(
    one: Worker, two: Worker, tmp_path: Path
) -> None:
    await one.begin(function_code(behaviour.spin_after_note), tmp_path / "begun")
    assert await one.compute.printed() == Printed(b"begun\n", b"", 6, 0)
    assert await one.compute.printed((3, 0)) == Printed(b"un\n", b"", 6, 0)
    assert await one.compute.kill() == (b"begun\n", b"")
    assert await two.answers()


@pytest.mark.parametrize("function", [behaviour.spin_after_note, behaviour.spin_stubbornly])
async def test_kill_ends_one_thread_at_its_next_bytecode(
    backend: ProcessBackend, one: Worker, two: Worker, tmp_path: Path, function: object
) -> None:
    one.compute.define(1, function_code(behaviour.identity))
    one.compute.hand([submission(1, 1, "before")])
    await one.begin(function_code(function), tmp_path / "begun")  # type: ignore[arg-type]
    one.compute.hand([submission(8, 1, "after")])
    with trio.fail_after(PATIENCE_S):
        await one.compute.kill()
    assert (one.recorder.keys, one.recorder.losses) == ([(1, 1)], [])
    assert await two.answers()
    again = await Worker(1).open(backend)
    assert again.compute.pid == two.compute.pid
    assert await again.answers()


async def test_kill_of_an_idle_thread_spares_the_others(one: Worker, two: Worker) -> None:
    assert await one.answers()
    with trio.fail_after(PATIENCE_S):
        await one.compute.kill()
    assert one.recorder.losses == []
    assert await two.answers()


async def test_kill_takes_the_program_that_a_thread_runs_and_what_it_has_detached(
    one: Worker, two: Worker, tmp_path: Path
) -> None:
    path = tmp_path / "pids"
    script = (
        "(setsid sh -c 'sleep 3600 & echo $! >> {path}; echo $$ >> {path}; wait' &); "
        "setsid sh -c 'sleep 3600 & echo $! >> {path}; wait' & sleep 3600"
    )
    one.compute.define(1, program_code(Program(["sh", "-c", script]), ["path"]))
    one.compute.hand([submission(1, 1, str(path))])
    pids = [int(line) for line in await until(lambda: support.lines_of(path, 3))]
    with trio.fail_after(PATIENCE_S):
        await one.compute.kill()
    assert not any(map(process_tree.is_alive, pids))
    assert await two.answers()


async def test_the_last_thread_takes_the_process_with_it(
    backend: ProcessBackend, one: Worker, tmp_path: Path
) -> None:
    await one.begin(function_code(behaviour.sleep_after_note), tmp_path / "begun")
    with trio.fail_after(PATIENCE_S):
        await one.compute.kill()
    assert not process_tree.is_alive(one.compute.pid)
    again = await Worker(1).open(backend)
    assert again.compute.pid != one.compute.pid
    assert await again.answers()


async def test_the_death_of_the_process_loses_all_its_workers(one: Worker, two: Worker) -> None:
    os.kill(one.compute.pid, signal.SIGKILL)
    end = "the process of all threads of the job has ended: "
    end += f"compute process {one.compute.pid} was killed by SIGKILL"
    assert await one.recorder.wait_lost() == end
    assert await two.recorder.wait_lost() == end


async def test_a_thread_that_does_not_end_is_named_and_out_of_use_until_it_returns(
    one: Worker,
    two: Worker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("gspc_trio.components.worker.shell.compute_threads.PATIENCE_S", 0.05)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def block(path: str) -> None:
        os.system(f"echo > {path}.begun; read line < {path}")  # one long call, until somebody writes

    one.compute.define(1, function_code(block))
    one.compute.hand([submission(1, 1, str(fifo))])
    await until((tmp_path / "fifo.begun").exists)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.compute.kill)
        await until(lambda: "the worker of r1.core1 is out of use" in caplog.text)
        assert await two.answers()
        os.close(os.open(fifo, os.O_WRONLY))
    assert one.recorder.outcomes == []


async def test_a_memory_limit_is_refused_because_it_would_be_everybodys(one: Worker) -> None:
    one.compute.define(1, function_code(behaviour.nothing))
    one.compute.hand([submission(1, 1, options=TaskOptions(memory_bytes=1 << 20))])
    (outcome,) = await one.recorder.wait(1)
    assert outcome.error is not None
    assert (outcome.reason, outcome.error.kind) == (Reason.FAILED, "refused")
    assert outcome.error.message == "memory_bytes needs compute in processes, not in threads"
