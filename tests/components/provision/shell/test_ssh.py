"""What the ssh strategy asks of its client; a stand-in writes that down and runs the command on this host."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

import pytest
import trio

from gspc_trio.components.provision.shell.ssh import SshStrategy
from gspc_trio.components.provision.shell.strategies import remote_command
from gspc_trio.components.provision.strategy import RifOrder, StrategyError

TOKEN = bytes(range(32))
SECRET = "-----BEGIN PRIVATE KEY-----"
REACHABLE = "wss://192.0.2.1:9"

CLIENT = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
if "-G" in arguments:
    print("hostname example.org\\ncontrolpath {control}")
    sys.exit(0)
with open({log!r}, "a") as log:
    log.write(json.dumps([arguments, dict(os.environ)]) + "\\n")
if arguments[-2] == "closed.example":
    print("ssh: refused", file=sys.stderr)
    sys.exit(255)
os.execv("/bin/sh", ["sh", "-c", arguments[-1]])
"""

PYTHON = """#!/bin/sh
[ "$3" = "import gspc_trio" ] && exit {status}
read line
echo "$line" > {order}
echo "the last word" >&2
exit 3
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class World:
    """A client and an interpreter that stand in for the real ones."""

    def __init__(self, folder: Path, control: str = "none", status: int = 0) -> None:
        self.folder = folder
        self.log, self.order = folder / "log", folder / "order"
        client = CLIENT.format(python=sys.executable, control=control, log=str(self.log))
        self.strategy = SshStrategy(str(program(folder / "ssh", client)))
        interpreter = PYTHON.format(order=shlex.quote(str(self.order)), status=status)
        self.python = program(folder / "a python's", interpreter)

    def rif_order(self, host: str = "host.example", address: str = REACHABLE, **options: str) -> RifOrder:
        options = {"python": str(self.python), **options}
        return RifOrder("r1", 2, host, 3, options, (address,), TOKEN, SECRET)

    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        return [tuple(json.loads(line)) for line in self.log.read_text().splitlines()]  # type: ignore[misc]


async def test_the_order_goes_over_standard_input_and_nowhere_else(tmp_path: Path) -> None:
    world = World(tmp_path)
    order = world.rif_order()
    assert await world.strategy.run(order) == "its process ended with exit status 3"
    told = json.loads(world.order.read_text())
    assert (told["rif_id"], told["incarnation"], told["cores"], told["rts"]) == ("r1", 2, 3, REACHABLE)
    assert told["credentials"] == SECRET
    ((arguments, environment),) = world.calls()
    for text in (*arguments, *environment.values()):
        assert told["token"] not in text
        assert TOKEN.hex() not in text
        assert SECRET not in text
    assert list(order.said) == ["the last word"]


async def test_the_client_is_told_to_be_strict_and_to_ask_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.strategy.run(world.rif_order(config="/some/config"))
    ((arguments, _),) = world.calls()
    given = [arguments[index + 1] for index, word in enumerate(arguments) if word == "-o"]
    for option in ("StrictHostKeyChecking=yes", "BatchMode=yes", "ForwardAgent=no", "ControlMaster=auto"):
        assert option in given
    assert arguments[:2] == ["-F", "/some/config"]
    assert arguments[-3:-1] == ["--", "host.example"]


async def test_a_connection_of_the_users_own_is_used(tmp_path: Path) -> None:
    world = World(tmp_path, control="/run/user/1/mine")
    await world.strategy.run(world.rif_order())
    ((arguments, _),) = world.calls()
    assert not [word for word in arguments if word.startswith("ControlP")]


async def test_the_directory_of_one_that_was_killed_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        left = Path(tempfile.mkdtemp(prefix="gspc-ssh-"))
        (left / "1").mkdir()
        world = World(tmp_path)
        await world.strategy.run(world.rif_order())
        assert left.name not in os.listdir(short)


async def test_the_directory_of_shared_connections_goes_with_the_last_user(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with trio.open_nursery() as nursery:
        for host in ("a.example", "b.example"):
            nursery.start_soon(world.strategy.run, world.rif_order(host))
    paths = {word for arguments, _ in world.calls() for word in arguments if word.startswith("ControlPath=")}
    (path,) = paths
    assert path.endswith("/%C")
    folder = path.removeprefix("ControlPath=").removesuffix("/%C")
    assert Path(folder).parent.name not in os.listdir("/tmp") + os.listdir(tempfile.gettempdir())


async def test_a_host_that_cannot_be_reached_is_told_apart_from_a_rif_that_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    order = world.rif_order("closed.example")
    assert await world.strategy.run(order) == "ssh could not connect"
    assert list(order.said) == ["ssh: refused"]


async def test_a_host_without_gspc_trio_says_what_was_tried(tmp_path: Path) -> None:
    world = World(tmp_path, status=1)
    order = world.rif_order()
    assert await world.strategy.run(order) == "its process ended with exit status 127"
    assert "no Python 3.11 here has gspc-trio" in order.said[0]
    assert str(world.python) in order.said[0]


@pytest.mark.parametrize("host", ["", "-oProxyCommand=x", "a b", "a;b", "$(x)", "a\nb"])
async def test_what_is_no_host_never_reaches_the_client(tmp_path: Path, host: str) -> None:
    world = World(tmp_path)
    with pytest.raises(StrategyError, match="no name of a host"):
        await world.strategy.run(world.rif_order(host))
    assert not world.log.exists()


@pytest.mark.parametrize("address", ["ws://127.0.0.1:5", "memory:rts"])
async def test_a_run_time_system_that_only_this_host_can_reach_is_refused_at_once(
    tmp_path: Path, address: str
) -> None:
    world = World(tmp_path)
    with pytest.raises(StrategyError):
        await world.strategy.run(world.rif_order(address=address))
    assert not world.log.exists()


async def test_a_client_that_is_not_there_is_one_line() -> None:
    order = RifOrder("r1", 1, "host.example", 1, {}, (REACHABLE,), TOKEN)
    with pytest.raises(StrategyError, match="cannot start"):
        await SshStrategy("/nonexistent/ssh").run(order)


def test_without_an_interpreter_given_that_of_here_is_tried_first() -> None:
    *_, first, second = shlex.split(remote_command({}))
    assert (first, second) == (sys.executable, "python3")
