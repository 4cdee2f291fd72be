"""A RIF as a batch job, of a batch system that is a folder: what is submitted, told, cancelled, left."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
import trio

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    on_node,
)
from gspc_trio.components.provision.shell.batch import BatchStrategy
from gspc_trio.components.provision.site import QueryTimes
from gspc_trio.components.provision.strategy import OutOfSight, RifOrder, StrategyError
from tests.support import until

TOKEN = bytes(range(32))
REACHABLE = "wss://192.0.2.1:9"
SOON = QueryTimes(list_s=0.05, list_max_s=0.05, unclear_s=0.1, missing_s=0.1, cancel_s=0.01)

PYTHON = """#!/bin/sh
[ "$3" = "import gspc_trio" ] && exit 0
read line
echo "$line" > {folder}/told
echo "the last word" >&2
"""


class FolderSystem(Provider):
    """A batch system of shell commands: a job is a file that says where it is, its script another."""

    name = "folder"
    restart_variable = "RESTARTS"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answer = "17"
        self.submit_status = 0

    def submit(self, request: BatchRequest) -> Command:
        self.request = request
        script = f"cat > {self.folder}/script; echo 17 running > {self.folder}/job"
        return ("sh", "-c", f"{script}; echo {self.answer}; exit {self.submit_status}")

    def launch(self, request: BatchRequest, command: str) -> str:
        assert request.nodes == 1
        return on_node(command, "0", "17")

    def submitted(self, result: CommandResult) -> str | None:
        return result.output.strip() or None

    def query(self, job_id: str = "") -> Command:
        del job_id
        return ("cat", f"{self.folder}/job")

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        if result.status:
            return ()
        job_id, state = result.output.split()
        return (BatchJob(job_id, self.request.name, BatchState(state), "as it was told"),)

    def cancel(self, job_id: str, name: str) -> Command:
        del job_id, name
        return ("rm", "-f", f"{self.folder}/job")


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.shared = folder, folder / "shared"
        self.system = FolderSystem(folder)
        self.strategy = BatchStrategy(self.system, SOON)
        python = folder / "python"
        python.write_text(PYTHON.format(folder=folder))
        python.chmod(0o755)
        options = {"shared": str(self.shared), "python": str(python), "time": "10m"}
        self.told: list[str] = []
        self.order = RifOrder(
            "r1", 2, "n1", 3, options, (REACHABLE,), TOKEN, grace_s=30.0, tell=self.told.append
        )

    def is_there(self) -> bool:
        return (self.folder / "job").exists()

    def end(self, state: str = "ended") -> None:
        (self.folder / "job").write_text(f"17 {state}\n")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def run_script(world: World, **environment: str) -> int:
    """Run the script of the job as a node would, and return its exit status."""
    command = ["/bin/sh", str(world.folder / "script")]
    done = await trio.run_process(
        command, capture_stdout=True, stderr=subprocess.STDOUT, env={**os.environ, **environment}, check=False
    )
    await trio.Path(world.system.request.output).write_bytes(done.stdout)
    return done.returncode


async def test_a_job_tells_the_rif_its_order_and_ends_with_it(world: World):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run_and_end, world)
        reason = await world.strategy.run(world.order)
    assert reason == "folder job 17 ended: as it was told"
    told = json.loads((world.folder / "told").read_text())
    assert (told["rif_id"], told["incarnation"], told["cores"], told["rts"]) == ("r1", 2, 3, REACHABLE)
    assert list(world.order.said) == ["the last word"]
    assert world.told[0] == "folder job 17 is queued"
    assert world.system.request.name.startswith("gspc-r1-2-")
    assert (world.system.request.cores, world.system.request.time_s) == (3, 600)
    assert list(world.shared.iterdir()) == []


async def _run_and_end(world: World) -> None:
    await until(world.is_there)
    script = (world.folder / "script").read_text()
    order = next(world.shared.glob("*/*/order"))
    assert stat.S_IMODE(order.stat().st_mode) == 0o600
    assert json.loads(order.read_text())["token"] not in script
    assert await run_script(world, RESTARTS="1") == 1
    assert not (world.folder / "told").exists()
    assert await run_script(world) == 0
    world.end()


async def test_cancelling_cancels_the_job_and_leaves_nothing(world: World):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.strategy.run, world.order)
        await until(world.is_there)
        nursery.cancel_scope.cancel()
    assert not world.is_there()
    assert list(world.shared.iterdir()) == []


async def test_several_jobs_share_the_lists_and_one_goes_on_when_another_is_over(world: World):
    reasons: list[str] = []

    async def run() -> None:
        reasons.append(await world.strategy.run(world.order))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            async with trio.open_nursery() as inner:
                inner.start_soon(world.strategy.run, world.order)
                await until(world.is_there)
                first.cancel()
        nursery.start_soon(run)
        await until(world.is_there)
        world.end()
    assert reasons == ["folder job 17 ended: as it was told"]


async def test_a_submission_that_no_list_has_was_none(world: World):
    world.system.answer = ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_lose, world)
        with pytest.raises(StrategyError, match="folder has not taken the job: no list has it"):
            await world.strategy.run(world.order)


async def _lose(world: World) -> None:
    await until(world.is_there)
    (world.folder / "job").unlink()


async def test_a_job_that_is_not_known_any_more_may_still_run(world: World):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_lose, world)
        with pytest.raises(OutOfSight, match=r"nothing was heard of folder job 17 for 0\.1 s"):
            await world.strategy.run(world.order)


async def test_a_batch_system_that_is_not_here_is_named(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(world.folder))
    with pytest.raises(StrategyError, match="cannot run sh here: No such file or directory"):
        await world.strategy.run(world.order)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "10x"}, "'10x' is no time; write"),
        ({"tme": "10m"}, "there is no option 'tme'"),
        ({"shared": "/proc/nowhere/at/all"}, "No such file or directory"),
    ],
)
async def test_options_that_mean_nothing_are_refused(world: World, options: dict[str, str], message: str):
    order = RifOrder("r1", 2, "n1", 3, options, (REACHABLE,), TOKEN)
    with pytest.raises((StrategyError, OSError), match=message):
        await world.strategy.run(order)


async def test_a_run_time_system_that_nodes_cannot_reach_is_refused(world: World):
    order = RifOrder("r1", 2, "n1", 3, {}, ("ws://127.0.0.1:9",), TOKEN)
    with pytest.raises(StrategyError, match="n1 cannot reach the run-time system at"):
        await world.strategy.run(order)


async def test_a_strategy_that_is_cancelled_at_once_ends(world: World):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.strategy.run, world.order)
        nursery.cancel_scope.cancel()
    assert not world.is_there()
