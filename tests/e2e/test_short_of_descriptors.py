"""A host that can start no process, for its RIF has no descriptors left: it is not used until it can."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e_world import MARKING, World, completed, wait_until
from test_resume import traces

ENOUGH_FOR_A_CONNECTION = 4
"""Descriptors that are left: a compute process takes more."""


def rifs(world: World) -> dict[str, Any]:
    return {rif["host"]: rif for rif in world.run_json("rts", "status")["rifs"]}


@contextmanager
def short_of_descriptors(pid: int, left: int = ENOUGH_FOR_A_CONNECTION) -> Iterator[None]:
    """Let a process open no more than so many files for the time of a block."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    newest = max(map(int, os.listdir(f"/proc/{pid}/fd")))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (newest + 1 + left, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def start(world: World, *hosts: str) -> None:
    """Start a run-time system with these hosts, each a process with one core."""
    named = [word for host in hosts for word in ("--host", host)]
    world.start_rts("--cores", "1", *named)


def marking(world: World, number: int) -> tuple[Any, Any]:
    """Start a job whose tasks leave a trace, and may never be lost; return it and the folder."""
    marks = world.folder / f"marks-{time.monotonic_ns()}"
    marks.mkdir()
    flow = world.workflow(MARKING.replace('name="marking"', 'name="marking", loss_attempts=1'))
    given = ("--set", f"folder={marks}", "--set", f"n={number}", "--rts", world.connection_file, "--json")
    return world.start("jobserver", "run", flow, *given), marks


def finished(process: Any, marks: Any, number: int) -> None:
    """See the job through: every task was begun once."""
    done = completed(process)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(number))
    assert set(traces(marks).values()) == {1}


def test_its_tasks_run_elsewhere_and_it_is_used_again_when_it_can(world: World) -> None:
    start(world, "anna", "bert")
    bert = rifs(world)["bert"]
    with short_of_descriptors(bert["pid"]):
        process, marks = marking(world, 300)
        shown = wait_until(
            lambda: next((r for r in rifs(world).values() if r["state"] == "quarantined"), None), "quarantine"
        )
        assert shown["host"] == "bert"
        assert "too many open files" in shown["detail"].lower()
        finished(process, marks, 300)
    wait_until(lambda: rifs(world)["bert"]["state"] == "up", "it is tried again")
    assert rifs(world)["bert"]["pid"] == bert["pid"], "it is the same process"
    process, marks = marking(world, 300)
    wait_until(lambda: len({trace.name.partition(".")[2] for trace in marks.iterdir()}) == 2, "both are used")
    finished(process, marks, 300)
    world.stop_rts()


def test_without_another_host_tasks_wait_and_the_wait_is_explained(world: World) -> None:
    start(world, "anna")
    with short_of_descriptors(rifs(world)["anna"]["pid"]):
        process, marks = marking(world, 20)
        wait_until(lambda: rifs(world)["anna"]["state"] == "quarantined", "quarantine")
        told = wait_until(
            lambda: [entry["reason"] for entry in world.run_json("rts", "explain", "j1")["waiting"]],
            "the job waits",
        )
        assert "anna is quarantined: cannot start a" in told[0]
        assert not list(marks.iterdir())
    finished(process, marks, 20)
    world.stop_rts()
