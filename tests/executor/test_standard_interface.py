"""What programs written for the standard executors expect: constructor, map, the ways to end, the texts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import logging
import os
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Executor, ExecutorBroken, Requirement, Shape, TaskOptions, WorkflowError
from gspc_trio.workflow.call_options import CallOptions
from tests.e2e.support import World, wait_until
from tests.executor.support import (
    add,
    double,
    exit_hard,
    fail,
    pid_of_task,
    say_and_hang,
    seen_by_tasks,
    set_for_tasks,
)

PATIENCE_S = 60.0

pytestmark = pytest.mark.process


@pytest.mark.parametrize("threads", [False, True])
def test_an_initializer_runs_before_the_tasks_of_each_worker(threads: bool) -> None:
    with Executor(2, None, set_for_tasks, ("set",), threads=threads) as executor:
        assert executor._max_workers == 2
        assert executor.resources()["core"] == 2
        futures = [executor.submit(seen_by_tasks) for _ in range(20)]
        assert {future.result(PATIENCE_S) for future in futures} == {"set"}


def test_what_an_initializer_of_the_main_program_sets_is_seen_by_its_tasks(world: World) -> None:
    program = world.folder / "program.py"
    program.write_text(
        """
from gspc_trio import Executor

FACTOR = 1
OFFSET = 5
CACHE = {}

def prepare(factor):
    global FACTOR, MADE
    FACTOR, MADE = factor, True
    CACHE["made"] = OFFSET

def scaled(number):
    return FACTOR * number + OFFSET, MADE, CACHE

class Scaler:
    def scaled(self, number):
        return scaled(number)

if __name__ == "__main__":
    with Executor(1, initializer=prepare, initargs=[10]) as executor:
        OFFSET = 7
        for call in (scaled, scaled, lambda n: scaled(n), Scaler().scaled):
            print(executor.submit(call, 2).result())
