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


INTERRUPTING = """
import os, signal, sys, threading, time
from contextlib import suppress
from gspc_trio import farm, Workflow

def interrupt(waiting, pipe, opened):
    os.kill(waiting, signal.SIGSTOP)
    with suppress(OSError):
        while os.readlink(pipe) == opened:
            time.sleep(0.001)
    os.kill(waiting, signal.SIGINT)
    os.kill(waiting, signal.SIGCONT)

def workflow():
    pipe = "/proc/self/fd/" + sys.argv[sys.argv.index("--detached-from") + 1]
    threading.Thread(target=interrupt, args=(os.getppid(), pipe, os.readlink(pipe)), daemon=True).start()
    return Workflow(farm(int, name="int"), {"items": ["1"]})
"""


def test_an_interrupt_after_the_job_is_accepted_changes_nothing(world: World) -> None:
    world.start_rts("--cores", "1")
    done = world.run("jobserver", "run", world.workflow(INTERRUPTING), "--detach")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("j1 (flow) goes on in process ")
    assert world.run("jobserver", "wait", "j1").returncode == 0
    world.stop_rts()


def test_a_detached_job_goes_on_alone_and_is_read_afterwards(world: World) -> None:
    world.start_rts("--cores", "2")
    go = world.folder / "go"
    flow = ("run", world.workflow(FLOW), "--detach", "--set", f"go={go}")
    refused = world.run("jobserver", *flow, "--set", "requires=gpu")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "asked for gpu, but there is no gpu" in refused.stderr
    told = world.run("jobserver", *flow).stdout
    assert told.startswith("j2 (flow) goes on in process ")
    assert "gspc-jobserver log j2 --follow" in told
    pid = int(told.split()[6])
    assert os.getsid(pid) == pid
    endless = world.run_json(
        "jobserver", "run", world.workflow(GATED, "gated"), "--detach", "--set", "gate=none"
    )
    assert endless["name"] == "gated"
    waiting = world.start("jobserver", "wait", "j2")
    running = world.run("jobserver", "report", "j2")
    assert (running.returncode, running.stderr) == (1, "gspc-jobserver: job j2 is still running\n")
    go.touch()
    assert "j2 (flow): finished after" in waiting.communicate()[0]
    assert waiting.returncode == 0
    assert world.run("jobserver", "report", "j2").stdout.startswith("the sum is 3\n3 tasks in ")
    listed = {entry["job"]: entry["state"] for entry in world.run_json("jobserver", "list", "--ended")}
    assert listed == {"j1": "failed", "j2": "finished"}
    world.stop_rts()
    wait_until(lambda: not world.pids(), "the detached job to end with its run-time system")


def test_the_end_of_a_job_is_told_to_a_run_time_system_that_was_killed_and_is_back(world: World) -> None:
    state = ("--state", str(world.folder / "state"))
    rts = world.start_rts("--cores", "1", *state)
    go, out = world.folder / "go", world.folder / "out.json"
    flow = ("run", world.workflow(FLOW), "--set", f"go={go}", "--output", str(out))
    job = world.run_json("jobserver", *flow, "--detach")["job"]
    rts.kill()
    rts.wait()
    go.touch()
    wait_until(out.exists, "the job to end while there is no run-time system")
    world.start_rts("--cores", "1", *state)
    assert world.run("jobserver", "wait", job).returncode == 0
    world.stop_rts()


def test_without_a_run_time_system_that_goes_on_a_job_is_not_detached(world: World) -> None:
    done = world.run("jobserver", "run", world.workflow(GATED), "--detach", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--detach needs a run-time system that goes on: there is no connection file" in done.stderr
    done = world.run("jobserver", "run", world.workflow(GATED), "--detach", "--cores", "1")
    assert done.returncode == 2
    assert "--detach cannot be used with --cores" in done.stderr
