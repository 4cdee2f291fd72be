"""Several hosts, reached by ssh and TLS, while real work runs on them and things go wrong."""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import ROOT, World, completed, wait_until
from tests.lab.support import HERE, Lab

WHO = """
import os, socket, time
from gspc_trio import farm, Workflow

def who(item):
    number, seconds = item
    time.sleep(seconds)
    return number, socket.gethostname()

def workflow(n: int = 300, seconds: float = 0.05):
    return Workflow(farm(who, name="who"), {"items": [(i, seconds) for i in range(n)]})
"""


def start(world: World, lab: Lab, *hosts: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Start a run-time system that other hosts can reach, with these; return the report."""
    world.start_rts("--tls", "--listen", HERE, "--cores", "1", *options)
    done = world.run(
        "rts",
        "bootstrap",
        *hosts,
        "--strategy",
        "ssh",
        "--cores",
        "1",
        "--set",
        f"config={lab.ssh_config}",
        "--json",
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def connection(world: World) -> str:
    return str(world.folder / "runtime" / "gspc-trio" / "rts.json")


def result_of(process: Any) -> tuple[list[int], Counter[str]]:
    """Return the numbers of the tasks that finished, and how many did on each host."""
    done = completed(process)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["outputs"]["results"]
    return sorted(number for number, _ in rows), Counter(host for _, host in rows)


def stop(world: World) -> None:
    done = world.run("rts", "stop")
    assert done.returncode == 0, done.stderr


def rifs(world: World) -> dict[str, str]:
    return {rif["host"]: rif["state"] for rif in world.run_json("rts", "status")["rifs"]}


def test_hosts_come_up_at_once_and_each_failure_is_told(world: World, lab: Lab) -> None:
    report = start(world, lab, "h1", "h2", "h3", "stranger", "nobody.invalid", "x;y")
    assert sorted(report["started"]) == ["h1", "h2", "h3"]
    failed = report["failed"]
    assert "Host key verification failed" in failed["stranger"]
    assert "could not connect" in failed["nobody.invalid"]
    assert "no name of a host" in failed["x;y"]
    flow = world.workflow(WHO)
    numbers, where = result_of(world.start("jobserver", "run", flow, "--rts", connection(world), "--json"))
    assert numbers == list(range(300))
    assert set(where) == {"h1", "h2", "h3", socket.gethostname()}
    listed = world.run_program("ps", "-eo", "args").stdout
    token = json.loads(Path(connection(world)).read_text())["token"]
    assert token not in listed
    assert "PRIVATE KEY" not in listed
    stop(world)


def test_words_are_counted_across_hosts(world: World, lab: Lab) -> None:
    start(world, lab, "h1", "h2", "h3")
    text = world.folder / "texts"
    text.mkdir()
    for number in range(20):
        (text / f"{number}.txt").write_text("one two two " * 5_000)
    flow = str(ROOT / "examples" / "wordcount.py")
    done = world.run("jobserver", "run", flow, "--set", f"path={text}", "--rts", connection(world), "--json")
    (counts,) = json.loads(done.stdout)["outputs"].values()
    assert counts == [{"one": 100_000, "two": 200_000}]
    stop(world)


def test_a_job_server_may_be_on_another_host(world: World, lab: Lab) -> None:
    start(world, lab, "h2", "h3")
    flow = world.workflow(WHO)
    command = f"{sys.executable} -m gspc_trio.cli.jobserver run {flow} --rts {connection(world)} --json"
    job = world.start_program("ssh", "-F", str(lab.ssh_config), "-o", "BatchMode=yes", "h1", command)
    wait_until(lambda: world.run_json("rts", "status")["jobs"], "the job runs")
    assert world.run_json("jobserver", "status", "j1")["state"] == "running", "it can be asked from here"
    numbers, where = result_of(job)
    assert {"h2", "h3"} <= set(where)
    assert numbers == list(range(300))
    stop(world)


@pytest.mark.parametrize("fault", ["black hole", "refusing", "lossy", "crash"])
def test_a_host_in_trouble_does_not_stop_the_work(world: World, lab: Lab, fault: str) -> None:
    """What ran there runs elsewhere; when the host is well again it comes back by itself."""
    start(world, lab, "h1", "h2", "h3")
    flow = world.workflow(WHO)
    given = ("--set", "n=600", "--rts", connection(world), "--json")
    process = world.start("jobserver", "run", flow, *given)
    wait_until(lambda: world.run_json("rts", "status")["jobs"], "the job runs")
    bad = lab.hosts[1]
    if fault == "crash":
        bad.crash()
    else:
        bad.link(fault)
    numbers, where = result_of(process)
    assert numbers == list(range(600))
    assert {"h1", "h3"} <= set(where)
    if fault == "lossy":
        stop(world)
        return
    wait_until(lambda: rifs(world)["h2"] != "up", "the loss is noticed")
    bad.link()
    if fault == "crash":
        bad.boot()
    if rifs(world)["h2"] == "failed":  # it was tried often enough; a user has to ask again
        again = ("--strategy", "ssh", "--cores", "1", "--set", f"config={lab.ssh_config}")
        assert world.run("rts", "bootstrap", "h2", *again).returncode == 0
    wait_until(lambda: rifs(world)["h2"] == "up", "the host is back")
    numbers, where = result_of(world.start("jobserver", "run", flow, "--rts", connection(world), "--json"))
    assert where["h2"]
    stop(world)


def test_a_full_disk_under_the_journal_ends_in_one_line(world: World, lab: Lab) -> None:
    start(world, lab, "h2")
    flow = world.workflow(WHO)
    scratch = lab.hosts[0].scratch
    jobserver = f"{sys.executable} -m gspc_trio.cli.jobserver"
    assert lab.ssh("h1", f"dd if=/dev/zero of={scratch}/ballast bs=1k count=4032").returncode == 0
    given = f"--set n=1500 --set seconds=0.001 --rts {connection(world)} --json"
    done = lab.ssh("h1", f"{jobserver} run {flow} {given} --journal {scratch}/journal")
    assert done.returncode == 1, done.stdout
    assert "No space left on device" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert lab.ssh("h1", f"rm {scratch}/ballast").returncode == 0
    done = lab.ssh("h1", f"{jobserver} resume {scratch}/journal --rts {connection(world)} --json")
    assert json.loads(done.stdout)["tasks"]["finished"] == 1500
    lab.ssh("h1", f"rm -r {scratch}/journal")
    stop(world)


def test_a_job_goes_on_elsewhere_when_the_host_of_its_job_server_crashes(world: World, lab: Lab) -> None:
    """Its journal is in a directory that both hosts see; tasks that run meanwhile are taken over."""
    start(world, lab, "h2", "h3")
    flow, journal = world.workflow(WHO), world.folder / "journal"
    jobserver = f"{sys.executable} -m gspc_trio.cli.jobserver"
    given = f"--set n=12 --set seconds=2 --rts {connection(world)} --json --journal {journal}"
    command = f"{jobserver} run {flow} {given}"
    ssh = ("ssh", "-F", str(lab.ssh_config), "-o", "BatchMode=yes", "-o", "ServerAliveInterval=1")
    first = world.start_program(*ssh, "h1", command)
    wait_until(lambda: any(job["held"] for job in world.run_json("rts", "status")["jobs"]), "tasks run")
    lab.hosts[0].crash()
    first.kill()
    numbers, where = result_of(
        world.start("jobserver", "resume", str(journal), "--rts", connection(world), "--json")
    )
    assert numbers == list(range(12))
    assert {"h2", "h3"} <= set(where)
    stop(world)
    lab.hosts[0].link()
    lab.hosts[0].boot()
