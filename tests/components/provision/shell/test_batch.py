"""Blocks of a batch system that is a folder: what is submitted, told, given to them, cancelled, left."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    on_node,
)
from gspc_trio.components.provision.blocks import BlockNews, BlockOver, NodeCame, NodeLost, SavedBlock
from gspc_trio.components.provision.messages import Enrol
from gspc_trio.components.provision.shell.batch import BatchStrategy
from gspc_trio.components.provision.shell.enrolments import EnrolmentService
from gspc_trio.components.provision.site import QueryTimes
from gspc_trio.components.provision.strategy import (
    OutOfSight,
    RifOrder,
    StartedAgain,
    StrategyError,
)
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import RemoteError
from tests.support import until

TOKEN = bytes(range(32))
REACHABLE = "wss://192.0.2.1:9"
SOON = QueryTimes(list_s=0.05, list_max_s=0.05, unclear_s=0.1, missing_s=0.1, cancel_s=0.01)

PYTHON = """#!/bin/sh
[ "$3" = "import gspc_trio" ] && exit 0
echo "$4 $GSPC_NODE $GSPC_BATCH_ID $GSPC_RESTARTS" > {folder}/told
cat "$5" > {folder}/file
echo "the last word" >&2
"""


class FolderSystem(Provider):
    """A batch system of shell commands: a job is a file that says where it is, its script another."""

    name = "folder"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answer = "17"
        self.lists = 0

    def submit(self, request: BatchRequest) -> Command:
        self.request = request
        script = f"cat > {self.folder}/script; echo 17 running > {self.folder}/job"
        return ("sh", "-c", f"{script}; echo {self.answer}")

    def submitted(self, result: CommandResult) -> str | None:
        return result.output.strip() or None

    def launch(self, request: BatchRequest, command: str) -> str:
        del request
        return on_node(command, "1", "17", "${RESTARTS:-0}")

    def query(self, job_id: str = "") -> Command:
        self.lists += not job_id
        return ("cat", f"{self.folder}/job")

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        if result.status:
            return ()
        job_id, state = result.output.split()
        return (BatchJob(job_id, self.request.name, BatchState(state), "as it was told"),)

    def cancel(self, job_id: str, name: str) -> Command:
        del name
        return ("sh", "-c", f"rm -f {self.folder}/job; echo {job_id} >> {self.folder}/cancelled")


class World:
    """A block of two nodes, and the service at which its RIFs enrol."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shared = folder, folder / "shared"
        self.system = FolderSystem(folder)
        self.strategy = BatchStrategy(self.system, SOON)
        self.news: list[BlockNews] = []
        self.enrolments = EnrolmentService(lambda _: "")
        self.enrolments.told = self.news.append
        self.network = Network(wire_codec)
        python = folder / "python"
        python.write_text(PYTHON.format(folder=folder))
        python.chmod(0o755)
        options = {"shared": str(self.shared), "python": str(python), "time": "10m"}
        self.told: list[str] = []
        self.order = RifOrder(
            *("r1", 2, "b.0", 3, options, (REACHABLE,), TOKEN),
            grace_s=30.0,
            tell=self.told.append,
            block="b",
            nodes=2,
            enrolments=self.enrolments,
        )
        self.other = replace(self.order, rif_id="r2", host="b.1", node=1, said=deque())

    def is_there(self) -> bool:
        return (self.folder / "job").exists()

    def end(self, state: str = "ended") -> None:
        (self.folder / "next").write_text(f"17 {state}\n")
        (self.folder / "next").rename(self.folder / "job")

    async def enrol(self, node: int, restarts: int = 0, job_id: str = "17") -> dict[str, object]:
        """Enrol as a process on a node would, and return the order."""
        async with self.network.connect("memory:rts", role="enrol", name="b", expect="rts") as rts:
            order: dict[str, object] = json.loads((await rts.call(Enrol(node, job_id, restarts))).order)
            return order

    def up(self, node: int, incarnation: int = 2, is_connected: bool = True, lost: str = "") -> None:
        """The run-time system tells whether the RIF of a node is connected."""
        self.enrolments.rif_seen("b", node, incarnation, is_connected, lost)


