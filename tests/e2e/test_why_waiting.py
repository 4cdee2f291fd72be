"""``gspc-rts explain``: why the requests of a job wait."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from gspc_trio.cli.waiting import describe_waiting
from gspc_trio.components.rm.messages import Blocking, ClassNeed, GrantHolder
from gspc_trio.components.rts.messages import AwaitedHost, RequestExplanation
from tests.e2e.support import HANG_S, World, completed, wait_until

HOLDER = """
import os, time
from gspc_trio import farm, Workflow

def hold(seconds):
    time.sleep(seconds)

def workflow():
    return Workflow(farm(hold, name="hold"), {"items": [600, 600]})
"""

WAITER = """
from gspc_trio import farm, Workflow

def use(number):
    return number

def workflow():
    return Workflow(farm(use, name="use", requires=["node"]), {"items": [1]})
"""


def job_with(world: World, name: str, figure: str, number: int) -> str:
    """Wait until the job called so has this figure in the status, and return its id."""

    def there() -> str:
        for job in world.status()["jobs"]:
            if job["name"] == name and job[figure] == number:
                return str(job["job"])
        return ""

    found: str = wait_until(there, f"{name} to have {figure} {number}")
    return found


def test_a_waiting_job_is_told_what_it_needs_and_who_has_it(world: World) -> None:
    world.start_rts("--cores", "2")
    run = ("jobserver", "run", "--rts", world.connection_file)
    world.start(*run, world.workflow(HOLDER, "holder"))
    holder = job_with(world, "holder", "held", 2)
    world.start(*run, world.workflow(WAITER, "waiter"))
    waiter = job_with(world, "waiter", "demand", 1)
    (entry,) = world.run_json("rts", "explain", waiter)["waiting"]
    assert entry["needs"] == {"node": {"needed": 1, "total": 1, "free": 0}}
    assert entry["place"] == 1
    assert entry["waited_s"] >= 0
    assert entry["blocking"]["resource"] == "r1.node"
    assert entry["blocking"]["job"] == holder
    assert {held["job"] for held in entry["held_by"]} == {holder}
    first, *_ = world.run("rts", "explain", waiter).stdout.splitlines()
    assert first.startswith(f"{waiter} waits for 1 x node: ")
    assert world.run("rts", "explain", holder).stdout == f"{holder} waits for no resources\n"
    listed = world.run("rts", "status").stdout
    assert "DEMAND" in listed
    assert "SHARE" in listed
    world.stop_rts()


PREFERRING = """
import os, time
from gspc_trio import Requirement, Workflow, farm

def wait_for(gate):
    while gate and not os.path.exists(gate):
        time.sleep(0.01)

def workflow(gate: str = "", hard: bool = False, patience: float = 1.0):
    need = Requirement("core", ("r1.node",), hard=hard, patience_s=None if hard else patience)
    return Workflow(farm(wait_for, name="wait", requires=[need]), {"items": [gate]})
"""


def test_a_task_prefers_a_host_for_as_long_as_it_says_and_then_takes_another(world: World) -> None:
    world.start_rts("--cores", "1", "--host", "anna", "--host", "berta")
    run = ("jobserver", "run", "--rts", world.connection_file)
    gate = str(world.folder / "gate")
    holder = world.start(
        *run, world.workflow(PREFERRING, "holder"), "--set", f"gate={gate}", "--set", "hard=1"
    )
    job_with(world, "holder", "held", 1)

    # It would wait for an hour, though berta is free; that it does is said, with the rest of the time.
    patient = world.start(*run, world.workflow(PREFERRING, "patient"), "--set", "patience=3600")
    waits = job_with(world, "patient", "demand", 1)
    (entry,) = world.run_json("rts", "explain", waits)["waiting"]
    assert entry["reason"] == "still waits for one of r1.node"
    assert entry["needs"] == {"core": {"needed": 1, "total": 2, "free": 1}}
    assert 3000 < entry["patience_left_s"] <= 3600
    said = world.run("rts", "explain", waits).stdout
    assert re.search(r"^    takes any other in 3\d\d\d\.\d s$", said, re.MULTILINE), said

    records = world.folder / "records.jsonl"
    given = ("--set", "patience=1.5", "--records", str(records), "--json")
    hurried = completed(world.start(*run, world.workflow(PREFERRING, "hurried"), *given))
    assert hurried.returncode == 0, hurried.stderr
    granted = [json.loads(line) for line in records.read_text().splitlines() if "GrantChanged" in line]
    assert granted[0]["resources"] == ["r2.core0"], "it took the other one in the end"
    ready = next(json.loads(line) for line in records.read_text().splitlines() if '"ready"' in line)
    assert granted[0]["at_s"] - ready["at_s"] >= 1.5, "but not before"
    assert patient.poll() is None
    Path(gate).touch()
    for process in (holder, patient):
        done = completed(process)
        assert done.returncode == 0, done.stderr
    world.stop_rts()


PATIENT = """
from gspc_trio import farm, Workflow

