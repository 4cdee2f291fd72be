"""Who may run where, on real hosts: hard and soft places that are busy, and memory that is too small.

Requirements: ASP-4.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from concurrent.futures import wait
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from gspc_trio import Data, Executor, JobSettings, Net, Requirement, open_iml
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.host import ranked_workers
from gspc_trio.iml.shell.server_process import open_server_process
from gspc_trio.policies.location import Level, Target, location
from tests.components.tasks.placement import after, hold, make, read, reverse, where, write

# ruff: noqa: ASYNC110 - jobs are watched from outside
pytestmark = pytest.mark.process

MIB = 1 << 20
HANG_S = 100.0
HERE, THERE = Requirement("core", ("r1.node",), hard=True), Requirement("core", ("r2.node",), hard=True)


def held(gate: Path) -> int:
    return len(list(gate.parent.glob(f"{gate.name}.*")))


@asynccontextmanager
async def two_hosts(
    folder: Path, memory_bytes: int, cores: int = 2
) -> AsyncIterator[tuple[RunTimeSystem, Iml]]:
    """Alpha has 64 MiB and a core, beta so much and so many; both have a memory server."""
    (folder / "run").mkdir(mode=0o700)
    opened = open_rts(cores=1, host="alpha", data_bytes=64 * MIB, publish=folder / "run" / "rts.json")
    with trio.fail_after(HANG_S):
        async with opened as rts:
            assert rts.data is not None
            server = open_server_process("beta", Quota(memory_bytes), layer=rts.data)
            async with server, open_iml(layer=rts.data) as iml:
                report = await rts.bootstrap(["beta"], "local", cores=cores)
                assert not report.failed, report.failed
                yield rts, iml


async def test_only_soft_places_let_a_task_go_elsewhere(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with two_hosts(tmp_path, 16 * MIB) as (rts, iml):
        hosts = await ranked_workers(rts, iml)
        beta = next(rank for rank, worker in hosts.items() if worker.host == "beta")
        busy, places = Net("busy"), Net("places")
        busy.input("gates", [str(gate)] * 2)
        busy.transition("hold", hold, ["gates"], [busy.output("held")], requires=THERE)
        for target in Target:
            for level in Level:
                name = f"{target.value}_{level.value}"
                places.input(name, [1, 2])
                place = location(beta, target, level, hosts)
                places.transition(name, where, [name], [places.output(f"{name}_seen")], requires=place)
        async with open_job(busy, rts=rts) as holding:
            while held(gate) < 2:
                await trio.sleep(0.01)
            async with open_job(places, rts=rts) as job:
                while job.status().tasks.get("finished", 0) < 4:
                    await trio.sleep(0.01)
                gate.touch()
                seen = (await job.wait()).outputs
            await holding.wait()
    assert seen["soft_rank_seen"] == seen["soft_node_seen"] == ["alpha", "alpha"]
    assert seen["hard_rank_seen"] == seen["hard_node_seen"] == ["beta", "beta"]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_an_output_is_at_its_reader_before_its_task_has_ended(tmp_path: Path, is_killed: bool) -> None:
    """And nobody sees it there before; of a task that is killed nothing is left."""
    gates = [tmp_path / "made", tmp_path / "begun", tmp_path / "written"]
    made, begun, written = map(str, gates)

    def run(rts: RunTimeSystem) -> tuple[bytes, str]:
        with Executor(rts=rts, plan="move") as executor:
            near, far = executor.submit(make, made, MIB), executor.submit(make, made, 20 * MIB)
            wait([near, far])
            waits = executor.submit(hold, begun)
            rows = executor.submit(after, write, waits, near, written, 3, str(tmp_path / "k") * is_killed)
            seen = executor.submit(read, rows, far)
            gates[1].touch()
            return seen.result()

    async def open_gates(iml: Iml) -> None:
        while held(gates[0]) < 2:
            await trio.sleep(0.01)
        gates[0].touch()
        while not (sent := [it for it in (await iml.status()).data if it.state == "writing"]) or (
            sum(it.size_bytes for it in sent) < 3 * MIB or not held(gates[2])
        ):
            await trio.sleep(0.01)
        places.update(host for it in sent for host in it.hosts)
        gates[2].touch()

    places = set[str]()
    async with two_hosts(tmp_path, 64 * MIB, cores=1) as (rts, iml), trio.open_nursery() as nursery:
        nursery.start_soon(open_gates, iml)
        rows, where_read = await trio.to_thread.run_sync(run, rts)
        assert not [it for it in (await iml.status()).data if it.state == "writing"]
    assert rows[: 3 * MIB] == b"".join(bytes([number]) * MIB for number in range(3))
    assert len(rows) == 3 * MIB + 1
    (host,) = places
    assert where_read == f"{host} with data of {host[:1]}"
    assert rows[-1:] != host[:1].encode()


async def test_bandwidths_between_hosts_are_measured(tmp_path: Path) -> None:
    """By the stage-ins of tasks, each by the host that fetches; what lies there already tells nothing."""
    async with two_hosts(tmp_path, 16 * MIB) as (rts, iml):
        net = Net("measured")
        net.input("here")
        net.input("there")
        net.transition("look", where, ["here"], [net.output("seen_there")], requires=THERE)
        net.transition("look again", where, ["there"], [net.output("seen_here")], requires=HERE)
        values = {}
        for name, host in (("here", "alpha"), ("there", "beta")):
            data = await iml.alloc(2 * MIB, layout=Layout((host,)))
            values[name] = [await iml.placed(data)] * 3
        async with open_job(net, rts=rts, values=values) as job:
            await job.wait()
            measured = (await job.memory_status()).bandwidths
        assert set(measured) == {"alpha -> beta", "beta -> alpha"}
        assert all(1e5 < bytes_per_s < 1e11 for bytes_per_s in measured.values())


async def test_a_task_never_goes_where_its_data_does_not_fit(tmp_path: Path) -> None:
    """It waits for the host that can hold it, though the other one has nothing to do; also under a plan."""
    gate = tmp_path / "gate"
    async with two_hosts(tmp_path, MIB) as (rts, iml):
        busy, large = Net("busy"), Net("large")
        busy.input("gates", [str(gate)])
        busy.transition("hold", hold, ["gates"], [busy.output("held")], requires=HERE)
        large.input("ranges")
        large.input("small", [1, 2, 3])
        large.transition("large", where, ["ranges"], [large.output("large_seen")])
        large.transition("small", where, ["small"], [large.output("small_seen")])
        data = [await iml.alloc(2 * MIB, layout=Layout(("alpha",))) for _ in range(3)]
        parts = [
            await iml.placed(each.range(0, 1000)) for each in data
        ]  # all of it has to come, also for a part
        async with open_job(busy, rts=rts) as holding:
            while held(gate) < 1:
                await trio.sleep(0.01)
            values, planned = {"ranges": parts}, JobSettings(plan="move")
            async with (
                open_job(large, rts=rts, values=values) as job,
                open_job(large, rts=rts, values=values, settings=planned) as planned_job,
            ):
                jobs = (job, planned_job)
                while any(one.status().tasks.get("finished", 0) < 3 for one in jobs):
                    await trio.sleep(0.01)
                gate.touch()
                seen = [(await one.wait()).outputs for one in jobs]
            await holding.wait()
    assert seen == [{"small_seen": ["beta"] * 3, "large_seen": ["alpha"] * 3}] * 2


async def test_files_go_to_another_host_and_come_back(tmp_path: Path) -> None:
    """In pieces, over the network: from the host of the job, and to it; and into memory of the other host."""
    content = os.urandom(3 * MIB + 17)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "file").write_bytes(content)
    async with two_hosts(tmp_path, 16 * MIB) as (rts, _):
        net = Net("reverse")
        net.transition(
            "reverse",
            reverse,
            {"_go": net.input("go", [1])},
            {"reversed": net.output("reversed"), "host": net.output("host")},
            requires=THERE,
            stage_in={"in": "file"},
            stage_out={"out": Data("reversed")},
        )
        net.transition(
            "again", reverse, {"_go": net.input("again", [1])}, requires=THERE,
            stage_in={"in": "file"}, stage_out={"out": "made/reversed"},
        )  # fmt: skip
        settings = JobSettings(directory=str(tmp_path / "job"))
        async with open_job(net, rts=rts, settings=settings) as job:
            outputs = (await job.wait()).outputs
    assert outputs == {"host": ["beta"], "reversed": [content[::-1]]}
    assert (tmp_path / "job" / "made" / "reversed").read_bytes() == content[::-1]
