"""What workers report keeps its order, though some of it has to wait for the memory layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from gspc_trio.components.rif.messages import StopRif, WorkBack
from gspc_trio.components.rif.shell.result_router import Delivery
from gspc_trio.components.worker.messages import Begun, Finished, OpenJob
from gspc_trio.components.worker.shell.staging import Settle
from gspc_trio.core.task import Outcome, Reason
from gspc_trio.testing.simulated.backend import Behaviour, by_task, open_simulated_backend
from tests.components.rif.shell.support import FakeScheduler, Stage, open_stage

CORES = ("r1.core0", "r1.core1")


def finished(
    task_id: int, core: str = CORES[0], reason: Reason = Reason.FINISHED, job: str = "j1"
) -> Finished:
    return Finished(job, core, (Outcome(task_id, 1, reason),))


def begun(task_id: int, core: str = CORES[0]) -> Begun:
    return Begun("j1", core, task_id, 1)


class Told:
    """What was passed on, and what still waits."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.told: list[Any] = []
        self.nursery = nursery
        self.delivery = Delivery(self.told.append, self.told.append)
        self.waits: dict[int, trio.Event] = {}

    def finished(self, told: Finished) -> None:
        self.delivery.finished(told, None, self.nursery)

    def wait_for(self, task_id: int, reason: Reason = Reason.FINISHED, core: str = CORES[0]) -> None:
        """An attempt has finished whose data nobody can read yet; it will have ended so."""
        self.waits[task_id] = trio.Event()
        settle = partial(self._settle, task_id, reason, core)
        self.delivery.finished(finished(task_id, core), settle, self.nursery)

    async def _settle(self, task_id: int, reason: Reason, core: str) -> Finished:
        await self.waits[task_id].wait()
        return finished(task_id, core, reason)

    async def settle(self, task_id: int) -> None:
        self.waits[task_id].set()
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
def host(nursery: trio.Nursery) -> Told:
    return Told(nursery)


async def test_what_is_settled_is_told_at_once(host: Told) -> None:
    host.delivery.begun(begun(1))
    host.finished(finished(1))
    assert host.told == [begun(1), finished(1)]


async def test_what_comes_after_it_at_its_worker_waits_with_it_and_at_others_not(host: Told) -> None:
    host.wait_for(1, Reason.LOST)
    host.delivery.begun(begun(2))
    host.finished(finished(2))
    host.delivery.begun(begun(3, CORES[1]))
    host.finished(finished(3, CORES[1]))
    assert host.told == [begun(3, CORES[1]), finished(3, CORES[1])]
    assert host.delivery.held_back("j1") == {(1, 1), (2, 1)}
    assert host.delivery.held_back("j2") == set()
    await host.settle(1)
    assert host.told[2:] == [finished(1, reason=Reason.LOST), begun(2), finished(2)]
    assert host.delivery.held_back("j1") == set()
    host.delivery.begun(begun(4))
    assert host.told[-1] == begun(4)


async def test_a_job_that_is_over_is_told_nothing(host: Told) -> None:
    host.wait_for(1)
    host.finished(finished(2))
    host.delivery.forget_job("j1")
    host.finished(finished(5))
    await host.settle(1)
    assert host.told == [finished(5)]


async def test_who_ends_waits_until_all_was_told(host: Told) -> None:
    await host.delivery.wait_empty()
    for task_id, core in enumerate(CORES):
        host.wait_for(task_id, core=core)
    ended: list[str] = []

    async def end() -> None:
        await host.delivery.wait_empty()
        ended.append("ended")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        await host.settle(0)
        assert not ended
        await host.settle(1)
        assert ended


def held_job(stage: Stage, task_id: int, seconds: float) -> None:
    """Let the data of one task be readable so much later than it ends."""

    def settling(finished: Finished) -> Settle | None:
        async def settle() -> Finished:
            await trio.sleep(seconds)
            return finished

        return settle if any(outcome.task_id == task_id for outcome in finished.outcomes) else None

    stage.rif._jobs["j1"].settled = settling


async def test_a_rif_goes_on_while_a_result_is_not_told(autojump_clock: MockClock) -> None:
    del autojump_clock
    behave = by_task({2: Behaviour(1.0), 3: Behaviour(1.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1)
        await job.wait(1)
        held_job(stage, 2, 10.0)
        job.submit("r1.core0", 2, 3, grant=1)
        await trio.sleep(5)
        assert len(backend.runs) == 3, "nothing else has begun meanwhile"
        assert len(job.outcomes) == 1
        assert await job.wait(3) == [(1, "finished"), (2, "finished"), (3, "finished")]


async def test_a_rif_that_stops_tells_first_what_it_holds_back(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with open_simulated_backend() as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1)
        await job.wait(1)
        held_job(stage, 2, 1.0)
        job.submit("r1.core0", 2, grant=1)
        await trio.sleep(0.5)
        stage.rts.peer.post(StopRif())
        assert await job.wait(2) == [(1, "finished"), (2, "finished")]


async def test_a_job_server_that_comes_back_is_not_told_that_it_was_lost(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with open_simulated_backend() as backend, open_stage(backend) as stage:
        stage.rif._router.grace_s = 30.0
        async with stage.job() as job:
            job.submit("r1.core0", 1)
            await job.wait(1)
            held_job(stage, 2, 5.0)
            job.submit("r1.core0", 2, grant=1)
            await trio.sleep(1)
        connection = stage.network.connect(stage.rif.address, role="job", name="j1", expect="rif")
        async with connection as peer, trio.open_nursery() as nursery:
            again = FakeScheduler(peer, "j1")
            nursery.start_soon(again.listen)
            peer.post(WorkBack(OpenJob("j1"), (("r1.core0", 2, 1), ("r1.core0", 7, 1))))
            assert await again.wait(2) == [(7, "lost"), (2, "finished")]
            nursery.cancel_scope.cancel()


STEPS = st.lists(st.tuples(st.sampled_from(CORES), st.sampled_from(["waits", "ended", "begun"])), max_size=12)


@given(STEPS, st.randoms(use_true_random=False))
def test_each_worker_is_reported_in_its_order(steps: list[tuple[str, str]], random: Any) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            host = Told(nursery)
            expected: dict[str, list[Any]] = {core: [] for core in CORES}
            for task_id, (core, what) in enumerate(steps):
                if what == "begun":
                    expected[core].append(begun(task_id, core))
                    host.delivery.begun(begun(task_id, core))
                else:
                    expected[core].append(finished(task_id, core))
                    if what == "waits":
                        host.wait_for(task_id, core=core)
                    else:
                        host.finished(finished(task_id, core))
                if host.waits and random.random() < 0.4:
                    await host.settle(random.choice(sorted(host.waits)))
            for event in host.waits.values():
                event.set()
            await host.delivery.wait_empty()
            for core in CORES:
                assert [it for it in host.told if it.resource_id == core] == expected[core]

    trio.run(run)
