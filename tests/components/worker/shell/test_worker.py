"""The shell of one worker: what it makes of actions that cross with what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.rif.events import AtWorker, StartFailed
from gspc_trio.components.worker.events import (
    Abort,
    Aborted,
    Compute,
    Computed,
    ComputeKilled,
    ComputeLost,
    ComputeOpening,
    ComputeReady,
    ForgetCompute,
    Kill,
    Retract,
    Retracted,
    StagedIn,
    StageIn,
)
from gspc_trio.components.worker.messages import Finished, OpenJob, Submission, Submit
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.components.worker.shell.worker import JobCode, JobCompute, WorkerShell
from gspc_trio.components.worker.verdict import refusal
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason
from gspc_trio.testing.simulated.backend import (
    Behaviour,
    SimulatedBackend,
    by_task,
    open_simulated_backend,
)

# The clock of a test is found among its own arguments.
# ruff: noqa: ARG001

R = "r1.core0"


class Bench:
    """A shell under test; ``events`` are those for its machine."""

    def __init__(self, backend: SimulatedBackend, nursery: trio.Nursery) -> None:
        self.backend = backend
        self.events: list[Any] = []
        self.jobs = {name: JobCode(OpenJob(name), {7: b""}) for name in ("j1", "j2")}
        self.shell = WorkerShell(Resource(R, "core"), self.jobs, backend, self._put, nursery)

    def _put(self, event: AtWorker) -> None:
        assert event.resource_id == R
        self.events.append(event.event)

    def compute(self, *tasks: int, job: str = "j1") -> None:
        self.shell.perform(Compute(R, job, tuple(Submission(task, 1, 7) for task in tasks)))

    async def settle(self) -> list[Any]:
        """Let everything happen that can without time, and return the events since."""
        await trio.testing.wait_all_tasks_blocked()
        events, self.events = self.events, []
        return events


@asynccontextmanager
async def open_bench(**table: Behaviour) -> AsyncIterator[Bench]:
    behave = by_task({int(name[1:]): behaviour for name, behaviour in table.items()})
    async with open_simulated_backend(behave) as backend, trio.open_nursery() as nursery:
        yield Bench(backend, nursery)
        nursery.cancel_scope.cancel()


async def test_what_is_handed_to_a_lost_process_is_lost_with_it(autojump_clock: MockClock) -> None:
    async with open_bench(t1=Behaviour(1000.0)) as bench:
        bench.compute(1)
        assert await bench.settle() == [ComputeOpening(), ComputeReady()]
        bench.backend.die(R, "gone")
        assert await bench.settle() == [ComputeLost("gone")]
        # The machine has not seen that yet.
        bench.compute(2)
        bench.shell.perform(Retract(R, "j1"))
        assert await bench.settle() == [Retracted(())]
        bench.shell.perform(ForgetCompute(R, "j1"))
        bench.compute(3)
        opening, ready, done = await bench.settle()
        assert (opening, ready) == (ComputeOpening(), ComputeReady())
        assert [outcome.task_id for outcome in done.outcomes] == [3]


async def test_a_process_that_dies_idle_is_replaced_without_a_word(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        bench.compute(1)
        await bench.settle()
        assert bench.shell.pid_for("j1") == 1
        bench.backend.die(R)
        assert await bench.settle() == []
        assert bench.shell.pid_for("j1") == 0
        bench.compute(2)
        assert [type(event) for event in await bench.settle()] == [ComputeOpening, ComputeReady, Computed]
        assert bench.shell.pid_for("j1") == 2


async def test_every_kill_is_answered(autojump_clock: MockClock) -> None:
    async with open_bench(t1=Behaviour(1000.0)) as bench:
        bench.shell.perform(Kill(R, "j1"))
        assert await bench.settle() == [ComputeKilled()]
        bench.compute(1)
        await bench.settle()
        bench.backend.die(R)
        bench.shell.perform(Kill(R, "j1"))
        answers = await bench.settle()
        assert answers.count(ComputeKilled()) == 1
        bench.compute(1)
        await bench.settle()
        bench.shell.perform(Kill(R, "j1"))
        bench.shell.forget_job("j1")
        assert await bench.settle() == [ComputeKilled()]
        assert bench.backend.computes == []


async def test_the_output_of_the_task_in_compute_comes_with_its_end(
    autojump_clock: MockClock,
) -> None:
    slow = Behaviour(1000.0, stdout=b"so far")
    async with open_bench(t1=Behaviour(stdout=b"done"), t2=slow, t3=slow) as bench:
        bench.compute(1, 2)
        await bench.settle()
        bench.backend.die(R, "gone")
        assert await bench.settle() == [ComputeLost("gone", printed=(b"so far", b""))]
        bench.shell.perform(ForgetCompute(R, "j1"))
        bench.compute(3)
        await bench.settle()
        bench.shell.perform(Kill(R, "j1"))
        assert await bench.settle() == [ComputeKilled((b"so far", b""))]


async def test_what_was_not_sent_is_taken_back_while_the_compute_opens(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        bench.backend.open_s = 5.0
        bench.compute(1, 2)
        bench.shell.perform(Retract(R, "j1"))
        assert await bench.settle() == [ComputeOpening(), Retracted(((1, 1), (2, 1)))]
        await trio.sleep(6)
        assert await bench.settle() == [ComputeReady()]
        assert bench.backend.runs == []


async def test_a_job_keeps_its_compute_while_another_one_works_here(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        bench.compute(1)
        await bench.settle()
        bench.compute(1, job="j2")
        await bench.settle()
        bench.compute(2)
        assert [type(event) for event in await bench.settle()] == [Computed]
        # One dies that has nothing to do here: nobody is told.
        bench.backend.computes[1].die("gone")
        assert await bench.settle() == []


async def test_an_abort_of_what_is_not_being_staged_is_answered(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        bench.shell.perform(Abort(R, (1, 1)))
        assert await bench.settle() == [Aborted((1, 1))]


async def test_a_killer_that_is_cancelled_leaves_the_kill_to_the_next(autojump_clock: MockClock) -> None:
    async with open_simulated_backend(by_task({1: Behaviour(1000.0)})) as backend:
        async with trio.open_nursery() as nursery:
            bench = Bench(backend, nursery)
            bench.compute(1)
            await bench.settle()
            bench.shell.perform(Kill(R, "j1"))
            nursery.cancel_scope.cancel()
        assert bench.events == []
        await bench.shell.aclose()
        assert backend.computes == []


class _SlowStaging:
    """Fetches for a second."""

    async def stage_in(self, resource: Resource, job: str, submission: Submission) -> None:
        del resource, job, submission
        await trio.sleep(1)

    async def stage_out(self, resource: Resource, job: str, submission: Submission, outcome: Outcome) -> None:
        del resource, job, submission, outcome


async def test_a_refused_task_with_the_same_numbers_leaves_the_one_that_is_staged_alone(
    autojump_clock: MockClock,
) -> None:
    async with open_bench() as bench:
        bench.jobs["j2"].staging = _SlowStaging()
        task = Submission(1, 1, 7)
        bench.shell.perform(StageIn(R, "j2", task))
        echo = refusal(Submit("j1", (1, 1), (R,), (task,)), "job j1 is not open here")
        assert bench.shell.reported(echo) == echo
        assert await bench.settle() == []
        await trio.sleep(1)
        assert await bench.settle() == [StagedIn((1, 1))]
        ended = bench.shell.reported(Finished("j2", R, (Outcome(1, 1, Reason.FINISHED),)))
        begun_s, done_s, *_ = ended.outcomes[0].staged_s
        assert done_s >= begun_s > 0


@pytest.mark.parametrize(
    ("worked", "begun", "failed"),
    [
        (False, False, [StartFailed("gone", died=True)]),
        (False, True, []),
        (True, False, []),
        (True, True, []),
    ],
)
async def test_only_a_process_that_never_took_a_task_has_not_started(
    autojump_clock: MockClock, worked: bool, begun: bool, failed: list[StartFailed]
) -> None:
    events: list[Any] = []
    starts: list[StartFailed] = []
    async with open_simulated_backend() as backend:
        code = JobCode(OpenJob("j1"), {7: b""})
        compute = JobCompute(
            Resource(R, "core"), code, backend, events.append, starts.append, TaskConnection.close
        )
        compute.hand([Submission(task, 1, 7) for task in (1, 2)])
        if worked:
            compute.computed((Outcome(1, 1, Reason.FINISHED),))
        compute.compute_lost("gone", begun)
    assert events[-1] == ComputeLost("gone", begun)
    assert starts == failed
