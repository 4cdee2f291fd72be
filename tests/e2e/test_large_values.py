"""Values that are too large for a message between processes: which task, why, and what else goes on."""

from __future__ import annotations

import re

import pytest
from e2e_world import World

from gspc_trio.protocol.limits import MIB

pytestmark = pytest.mark.process

FLOW = """
from gspc_trio import farm, Workflow

def grow(size):
    return bytes(size)

def shrink(data):
    return len(data)

def workflow(size: int, n: int = 1, large: str = "results"):
    if large == "results":
        return Workflow(farm(grow, name="grow"), {"items": [size] * n})
    return Workflow(farm(shrink, name="shrink"), {"items": [bytes(size) for _ in range(n)]})
"""


def run(world: World, *settings: str) -> tuple[int, str]:
    sets = [part for setting in settings for part in ("--set", setting)]
    done = world.run("jobserver", "run", world.workflow(FLOW), "--rts", world.connection_file, *sets)
    return done.returncode, done.stderr


def test_a_value_that_no_message_can_carry_fails_its_task_alone(world: World) -> None:
    world.start_rts("--cores", "2")
    status, said = run(world, f"size={65 * MIB}")
    assert status == 1
    assert "task 1 (grow), attempt 1" in said
    assert re.search(
        rf"a result of 68\d+ bytes, {64 * MIB - 1024} can travel with a task: return less, ", said
    )
    status, said = run(world, f"size={65 * MIB}", "large=arguments")
    assert status == 1
    assert "task 1 (shrink), attempt 1" in said
    assert re.search(
        rf"arguments of 68\d+ bytes, {64 * MIB - 1024} can travel with a task: pass less, ", said
    )
    world.stop_rts()


def test_many_large_results_are_no_trouble(world: World) -> None:
    world.start_rts("--cores", "1")
    assert run(world, f"size={2 * MIB}", "n=80") == (0, "")
    world.stop_rts()
