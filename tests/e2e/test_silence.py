"""RIFs that cannot be heard for a while, with real processes: with a state they are awaited."""

from __future__ import annotations

import json
import os
import signal

from tests.e2e.support import MARKING, World, completed, wait_until
from tests.e2e.test_resume import traces


def state_of(world: World, host: str) -> str:
    rifs = {rif["host"]: rif["state"] for rif in world.status()["rifs"]}
    return rifs[host]


def test_a_rif_that_stands_still_for_longer_than_the_lease_goes_on(world: World) -> None:
    """No task runs twice: what ended meanwhile is told later."""
    state = str(world.folder / "state")
    world.start_rts("--state", state, "--cores", "1", "--host", "anna", "--host", "berta")
    marks = world.folder / "marks"
    marks.mkdir()
    hurry = world.folder / "hurry"
    given = ("--set", f"folder={marks}", "--set", "n=30", "--set", "seconds=1.5", "--set", f"hurry={hurry}")
    job = world.start(
        "jobserver", "run", world.workflow(MARKING), *given, "--rts", world.connection_file, "--json", "-v"
    )
    wait_until(lambda: len(traces(marks)) >= 4, "tasks run")
    pids = {rif["host"]: rif["pid"] for rif in world.status()["rifs"]}
    os.kill(pids["anna"], signal.SIGSTOP)
    wait_until(lambda: state_of(world, "anna") == "away", "the silence is noticed")
    before = len(traces(marks))
    wait_until(lambda: len(traces(marks)) >= before + 2, "the other host goes on")
    os.kill(pids["anna"], signal.SIGCONT)
    wait_until(lambda: state_of(world, "anna") == "up", "it is back")
    hurry.touch()
    done = completed(job)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(30))
    assert set(traces(marks).values()) == {1}, f"no task began twice: {done.stderr}"
    assert {rif["host"]: rif["pid"] for rif in world.status()["rifs"]} == pids
    assert world.held_cores() == 0
    world.stop_rts()
