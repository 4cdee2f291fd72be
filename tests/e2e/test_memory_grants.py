"""The memory of a layer in a run-time system that is killed and started again."""

from __future__ import annotations

import json
import os
import signal

from tests.e2e.support import KEEPING, World, completed, wait_until


def taken_bytes(world: World) -> int:
    """Return how much memory of the only host somebody has."""
    memories = list(world.status()["memories"].values())
    return sum(memory["total_bytes"] - memory["free_bytes"] for memory in memories)


def test_a_memory_server_holds_its_memory_in_a_run_time_system_that_comes_back(world: World) -> None:
    state, file = str(world.folder / "state"), str(world.folder / "iml.json")
    first = world.start_rts("--state", state, "--cores", "2", "--host", "anna")
    world.start_memory("--host", "north", "--connection-file", file)
    assert taken_bytes(world) == 0
    gate = world.folder / "gate"
    given = ("--set", "n=1", "--set", f"gate={gate}", "--rts", world.connection_file, "--iml", file, "--json")
    job = world.start("jobserver", "run", world.workflow(KEEPING), *given)
    before = wait_until(lambda: taken_bytes(world), "the server of the RIF has its memory")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    world.start_rts("--state", state)
    wait_until(lambda: taken_bytes(world) == before, "it has it again")
    gate.touch()
    done = completed(job)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["sizes"] == [[0, 1_000_000]]
    world.stop_rts()
    assert world.run("iml", "stop", "--connection-file", file).returncode == 0
