"""Where tasks with files run, as the command line says."""

from __future__ import annotations

import json

import pytest

from tests.e2e.support import World

pytestmark = pytest.mark.process

FLOW = """
import os
from gspc_trio import Data, Net, Workflow

def where(text):
    with open("text.txt") as file:
        return [os.getcwd(), file.read()]

def workflow():
    net = Net("where")
    files = {"text.txt": Data("text")}
    net.transition("where", where, {"text": net.input("texts")}, net.output("seen"), stage_in=files)
    return Workflow(net, {"texts": ["a pear"]})
"""


def test_tasks_with_files_run_where_the_command_line_says(world: World) -> None:
    there = world.folder / "there"
    there.mkdir()
    bad = world.run("rts", "start", "--directory", "nowhere")
    problem = "gspc-rts: --directory nowhere: there is no such directory\n"
    assert (bad.returncode, bad.stderr) == (1, problem)
    world.start_rts("--cores", "1", "--directory", "there")
    flow = world.workflow(FLOW)
    done = world.run("jobserver", "run", flow, "--rts", world.connection_file, "--json")
    assert done.returncode == 0, done.stderr
    [[folder, text]] = json.loads(done.stdout)["outputs"]["seen"]
    assert text == "a pear"
    assert folder.startswith(str(there / "gspc-files-"))
    world.stop_rts()
    assert not list(there.iterdir())
