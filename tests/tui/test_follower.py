# ruff: noqa: ARG001
"""Following a simulated cluster: its run-time system and jobs, until they end, go away and come again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.job.messages import (
    CancelTask,
    GetNet,
    GetTask,
    RetryFailed,
    StopJob,
)
from gspc_trio.components.rts.messages import RemoveDag, SetWeight
from gspc_trio.components.worker.messages import Submission
from gspc_trio.core.net import PlaceKind
from gspc_trio.core.task import TaskError, TaskState
from gspc_trio.testing.cluster import RTS_ADDRESS, Cluster, SimulatedJob, open_cluster
from gspc_trio.testing.simulated.backend import Behaviour
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.simulated.rts_memory import RtsMemory
from gspc_trio.tui.live import Follower
from gspc_trio.tui.model import Model
from gspc_trio.tui.source import CannotAsk
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm

HANG_S = 500.0
FAILS = 5
"""Task that fails at its first attempt."""

LONG = 39
"""Task that takes long, and prints something at its begin."""


def work(item: Any) -> Any:
    return item


def net_of(number: int) -> Net:
    net = farm(work, name="work", default=list(range(number)))
    assert isinstance(net, Net)
    return net


def behave(submission: Submission, code: bytes) -> Behaviour:
    del code
    error = TaskError("ValueError", "it is wrong", "line 7") if submission.task_id == FAILS else None
    if error is not None and submission.attempt == 1:
        return Behaviour(0.5, error=error)
    duration_s, printed = (30.0, b"step 1\n") if submission.task_id == LONG else (1.0, b"")
    return Behaviour(duration_s, ((submission.arguments[0],),), stdout=printed)


@asynccontextmanager
async def followed(
    hosts: int = 2, memory: RtsMemory | None = None
) -> AsyncIterator[tuple[Cluster, Follower]]:
    """A cluster and who follows it, from a process of its own."""
    with trio.fail_after(HANG_S):
        async with open_cluster(3, hosts=hosts, cores=2, behave=behave, memory=memory) as cluster:
            await cluster.start_rts()
            ready: list[Follower] = []
            there = trio.Event()

            async def main(process: SimulatedProcess) -> None:
                network = cluster.network(process)

                def connect() -> Any:
                    connection = network.connect(RTS_ADDRESS, role="control", name="top", expect="rts")
                    return network, connection

                ready.append(Follower(connect, Model()))
                there.set()
                await ready[0].run()

            cluster.spawn("top", "top", "head", main)
            await there.wait()
            await ready[0].wait_settled()
            yield cluster, ready[0]


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.1)


async def job_up(
    cluster: Cluster, follower: Follower, number: int, **settings: Any
) -> tuple[str, SimulatedJob]:
    running = cluster.start_job("fit", net_of(number), **settings)
    await until(lambda: follower.model.connected)
    (job,) = follower.model.connected
    return job, running


async def test_it_tells_what_the_run_time_system_tells(autojump_clock: MockClock) -> None:
    async with followed() as (_, follower):
        model = follower.model
        assert sorted(rif.host for rif in model.rts.rifs.values()) == ["h1", "h2"]
        assert model.hierarchy.leaf_total == 4
        assert model.cores_in_use == 0
        assert not model.log
        assert model.status.classes["core"].total == 4


async def test_it_follows_a_job_to_its_end(autojump_clock: MockClock) -> None:
    async with followed() as (cluster, follower):
        model = follower.model
        job, running = await job_up(cluster, follower, 40, keep_going=True)
        await until(lambda: model.job(job).counts[TaskState.RUNNING] == 4)
        assert model.cores_in_use == 4
        assert {it.job for it in model.held.values()} == {job}
        await until(lambda: model.explanations.get(job))
        assert "of 4 core free" in model.explanations[job][0].reason
        await running.process.ended.wait()
        assert running.result is not None
        await until(lambda: not model.connected)
        assert {state.value: n for state, n in model.job(job).counts.items()} == dict(running.result.tasks)
        assert (model.job(job).state, model.cores_in_use) == ("failed", 0)
        assert any("task 5 (work) failed" in line.text for line in model.log)


async def look(cluster: Cluster) -> Model:
    """Return what somebody sees who comes now."""
    seen: list[Model] = []

    async def main(process: SimulatedProcess) -> None:
        network = cluster.network(process)
        connection = network.connect(RTS_ADDRESS, role="control", name="late", expect="rts")
        late = Follower(lambda: (network, connection), Model())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(late.run)
            await late.wait_settled()
            seen.append(late.model)
            nursery.cancel_scope.cancel()

    await cluster.spawn("late", "top", "head", main).ended.wait()
    return seen[0]


async def test_who_comes_late_knows_as_much(autojump_clock: MockClock) -> None:
    async with followed() as (cluster, follower):
        job, _ = await job_up(cluster, follower, 400)
        await until(lambda: follower.model.job(job).counts[TaskState.FINISHED] > 3)
        late_model = await look(cluster)
        assert late_model.job(job).total == 400
        assert late_model.held.keys() == follower.model.held.keys()


@pytest.mark.parametrize(
    ("number", "order", "settings", "state", "detail"),
    [
        (3, None, {}, "finished", ""),
        (40, None, {"keep_going": True}, "failed", "some tasks failed"),
        (40, None, {}, "failed", "a task failed"),
        (4_000, StopJob(), {"keep_going": True}, "stopped", "a client asked it to stop"),
        (4_000, StopJob(drain=True), {"keep_going": True}, "stopped", "a client asked it to stop"),
    ],
    ids=["finished", "keeps going", "failed", "stopped", "drained"],
)
async def test_who_comes_after_the_end_of_a_job_is_told_how_it_ended(
    autojump_clock: MockClock, number: int, order: Any, settings: dict[str, Any], state: str, detail: str
) -> None:
    async with followed() as (cluster, follower):
        job, running = await job_up(cluster, follower, number, **settings)
        if order is not None:
            await follower.ask(job, order)
        await running.process.ended.wait()
        assert running.result is not None
        told = (await look(cluster)).job(job)
        assert (told.state, told.detail) == (state, detail)
        assert {state.value: n for state, n in told.counts.items()} == dict(running.result.tasks)
        assert told.elapsed_s == pytest.approx(running.result.elapsed_s, abs=0.01)
        await until(lambda: not follower.model.connected)
        lines = [line.text for line in follower.model.log if f"job {job} (fit)" in line.text]
        why = f": {detail}" if detail else ""
        assert lines == [f"job {job} (fit) began", f"job {job} (fit) {state}{why}"]


async def test_a_job_that_was_killed_is_told_as_stopped(autojump_clock: MockClock) -> None:
    async with followed() as (cluster, follower):
        job, running = await job_up(cluster, follower, 40)
        running.process.kill()
        await until(lambda: follower.model.job(job).state != "running")
        assert follower.model.job(job).state == (await look(cluster)).job(job).state == "stopped"


async def test_questions_are_answered(autojump_clock: MockClock) -> None:
    async with followed() as (cluster, follower):
        job, _ = await job_up(cluster, follower, 60, keep_going=True)
        model = follower.model
        await until(lambda: model.job(job).counts[TaskState.FAILED])
        failed = await follower.ask(job, GetTask(FAILS))
        assert failed.record is not None
        assert (failed.record.state, failed.error) == (TaskState.FAILED, "ValueError: it is wrong")
        assert (failed.traceback, failed.inputs) == ("line 7", (str(FAILS - 1),))
        waiting = await follower.ask(job, GetTask(60))
        assert waiting.why.startswith("task 60 (work) waits for core")
        net = await follower.ask(job, GetNet())
        (transition,) = net.transitions
        assert (transition.name, transition.states[TaskState.FAILED]) == ("work", 1)
        assert transition.fired == 60
        assert [place.kind for place in net.places] == [PlaceKind.INPUT, PlaceKind.OUTPUT]


async def test_a_task_that_runs_tells_its_phase_and_what_it_has_printed(autojump_clock: MockClock) -> None:
    async with followed() as (cluster, follower):
        job, _ = await job_up(cluster, follower, 60, keep_going=True)
        model = follower.model
        await until(lambda: LONG in {task.task_id for task in model.longest_running(job, 4)})
        told = await follower.ask(job, GetTask(LONG))
        assert told.record is not None
        assert (told.record.state, told.phase, told.stdout) == (TaskState.RUNNING, "compute", "step 1\n")
        assert told.pid > 0
        assert not (await follower.ask(job, GetTask(60))).phase


async def test_the_owner_can_act(autojump_clock: MockClock) -> None:
    async with followed() as (cluster, follower):
        job, running = await job_up(cluster, follower, 60, keep_going=True)
        model = follower.model
        await follower.ask(job, CancelTask((59, 60)))
        await follower.ask(None, SetWeight(job, 4.0))
        await until(lambda: model.job(job).counts[TaskState.FAILED])
        await follower.ask(job, RetryFailed(FAILS))
        await until(lambda: not model.job(job).counts[TaskState.FAILED])
        await until(lambda: model.status.jobs[0].weight == 4.0)
        await follower.ask(None, RemoveDag("r2", ("r2.node",), "wait"))
        await until(lambda: model.hierarchy.leaf_total == 2)
        await follower.ask(job, StopJob(drain=True))
        await running.process.ended.wait()
        assert running.result is not None
        assert running.result.state == "stopped"
        assert running.result.tasks["failed"] == 0
        assert running.result.tasks["cancelled"] > 2


@pytest.mark.parametrize(
    ("who", "message", "why"),
    [
        ("j9", GetNet(), "there is no connection to job j9"),
        (None, SetWeight("j9", 1.0), "there is no job j9; registered: j1"),
        (None, SetWeight("j1", -1.0), "a job's weight is a number more than 0, not -1.0"),
        ("j1", RetryFailed(1), "task 1 gets no new attempt"),
        (None, RemoveDag("r9", ("r9.node",)), "r9"),
    ],
    ids=str,
)
async def test_what_cannot_be_is_refused(autojump_clock: MockClock, who: Any, message: Any, why: str) -> None:
    async with followed() as (cluster, follower):
        await job_up(cluster, follower, 60)
        with pytest.raises(CannotAsk, match=why):
            await follower.ask(who, message)


async def test_it_says_when_the_run_time_system_is_gone_and_comes_back_to_it(
    autojump_clock: MockClock,
) -> None:
    async with followed() as (cluster, follower):
        model = follower.model
        (rts,) = (process for process in cluster.processes if process.role == "rts")
        rts.kill()
        await until(lambda: model.link)
        assert model.link.endswith("; trying again")
        with pytest.raises(CannotAsk, match="there is no connection to the run-time system"):
            await follower.ask(None, SetWeight("j1", 1.0))
        await cluster.start_rts()
        await until(lambda: not model.link)
        await follower.wait_settled()
        assert model.hierarchy.leaf_total == 4


async def test_a_weight_that_was_changed_outlives_the_run_time_system(autojump_clock: MockClock) -> None:
    async with followed(memory=RtsMemory()) as (cluster, follower):
        job, _ = await job_up(cluster, follower, 60, keep_going=True)
        await follower.ask(None, SetWeight(job, 4.0))
        await trio.sleep(1)
        (rts,) = (process for process in cluster.processes if process.role == "rts")
        rts.kill()
        await until(lambda: follower.model.link)
        await cluster.start_rts()
        await until(lambda: job in follower.model.connected)
        assert [entry.weight for entry in follower.model.status.jobs] == [4.0]


async def test_a_job_that_could_not_be_heard_for_a_while_is_followed_again(autojump_clock: MockClock) -> None:
    """The run-time system never lost it."""
    async with followed() as (cluster, follower):
        job, running = await job_up(cluster, follower, 60, keep_going=True)
        model = follower.model
        for end in list(running.process.ends):
            if end.other.process.role == "top":
                end.wire.cut()
        await until(lambda: job not in model.connected)
        await until(lambda: job in model.connected)
        before = model.job(job).counts[TaskState.FINISHED]
        await until(lambda: model.job(job).counts[TaskState.FINISHED] > before)
