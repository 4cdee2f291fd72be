"""APP-3: one job on several run-time systems; one of them is killed, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

from tests.e2e.support import World, completed, wait_until
from tests.processes import is_alive

FLOW = """
import os, time
from gspc_trio import Net, Workflow

def run(item):
    number, gate, folder = item
    with open(os.path.join(folder, f"{number}.{os.environ['WHERE']}.{os.getpid()}"), "x"):
        pass
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    return [number, os.environ["WHERE"]]

def workflow(folder: str, gate: str = "", n: int = 30, at: str = ""):
    net = Net("several")
    net.input("any")
    net.input("bound")
    net.output("results")
    net.transition("free", run, inputs=["any"], outputs=["results"])
    net.transition("fixed", run, inputs=["bound"], outputs=["results"], **({"at": at} if at else {}))
    given = [(number, gate, folder) for number in range(n)]
    return Workflow(net, {"any": given, "bound": [(n, gate, folder)] if at else []})
"""


def start(world: World, name: str) -> tuple[str, int]:
    """Start a run-time system of two cores; return its connection file and process."""
    file = world.folder / f"{name}.json"
    process = world.start("rts", "start", "--cores", "2", "--connection-file", str(file), env={"WHERE": name})
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("connection file"):
            return str(file), process.pid
    raise AssertionError(process.communicate()[1])


def traces(folder: Path) -> Counter[str]:
    return Counter(path.name.split(".")[1] for path in folder.iterdir())


def test_tasks_run_on_both_and_those_of_one_that_is_killed_run_elsewhere_and_resume_knows_both(
    world: World,
) -> None:
    (here, its_pid), (there, victim) = start(world, "here"), start(world, "there")
    folder, gate, flow = world.folder / "traces", world.folder / "gate", world.workflow(FLOW)
    folder.mkdir()
    both = ("--rts", f"here={here}", "--rts", f"there={there}")
    given = ("--set", f"folder={folder}", *both)
    for settings, said in (
        (("--set", "at=thre"), "there is no run-time system 'thre'; the job has here, there (did you mean"),
        (("--rts", f"again={here}"), "here and again are the same run-time system: give it once"),
        (("--rts", "nameless.json"), "--rts nameless.json: several run-time systems have names, as in"),
    ):
        refused = world.run("jobserver", "run", flow, *given, *settings)
        assert refused.returncode in (1, 2)
        assert said in refused.stderr
        assert not refused.stdout
    assert not traces(folder), "nothing has run"

    journal = world.folder / "journal"
    running = world.start(
        "jobserver", "run", flow, *given, "--set", f"gate={gate}", "--set", "at=here", "--json",
        "--journal", str(journal),
    )  # fmt: skip
    wait_until(lambda: traces(folder) == {"here": 2, "there": 2}, "tasks to run on both")
    (job,) = world.run_json("jobserver", "list", "--rts", there)
    number = min(int(path.name.split(".")[0]) for path in folder.glob("*.there.*"))
    theirs = [int(path.name.split(".")[2]) for path in folder.glob("*.there.*")]
    told = world.run("jobserver", "log", job["job"], "--rts", there)
    assert told.returncode == 0, told.stderr
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in theirs), "its tasks to end: none may pass the gate")
    gate.touch()
    done = completed(running)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["outputs"]["results"]
    assert sorted(row[0] for row in rows) == list(range(31)), "each once"
    assert dict(rows)[30] == "here"
    assert dict(rows)[number] == "here", "it ran where the other one was killed, and then here"

    again = world.run("jobserver", "resume", str(journal), "--rts", f"here={here}", "--json")
    assert json.loads(again.stdout)["outputs"]["results"] == rows, "on what is left"
    other = world.run("jobserver", "resume", str(journal), "--rts", f"other={here}")
    assert "there is no run-time system 'here'; the job has other" in other.stderr
    os.kill(its_pid, signal.SIGTERM)
    wait_until(lambda: not Path(here).exists(), "the other one to end")
    resumed = world.run("jobserver", "resume", str(journal))
    assert f"there is no connection file {here}" in resumed.stderr, "the journal names both"


def test_a_task_bound_to_one_that_has_gone_fails_and_says_so(world: World) -> None:
    (here, its_pid), (there, victim) = start(world, "here"), start(world, "there")
    folder = world.folder / "traces"
    folder.mkdir()
    running = world.start(
        "jobserver", "run", world.workflow(FLOW), "--rts", f"here={here}", "--rts", f"there={there}",
        "--set", f"folder={folder}", "--set", "gate=/never", "--set", "n=0", "--set", "at=there",
    )  # fmt: skip
    wait_until(lambda: traces(folder) == {"there": 1}, "it to run")
    os.kill(victim, signal.SIGKILL)
    done = completed(running)
    assert done.returncode == 1
    assert "the task is to run at there, which has gone" in done.stderr
    os.kill(its_pid, signal.SIGTERM)
