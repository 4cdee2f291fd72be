"""COA-2 to COA-7: three run-time systems and three services on three hosts, in a tree."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.support import ROOT, World, wait_until
from tests.lab.support import Host, Lab

JOBS = """
[word]
executable = "sh"
arguments = ["-c", "echo $(hostname)"]
"""

DOCUMENT = {
    "*(*(word)(word)(word))(*(word)(*(word)(word)))": 6,  # figure 4
    "*(*(*(*(word))(word)(word))(word))(word)": 5,  # figure 5 (a), as the errata have it
    "*(word)(word)(word(wait=2))(word(wait=1,2))": 4,  # figure 5 (c)
}
"""The requests of the document, and how many jobs each has."""


SITES = {"top": "ocean", "left": "land", "low": "air"}
"""Service -> its site; examples/climate.xml names two of them."""


class Services:
    """On each host a run-time system and a service: top on h1, left below it on h2, low below that on h3."""

    def __init__(self, world: World, lab: Lab) -> None:
        self.world = world
        self.lab = lab
        self.hosts: dict[str, Host] = dict(zip(("top", "left", "low"), lab.hosts, strict=True))
        (world.folder / "jobs.toml").write_text(JOBS)

    def folder(self, name: str) -> str:
        return str(self.world.folder / name)

    def on(self, name: str, command: str) -> None:
        """Start a command of ours on the host of a service."""
        ssh = ("ssh", "-F", str(self.lab.ssh_config), "-o", "BatchMode=yes", "-o", "ServerAliveInterval=1")
        line = f"cd {ROOT} && exec {sys.executable} -m gspc_trio.cli.{command}"
        self.world.start_program(*ssh, self.hosts[name].name, line)

    def start(self) -> None:
        for name in self.hosts:
            (self.world.folder / name).mkdir(mode=0o700)
            self.start_rts(name)
        above = ""
        for name in self.hosts:
            self.start_service(name, above)
            above = name
        self.wait_sites(3)

    def start_rts(self, name: str) -> None:
        where, file = self.hosts[name].address, f"{self.folder(name)}/rts.json"
        self.on(name, f"rts start --cores 2 --tls --listen {where} --host {where} --connection-file {file}")

    def start_service(self, name: str, above: str) -> None:
        folder, where = self.folder(name), self.hosts[name].address
        wait_until((self.world.folder / name / "rts.json").exists, f"{name} has a run-time system")
        parent = f"--parent {self.folder(above)}/service.json" if above else ""
        self.on(
            name,
            f"coallocation.commands serve --name {name} --rts {SITES[name]}={folder}/rts.json --tls "
            f"--listen {where} --connection-file {folder}/service.json {parent}",
        )
        wait_until((self.world.folder / name / "service.json").exists, f"{name} serves")

    def status(self) -> Any:
        file = f"{self.folder('top')}/service.json"
        return self.world.run_json("coallocation.commands", "status", "--service", file)

    def wait_sites(self, count: int) -> None:
        wait_until(lambda: len(self.status()["offers"]) == count, f"{count} sites have registered")

    def all_free(self, *names: str) -> bool:
        """Whether nothing is held, as the services and the run-time systems themselves say."""
        for name in names:
            file = f"{self.folder(name)}/rts.json"
            classes = self.world.run_json("rts", "status", "--rts", file)["classes"]
            if classes["core"]["free"] != 2:
                return False
        return True

    def command(self, text: str) -> tuple[str, ...]:
        """Return the command line that runs a request, or a file of the examples."""
        path = ROOT / "examples" / text
        if not path.exists():
            path = self.world.folder / "request.rsl"
            path.write_text(text)
        jobs = ("--jobs", self.folder("jobs.toml")) if path.suffix == ".rsl" else ()
        return ("run", str(path), *jobs, "--service", f"{self.folder('top')}/service.json", "--json")


@pytest.fixture
def services(world: World, lab: Lab) -> Iterator[Services]:
    made = Services(world, lab)
    try:
        made.start()
        yield made
    finally:
        stop_all(made, *made.hosts)


def stop_all(services: Services, *names: str) -> None:
    """Stop the services and run-time systems that are there."""
    for name in names:
        for command, option, file in (
            ("coallocation.commands", "--service", "service.json"),
            ("rts", "--rts", "rts.json"),
        ):
            services.world.run(command, "stop", option, f"{services.folder(name)}/{file}")


def ends_of(services: Services, text: str) -> list[Any]:
    done = services.world.run("coallocation.commands", *services.command(text))
    return json.loads(done.stdout) if done.stdout else [done.stderr]


def test_requests_of_the_document_run_over_three_hosts_in_order(services: Services) -> None:
    for text, count in DOCUMENT.items():
        ends = ends_of(services, text)
        assert [end["state"] for end in ends] == ["finished"] * count, ends
        assert {end["output"].strip() for end in ends} <= {"h1", "h2", "h3"}
    line = services.command("climate.xml")
    done = services.world.run("coallocation.commands", *line, cwd=str(ROOT))
    ends = json.loads(done.stdout)
    assert [end["state"] for end in ends] == ["finished", "finished"], ends
    assert sorted(ends[0]["output"].splitlines()) == [
        "air: 15 degrees after 5 steps",
        "ocean: 15 degrees after 5 steps",
    ]
    wait_until(
        lambda: services.all_free("top", "left", "low"), "nothing is held"
    )  # sites keep grants for a moment


@pytest.mark.parametrize("lost", ["service", "rts", "host"])
def test_what_is_killed_between_ready_and_go_takes_the_request_along_and_nothing_is_held(
    services: Services, lost: str
) -> None:
    world, lab = services.world, services.lab
    jobs = world.folder / "jobs.toml"
    part = '[{0}]\nexecutable = "sleep"\narguments = ["60"]\ncontact = "{1}"\ncount = 2\n'
    jobs.write_text(JOBS + part.format("left", SITES["left"]) + part.format("top", SITES["top"]))
    # What is held at the top keeps the other part from being ready.
    world.start("coallocation.commands", *services.command("top"))
    wait_until(lambda: not services.all_free("top"), "the top is full")
    waiting = world.start("coallocation.commands", *services.command("*(*(+(left)(top)))(word)"))
    wait_until(lambda: not services.all_free("left"), "a part is held below")
    left = services.hosts["left"]
    if lost == "host":
        left.crash()
    else:
        name = "coallocation.commands serve" if lost == "service" else "rts start"
        lab.ssh(left.name, f"pkill -9 -f 'gspc_trio.cli.{name}'")
    output, _ = waiting.communicate(timeout=60)
    ends = json.loads(output)
    assert [end["state"] for end in ends] == ["failed", "not run"], ends
    assert "gone" in ends[0]["reason"] or "lost" in ends[0]["reason"], ends
    assert ends[1]["reason"] == "it waits for job 1 (left+top), which has failed"
    wait_until(lambda: services.all_free("low"), "nothing is held below")
    if lost == "service":
        wait_until(lambda: services.all_free("left"), "nothing is held where the service was")
    cancelled = world.run(
        "coallocation.commands", "cancel", "top-1", "--service", f"{services.folder('top')}/service.json"
    )
    assert cancelled.returncode == 0, cancelled.stderr
    wait_until(lambda: services.all_free("top"), "nothing is held at the top")
    if lost == "host":
        left.link()
        left.boot()
