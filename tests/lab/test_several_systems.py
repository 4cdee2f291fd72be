"""APP-3: run-time systems on several hosts run one job; killing one of them loses nothing."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.support import ROOT, World, wait_until
from tests.lab.support import Host, Lab
from tests.lab.test_hosts import WHO, result_of


def start(world: World, lab: Lab, host: Host) -> str:
    """Start a run-time system on a host; return its connection file."""
    file = world.folder / host.name / "rts.json"
    file.parent.mkdir(mode=0o700)
    rts = f"{sys.executable} -m gspc_trio.cli.rts start --cores 2 --tls --listen {host.address}"
    ssh = ("ssh", "-F", str(lab.ssh_config), "-o", "BatchMode=yes", "-o", "ServerAliveInterval=1", host.name)
    world.start_program(*ssh, f"cd {ROOT} && exec {rts} --connection-file {file}")
    wait_until(file.exists, f"{host.name} has one")
    return str(file)


@pytest.mark.parametrize("fault", ["crash", "black hole"])
def test_two_run_time_systems_run_one_job_and_one_that_is_lost_loses_nothing(
    world: World, lab: Lab, fault: str
) -> None:
    one, two = lab.hosts[:2]
    named = {"one": start(world, lab, one), "two": start(world, lab, two)}
    given = [part for name, file in named.items() for part in ("--rts", f"{name}={file}")]
    flow = world.workflow(WHO)
    numbers, where = result_of(world.start("jobserver", "run", flow, *given, "--json", "--set", "n=100"))
    assert numbers == list(range(100))
    assert set(where) == {"h1", "h2"}, "both have worked"

    records = world.folder / "records"
    process = world.start(
        "jobserver", "run", flow, *given, "--json", "--set", "n=200", "--records", str(records)
    )
    wait_until(lambda: records.exists() and "two/r1.core" in records.read_text(), "tasks run on the second")
    if fault == "crash":
        two.crash()
    else:
        two.link(fault)
    numbers, where = result_of(process)
    assert numbers == list(range(200)), "each task has a result, and one only"
    assert where["h1"] > 100
    two.link()
    if fault == "crash":
        two.boot()
    for name, file in named.items():
        if name == "one" or fault != "crash":
            assert world.run("rts", "stop", "--rts", file).returncode == 0
