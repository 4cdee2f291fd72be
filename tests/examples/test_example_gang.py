"""Tasks that need several resources, end to end."""

from __future__ import annotations

import os
import runpy

from tests.e2e.support import ROOT, World

GANG = str(ROOT / "examples" / "gang.py")

PROGRAM = """
from gspc_trio import Net, Program, Workflow

def workflow():
    net = Net("programs")
    start, shown = net.input("start"), net.output("shown")
    show = Program(["sh", "-c", "echo $GSPC_RESOURCES"])
    net.transition("show", show, {"_start": start}, {"stdout": shown}, requires=["core", "core"])
    return Workflow(net, {"start": [1]})
"""


def test_gangs_hold_different_cores_and_share_none_at_a_time(world: World) -> None:
    sets = ("--set", "gangs=6", "--set", "width=2", "--set", "singles=30")
    result = world.run_json("jobserver", "run", GANG, "--cores", "4", *sets)
    assert result["tasks"]["finished"] == 36
    assert sorted(result["outputs"]["done"]) == list(range(30))
    gangs = result["outputs"]["results"]
    assert sorted(gang["number"] for gang in gangs) == list(range(6))
    assert all(len(set(gang["cores"])) == 2 and len(gang["hosts"]) == 1 for gang in gangs)
    assert runpy.run_path(GANG)["overlaps"](gangs) == []


def test_the_example_sees_an_overlap_where_there_is_one() -> None:
    overlaps = runpy.run_path(GANG)["overlaps"]
    one = {"number": 1, "cores": ["a", "b"], "began_s": 1.0, "ended_s": 2.0}
    assert overlaps([one, {**one, "number": 2}]) == [(1, 2)]
    assert overlaps([one, {**one, "number": 2, "cores": ["c", "d"]}]) == []
    assert overlaps([one, {**one, "number": 2, "began_s": 2.0, "ended_s": 3.0}]) == []


def test_a_gang_that_is_too_wide_is_refused_with_the_reason(world: World) -> None:
    done = world.run("jobserver", "run", GANG, "--cores", "2", "--set", "width=3", "--set", "gangs=1")
    assert done.returncode == 1
    assert "asked for 3 core: 3 core at once, but there is: " in done.stdout + done.stderr


def test_a_program_finds_the_resources_in_its_environment(world: World) -> None:
    flow = world.workflow(PROGRAM, "programs")
    result = world.run_json("jobserver", "run", flow, "--cores", "2")
    (shown,) = result["outputs"]["shown"]
    assert [part.split("@")[0] for part in shown.strip().split(",")] == ["r1.core0", "r1.core1"]


def test_this_process_has_no_such_variable() -> None:
    assert "GSPC_RESOURCES" not in os.environ