@pytest.fixture
async def world(tmp_path: Path, nursery: trio.Nursery) -> World:
    world = World(tmp_path)
    world.enrolments.open(nursery)

    async def listen(task_status: trio.TaskStatus[str]) -> None:
        await world.network.listen(
            "memory:rts", world.enrolments.serve, role="rts", name="rts", task_status=task_status
        )

    await nursery.start(listen)
    return world


async def run_script(world: World, **environment: str) -> int:
    """Run the script of the job as a node would, and return its exit status."""
    command = ["/bin/sh", str(world.folder / "script")]
    done = await trio.run_process(
        command, capture_stdout=True, stderr=subprocess.STDOUT, env={**os.environ, **environment}, check=False
    )
    await trio.Path(world.system.request.output).write_bytes(done.stdout)
    return done.returncode


async def test_one_job_has_the_rifs_of_a_block_and_its_files_have_the_only_secret(world: World):
    reasons: list[str] = []

    async def run(order: RifOrder) -> None:
        reasons.append(await world.strategy.run(order))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, world.order)
        nursery.start_soon(run, world.other)
        await until(world.is_there)
        script = (world.folder / "script").read_text()
        file = next(world.shared.glob("*/enrol"))
        assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
        secret = json.loads(file.read_text())["ticket"]
        assert secret not in script
        assert await run_script(world, RESTARTS="1") == 0
        assert (world.folder / "told").read_text() == "--enrol 1 17 1\n"
        assert json.loads((world.folder / "file").read_text()) == {
            "rts": REACHABLE,
            "block": "b",
            "ticket": secret,
            "credentials": "",
        }
        first, second = await world.enrol(0), await world.enrol(1)
        assert (first["rif_id"], second["rif_id"], first["incarnation"]) == ("r1", "r2", 2)
        world.end()
    assert reasons == ["folder job 17 ended: as it was told"] * 2
    assert list(world.order.said) == ["the last word"]
    assert world.told[0] == "folder job 17 is queued"
    request = world.system.request
    assert (request.nodes, request.cores, request.time_s) == (2, 3, 600)
    assert request.name.startswith("gspc-b-")
    assert list(world.shared.iterdir()) == []
    assert world.news[-1] == BlockOver("b", "ended", reasons[0], said=("the last word",))


async def test_a_block_is_saved_from_its_first_moment_and_keeps_its_number_of_restarts():
    """The state of a run-time system may be saved before the machine of enrolment has heard of the block."""

    class Side:
        def save(self, restarts: int) -> SavedBlock:
            return SavedBlock("b", 1, "gspc-b", "17", "00", "/nowhere", restarts)

        def stray_canceller(self) -> Callable[[str], None]:
            return pytest.fail

    enrolments = EnrolmentService(lambda _: "")
    enrolments.open_block(Side(), "b", 1, b"ticket", "17", 2)
    assert [saved.restarts for saved in enrolments.saved_blocks()] == [2]


async def test_cancelling_all_orders_of_a_block_cancels_its_job_and_leaves_nothing(world: World):
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            async with trio.open_nursery() as inner:
                inner.start_soon(world.strategy.run, world.order)
                nursery.start_soon(world.strategy.run, world.other)
                await until(world.is_there)
                first.cancel()
        assert world.is_there()
        nursery.cancel_scope.cancel()
    assert not world.is_there()
    assert list(world.shared.iterdir()) == []
    assert world.news[-1] == BlockOver("b", "ended", "it was cancelled", was_cancelled=True)


