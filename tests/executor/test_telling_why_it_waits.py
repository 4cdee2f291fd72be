"""An executor whose tasks wait says why: once, after a while, on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.core.task import TaskState
from gspc_trio.executor.waiting import PATIENCE_S, tell_waiting
from tests.e2e.support import World

WAITS = {TaskState.READY: 1}
RUNS = {TaskState.READY: 1, TaskState.RUNNING: 1}


async def test_it_is_told_once_and_only_after_a_while(autojump_clock: MockClock) -> None:
    assert autojump_clock.rate == 0
    told: list[tuple[str, float]] = []
    begun_s = trio.current_time()

    def counts() -> Mapping[TaskState, int]:
        return RUNS if trio.current_time() - begun_s < 100 else WAITS

    async def why() -> str:
        return "" if trio.current_time() - begun_s < 110 else "waits for gpu"

    await tell_waiting(counts, why, lambda reason: told.append((reason, trio.current_time() - begun_s)))
    assert [reason for reason, _ in told] == ["waits for gpu"]
    assert 110 <= told[0][1] < 111


async def test_tasks_that_run_now_and_then_do_not_wait(autojump_clock: MockClock) -> None:
    assert autojump_clock.rate == 0
    told: list[str] = []
    looks = 0

    def counts() -> Mapping[TaskState, int]:
        nonlocal looks
        looks += 1
        return WAITS if looks % 10 else RUNS

    async def why() -> str:
        return "waits"

    with trio.move_on_after(100 * PATIENCE_S):
        await tell_waiting(counts, why, told.append)
    assert told == []


@pytest.mark.process
def test_on_a_terminal_it_is_seen(world: World) -> None:
    program = world.folder / "program.py"
    program.write_text(
        """
import sys, time
from gspc_trio import Executor

with Executor(1) as executor:
    future = executor.with_options(requires="gpu", wait=True).submit(abs, -1)
    sys.stdin.readline()
    future.cancel()
"""
    )
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    told = os.read(ours, 1000).decode()
    process.communicate("\n", timeout=60)
    os.close(ours)
    assert told.startswith("gspc_trio.Executor: j1 waits for gpu: ")
    assert process.returncode == 0
