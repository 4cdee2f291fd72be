"""A run-time system that is killed and started again, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from e2e_world import MARKING, World, completed, one_line, wait_until
from test_resume import traces


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_a_run_time_system_comes_back_with_its_hosts_and_journaled_jobs_go_on(world: World) -> None:
    state = str(world.folder / "state")
    first = world.start_rts("--state", state, "--cores", "1", "--host", "anna")
    assert world.run("rts", "bootstrap", "berta", "--cores", "2").returncode == 0
    before = world.run_json("rts", "status")
    marks = world.folder / "marks"
    marks.mkdir()
    connection = str(world.folder / "runtime" / "gspc-trio" / "rts.json")
    token = json.loads(Path(connection).read_text())["token"]
    given = ("--set", f"folder={marks}", "--set", "n=400", "--rts", connection, "--json")
    job = world.start(
        "jobserver", "run", world.workflow(MARKING), *given, "--journal", str(world.folder / "journal")
    )
    wait_until(lambda: len(traces(marks)) >= 100, "tasks run")
    kill(first)
    world.start_rts("--state", state)
    after = world.run_json("rts", "status")
    assert {rif["host"]: rif["workers"] for rif in after["rifs"]} == {
        rif["host"]: rif["workers"] for rif in before["rifs"]
    }
    named = {rif["rif_id"] for rif in before["rifs"]}
    assert named.isdisjoint(rif["rif_id"] for rif in after["rifs"]), "no name is used twice"
    assert json.loads(Path(connection).read_text())["token"] == token
    done = completed(job)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(400))
    assert sum(traces(marks).values()) < 450, "only what was under way ran again"
    assert world.run("rts", "stop").returncode == 0


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
