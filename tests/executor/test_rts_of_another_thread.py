"""Executors on a run-time system that a trio main of the same program has opened."""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio import Executor, ExecutorBroken, RunTimeSystem, open_rts
from tests.executor.support import double, say_and_hang

PATIENCE_S = 60.0

pytestmark = pytest.mark.process


async def test_threads_use_it_one_after_another_and_at_a_time() -> None:
    def work(rts: RunTimeSystem, values: list[int], results: list[int]) -> None:
        with Executor(rts=rts) as executor:
            assert executor._max_workers == 2
            results += executor.map(double, values)
            results.append(executor.submit(sum, [executor.submit(double, 1), 1]).result(PATIENCE_S))

    results: list[list[int]] = [[] for _ in range(4)]
    async with open_rts(cores=2) as rts:
        for each in results[:2]:
            await trio.to_thread.run_sync(work, rts, [1, 2], each)
        async with trio.open_nursery() as nursery:
            for each in results[2:]:
                nursery.start_soon(trio.to_thread.run_sync, work, rts, [1, 2], each)
    assert results == [[2, 4, 3]] * 4


async def test_it_is_refused_where_it_would_block_the_run_time_system() -> None:
    async with open_rts(cores=1) as rts:
        with pytest.raises(RuntimeError, match=r"trio.to_thread.run_sync\(function, rts\)"):
            Executor(rts=rts)
        for given, problem in (
            ({"cores": 2}, "cores=2 is for a run-time system that the executor starts"),
            ({"max_workers": 2}, "max_workers=2 is for"),
            ({"data_bytes": 1}, "data_bytes is an option of open_rts"),
        ):
            with pytest.raises((TypeError, ValueError), match=problem):
                Executor(rts=rts, **given)  # type: ignore[arg-type]


def test_the_name_of_a_file_is_no_run_time_system() -> None:
    name: Any = "rts.json"
    with pytest.raises(TypeError, match=r"a file is connection_file='rts\.json'"):
        Executor(rts=name)
    number: Any = 5
    with pytest.raises(TypeError, match=r"^rts is what open_rts has opened, not 5$"):
        Executor(rts=number)


async def test_futures_left_behind_fail_when_the_run_time_system_is_closed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    left: list[Any] = []

    def work(rts: RunTimeSystem) -> None:
        executor = Executor(rts=rts)
        left.extend((executor, executor.submit(say_and_hang, str(fifo))))
        assert fifo.read_text()

    async with open_rts(cores=1) as rts:
        await trio.to_thread.run_sync(work, rts)
        executor, future = left
        with pytest.raises(RuntimeError, match="results come through it"):
            future.result()  # in trio's own thread
        assert not future.done()
    with pytest.raises(ExecutorBroken, match="the run-time system was closed"):
        future.result(0)
    with pytest.raises(ExecutorBroken, match="the run-time system was closed"):
        executor.submit(double, 1)
    with pytest.raises(RuntimeError, match="the run-time system was closed"):
        await trio.to_thread.run_sync(lambda: Executor(rts=rts))


def test_a_callback_that_would_wait_for_ever_is_told(executor: Executor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    hanging = executor.submit(say_and_hang, str(tmp_path / "fifo"))
    assert (tmp_path / "fifo").read_text()
    told: Future[BaseException] = Future()

    def wait_for_another(_: object) -> None:
        for wait in (hanging.exception, hanging.result):
            try:
                wait()
            except RuntimeError as error:
                problem = error
        told.set_result(problem)

    executor.submit(double, 1).add_done_callback(wait_for_another)
    assert "A callback can submit a call with the future as an argument" in str(told.result(PATIENCE_S))
    assert hanging.cancel()
