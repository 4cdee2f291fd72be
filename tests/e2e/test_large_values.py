"""Values that are too large for a message between processes: which task, why, and what else goes on."""

from __future__ import annotations

import re
import subprocess

import pytest

from gspc_trio.protocol.limits import MIB
from tests.e2e.support import World

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


def ran(world: World, *settings: str) -> subprocess.CompletedProcess[str]:
    sets = [part for setting in settings for part in ("--set", setting)]
    return world.run("jobserver", "run", world.workflow(FLOW), "--rts", world.connection_file, *sets)


def run(world: World, *settings: str) -> tuple[int, str]:
    done = ran(world, *settings)
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
    done = ran(world, f"size={2 * MIB}", "n=80")
    assert (done.returncode, done.stderr) == (0, "")
    *values, last = done.stdout.splitlines()
    assert len(values) == 80
    assert all(re.fullmatch(r"results: b'\S{1998}\.\.\. \(\d+ more characters\)", value) for value in values)
    assert last.startswith("80 tasks in ")
    world.stop_rts()


def test_people_are_shown_a_part_of_many_values(world: World) -> None:
    world.start_rts("--cores", "1")
    *values, rest, _ = ran(world, "size=1", "n=1005").stdout.splitlines()
    assert (len(values), rest) == (1000, "results: 5 more; --json prints all")
    world.stop_rts()
