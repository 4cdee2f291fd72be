"""What tasks print is seen where a person looks: under the command, in its log, with an executor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.commands import run_program
from tests.e2e.support import HANG_S, World, wait_until

FLOW = """
import os, sys, time
from gspc_trio import farm, Workflow

def speak(item):
    number, go = item
    print("begin", number)
    print("careful", number, file=sys.stderr)
    while number and not os.path.exists(go):
        time.sleep(0.01)
    print("end", number)
    return number

def workflow(go: str, n: int = 2):
    return Workflow(farm(speak, name="speak"), {"items": [(number, go) for number in range(n)]})
"""

EVERYTHING = ["begin 0", "begin 1", "careful 0", "careful 1", "end 0", "end 1"]


def said(text: str) -> list[str]:
    """Return what tasks have said, without the tasks."""
    return sorted(line.partition("] ")[2] for line in text.splitlines() if line.startswith("[speak "))


def test_run_shows_on_standard_error_what_tasks_print(world: World, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    flow = ("jobserver", "run", world.workflow(FLOW), "--set", f"go={tmp_path / 'go'}")
    shown = world.run(*flow)
    assert said(shown.stderr) == EVERYTHING
    assert said(shown.stdout) == []
    assert said(world.run(*flow, "--json").stderr) == []
    assert said(world.run(*flow, "--task-output", "keep").stderr) == []


def test_the_log_of_a_running_job_is_followed_from_another_terminal(world: World, tmp_path: Path) -> None:
    world.start_rts("--cores", "2")
    flow = ("run", world.workflow(FLOW), "--set", f"go={tmp_path / 'go'}", "--rts", world.connection_file)
    run = world.start("jobserver", *flow, "--json")
    wait_until(lambda: "j1" in world.run("jobserver", "list").stdout, "the job to be there")
    following = world.start("jobserver", "log", "j1", "--follow")
    one = world.start("jobserver", "log", "j1", "2", "--follow")
    wait_until(
        lambda: said(world.run("jobserver", "log", "j1").stdout) == sorted({*EVERYTHING} - {"end 1"}),
        "the task to be heard while it runs",
    )
    unknown = world.run("jobserver", "log", "j1", "77")
    assert (unknown.returncode, "no output of a task 77" in unknown.stderr) == (1, True)
    (tmp_path / "go").touch()
    assert said(following.communicate(timeout=HANG_S)[0]) == EVERYTHING
    assert one.communicate(timeout=HANG_S) == ("begin 1\nend 1\n", "careful 1\n")
    run.communicate(timeout=HANG_S)
    world.stop_rts()


PROGRAM = """
import sys
from gspc_trio import Executor

def speak(number):
    print("begin", number)
    print("careful", number, file=sys.stderr)

if __name__ == "__main__":
    with Executor(cores=1, output=sys.argv[1] if len(sys.argv) > 1 else None) as executor:
        list(executor.map(speak, range(2)))
"""


def test_an_executor_shows_what_tasks_print_if_that_is_wanted(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, str(program), *arguments)
        return run_program(*command, cwd=tmp_path, env=os.environ, timeout_s=HANG_S)

    shown = run("show")
    assert (said(shown.stdout), said(shown.stderr)) == (["begin 0", "begin 1"], ["careful 0", "careful 1"])
    kept = run()  # neither a terminal nor a notebook
    assert (kept.stdout, kept.stderr) == ("", "")
    assert run("files").returncode == 0
    written = {path.name: path.read_text() for path in (tmp_path / "gspc-output").iterdir()}
    assert written["1-speak.out"] == "begin 0\n"
    assert written["2-speak.err"] == "careful 1\n"
    assert "output='loud': it is one of 'show', 'keep', 'files'" in run("loud").stderr
