"""Several job servers on one run-time system, and the commands that talk to them (RTS-4)."""

from __future__ import annotations

import json

import psutil

from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.lines import read_records
from tests.e2e.support import HANG_S, World, wait_until

FLOW = """
import os, time
from gspc_trio import farm, Workflow

def sleep(seconds):
    time.sleep(seconds)
    return seconds

def workflow(n: int = 1000, seconds: float = 0.02):
    return Workflow(farm(sleep, name="sleepers"), {"items": [seconds] * n})
"""


def jobs_of(world: World) -> dict[str, dict[str, object]]:
    return {job["name"]: job for job in world.status()["jobs"]}


def test_two_jobs_share_the_cores_of_one_run_time_system(world: World) -> None:
    rts = world.start_rts("--cores", "2")
    file = world.connection_file
    endless = ("--rts", file, "--set", "n=50000")
    first = world.start("jobserver", "run", world.workflow(FLOW, "first"), *endless)
    wait_until(lambda: jobs_of(world).get("first", {}).get("held") == 2, "the first job to have all cores")
    second = world.start("jobserver", "run", world.workflow(FLOW, "second"), *endless)

    def shared() -> bool:
        jobs = jobs_of(world)
        return {name: job["held"] for name, job in jobs.items()} == {"first": 1, "second": 1}

    wait_until(shared, "the jobs to have a core each")
    listed = world.run("jobserver", "list").stdout
    assert "j1\t" in world.run("jobserver", "__complete", "status", "").stdout, "what a shell completes"
    assert "\nr1\t" in world.run("rts", "__complete", "teardown", "").stdout
    assert "first" in listed
    assert "second" in listed
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=HANG_S)
    wait_until(lambda: jobs_of(world) == {}, "the jobs to be signed off")
    world.stop_rts()
    assert rts.wait(timeout=HANG_S) == 0


def test_a_job_is_asked_waited_for_and_stopped_from_another_terminal(world: World) -> None:
    world.start_rts("--cores", "2")
    file = world.connection_file
    process = world.start(
        "jobserver", "run", world.workflow(FLOW), "--set", "n=9000", "--rts", file, "--json"
    )
    (entry,) = wait_until(lambda: world.run_json("jobserver", "list"), "the job to be registered")
    job = entry["job"]
    wait_until(lambda: world.run_json("jobserver", "status", job)["tasks"]["finished"] > 3, "tasks to finish")

    waiting = world.start("jobserver", "wait", job)
    connections = psutil.Process(waiting.pid).net_connections
    wait_until(lambda: len(connections("tcp")) == 1, "the one who waits to reach the run-time system")
    assert "running" in world.run("jobserver", "status", job).stdout
    done = world.run("jobserver", "stop", job)
    assert done.returncode == 0, done.stderr
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 1
    assert "stopped" in err
    counts = json.loads(out)["tasks"]
    assert sum(counts.values()) == 9000
    assert counts["cancelled"] > 0
    said, _ = waiting.communicate(timeout=HANG_S)
    assert waiting.returncode == 1
    assert "stopped" in said

    assert f"{job} (flow): stopped after" in world.run("jobserver", "status", job).stdout
    after = world.run_json("jobserver", "status", job)
    assert (after["state"], after["detail"]) == ("stopped", "a client asked it to stop")
    assert after["tasks"] == counts
    assert world.run("jobserver", "wait", job).returncode == 1
    done = world.run("jobserver", "stop", job)
    assert done.returncode == 1
    assert f"job {job} (flow) is over (stopped): a client asked it to stop" in done.stderr
    assert "there is no job 'j99'" in world.run("jobserver", "status", "j99").stderr
    world.stop_rts()


def test_the_records_of_a_run_tell_each_task_and_are_one_json_object_a_line(world: World) -> None:
    path = world.workflow(FLOW)
    data = world.run_json("jobserver", "run", path, "--set", "n=20", "--records", "records")
    assert data["tasks"]["finished"] == 20
    lines = (world.folder / "records").read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    assert records[0]["record"] == "StreamOpened"
    tasks = [one for one in read_records(lines) if isinstance(one, TaskChanged)]
    assert len({task.task_id for task in tasks if task.state is TaskState.FINISHED}) == 20
    assert [r["state"] for r in records if r["record"] == "JobChanged"][-1] == "finished"


def test_json_prints_one_object_and_nothing_else(world: World) -> None:
    text = "from gspc_trio import farm, Workflow\nprint('loaded')\n"
    text += "def same(item):\n    print('computed')\n    return item\n"
    text += "def workflow():\n    print('built')\n    return Workflow(farm(same), {'items': [1]})\n"
    done = world.run("jobserver", "run", world.workflow(text), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"results": [1]}
