"""What a RIF does with the results of a job whose job server has gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.rif.messages import Orphans, WorkBack
from gspc_trio.components.rif.shell import result_router
from gspc_trio.components.rif.shell.result_router import ResultRouter
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import Finished, OpenJob, Submission, Submit
from gspc_trio.core.task import Outcome, Reason
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer


def outcome(task_id: int, size_bytes: int = 1) -> Outcome:
    return Outcome(task_id, 1, Reason.FINISHED, ((bytes(size_bytes),),))


def finished(job: str, *task_ids: int) -> Finished:
    return Finished(job, "r1.core0", tuple(map(outcome, task_ids)))


class Host:
    """A RIF's result router, and the job servers that connect to it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.network = Network(wire_codec)
        self.ended: list[tuple[str, str]] = []
        self.router = ResultRouter(self._end)
        self.arrived: list[Peer] = []

    def _end(self, job: str, why: str) -> None:
        self.ended.append((job, why))
        self.router.forget(job)

    async def listen(self, task_status: trio.TaskStatus[str]) -> None:
        async def keep(peer: Peer) -> None:
            self.arrived.append(peer)
            await peer.lost.wait()

        await self.network.listen("memory:rif", keep, role="rif", name="r1", task_status=task_status)

    @asynccontextmanager
    async def job(self, opening: OpenJob) -> AsyncIterator[Peer]:
        """A job server; when the block is left it is gone."""
        async with self.network.connect("memory:rif", role="job", name=opening.job, expect="rif") as peer:
            await trio.testing.wait_all_tasks_blocked()
            here = self.arrived.pop()
            self.router.attach(opening, here)
            yield peer
        await trio.testing.wait_all_tasks_blocked()
        self.router.detach(opening.job, here, self.nursery)

    def submit(self, job: str, *task_ids: int) -> None:
        submissions = tuple(Submission(task_id, 1, 0) for task_id in task_ids)
        self.router.submitted(Submit(job, (1, 1), ("r1.core0",), submissions))


@pytest.fixture
async def host(nursery: trio.Nursery) -> Host:
    host = Host(nursery)
    await nursery.start(host.listen)
    return host


async def said(peer: Peer) -> list[Any]:
    with trio.move_on_after(1):
        return await peer.receive()
    return []


FIRST, SUCCESSOR = OpenJob("j1", grace_s=30.0), OpenJob("j2", grace_s=30.0, adopts="j1")


async def test_a_successor_gets_what_came_before_and_what_comes(
    host: Host, autojump_clock: MockClock
) -> None:
    async with host.job(FIRST) as first:
        host.submit("j1", 1, 2, 3)
        host.router.deliver(finished("j1", 1))
        assert await said(first) == [finished("j1", 1)]
    host.router.deliver(finished("j1", 2))
    async with host.job(SUCCESSOR) as successor:
        assert await said(successor) == [
            Orphans("j2", (3, 2), (), over=False),
            Orphans("j2", (), (outcome(2),), over=False),
        ]
        host.router.deliver(finished("j1", 3))
        assert await said(successor) == [
            Orphans("j2", (), (outcome(3),), over=False),
            Orphans("j2", (), (), over=True),
        ]
        assert host.ended == [("j1", "all its tasks have ended")]
    del autojump_clock


async def test_results_wait_for_a_successor_though_nothing_is_at_work(
    host: Host, autojump_clock: MockClock
) -> None:
    async with host.job(FIRST):
        host.submit("j1", 1)
        assert host.router.orphaned == ()
    assert host.router.orphaned == ("j1",)
    host.router.deliver(finished("j1", 1))
    assert host.router.orphaned == ("j1",), "a run-time system that comes back has to know"
    async with host.job(SUCCESSOR) as successor:
        assert host.router.orphaned == ()
        assert await said(successor) == [
            Orphans("j2", (1,), (), over=False),
            Orphans("j2", (), (outcome(1),), over=False),
            Orphans("j2", (), (), over=True),
        ]
    del autojump_clock


async def test_without_a_successor_the_work_ends_with_the_grace(
    host: Host, autojump_clock: MockClock
) -> None:
    async with host.job(FIRST):
        host.submit("j1", 1)
    assert host.ended == []
    await trio.sleep(29)
    assert host.ended == []
    await trio.sleep(2)
    assert host.ended == [("j1", "nobody went on for it within 30 s")]
    async with host.job(SUCCESSOR) as successor:
        assert await said(successor) == [Orphans("j2", (), (), over=True)]
    del autojump_clock


async def test_a_job_that_has_nothing_at_work_ends_at_once(host: Host, autojump_clock: MockClock) -> None:
    async with host.job(FIRST):
        host.submit("j1", 1)
        host.router.deliver(finished("j1", 1))
    async with host.job(OpenJob("j3")):
        host.submit("j3", 1)
    assert [job for job, _ in host.ended] == ["j1", "j3"]
    del autojump_clock


