"""Memory servers that RIFs start keep to the memory that the user gave them, and go on on disk."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.support import KEEPING, World, completed, wait_until

MIB = 1 << 20


def start(world: World, *arguments: str) -> Any:
    """Start a layer without a server at the only RIF, and a job that keeps 20 MB in it; return that."""
    file = str(world.folder / "iml.json")
    world.start_rts("--cores", "2", "--host", "anna", *arguments)
    world.start_memory("--host", "north", "--connection-file", file)
    given = (
        "--set",
        f"gate={world.folder / 'gate'}",
        "--rts",
        world.connection_file,
        "--iml",
        file,
        "--json",
    )
    return world.start("jobserver", "run", world.workflow(KEEPING), *given)


def end(world: World) -> None:
    world.stop_rts()
    assert world.run("iml", "stop", "--connection-file", str(world.folder / "iml.json")).returncode == 0


def server_of_anna(world: World) -> dict[str, Any] | None:
    status = world.run_json("iml", "status", "--connection-file", str(world.folder / "iml.json"))
    return next((server for server in status["servers"] if server["host"] == "anna"), None)


def test_what_does_not_fit_the_memory_of_a_server_goes_to_the_disk_that_the_user_named(world: World) -> None:
    scratch = world.folder / "scratch"
    scratch.mkdir()
    job = start(world, "--memory", "8MiB", "--spill", "64MiB", "--spill-directory", str(scratch))

    def holds_all() -> dict[str, Any] | None:
        server = server_of_anna(world)
        return server if server is not None and server["held_bytes"] >= 20_000_000 else None

    server = wait_until(holds_all, "all values are there")
    assert (server["memory_bytes"], server["spill_bytes"]) == (8 * MIB, 64 * MIB)
    (memory,) = world.status()["memories"].values()
    assert memory["total_bytes"] - memory["free_bytes"] == 8 * MIB
    (world.folder / "gate").touch()
    done = completed(job)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["sizes"]) == [
        [number, 1_000_000] for number in range(20)
    ]
    end(world)


def test_without_a_disk_what_does_not_fit_travels_with_the_tasks(world: World) -> None:
    job = start(world, "--memory", "8MiB")

    def is_full() -> dict[str, Any] | None:
        server = server_of_anna(world)
        return server if server is not None and server["held_bytes"] >= 7_000_000 else None

    server = wait_until(is_full, "no further value fits")
    assert server["held_bytes"] <= 8 * MIB
    (world.folder / "gate").touch()
    done = completed(job)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["sizes"]) == [
        [number, 1_000_000] for number in range(20)
    ]
    end(world)


def test_a_host_that_cannot_write_there_is_refused_with_the_reason(world: World) -> None:
    done = world.run("rts", "start", "--spill", "1GiB", "--spill-directory", "/no/such")
    assert (done.returncode, done.stderr) == (
        1,
        "gspc-rts: --spill-directory /no/such: there is no such directory\n",
    )
    world.start_rts("--cores", "1")
    done = world.run("rts", "bootstrap", "bert", "--set", "spill=1GiB", "--set", "spill_directory=/no/such")
    assert done.returncode == 1
    assert "ends: it cannot write to the directory /no/such" in done.stdout
    done = world.run("rts", "bootstrap", "bert", "--set", "spill=lots")
    assert (done.returncode, done.stderr) == (
        2,
        "gspc-rts: --set spill=lots: 'lots' is not a size; write for example 4GiB, 512MiB or 1000000\n",
    )
    world.stop_rts()