def use(number):
    return number

def workflow():
    return Workflow(farm(use, requires="fpga", wait=True), {"items": [1]})
"""


def test_a_job_of_which_nothing_runs_says_why_by_itself(world: World) -> None:
    run = world.start("jobserver", "run", world.workflow(PATIENT, "patient"), "--cores", "1", "--json")
    assert run.stderr is not None
    assert run.stderr.readline().startswith("gspc-jobserver: j1 (patient) waits for fpga: ")
    run.send_signal(signal.SIGINT)
    told = "gspc-jobserver: interrupted: 0 tasks had ended, 0 were running, 1 had not begun\n"
    assert run.communicate(timeout=HANG_S) == ("", told), "why it waits is said once"


WAITING = """
import os, time
from gspc_trio import Workflow, farm

def wait_for(gate):
    while not os.path.exists(gate):
        time.sleep(0.01)

def workflow(gate: str):
    return Workflow(farm(wait_for, loss_attempts=50), {"items": [gate]})
"""


def test_a_job_waits_for_its_only_host_however_often_that_is_killed(world: World) -> None:
    world.start_rts("--cores", "1", "--host", "anna")
    gate = world.folder / "gate"
    run = world.start(
        "jobserver", "run", "--rts", world.connection_file, world.workflow(WAITING, "waiting"),
        "--set", f"gate={gate}",
    )  # fmt: skip
    job = job_with(world, "waiting", "held", 1)

    def kill_and_look() -> str:
        (rif,) = world.status()["rifs"]
        if rif["state"] == "up":
            with suppress(ProcessLookupError):
                os.kill(rif["pid"], signal.SIGKILL)
        if rif["incarnation"] <= 3:
            return ""
        said = world.run("rts", "explain", job).stdout
        return said if "anna is tried again in" in said else ""

    said = wait_until(kill_and_look, "the fourth to be lost")
    assert "waits for 1 x core: not there yet: there is 0 core now; anna is lost: " in said
    assert re.search(r"^    anna is tried again in \d+\.\d s$", said, re.MULTILINE), said
    gate.touch()
    world.run("rts", "bootstrap", "anna", "--cores", "1")  # at once, if it is not there already
    assert completed(run).returncode == 0, "it has waited"
    world.stop_rts()


def test_a_job_that_is_not_there_gets_one_line(world: World) -> None:
    world.start_rts("--cores", "1")
    done = world.run("rts", "explain", "j9")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["gspc-rts: job j9 has not joined, or has gone"]
    world.stop_rts()


def test_an_explanation_as_text() -> None:
    entry = RequestExplanation(
        shape="2 core + node",
        credit=3,
        since_s=1.0,
        needs={"core": ClassNeed(needed=2, total=4, free=1), "node": ClassNeed(needed=1, total=1, free=0)},
        held_by=(GrantHolder("j2", (1, 7), ("r1.core0", "r1.core1")),),
        place=2,
        patient_until_s=3.0,
        blocking=Blocking("r1.node", relative="r1.core0", job="j2", grant=(1, 7)),
        reason="0 of 1 node free; r1.node is blocked by r1.core0, held by j2",
        awaits=(AwaitedHost("r2", "anna", 12.34), AwaitedHost("r3", "berta", None)),
        waited_s=2.04,
        patience_left_s=1.26,
        placement="compact",
        lacks={"anna": ("avx", "ssd")},
    )
    assert describe_waiting("j1", [entry]) == [
        "j1 waits for 3 x 2 core + node: 0 of 1 node free; r1.node is blocked by r1.core0, held by j2",
        "    for 2.0 s, place 2",
        "    takes any other in 1.3 s",
        "    anna is tried again in 12.3 s",
        "    berta is being started",
        "    needs 2 core: 1 of 4 free",
        "    needs 1 node: 0 of 1 free",
        "    r1.node: blocked by r1.core0, held by j2",
        "    its resources go by the placement compact",
        "    anna has no avx or ssd",
        "    held by j2: r1.core0, r1.core1",
    ]