async def test_an_orphan_ends_with_its_successor(host: Host, autojump_clock: MockClock) -> None:
    async with host.job(FIRST):
        host.submit("j1", 1)
    async with host.job(SUCCESSOR):
        pass
    assert ("j1", "who went on for it is gone, too") in host.ended
    del autojump_clock


async def test_a_successor_takes_over_from_a_job_server_that_hangs(
    host: Host, autojump_clock: MockClock
) -> None:
    async with host.job(FIRST) as first:
        host.submit("j1", 1)
        async with host.job(SUCCESSOR) as successor:
            assert (await said(successor))[0] == Orphans("j2", (1,), (), over=False)
            await first.lost.wait()
            assert "job j2 goes on for it" in first.reason
            host.router.deliver(finished("j1", 1))
            assert (await said(successor))[-1] == Orphans("j2", (), (), over=True)
    del autojump_clock


async def test_who_connects_again_in_time_keeps_the_clock_from_ending_it(
    host: Host, autojump_clock: MockClock
) -> None:
    async with host.job(FIRST):
        host.submit("j1", 1)
    async with host.job(FIRST):
        host.submit("j1", 2)
        await trio.sleep(100)
        assert host.ended == []
    del autojump_clock


async def test_no_more_is_kept_than_there_is_room_for(
    host: Host, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_router, "KEPT_BYTES_MAX", 100)
    async with host.job(FIRST):
        host.submit("j1", 1, 2)
    host.router.deliver(Finished("j1", "r1.core0", (outcome(1, 101),)))
    assert host.ended[0][1] == "its results have more than 100 bytes, and nobody takes them"
    del autojump_clock


# The same job server comes back ----------------------------------------------------------------------------


class Busy:
    """A worker of which some attempts are known."""

    def __init__(self, *known: tuple[int, int]) -> None:
        self.known = known

    def status(self, key: tuple[int, int]) -> str | None:
        return "compute" if key in self.known else None


def back(*attempts: tuple[int, int]) -> WorkBack:
    return WorkBack(OpenJob("j1"), tuple(("r1.core0", *attempt) for attempt in attempts))


async def test_who_could_not_be_heard_for_a_while_is_told_what_became_of_its_tasks(
    host: Host, autojump_clock: MockClock
) -> None:
    host.router.grace_s = 30.0
    workers: Any = {"r1.core0": Busy((3, 1))}
    async with host.job(OpenJob("j1")) as peer:
        host.router.deliver(finished("j1", 1))
        await said(peer)
    assert host.ended == [], "it is awaited"
    host.router.deliver(finished("j1", 2))
    async with host.network.connect("memory:rif", role="job", name="j1", expect="rif") as peer:
        await trio.testing.wait_all_tasks_blocked()
        here = host.arrived.pop()
        entered = host.router.enter(back((1, 1), (2, 1), (3, 1), (4, 1)), here, {"j1"}, workers)
        assert entered == ("j1", None)
        lost = Finished("j1", "r1.core0", (Outcome(4, 1, Reason.LOST, error=result_router.UNHEARD),))
        assert await said(peer) == [finished("j1", 1), finished("j1", 2), lost]
        await trio.sleep(100)
        assert host.ended == []
        host.router.deliver(finished("j1", 3))
        assert await said(peer) == [finished("j1", 3)]
    del autojump_clock


async def test_who_does_not_come_back_has_its_work_ended(host: Host, autojump_clock: MockClock) -> None:
    host.router.grace_s = 30.0
    async with host.job(OpenJob("j1")):
        pass
    await trio.sleep(31)
    assert host.ended == [("j1", "nobody went on for it within 30 s")]
    async with host.network.connect("memory:rif", role="job", name="j1", expect="rif") as peer:
        await trio.testing.wait_all_tasks_blocked()
        entered = host.router.enter(back((1, 1)), host.arrived.pop(), set(), {})
        assert entered == ("j1", OpenJob("j1")), "it begins anew"
        assert await said(peer) == [
            Finished("j1", "r1.core0", (Outcome(1, 1, Reason.LOST, error=result_router.UNHEARD),))
        ]
    del autojump_clock


async def test_what_is_kept_of_what_was_said_is_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.router.grace_s = 30.0
    monkeypatch.setattr(result_router, "LATELY_MAX", 2)
    monkeypatch.setattr(result_router, "LATELY_BYTES_MAX", 10)
    async with host.job(OpenJob("j1")):
        host.router.deliver(finished("j1", 1, 2, 3))
        assert [one.task_id for one in host.router._lately["j1"]] == [2, 3]
        host.router.deliver(Finished("j1", "r1.core0", (outcome(4, 10),)))
        assert [one.task_id for one in host.router._lately["j1"]] == [4]
    host.router.forget("j1")
    assert host.router._lately == {}
