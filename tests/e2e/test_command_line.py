"""Commands meet odd surroundings: signals at bad moments, closed streams, workflow files that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.e2e.support import HANG_S, World, one_line, wait_until

pytestmark = pytest.mark.process

FLOW = """
from gspc_trio import farm, Workflow

def same(item):
    return item

def workflow():
    return Workflow(farm(same), {"items": [1]})
"""

SLOW = """
import os, pathlib, time
try:
    pathlib.Path("pid").write_text(str(os.getpid()))
    time.sleep(1000)
finally:
    pathlib.Path("cleaned").touch()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gspc_trio.cli.jobserver", *arguments]


def without(descriptor: int, arguments: list[str]) -> list[str]:
    """Return the command that runs another without one of its descriptors."""
    program = f"import os, sys; os.close({descriptor}); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", program, *arguments]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_that_still_loads_its_workflow_file(
    world: World, number: signal.Signals
) -> None:
    process = world.start("jobserver", "run", world.workflow(SLOW))
    wait_until((world.folder / "pid").exists, "the workflow file to be loaded")
    process.send_signal(number)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 128 + number
    assert err == ""
    assert (world.folder / "cleaned").exists()


ENDLESS = """
import pathlib, time
from gspc_trio import Net

def firing(number):
    pathlib.Path("fires").touch()
    return number

def waiting(number):
    firing(number)
    while True:
        time.sleep(0.001)

def workflow(kind: str):
    net = Net("endless", inline_firings_max=10**12)
    numbers = net.place("numbers", [1])
    if kind == "firing":
        net.transition("spin", firing, numbers, numbers, inline=True)
    else:
        net.transition("wait", None, {"number": numbers}, net.output("out"), condition=waiting)
    return net
"""


@pytest.mark.parametrize("kind", ["firing", "waiting"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_workflow_that_fires_for_ever_or_whose_condition_never_returns(
    world: World, number: signal.Signals, kind: str
) -> None:
    flow = world.workflow(ENDLESS)
    process = world.start("jobserver", "run", flow, "--cores", "1", "--set", f"kind={kind}")
    wait_until((world.folder / "fires").exists, "the engine to fire")
    process.send_signal(number)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 128 + number
    assert err == "gspc-jobserver: interrupted before the job had any task\n"
    world.wait_nothing_left()


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word(world: World) -> None:
    program = """
import os, signal, sys
from gspc_trio.cli import entry

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "gspc_trio.cli.jobserver":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
entry.jobserver()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=world.environment, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys\nsys.exit(0)", "line 2: SystemExit: 0"),
        ("def workflow():\n    return {}['key']", "line 2: KeyError: 'key'"),
        ("def workflow():\n    return None.field", "line 2: AttributeError"),
        (FLOW.replace("[1]}", "[1]}, lambda outputs: outputs['x']"), "line 8: KeyError: 'x'"),
    ],
)
def test_what_the_code_of_a_workflow_file_raises_is_told_in_one_line(
    world: World, text: str, told: str
) -> None:
    done = world.run("jobserver", "run", world.workflow(text))
    assert done.returncode == 1
    assert told in one_line(done.stderr)


def test_what_workflow_raises_itself_is_told_first_and_then_where(world: World) -> None:
    done = world.run(
        "jobserver", "run", world.workflow("def workflow():\n    raise ValueError('choose another n')")
    )
    first, where, code = done.stderr.splitlines()
    assert first == "gspc-jobserver: ValueError: choose another n"
    assert where.endswith("line 2, in workflow")
    assert code.strip() == "raise ValueError('choose another n')"


def test_a_directory_or_a_dead_link_named_like_a_module_does_no_harm(
    world: World,
) -> None:
    path = world.workflow(FLOW)
    (world.folder / "directory.py").mkdir()
    (world.folder / "dead.py").symlink_to(world.folder / "nowhere")
    assert world.run_json("jobserver", "run", path)["outputs"] == {"results": [1]}


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_a_command_works_without_one_of_its_standard_streams(world: World, descriptor: int) -> None:
    arguments = without(descriptor, command("run", world.workflow(FLOW)))
    done = subprocess.run(
        arguments, cwd=world.folder, env=world.environment, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert ("results: 1" in done.stdout) == (descriptor != 1)


def test_a_reader_that_has_seen_enough_is_no_error(world: World) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        arguments = command("run", world.workflow(FLOW))
        done = subprocess.run(
            arguments,
            cwd=world.folder,
            env=world.environment,
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=HANG_S,
        )
    finally:
        os.close(write_end)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""


def test_what_json_does_not_have_is_printed_as_text_and_nothing_stands_beside_it(world: World) -> None:
    text = """
import os
os.write(1, b"from below")
os.system("echo from a program")
""" + FLOW.replace("[1]", "[float('nan'), 10**5000, {2, 3}, 7]")
    done = world.run("jobserver", "run", world.workflow(text), "--json")
    assert done.returncode == 0, done.stderr
    no_constants: Callable[[str], None] = pytest.fail
    results = json.loads(done.stdout, parse_constant=no_constants)["outputs"]["results"]
    assert sorted(results, key=str) == sorted(["nan", hex(10**5000), [2, 3], 7], key=str)


def test_an_output_that_contains_itself_is_no_defect_of_the_program(world: World) -> None:
    text = FLOW.replace("return item", "item = []; item.append(item); return item")
    done = world.run("jobserver", "run", world.workflow(text), "--json")
    assert done.returncode == 1
    assert "contains itself" in one_line(done.stderr)