async def test_a_process_of_a_later_start_of_the_job_takes_the_place_of_those_before(world: World):
    async def run_again() -> None:
        with pytest.raises(StartedAgain, match="its batch job was started again"):
            await world.strategy.run(world.order)
        nursery.start_soon(world.strategy.run, replace(world.order, incarnation=3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_again)
        nursery.start_soon(world.strategy.run, world.other)
        await until(world.is_there)
        assert (await world.enrol(0))["incarnation"] == 2
        world.up(0)
        assert (await world.enrol(0, restarts=1))["incarnation"] == 3
        with pytest.raises(RemoteError, match="the batch job was started again: 1 times, not 0"):
            await world.enrol(1)
        assert (await world.enrol(1, restarts=1))["incarnation"] == 2
        with pytest.raises(RemoteError, match="node 1 of the block b has enrolled already"):
            await world.enrol(1, restarts=1)
        world.end()
    came, lost = NodeCame("b", 0), NodeLost("b", 0, "its batch job was started again")
    assert [news for news in world.news if isinstance(news, NodeCame | NodeLost)] == [came, lost]


async def test_a_job_with_connected_rifs_is_alive_whatever_the_batch_system_says(world: World):
    reasons: list[str] = []

    async def run() -> None:
        reasons.append(await world.strategy.run(world.order))

    async def listed_again() -> None:
        """Wait for so many lists that a job which none of them has is given up meanwhile."""
        last = world.system.lists + 2 + round(SOON.missing_s / SOON.list_s)
        await until(lambda: reasons or world.system.lists > last)
        assert not reasons

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await until(world.is_there)
        await world.enrol(0)
        world.up(0)
        world.end()
        await listed_again()
        (world.folder / "job").unlink()
        await listed_again()
        world.end()
        world.up(0, is_connected=False)
    assert reasons == ["folder job 17 ended: as it was told"]


async def test_who_comes_late_is_refused_and_its_job_cancelled(world: World):
    world.system.answer = ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_lose, world)
        with pytest.raises(StrategyError, match="folder has not taken the job: no list has it"):
            await world.strategy.run(world.order)
    with pytest.raises(RemoteError, match="the block b is not wanted any more"):
        await world.enrol(0, job_id="18")
    await until((world.folder / "cancelled").exists)
    assert (world.folder / "cancelled").read_text() == "18\n"


async def _lose(world: World) -> None:
    await until(world.is_there)
    (world.folder / "job").unlink()


async def test_an_unclear_submission_is_clear_when_its_rif_enrols(world: World):
    world.system.answer = ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.strategy.run, world.order)
        await until(world.is_there)
        await world.enrol(0)
        await until(lambda: "folder job 17 is running" in world.told)
        world.end()


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
    with pytest.raises((StrategyError, OSError), match=message):
        await world.strategy.run(replace(world.order, options=options))


async def test_a_run_time_system_that_nodes_cannot_reach_is_refused(world: World):
    order = replace(world.order, rts_addresses=("ws://127.0.0.1:9",))
    with pytest.raises(StrategyError, match=r"b\.0 cannot reach the run-time system at"):
        await world.strategy.run(order)


async def test_a_strategy_that_is_cancelled_at_once_ends(world: World):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.strategy.run, world.order)
        nursery.cancel_scope.cancel()
    assert not world.is_there()


async def test_hosts_of_one_site_are_told_its_directory(world: World) -> None:
    world.order.options["staging"] = "swift"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.strategy.run, world.order)
        nursery.start_soon(world.strategy.run, world.other)
        await until(world.is_there)
        told = [(await world.enrol(node))["options"] for node in (0, 1)]
        assert told[0] == told[1]
        assert isinstance(told[0], dict)
        assert told[0]["site_directory"].startswith(f"{world.shared}/site-")
        nursery.cancel_scope.cancel()


async def test_a_cluster_that_says_how_large_it_is_gives_all_cores_of_a_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.system, "size", lambda: ("echo", "2 5"))
    monkeypatch.setattr(world.system, "sized", lambda result: tuple(map(int, result.output.split())))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.strategy.run, replace(world.order, cores=0))
        await until(world.is_there)
        assert world.system.request.cores == 5
        assert (await world.enrol(0))["cores"] == 5
        nursery.cancel_scope.cancel()
