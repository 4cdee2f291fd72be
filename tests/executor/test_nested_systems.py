"""Run-time systems that are started where tasks run: at an import they would start themselves for ever."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytestmark = pytest.mark.process

UNGUARDED = """
from gspc_trio import Executor, farm, Workflow
import trio, gspc_trio

def double(value):
    return 2 * value

def workflow():
    return Workflow(farm(double), {"items": [1, 2, 3]})
"""

BY_EXECUTOR = """
with Executor(cores=2) as executor:
    executor.submit(double, 1).result()
"""

BY_TRIO = """
from functools import partial

async def main():
    async with gspc_trio.open_rts(cores=2) as rts:
        net = farm(double)
        async with gspc_trio.open_job(net, rts=rts, values={"items": [1]}) as job:
            await job.wait()

trio.run(main)
"""

LINE = (
    "module flow starts a run-time system when it is imported, as compute processes do: "
    'put that part of it under `if __name__ == "__main__":` or into a function'
)


@pytest.mark.parametrize("start", [BY_EXECUTOR, BY_TRIO])
def test_a_module_that_starts_a_run_time_system_when_it_is_imported(world: Any, start: str) -> None:
    world.workflow(UNGUARDED + start)
    done = world.run_program(sys.executable, "-c", "import flow")
    assert done.returncode != 0
    assert LINE in done.stderr
    guarded = "\n".join(f"    {line}" for line in start.splitlines())
    path = world.workflow(f'{UNGUARDED}\nif __name__ == "__main__":{guarded}')
    done = world.run_program(sys.executable, path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_workflow_file_that_starts_a_run_time_system_when_it_is_imported(world: Any) -> None:
    done = world.run("jobserver", "run", world.workflow(UNGUARDED + BY_EXECUTOR))
    assert done.returncode != 0
    assert LINE in done.stderr.splitlines()[0]


def test_a_task_may_start_a_run_time_system_of_its_own_and_import_what_starts_none(world: Any) -> None:
    (world.folder / "inner.py").write_text(
        UNGUARDED
        + """
def sums(count):
    with Executor(cores=1) as executor:
        return sum(executor.map(double, range(count)))
"""
    )
    (world.folder / "outer.py").write_text(
        """
from gspc_trio import Executor

def run(count):
    from inner import sums
    return sums(count)

if __name__ == "__main__":
    with Executor(cores=2) as executor:
        print(list(executor.map(run, [3, 4])))
"""
    )
    done = world.run_program(sys.executable, "outer.py")
    assert (done.stdout, done.stderr) == ("[6, 12]\n", "")
