"""What processes of a server's host make: they wait for the coordinator once, when it is written."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from gspc_trio.iml import messages as x
from gspc_trio.iml.errors import DataLost, ImlError, NoRoom, UnknownData, WrongJob
from gspc_trio.iml.shell.own_data import OwnData
from gspc_trio.iml.shell.server import ImlServer
from tests.iml.shell.support import MEMORY_BYTES, Stage, open_stage
from tests.support import until


async def write(server: ImlServer, content: bytes, job: str = "j1") -> str:
    made = await server.new(job, "", len(content))
    server.store.write((made, 0), 0, content)
    await server.commit(made)
    return made


def entry_of(stage: Stage, host: str) -> x.ServerEntry:
    found = next(it for it in stage.coordinator.machine.status().servers if it.host == host)
    return x.ServerEntry(found.rank, found.host, found.address, "", found.memory_bytes)


def is_left(stage: Stage, server: ImlServer) -> bool:
    """Whether anything is left of data that was to be made."""
    return bool(server.machine.used_bytes or stage.coordinator.machine.status().data)


async def test_it_is_made_before_the_coordinator_hears_of_it() -> None:
    async with open_stage("a", "b") as stage, stage.client("j1", host="b") as iml:
        server = stage.servers["a"]
        first, second = await server.new("j1", "", 4), await server.new("j1", "", 4)
        assert stage.coordinator.machine.status().data == ()
        for data_id in (first, second):
            server.store.write((data_id, 0), 0, b"data")
        await server.commit(first)
        assert await iml.get(first) == b"data"
        with pytest.raises(UnknownData):
            await iml.get(second)  # it is being written


async def test_what_is_given_up_leaves_nothing() -> None:
    async with open_stage("a") as stage, stage.client("j1"):
        server = stage.servers["a"]
        made = await server.new("j1", "", 4)
        await server.abort(made)
        await until(lambda: not is_left(stage, server))
        server.abandon([await server.new("j1", "", 4)])
        await until(lambda: not is_left(stage, server))


async def test_nothing_is_left_of_what_a_job_makes_that_is_over() -> None:
    async with open_stage("a") as stage, stage.client("j1"):
        server = stage.servers["a"]
        with pytest.raises(WrongJob, match="is no client"):
            await write(server, b"data", "j2")
        assert not is_left(stage, server)
        assert server.bring_now("j2", "s1.1") is None


async def test_a_full_server_says_so_at_once() -> None:
    async with open_stage("a") as stage, stage.client("j1"):
        server = stage.servers["a"]
        with pytest.raises(NoRoom):
            await server.new("j1", "", 2 * MEMORY_BYTES)
        assert not is_left(stage, server)


async def test_lost_data_comes_back_under_its_own_id() -> None:
    async with open_stage("a", "b") as stage, stage.client("j1", host="b") as iml:
        made = await write(stage.servers["a"], b"data")
        await stage.kill("a")
        with pytest.raises(DataLost):
            await iml.get(made)
        server = stage.servers["b"]
        again = await server.new("j1", made, 4)
        assert again == made
        server.store.write((made, 0), 0, b"more")
        await server.commit(made)
        assert await iml.get(made) == b"more"


async def test_who_waits_for_data_reads_it_as_soon_as_it_is_here() -> None:
    """Though the coordinator has yet to answer."""
    async with open_stage("a", "b") as stage, stage.client("j1"):
        made = await write(stage.servers["a"], b"data")
        here, directory = stage.servers["b"], stage.coordinator.machine._directory
        directory.take_turn(directory.data[made], lambda _: None)  # one that never ends
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.fetch, "j1", made)
            await trio.testing.wait_all_tasks_blocked()
            assert here.bring_now("j1", made) is None
            here._take(x.CopyPart(made, 0, 4, entry_of(stage, "a"), True, 0, "j1"))
        assert here.bring_now("j1", made) is not None


async def test_who_may_not_read_data_is_told_so_though_it_comes_for_another() -> None:
    async with open_stage("a", "b") as stage, stage.client("j1"), stage.client("j2"):
        made = await write(stage.servers["a"], b"data")
        here = stage.servers["b"]
        problems: list[ImlError] = []

        async def fetch(job: str) -> None:
            try:
                await here.fetch(job, made)
            except ImlError as error:
                problems.append(error)

        async with trio.open_nursery() as nursery:
            for job in ("j2", "j1", "j2"):
                nursery.start_soon(fetch, job)
        assert [type(problem) for problem in problems] == [WrongJob, WrongJob]
        assert here.bring_now("j1", made) is not None


@pytest.mark.parametrize("looks", range(5))
async def test_what_is_dropped_while_it_is_fetched_is_read_by_nobody(looks: int) -> None:
    async with open_stage("a", "b") as stage, stage.client("j1"):
        made = await write(stage.servers["a"], b"data")
        here = stage.servers["b"]
        here._take(x.CopyPart(made, 0, 4, entry_of(stage, "a"), True, 0, "j1"))
        for _ in range(looks):
            await trio.lowlevel.checkpoint()
        assert here.bring_now("j1", made) is None
        here._take(x.DropPart(made, 0))
        await trio.testing.wait_all_tasks_blocked()
        assert here.bring_now("j1", made) is None
        assert not here.machine.used_bytes


async def test_what_is_promised_is_read_here_at_once_and_elsewhere_when_it_is_settled() -> None:
    async with open_stage("a", "b") as stage, stage.client("j1", host="b") as iml:
        server = stage.servers["a"]
        made = await server.new("j1", "", 4)
        server.store.write((made, 0), 0, b"data")
        assert server.bring_now("j1", made) is None
        assert server.promise(made)
        assert server.bring_now("j1", made) is not None
        with pytest.raises(UnknownData):
            stage.coordinator.machine._requests._visible(made, "j1")
        assert await server.settle("j1", made)
        assert await iml.get(made) == b"data"
        assert await server.settle("j1", made), "it was settled before"
        assert not server.promise(made)
        assert not server.promise("d1")


async def test_a_promise_that_cannot_be_kept_is_told_and_leaves_nothing() -> None:
    async with open_stage("a") as stage, stage.client("j1"):
        server = stage.servers["a"]
        made = await server.new("j2", "", 4)
        assert server.promise(made)
        for _ in range(2):
            with pytest.raises(WrongJob):
                await server.settle("j2", made)
        assert not is_left(stage, server)


async def test_what_an_earlier_server_has_promised_is_settled_or_lost() -> None:
    async with open_stage("a", "b") as stage, stage.client("j1"):
        first = stage.servers["b"]
        kept = await write(first, b"data")
        made = await first.new("j1", "", 4)
        await stage.kill("b")
        server = await stage.add("b")
        with pytest.raises(UnknownData):
            await server.settle("j1", made)
        with pytest.raises(DataLost):
            await server.settle("j1", kept)
        there = await write(stage.servers["a"], b"data")
        assert await server.settle("j1", there)


async def test_a_server_with_its_coordinator_promises_nothing() -> None:
    async with open_stage("a") as stage, stage.client("j1"):
        own = OwnData(
            "a", stage.servers["a"].store, stage.servers["a"].ask, stage._nursery, print, promises=False
        )
        own.prefix = "s9"
        made = await own.begin("j1", 4)
        assert not own.promise(made)
        await own.commit(made)
