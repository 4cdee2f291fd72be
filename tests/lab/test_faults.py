"""Run-time systems with a state, slow links and too few descriptors, while real work runs on real hosts."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.e2e.support import HANG_S, MARKING, World, completed, wait_until
from tests.e2e.test_resume import traces
from tests.e2e.test_short_of_descriptors import short_of_descriptors
from tests.lab.support import Lab
from tests.lab.test_hosts import WHO, connection, result_of, rifs, start, stop


def marking(world: World, number: int, seconds: float) -> tuple[Any, Path]:
    """Start a job that leaves a file each time a task begins; return it and the folder."""
    marks = world.folder / "marks"
    marks.mkdir()
    given = ("--set", f"folder={marks}", "--set", f"n={number}", "--set", f"seconds={seconds}")
    flow = world.workflow(MARKING)
    return world.start("jobserver", "run", flow, *given, "--rts", connection(world), "--json"), marks


def finish(process: Any, marks: Path, number: int) -> None:
    """See the job through: every task was begun once."""
    done = completed(process)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(number))
    assert set(traces(marks).values()) == {1}, "no task began twice"


def known(world: World) -> set[tuple[str, str, int, int]]:
    status = world.run_json("rts", "status")
    return {(rif["host"], rif["rif_id"], rif["incarnation"], rif["pid"]) for rif in status["rifs"]}


def test_with_a_state_a_host_behind_a_black_hole_is_awaited(world: World, lab: Lab) -> None:
    start(world, lab, "h1", "h2", options=("--state", str(world.folder / "state")))
    before = known(world)
    process, marks = marking(world, 60, 1.0)
    wait_until(lambda: len(traces(marks)) >= 6, "tasks run")
    lab.hosts[1].link("black hole")
    wait_until(lambda: rifs(world)["h2"] == "away", "the silence is noticed")
    lab.hosts[1].link()
    wait_until(lambda: rifs(world)["h2"] == "up", "it is back")
    finish(process, marks, 60)
    assert known(world) == before
    stop(world)


def test_hosts_come_back_to_a_run_time_system_that_was_killed(world: World, lab: Lab) -> None:
    state = ("--state", str(world.folder / "state"))
    start(world, lab, "h1", "h2", options=state)
    before = known(world)
    process, marks = marking(world, 60, 0.5)
    wait_until(lambda: len(traces(marks)) >= 6, "tasks run")
    os.kill(world.started[0].pid, signal.SIGKILL)
    world.started[0].wait()
    count = len(traces(marks))
    wait_until(lambda: len(traces(marks)) >= count + 4, "tasks go on without it")
    world.start_rts("--tls", "--listen", "10.79.0.1", *state)
    wait_until(lambda: known(world) == before and set(rifs(world).values()) == {"up"}, "all are back")
    finish(process, marks, 60)
    stop(world)


def test_behind_a_black_hole_only_what_had_begun_is_unknown(world: World, lab: Lab) -> None:
    """Tasks that may run once, eight at a time on the host that nobody can reach any more."""
    start(world, lab, "h1")
    cores = ("--strategy", "ssh", "--cores", "8", "--set", f"config={lab.ssh_config}")
    assert world.run("rts", "bootstrap", "h2", *cores).returncode == 0
    marks = world.folder / "marks"
    marks.mkdir()
    given = ("--set", f"folder={marks}", "--set", "n=400", "--set", "seconds=0.1", "--set", "rerun=no")
    flow = world.workflow(MARKING)
    process = world.start(
        "jobserver", "run", flow, *given, "--keep-going", "--rts", connection(world), "--json"
    )
    wait_until(lambda: len(traces(marks)) >= 60, "tasks run")
    lab.hosts[1].link("black hole")
    done = completed(process)
    lab.hosts[1].link()
    begun = traces(marks)
    assert set(begun.values()) == {1}, "no task began twice"
    finished = json.loads(done.stdout)["outputs"]["results"]
    unknown = set(range(400)) - set(finished)
    assert unknown <= set(map(int, begun)), "what has not begun ran elsewhere"
    assert 0 < len(unknown) <= 8, done.stderr
    stop(world)


def test_a_slow_link_makes_nobody_lost(world: World, lab: Lab) -> None:
    """A quarter of a second each way: slower than between continents."""
    lab.hosts[2].delay(0.25)
    try:
        start(world, lab, "h1", "h3")
        flow = world.workflow(WHO)
        numbers, where = result_of(
            world.start("jobserver", "run", flow, "--rts", connection(world), "--set", "n=200", "--json")
        )
        assert numbers == list(range(200))
        assert where["h3"] > 1
        assert rifs(world)["h3"] == "up"
        stop(world)
    finally:
        lab.hosts[2].delay(0.0)


def test_a_run_time_system_that_is_short_of_descriptors_goes_on_when_it_has_some_again(
    world: World, lab: Lab
) -> None:
    """It serves those who are there, says what its limit is, and lets others in later."""
    start(world, lab, "h1", "h2", options=("--state", str(world.folder / "state")))
    before = known(world)
    rts = world.started[0]
    process, marks = marking(world, 120, 0.25)
    wait_until(lambda: len(traces(marks)) >= 6, "tasks run")
    with short_of_descriptors(rts.pid, left=0):
        refused = world.run("rts", "status")
        assert refused.returncode != 0
        assert "does not answer" in refused.stderr or "closed the connection" in refused.stderr
        count = len(traces(marks))
        wait_until(lambda: len(traces(marks)) >= count + 20, "tasks go on")
    assert known(world) == before, "nobody was lost"
    flow = world.workflow(WHO)
    given = ("--rts", connection(world), "--set", "n=20", "--json")
    numbers, _ = result_of(world.start("jobserver", "run", flow, *given))
    assert numbers == list(range(20))
    finish(process, marks, 120)
    stop(world)
    _, said = rts.communicate(timeout=HANG_S)
    assert "cannot accept connections: too many open files, the limit of this process is" in said


def test_a_host_that_is_short_of_descriptors_does_not_stop_the_work(world: World, lab: Lab) -> None:
    """Its RIF gets forty of them, for itself and its connections."""
    poor = world.folder / "python"
    poor.write_text(f'#!/bin/sh\nulimit -n 40\nexec {sys.executable} "$@"\n')
    poor.chmod(0o755)
    start(world, lab, "h1")
    ssh = ("--strategy", "ssh", "--cores", "1", "--set", f"config={lab.ssh_config}")
    world.run("rts", "bootstrap", "h2", *ssh, "--set", f"python={poor}")
    flow = world.workflow(WHO)
    given = ("--rts", connection(world), "--set", "n=60", "--json")
    jobs = [world.start("jobserver", "run", flow, *given) for _ in range(4)]
    for job in jobs:
        numbers, _ = result_of(job)
        assert numbers == list(range(60))
    assert rifs(world)["h1"] == "up"
    stop(world)