"""
    )
    done = world.run_program(sys.executable, str(program))
    assert (done.stdout, done.stderr) == ("(25, True, {'made': 5})\n" * 4, "")


@pytest.mark.parametrize("threads", [False, True])
def test_an_initializer_that_fails_breaks_the_executor(threads: bool, caplog: Any) -> None:
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
        with Executor(1, initializer=fail, initargs=("no licence",), threads=threads) as executor:
            assert executor._broken is False
            for future in [executor.submit(double, value) for value in range(5)]:
                with pytest.raises(ExecutorBroken, match="the initializer failed: LookupError: no licence"):
                    future.result(PATIENCE_S)
            assert "no licence" in str(executor._broken)
            with pytest.raises(concurrent.futures.BrokenExecutor, match="no licence"):
                executor.submit(double, 1)
    assert "raise LookupError(text)" in caplog.text


def test_after_so_many_tasks_a_process_is_replaced() -> None:
    with Executor(2, initializer=set_for_tasks, initargs=("set",), max_tasks_per_child=3) as executor:
        futures = [executor.submit(pid_of_task) for _ in range(100)]
        tasks = Counter(future.result(PATIENCE_S) for future in futures)
        assert set(tasks.values()) <= {1, 2, 3}
        assert max(tasks.values()) == 3
        assert executor.submit(seen_by_tasks).result(PATIENCE_S) == "set"


def test_a_process_that_dies_before_its_turn_is_over_is_lost_as_any_other(tmp_path: Path) -> None:
    with Executor(1, max_tasks_per_child=2) as executor:
        lost, killed = executor.submit(exit_hard), executor.submit(os.abort)
        others = [executor.submit(double, value) for value in range(10)]
        assert [future.result(PATIENCE_S) for future in others] == [2 * value for value in range(10)]
        assert "exited with status 3" in str(lost.exception(PATIENCE_S))
        assert "killed by SIGABRT" in str(killed.exception(PATIENCE_S))
        os.mkfifo(tmp_path / "fifo")
        hanging = executor.submit(say_and_hang, str(tmp_path / "fifo"))
        pid = int((tmp_path / "fifo").read_text())
        assert hanging.cancel()
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the process that ran it has ended")
        assert executor.submit(double, 1).result(PATIENCE_S) == 2


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ({"max_workers": 0}, ValueError, "max_workers must be greater than 0, not 0"),
        ({"max_workers": -1}, ValueError, "max_workers must be greater than 0, not -1"),
        ({"max_workers": 1.5}, TypeError, "max_workers is a whole number"),
        ({"max_workers": 2, "cores": 2}, TypeError, "max_workers=2 and cores=2 say the same"),
        ({"max_workers": 2, "connection_file": "rts.json"}, ValueError, "that the executor starts"),
        ({"mp_context": "spawn"}, ValueError, "forked from a fresh interpreter"),
        ({"initializer": 3}, TypeError, "initializer must be a callable"),
        ({"initializer": double, "initargs": (threading.Lock(),)}, ValueError, "lock"),
        ({"max_tasks_per_child": 0}, ValueError, "max_tasks_per_child must be >= 1, not 0"),
        ({"max_tasks_per_child": 1, "threads": True}, ValueError, "threads of one"),
        ({"plan": "move", "tightness": -1}, ValueError, "tightness is a finite number, 0 or more, not -1"),
        ({"plan": "heft", "tightness": 1.0}, ValueError, "tightness is for the plan 'move', not for 'heft'"),
    ],
)
def test_what_the_constructor_refuses(given: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=re.escape(problem)):
        Executor(**given)


@pytest.mark.parametrize("chunksize", [1, 4])
def test_a_map_with_a_buffer_reads_no_further_than_it_has_to(executor: Executor, chunksize: int) -> None:
    read: list[int] = []

    def numbers() -> Any:
        for number in itertools.count():
            read.append(number)
            yield number

    results = executor.map(double, numbers(), buffersize=3, chunksize=chunksize)
    assert len(read) == 3 * chunksize
    assert [next(results) for _ in range(5)] == [0, 2, 4, 6, 8]
    assert len(read) == {1: 8, 4: 20}[chunksize]
    results.close()  # type: ignore[attr-defined]
    assert list(executor.map(add, range(7), range(9), buffersize=2)) == [2 * value for value in range(7)]
    assert list(executor.map(double, [], buffersize=2)) == []
    for wrong, error in ((0, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="buffersize"):
            executor.map(double, [1], buffersize=wrong)  # type: ignore[arg-type]


def test_starmap(executor: Executor) -> None:
    pairs = [(value, value) for value in range(10)]
    assert list(executor.starmap(add, pairs)) == [2 * value for value in range(10)]
    assert list(executor.starmap(add, iter(pairs), chunksize=3, buffersize=1)) == [2 * v for v in range(10)]
    assert list(executor.starmap(add, (iter(pair) for pair in pairs))) == [2 * value for value in range(10)]


def test_options_for_some_calls(executor: Executor) -> None:
    quick = executor.with_options(timeout_s=0.05, attempts=2).with_options(requires="core", memories=[1000])
    assert quick._options == TaskOptions(timeout_s=0.05, attempts=2)
    assert quick._shape == Shape((Requirement("core"),), memories=(1000,))
    with pytest.raises(RuntimeError, match=r"timeout: .* 0.05 s"):
        quick.submit(_hang).result(PATIENCE_S)
    assert quick.with_options(timeout_s=None).submit(double, 2).result(PATIENCE_S) == 4
    assert quick.with_options(options=TaskOptions())._options == TaskOptions()
    with pytest.raises(TypeError, match=r"tasks have no option 'attemps' \(did you mean 'attempts'\?\)"):
        executor.with_options(attemps=3)  # type: ignore[call-arg]
    with pytest.raises(WorkflowError, match="attempts must be at least 1, not 0"):
        executor.with_options(attempts=0)
    with pytest.raises(WorkflowError, match="requires is a resource class or a list of them"):
        executor.with_options(requires={"core": 2})  # type: ignore[typeddict-item]
    assert executor.with_options(output_bytes=1000)._options == TaskOptions(output_bytes=1000)
    with pytest.raises(WorkflowError, match="output_bytes must be at least 0, not -1"):
        executor.with_options(output_bytes=-1)
    with pytest.raises(WorkflowError, match="memory_bytes must be at least 0, not -1"):
        executor.with_options(memory_bytes=-1)


def test_calls_may_state_all_that_tasks_can() -> None:
    by_nets = {"stage_in", "stage_out"}
    assert set(TaskOptions.__struct_fields__) - by_nets <= set(CallOptions.__annotations__)
    assert set(Shape.__struct_fields__) - {"requirements"} <= set(CallOptions.__annotations__)


def _hang() -> None:
    threading.Event().wait()


@pytest.mark.parametrize("name", ["kill_workers", "terminate_workers"])
def test_workers_are_killed(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with Executor(1) as executor:
        hanging = executor.submit(say_and_hang, str(tmp_path / "fifo"))
        pid = int((tmp_path / "fifo").read_text())
        waiting = executor.submit(double, hanging)
        getattr(executor, name)()
        assert not Path(f"/proc/{pid}").exists()
        for future in (hanging, waiting):
            with pytest.raises(ExecutorBroken, match="its workers were killed"):
                future.result(0)
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            executor.submit(double, 1)


def test_a_running_future_says_so(executor: Executor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    future = executor.submit(say_and_hang, str(tmp_path / "fifo"))
    assert (tmp_path / "fifo").read_text()
    assert future.running()
    assert "state=running" in repr(future)
    assert not executor.submit(double, future).running()
    assert future.cancel()
    assert not future.running()


def test_who_submits_after_the_end_of_the_interpreter_is_told(world: World) -> None:
    program = world.folder / "program.py"
    program.write_text(
        """
import atexit
from gspc_trio import Executor

@atexit.register
def late():
    try:
        executor.submit(id, None)
    except RuntimeError as error:
        print(error)

executor = Executor(1)
"""
    )
    done = world.run_program(sys.executable, str(program))
    assert (done.stdout, done.stderr) == ("cannot schedule new futures after interpreter shutdown\n", "")


def test_a_loop_of_asyncio_runs_functions_in_an_executor() -> None:
    async def run(executor: Executor) -> tuple[list[int], str]:
        loop = asyncio.get_running_loop()
        sums = await asyncio.gather(*(loop.run_in_executor(executor, add, n, 1) for n in range(5)))
        try:
            await loop.run_in_executor(executor, fail, "no such thing")
        except LookupError as error:
            return sums, str(error)
        return sums, ""

    with Executor(1) as executor:
        assert asyncio.run(run(executor)) == ([1, 2, 3, 4, 5], "no such thing")
