"""A detached job gives the prompt back, goes on without its terminal, and can be read when it is over."""

from __future__ import annotations

import os

from tests.e2e.support import GATED, World, wait_until

FLOW = """
import os, time
from gspc_trio import farm, Workflow

def speak(item):
    number, go = item
    print("begin", number)
    while not os.path.exists(go):
        time.sleep(0.01)
    print("end", number)
    return number

def report(outputs):
    print("the sum is", sum(outputs["results"]))

def workflow(go: str, requires: str = "core"):
    net = farm(speak, name="speak", requires=requires)
    return Workflow(net, {"items": [(number, go) for number in range(3)]}, report)
"""


def test_a_detached_job_goes_on_alone_and_is_read_afterwards(world: World) -> None:
    world.start_rts("--cores", "2")
    go = world.folder / "go"
    flow = ("run", world.workflow(FLOW), "--detach", "--set", f"go={go}")
    refused = world.run("jobserver", *flow, "--set", "requires=gpu")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "asked for gpu, but there is no gpu" in refused.stderr
    accepted = world.run_json("jobserver", *flow)
    job, pid = accepted["job"], accepted["pid"]
    assert accepted["name"] == "flow"
    assert os.getsid(pid) == pid
    waiting = world.start("jobserver", "wait", job)
    running = world.run("jobserver", "report", job)
    assert (running.returncode, running.stderr) == (1, f"gspc-jobserver: job {job} is still running\n")
    go.touch()
    assert "finished after" in waiting.communicate()[0]
    assert waiting.returncode == 0

    assert world.run("jobserver", "report", job).stdout.startswith("the sum is 3\n3 tasks in ")
    assert sorted(world.run_json("jobserver", "report", job)["outputs"]["results"]) == [0, 1, 2]
    assert sorted(world.run("jobserver", "log", job, "2").stdout.splitlines()) == ["begin 1", "end 1"]
    listed = {entry["job"]: entry["state"] for entry in world.run_json("jobserver", "list", "--ended")}
    assert listed == {"j1": "failed", job: "finished"}
    status = world.run("jobserver", "status", "j1").stdout
    assert "task 1 (speak), attempt 0:\n  refused: asked for gpu" in status

    told = world.run("jobserver", "run", world.workflow(GATED), "--detach", "--set", "gate=none").stdout
    assert told.startswith("j3 (flow) goes on in process ")
    assert "gspc-jobserver log j3 --follow" in told
    world.stop_rts()
    wait_until(lambda: not world.pids(), "the detached job to end with its run-time system")


def test_without_a_run_time_system_that_goes_on_a_job_is_not_detached(world: World) -> None:
    done = world.run("jobserver", "run", world.workflow(GATED), "--detach", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--detach needs a run-time system that goes on: there is no connection file" in done.stderr
    done = world.run("jobserver", "run", world.workflow(GATED), "--detach", "--cores", "1")
    assert done.returncode == 2
    assert "--detach cannot be used with --cores" in done.stderr
