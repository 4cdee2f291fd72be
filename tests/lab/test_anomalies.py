"""What is done about a host that fails: one of three, whose storage does (ASP-9)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gspc_trio.testing.anomalies import failing_io
from tests.e2e.support import World, completed, wait_until
from tests.lab.support import HERE, Host, Lab
from tests.lab.test_hosts import connection, rifs, start, stop
from tests.lab.test_memory import Memory, memory

__all__ = ["memory"]

FLOW = """
import os, socket, tempfile, time
from gspc_trio import Net, Workflow

def make(numbered):
    number, trace = numbered
    time.sleep(0.2)
    with open(trace, "a") as file:
        file.write(f"{number} {socket.gethostname()}\\n")
    return number, bytes([number]) * 1_000_000

def wait_for(told):
    number, gate = told
    while not os.path.exists(gate):
        with tempfile.TemporaryFile(dir="/var/tmp", buffering=0) as file:
            file.write(b"I am here")
        time.sleep(0.2)
    return number

def check(made, go):
    number, value = made
    return number, value.count(number), socket.gethostname()

def workflow(folder: str):
    net = Net("evacuated")
    for name in ("numbered", "gates"):
        net.input(name)
    for name in ("made", "went"):
        net.place(name)
    net.place("go")
    net.output("checked")
    net.transition("make", make, inputs=["numbered"], outputs=["made"], loss_attempts=1, priority=10)
    net.transition("wait", wait_for, inputs=["gates"], outputs=["go"], loss_attempts=1)
    net.transition("check", check, inputs=["made"], reads=["go"], outputs=["checked"], loss_attempts=1)
    numbered = [(number, os.path.join(folder, "trace")) for number in range(12)]
    gates = [(number, os.path.join(folder, "gate")) for number in range(4)]
    return Workflow(net, {"numbered": numbered, "gates": gates})
"""


@pytest.fixture
def order(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """Have h2 read and write by a library that lets calls fail when this file says so."""
    order, host = tmp_path / "order", lab.hosts[1]

    def boot(**environment: str) -> None:
        host.crash()
        host.link()
        host.boot(**environment)

    boot(LD_PRELOAD=str(failing_io()), GSPC_FAILING=str(order), TMPDIR="/var/tmp")
    yield order
    boot()


def test_a_host_whose_storage_fails_costs_no_data_and_no_attempt(
    memory: Memory, world: World, lab: Lab, order: Path
) -> None:
    victim: Host = lab.hosts[1]
    metrics = world.folder / "metrics"
    start(world, lab, "h1", "h2", "h3", options=("--monitor", str(metrics), "--anomalies", "act"))
    memory.start("", "--tls", "--listen", HERE)
    given = (
        "--set",
        f"folder={world.folder}",
        "--rts",
        connection(world),
        "--iml",
        str(memory.file),
        "--json",
    )
    process = world.start("jobserver", "run", world.workflow(FLOW), *given)
    trace = world.folder / "trace"
    wait_until(lambda: trace.exists() and len(trace.read_text().splitlines()) == 12, "all is made")
    wait_until(lambda: len(memory.status()["data"]) == 12, "all is there")
    before = dict(line.split() for line in trace.read_text().splitlines())
    assert victim.name in before.values(), "it has nothing to lose"
    order.write_text("50 /var/tmp")

    def is_evacuated() -> bool:
        told = world.run("monitor.commands", "anomalies", "--store", str(metrics)).stdout
        return "tasks and data leave it" in told

    wait_until(is_evacuated, "its anomaly is found")
    assert rifs(world)[victim.name] == "quarantined"

    def is_safe() -> bool:
        hosts = [set(part["hosts"]) for data in memory.status()["data"] for part in data["parts"]]
        return all(one - {victim.name} for one in hosts)

    wait_until(is_safe, "all lies elsewhere, too")
    victim.crash()
    (world.folder / "gate").touch()
    done = completed(process)
    victim.link()
    victim.boot()
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["outputs"]["checked"]
    assert sorted((number, count) for number, count, _ in rows) == [(n, 1_000_000) for n in range(12)]
    runs = Counter(line.split()[0] for line in trace.read_text().splitlines())
    assert set(runs.values()) == {1}, "something was made again"
    stop(world)
