"""Files beside a workflow file that have the names of other modules."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import World, one_line

pytestmark = pytest.mark.process

FLOW = """
import {imports}
from gspc_trio import Workflow, farm

def look(name):
    import importlib
    return importlib.import_module(name).__file__

def workflow(names: str):
    return Workflow(farm(look), {{"items": names.split()}})
"""

TAKEN = ["attr", "msgpack", "cloudpickle", "traceback", "pickle", "resource", "statistics"]


def run(world: World, imports: str, *names: str) -> tuple[list[Any], str]:
    """Run a workflow that imports something; return where its tasks find modules, and what was complained."""
    path = world.workflow(FLOW.format(imports=imports))
    # Not with -m: that puts the working directory before the library.
    program = Path(sysconfig.get_path("scripts")) / "gspc-jobserver"
    done = world.run_program(str(program), "run", path, "--set", f"names={' '.join(names)}", "--json")
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(done.stdout)["outputs"]["results"]), done.stderr


def test_files_named_like_modules_of_libraries_are_in_nobodys_way(world: World) -> None:
    for name in TAKEN:
        (world.folder / f"{name}.py").write_text("raise RuntimeError('the wrong one')")
    (world.folder / "mine.py").write_text("")
    found, complaints = run(world, "os", "mine", *TAKEN)
    assert len(found) == len(TAKEN) + 1
    assert [path for path in found if path.startswith(str(world.folder))] == [str(world.folder / "mine.py")]
    assert complaints == ""


def test_one_that_the_workflow_imports_is_the_one_that_its_tasks_get(world: World) -> None:
    own = world.folder / "sched.py"
    own.write_text("")
    found, complaints = run(world, "sched", "sched")
    assert found == [str(own)]
    assert f"{own} has the name of a module of Python; as flow.py imports it, tasks get it, too" in one_line(
        complaints
    )
