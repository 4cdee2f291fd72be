"""Handed equals reported plus taken back, with a real process that reads meanwhile."""

from __future__ import annotations

import random

import pytest
import trio

from gspc_trio.components.worker.shell.compute import open_process_backend
from gspc_trio.compute.code import function_code
from tests.components.tasks import behaviour
from tests.components.worker.shell import support
from tests.components.worker.shell.support import CORE, PATIENCE_S, Recorder, a_job, submission
from tests.support import until

pytestmark = pytest.mark.process


async def test_what_was_handed_is_reported_or_taken_back_never_both() -> None:
    rng = random.Random(20)
    recorder = Recorder()
    async with open_process_backend() as backend:
        compute = await backend.open(CORE, a_job(), recorder)
        compute.define(1, function_code(behaviour.nothing))
        compute.define(2, function_code(behaviour.identity))
        handed: list[tuple[int, int]] = []
        taken: list[tuple[int, int]] = []
        for _ in range(300):
            first = len(handed) + 1
            new = [submission(first + i, 1) for i in range(rng.choice((1, 5, 400)))]
            if rng.random() < 0.1:
                new.append(submission(first + len(new), 2, bytes(100_000)))
            compute.hand(new)
            handed += [(task.task_id, 1) for task in new]
            for _ in range(rng.choice((0, 1, 20))):
                await trio.lowlevel.checkpoint()
            taken += compute.retract()
        await recorder.wait(len(handed) - len(taken))
        assert compute.retract() == ()
        assert sorted([*recorder.keys, *taken]) == handed
        assert recorder.keys == sorted(recorder.keys)
        assert taken
        assert recorder.keys


async def test_nothing_that_was_taken_back_runs(tmp_path: support.Path) -> None:
    recorder = Recorder()
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    async with open_process_backend() as backend:
        compute = await backend.open(CORE, a_job(), recorder)
        compute.define(1, function_code(behaviour.wait_for_file))
        compute.define(2, function_code(behaviour.note))
        compute.hand([submission(1, 1, str(begun), str(gate))])
        await until(begun.exists)
        compute.hand([submission(number, 2, str(tmp_path / "ran")) for number in range(2, 500)])
        taken = compute.retract()
        assert taken == tuple((number, 1) for number in range(2, 500))
        gate.touch()
        compute.hand([submission(500, 2, str(begun))])
        with trio.fail_after(PATIENCE_S):
            await recorder.wait(2)
    assert recorder.keys == [(1, 1), (500, 1)]
    assert not (tmp_path / "ran").exists()
