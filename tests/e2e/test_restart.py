"""A run-time system that is killed and started again, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from gspc_trio.components.rts.shell.saved import RESUME_GRACE_S
from tests.e2e.support import MARKING, SLEEPERS, World, completed, one_line, wait_until
from tests.e2e.test_resume import traces


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_a_run_time_system_comes_back_to_its_hosts_and_jobs(world: World) -> None:
    """Nothing that runs is disturbed: no task begins twice, no process is replaced."""
    state = str(world.folder / "state")
    first = world.start_rts("--state", state, "--cores", "1", "--host", "anna")
    assert world.run("rts", "bootstrap", "berta", "--cores", "2").returncode == 0
    before = world.status()
    marks = world.folder / "marks"
    marks.mkdir()
    connection = world.connection_file
    token = json.loads(Path(connection).read_text())["token"]
    given = ("--set", f"folder={marks}", "--set", "n=400", "--set", "seconds=0.08", "--rts", connection)
    hurry = world.folder / "hurry"
    plain = world.start(
        "jobserver", "run", world.workflow(MARKING), *given, "--set", f"hurry={hurry}", "--json"
    )
    wait_until(lambda: len(traces(marks)) >= 50, "tasks run")
    kill(first)
    held = len(traces(marks))
    wait_until(lambda: len(traces(marks)) > held + 20, "tasks go on without a run-time system")
    world.start_rts("--state", state)
    after = world.status()

    def known(status: dict[str, Any]) -> set[tuple[Any, ...]]:
        return {(rif["rif_id"], rif["incarnation"], rif["pid"], rif["workers"]) for rif in status["rifs"]}

    assert known(after) == known(before)
    assert json.loads(Path(connection).read_text())["token"] == token
    # A host may speak of it before it has come itself.
    jobs = wait_until(lambda: [job for job in world.status()["jobs"] if job["pid"]], "the job is back")
    assert [(job["job"], job["pid"]) for job in jobs] == [("j1", plain.pid)]
    hurry.touch()
    done = completed(plain)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(400))
    assert set(traces(marks).values()) == {1}, "no task began twice"
    assert world.held_cores() == 0
    again = world.run_json("jobserver", "run", world.workflow(MARKING, "next"), "--rts", connection,
                           "--set", f"folder={world.folder / 'tmp'}", "--set", "n=4")  # fmt: skip
    assert again["tasks"]["finished"] == 4
    for left in (world.folder / "tmp").iterdir():
        left.unlink()
    world.stop_rts()


def test_what_does_not_come_back_is_lost(world: World) -> None:
    """A RIF and a job server die while there is no run-time system."""
    state = str(world.folder / "state")
    first = world.start_rts("--state", state, "--cores", "1", "--host", "anna", "--host", "berta")
    flow = world.workflow(SLEEPERS)
    job = world.start("jobserver", "run", flow, "--set", "seconds=60", "--rts", world.connection_file)
    wait_until(lambda: world.held_cores() == 2, "the job runs")
    pids = {rif["host"]: rif["pid"] for rif in world.status()["rifs"]}
    wait_until(lambda: json.loads(Path(state, "rts.json").read_text())["jobs"], "the state has the job")
    kill(first)
    os.kill(pids["anna"], signal.SIGKILL)
    kill(job)
    world.start_rts("--state", state)
    rifs = wait_until(lambda: up(world, 2), "both hosts are there")
    assert rifs["anna"]["pid"] != pids["anna"]
    assert rifs["anna"]["incarnation"] == 2
    assert (rifs["berta"]["pid"], rifs["berta"]["incarnation"]) == (pids["berta"], 1)
    # It is on the same host, so that its process can be looked for: nobody waits 30 s for it.

    def forgotten() -> bool:
        return not world.status()["jobs"] and world.held_cores() == 0

    wait_until(forgotten, "its cores are free", RESUME_GRACE_S - 5.0)
    data = world.run_json("jobserver", "run", flow, "--set", "n=4", "--rts", world.connection_file)
    assert data["tasks"]["finished"] == 4
    world.stop_rts()


def up(world: World, number: int) -> dict[str, Any]:
    """Return the RIFs by host if so many are up."""
    rifs = {rif["host"]: rif for rif in world.status()["rifs"] if rif["state"] == "up"}
    return rifs if len(rifs) == number else {}


def test_an_orderly_end_is_no_crash(world: World) -> None:
    """Nobody waits for a run-time system that was stopped; the next one begins anew."""
    state = str(world.folder / "state")
    world.start_rts("--state", state, "--cores", "1", "--host", "anna")
    flow = world.workflow(SLEEPERS)
    job = world.start("jobserver", "run", flow, "--set", "seconds=60", "--rts", world.connection_file)
    wait_until(lambda: world.held_cores() == 1, "the job runs")
    world.stop_rts()
    done = completed(job)
    assert (done.returncode, "run-time system" in one_line(done.stderr)) == (1, True)
    world.wait_nothing_left()
    world.start_rts("--state", state)
    (rif,) = world.status()["rifs"]
    assert (rif["host"], rif["state"], rif["rif_id"]) == ("anna", "up", "r2")
    world.stop_rts()


def test_a_state_has_one_run_time_system_at_a_time(world: World) -> None:
    state = str(world.folder / "state")
    world.start_rts("--state", state, "--cores", "1")
    done = world.run(
        "rts", "start", "--state", state, "--connection-file", str(world.folder / "own" / "rts.json")
    )
    assert done.returncode == 1
    assert "uses the state" in one_line(done.stderr)
    assert world.run("rts", "stop").returncode == 0
    (world.folder / "state" / "rts.json").write_text("{")
    done = world.run("rts", "start", "--state", state)
    assert "is damaged" in one_line(done.stderr)
    (world.folder / "state").chmod(0o755)
    done = world.run("rts", "start", "--state", state)
    assert "others can look into" in one_line(done.stderr)


def test_a_journaled_job_whose_run_time_system_was_stopped_can_be_resumed_elsewhere(world: World) -> None:
    first = world.start_rts("--cores", "1")
    marks = world.folder / "marks"
    marks.mkdir()
    connection, journal = (
        str(world.folder / "runtime" / "gspc-trio" / "rts.json"),
        str(world.folder / "journal"),
    )
    given = ("--set", f"folder={marks}", "--set", "n=100", "--rts", connection)
    job = world.start("jobserver", "run", world.workflow(MARKING), *given, "--journal", journal)
    wait_until(lambda: len(traces(marks)) >= 20, "tasks run")
    kill(first)
    os.kill(job.pid, signal.SIGINT)
    job.communicate()
    done = world.run("jobserver", "resume", journal, "--cores", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tasks"]["finished"] == 100
