"""A memory layer across hosts: made on one, read on the others, and what is left when one crashes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.support import ROOT, World, completed, wait_until
from tests.lab.support import HERE, Lab
from tests.lab.test_hosts import connection, start, stop

TALK = """
import hashlib, socket, sys, trio
from gspc_trio.iml.shell.layer import open_iml
from gspc_trio.iml.layout import Layout, replicated

def content(name):
    return hashlib.sha256(name.encode()).digest() * (6_000_000 // 32)

async def make(iml):
    layouts = {"alone": Layout(("h3",)), "safe": replicated(2, ("h2", "h3")), "striped": Layout((), 100_000)}
    for name, layout in layouts.items():
        await iml.alloc(len(content(name)), content(name), layout=layout, name=name)
    print("made")

async def read(iml, *names):
    for name in names:
        data = await iml.look_up(name)
        assert await iml.get(data) == content(name)
        assert await iml.get(data.range(99_998, 5)) == content(name)[99_998:100_003]
        async with iml.map(data) as view:
            assert view == content(name)
        print(name, *sorted(await iml.data_location(data)))

async def main(file, what, *names):
    async with open_iml(connection_file=file) as iml:
        await {"make": make, "read": read}[what](iml, *names)

trio.run(main, *sys.argv[1:])
"""

FLOW = """
import os, socket, time
from gspc_trio import Net, Workflow

def note(trace, number):
    with open(trace, "a") as file:
        file.write(f"{number} {socket.gethostname()}\\n")

def make(numbered):
    number, trace = numbered
    time.sleep(0.2)
    note(trace, number)
    return number, bytes([number]) * 1_000_000

def wait_for(gate):
    while not os.path.exists(gate):
        time.sleep(0.05)
    return gate

def check(made, go):
    number, value = made
    return number, value.count(number), socket.gethostname()

def workflow(folder: str, n: int = 12):
    net = Net("remade")
    net.input("numbered")
    net.input("gate")
    net.place("made")
    net.place("go")
    net.output("checked")
    net.transition("make", make, inputs=["numbered"], outputs=["made"])
    net.transition("wait", wait_for, inputs=["gate"], outputs=["go"])
    net.transition("check", check, inputs=["made"], reads=["go"], outputs=["checked"])
    numbered = [(number, os.path.join(folder, "trace")) for number in range(n)]
    return Workflow(net, {"numbered": numbered, "gate": [os.path.join(folder, "gate")]})
"""


class Memory:
    """A layer that is started by hand, on hosts and here.

    Attributes:
        file: its connection file, in a directory that all hosts see.
    """

    def __init__(self, world: World, lab: Lab) -> None:
        self.world = world
        self.lab = lab
        self.file = world.folder / "iml.json"
        self.talk = world.folder / "talk.py"
        self.talk.write_text(TALK)

    def start(self, host: str, *arguments: str) -> subprocess.Popen[str]:
        """Start the server of a host, "" for this one; return when it says that it is there."""

        def there(command: str, *given: str) -> subprocess.Popen[str]:
            program = f"{sys.executable} -m gspc_trio.cli.{command} {' '.join(given)}"
            return self.world.start_program("ssh", "-F", str(self.lab.ssh_config), host, program)

        given = (*arguments, "--connection-file", str(self.file))
        return self.world.start_memory(*given, start=there if host else None)

    def tell(self, host: str, *what: str) -> subprocess.CompletedProcess[str]:
        """Have a host make or read data."""
        return self.lab.ssh(host, f"{sys.executable} {self.talk} {self.file} {' '.join(what)}")

    def status(self) -> dict[str, Any]:
        """Return the state of the layer."""
        done = self.world.run("iml", "status", "--connection-file", str(self.file), "--json")
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def stop(self) -> None:
        """End it."""
        self.world.run("iml", "stop", "--connection-file", str(self.file))


@pytest.fixture
def memory(world: World, lab: Lab) -> Iterator[Memory]:
    layer = Memory(world, lab)
    try:
        yield layer
    finally:
        layer.stop()


@contextlib.contextmanager
def crashed(lab: Lab, number: int, then: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Crash a host; it is there again after the block."""
    lab.hosts[number].crash()
    try:
        then()
        yield
    finally:
        lab.hosts[number].link()
        lab.hosts[number].boot()


def test_data_made_on_one_host_is_read_on_the_others(memory: Memory, lab: Lab) -> None:
    memory.start("h1", "--tls", "--listen", lab.hosts[0].address)
    memory.start("h2")
    memory.start("h3")
    servers = memory.status()["servers"]
    assert [server["host"] for server in servers] == ["h1", "h2", "h3"]
    for server, host in zip(servers, lab.hosts, strict=True):
        assert server["address"].startswith(f"wss://{host.address}:")
    done = memory.tell("h1", "make")
    assert done.stdout == "made\n", done.stderr
    for host in ("h2", "h3", "h1"):
        done = memory.tell(host, "read", "alone", "safe", "striped")
        assert done.returncode == 0, done.stderr
        where = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        assert where["striped"] == "h1 h2 h3"
        assert {"h2", "h3"} <= set(where["safe"].split())
        assert "h3" in where["alone"]
    again = lab.ssh("h2", f"{sys.executable} -m gspc_trio.cli.iml start --connection-file {memory.file}")
    assert again.returncode == 1
    assert again.stderr == "gspc-iml: host 'h2' has a memory server already: name this one with --host\n"


def test_a_crash_takes_what_lay_on_that_host_alone(memory: Memory, lab: Lab) -> None:
    memory.start("h1", "--tls", "--listen", lab.hosts[0].address)
    memory.start("h2")
    memory.start("h3")
    assert memory.tell("h1", "make").stdout == "made\n"
    with crashed(lab, 2):
        wait_until(lambda: len(memory.status()["servers"]) == 2, "the crash is noticed")
        states = {entry["name"]: (entry["state"], entry["hosts"]) for entry in memory.status()["data"]}
        assert states == {"alone": ("lost", []), "striped": ("lost", []), "safe": ("ready", ["h2"])}
        done = memory.tell("h1", "read", "safe")
        assert done.returncode == 0, done.stderr
        for name in ("alone", "striped"):
            done = memory.tell("h2", "read", name)
            assert "was lost: host h3 is gone" in done.stderr
    memory.start("h3")
    assert [server["host"] for server in memory.status()["servers"]] == ["h1", "h2", "h3"]
    assert memory.tell("h3", "read", "safe").returncode == 0


def test_what_a_crash_has_taken_from_a_job_is_made_again(memory: Memory, world: World, lab: Lab) -> None:
    start(world, lab, "h1", "h2", "h3")
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
    # One of the hosts may have nothing: it waits for the gate.
    victim = next(host for host in ("h1", "h2", "h3") if host in before.values())
    lay_there = {number for number, host in before.items() if host == victim}
    with crashed(lab, int(victim[1]) - 1, (world.folder / "gate").touch):
        done = completed(process)
        assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["outputs"]["checked"]
    assert sorted((number, count) for number, count, _ in rows) == [(n, 1_000_000) for n in range(12)]
    runs = Counter(line.split()[0] for line in trace.read_text().splitlines())
    assert {number for number, count in runs.items() if count > 1} == lay_there
    stop(world)


def test_words_are_counted_where_they_lie(world: World, lab: Lab) -> None:
    """The layer is started by the application, and by the RIFs of the hosts that its tasks run on."""
    start(world, lab, "h1", "h2", "h3")
    text = world.folder / "texts"
    text.mkdir()
    for number in range(12):
        (text / f"{number}.txt").write_text("one two two " * 100_000)
    flow = str(ROOT / "examples" / "wordcount_iml.py")
    process = world.start_program(sys.executable, flow, str(text), connection(world))
    free: dict[str, int] = {}

    def is_everywhere() -> bool:
        memories = world.run_json("rts", "status")["memories"].values()
        free.update({it["host"]: it["free_bytes"] for it in memories if it["free_bytes"] < it["total_bytes"]})
        return len(free) == 4

    wait_until(is_everywhere, "every host has a memory server, whose memory is taken from the host's")
    done = completed(process)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [" 2400000 two", " 1200000 one"]
    stop(world)
