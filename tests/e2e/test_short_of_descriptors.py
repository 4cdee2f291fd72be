"""A host that can start no process, for its RIF has no descriptors left: it is not used until it can."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define

from tests.e2e.support import MARKING, World, completed, wait_until
from tests.e2e.test_resume import traces

ENOUGH_FOR_A_CONNECTION = 4
"""Descriptors that are left: a compute process takes more."""


def rifs(world: World) -> dict[str, Any]:
    return {rif["host"]: rif for rif in world.status()["rifs"]}


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


@define
class Marking:
    """A job whose tasks leave a trace, may never be lost, and do not end before the test says so.

    So every host that is free gets one of them, however slow the machine is.
    """

    process: Any
    marks: Path
    gate: Path
    number: int

    def hosts_used(self) -> int:
        """Return how many processes have begun tasks, one for each host."""
        return len({trace.name.partition(".")[2] for trace in self.marks.iterdir()})

    def see_through(self) -> None:
        """Let the tasks end: every one was begun once."""
        self.gate.touch()
        done = completed(self.process)
        assert done.returncode == 0, done.stderr
        assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(self.number))
        assert set(traces(self.marks).values()) == {1}


def marking(world: World, number: int) -> Marking:
    """Start such a job."""
    folder = world.folder / f"marking-{time.monotonic_ns()}"
    marks, gate = folder / "marks", folder / "gate"
    marks.mkdir(parents=True)
    flow = world.workflow(MARKING.replace('name="marking"', 'name="marking", loss_attempts=1'))
    settings = {"folder": marks, "n": number, "seconds": 0, "gate": gate}
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    process = world.start("jobserver", "run", flow, *given, "--rts", world.connection_file, "--json")
    return Marking(process, marks, gate, number)


def quarantined(world: World) -> Any:
    """Wait until a host is quarantined; return what is shown of it."""
    return wait_until(
        lambda: next((r for r in rifs(world).values() if r["state"] == "quarantined"), None), "quarantine"
    )


def test_its_tasks_run_elsewhere_and_it_is_used_again_when_it_can(world: World) -> None:
    start(world, "anna", "bert")
    bert = rifs(world)["bert"]
    with short_of_descriptors(bert["pid"]):
        job = marking(world, 300)
        shown = quarantined(world)
        assert shown["host"] == "bert"
        assert "too many open files" in shown["detail"].lower()
        job.see_through()
    wait_until(lambda: rifs(world)["bert"]["state"] == "up", "it is tried again")
    assert rifs(world)["bert"]["pid"] == bert["pid"], "it is the same process"
    job = marking(world, 300)
    wait_until(lambda: job.hosts_used() == 2, "both are used")
    job.see_through()
    world.stop_rts()


def test_without_another_host_tasks_wait_and_the_wait_is_explained(world: World) -> None:
    start(world, "anna")
    with short_of_descriptors(rifs(world)["anna"]["pid"]):
        job = marking(world, 20)
        wait_until(lambda: rifs(world)["anna"]["state"] == "quarantined", "quarantine")
        told = wait_until(
            lambda: [entry["reason"] for entry in world.run_json("rts", "explain", "j1")["waiting"]],
            "the job waits",
        )
        assert "anna is quarantined: cannot start a" in told[0]
        assert not job.hosts_used()
    job.see_through()
    world.stop_rts()
