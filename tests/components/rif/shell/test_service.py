"""A whole RIF in memory: what schedulers and the RTS say and hear (RIF-4)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.rif.messages import (
    AddResources,
    CannotStart,
    CloseJobEverywhere,
    DagReport,
    RemoveResources,
    StopRif,
    WorkerEndpoint,
)
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.rts.messages import GetStatus
from gspc_trio.components.worker.messages import (
    AttemptStatus,
    Cancel,
    DefineCode,
    GetAttempt,
    OpenJob,
    Submission,
    TakeBack,
)
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, TaskError, TaskOptions
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.testing.simulated.backend import Behaviour, by_task, open_simulated_backend
from tests.components.rif.shell.support import CORES, Stage, open_stage

# The clock of a test is found among its own arguments.
# ruff: noqa: ARG001


async def test_a_rif_says_what_its_host_has_and_starts_workers_when_told(autojump_clock: MockClock) -> None:
    async with open_simulated_backend() as backend, open_stage(backend, resources=()) as stage:
        hello = stage.rts.hello
        assert hello is not None
        assert (hello.rif_id, hello.incarnation, hello.host, hello.hardware) == ("r1", 1, "here", ())
        assert hello.address == "memory:rif-r1"
        ends = tuple(WorkerEndpoint(r.resource_id, "core", "r1", "here", "memory:rif-r1") for r in CORES)
        assert await stage.rts.add() == DagReport(ends)
        assert backend.runs == []
        with pytest.raises(RemoteError, match=r"r1\.core0 is there already"):
            await stage.rts.add(CORES[:1])
        assert await stage.rts.peer.call(RemoveResources(("r1.core1",))) == DagReport(ends[1:])
        with pytest.raises(RemoteError, match="GetStatus"):
            await stage.rts.peer.call(GetStatus())


async def test_tasks_of_one_worker_run_in_order_in_one_compute_and_come_back(
    autojump_clock: MockClock,
) -> None:
    behave = by_task({1: Behaviour(2.0, ((b"one",),)), 3: Behaviour(error=TaskError("ValueError", "no"))})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1, 2, 3)
        assert await job.wait(3) == [(1, "finished"), (2, "finished"), (3, "failed")]
        assert job.outcomes[0].values == ((b"one",),)
        assert [(run.task_id, run.begin_s - backend.runs[0].begin_s) for run in backend.runs] == [
            (1, 0.0), (2, 2.0), (3, 2.0),
        ]  # fmt: skip
        job.submit("r1.core0", 4)
        await job.wait(4)
        assert len(backend.computes) == 1


async def test_each_job_has_compute_of_its_own_which_goes_with_the_job(autojump_clock: MockClock) -> None:
    async with open_simulated_backend() as backend, open_stage(backend) as stage:
        async with stage.job("j1") as one:
            one.submit("r1.core0", 1)
            await one.wait(1)
            async with stage.job("j2") as two:
                two.submit("r1.core0", 1, grant=5)
                await two.wait(1)
                assert [compute.job.job for compute in backend.computes] == ["j1", "j2"]
                stage.rts.peer.post(CloseJobEverywhere("j2"))
                await trio.sleep(1)
                assert [compute.job.job for compute in backend.computes] == ["j1"]
            stage.rts.peer.post(CloseJobEverywhere("j1"))
            await trio.sleep(1)
            assert backend.computes == []
            assert "run-time system says that job j1 is over" in one.peer.reason
        async with stage.job("j1") as again:  # it lives, and begins anew
            again.submit("r1.core0", 2, grant=6)
            assert await again.wait(1) == [(2, "finished")]


async def test_cancel_kills_what_computes_and_the_queue_goes_on_in_a_new_process(
    autojump_clock: MockClock,
) -> None:
    behave = by_task({1: Behaviour(1000.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1, 2, 3)
        await trio.sleep(1)
        job.peer.post(Cancel("j1", "r1.core0", ((1, 1), (3, 1))))
        assert sorted(await job.wait(3)) == [(1, "cancelled"), (2, "finished"), (3, "cancelled")]
        assert [(run.task_id, run.how) for run in backend.runs] == [(1, "killed"), (2, "finished")]
        assert {compute.pid for compute in backend.computes} == {2}


async def test_cancel_while_the_compute_is_still_opening(autojump_clock: MockClock) -> None:
    async with (
        open_simulated_backend(open_s=10.0) as backend,
        open_stage(backend) as stage,
        stage.job() as job,
    ):
        job.submit("r1.core0", 1, 2)
        await trio.sleep(1)
        begin = trio.current_time()
        job.peer.post(Cancel("j1", "r1.core0", ((1, 1),)))
        assert await job.wait(1) == [(1, "cancelled")]
        assert trio.current_time() == begin
        assert (await job.wait(2))[1] == (2, "finished")
        assert [run.task_id for run in backend.runs] == [2]


async def test_take_back_returns_what_has_not_begun(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(5.0)})
    async with open_simulated_backend(behave, read_ahead=1) as backend, open_stage(backend) as stage:
        async with stage.job() as job:
            job.submit("r1.core0", 1, 2, 3, 4)
            await trio.sleep(1)
            job.peer.post(TakeBack("j1", "r1.core0", ((1, 1), (2, 1), (4, 1))))
            assert await job.wait(4) == [(4, "returned"), (1, "finished"), (2, "finished"), (3, "finished")]


async def test_a_job_may_ask_how_its_attempts_are(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(5.0, stdout=b"one"), 2: Behaviour(5.0, stdout=b"two")})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage:
        async with stage.job("j1") as job, stage.job("j2") as other:
            job.submit("r1.core0", 1, 2)
            await trio.sleep(1)

            async def ask(task_id: int, attempt: int = 1, resource_id: str = "r1.core0") -> AttemptStatus:
                return await job.peer.call(GetAttempt("j1", resource_id, task_id, attempt))

            assert await ask(1) == AttemptStatus("compute", 1, b"one", stdout_bytes=3)
            assert await ask(2) == AttemptStatus("waiting", 1)
            only_new = GetAttempt("j1", "r1.core0", 1, 1, seen=(2, 0))
            assert await job.peer.call(only_new) == AttemptStatus("compute", 1, b"e", stdout_bytes=3)
            for nothing in (await ask(3), await ask(1, 2), await ask(1, resource_id="r1.core1")):
                assert nothing == AttemptStatus("")
            with pytest.raises(RemoteError, match="job j2 asks for an attempt of job j1"):
                await other.peer.call(GetAttempt("j1", "r1.core0", 1, 1))
            with pytest.raises(RemoteError, match="cannot be asked for GetStatus by a job"):
                await job.peer.call(GetStatus())
            await job.wait(1)
            await trio.sleep(1)
            assert await ask(1) == AttemptStatus("")
            assert await ask(2) == AttemptStatus("compute", 1, b"two", stdout_bytes=3)


async def test_a_dead_compute_process_is_replaced_and_costs_one_task_an_attempt(
    autojump_clock: MockClock,
) -> None:
    behave = by_task({1: Behaviour(1.0, dies="killed by signal 9"), 2: Behaviour(1.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1, 2)
        assert await job.wait(2) == [(1, "lost"), (2, "finished")]
        assert job.outcomes[0].error == TaskError("lost", "killed by signal 9")
        await trio.sleep(1)
        assert ("r1.core0", "lost") in stage.rts.states()
        # One that dies while it has nothing to do is not missed.
        backend.die("r1.core0")
        await trio.sleep(1)
        job.submit("r1.core0", 3)
        assert (await job.wait(3))[2] == (3, "finished")


async def test_compute_that_cannot_be_opened_costs_no_attempt_and_the_rts_is_told(
    autojump_clock: MockClock,
) -> None:
    async with open_simulated_backend() as backend, open_stage(backend) as stage, stage.job() as job:
        backend.open_error = "out of memory"
        job.submit("r1.core0", 1, 2)
        assert await job.wait(2) == [(1, "returned"), (2, "returned")]
        assert job.outcomes[1].error == TaskError("refused", "out of memory")
        assert CannotStart("out of memory") in stage.rts.said
        backend.open_error = ""
        job.submit("r1.core0", 3)
        assert (await job.wait(3))[2] == (3, "finished")


async def test_timeout_does_not_count_the_opening_of_the_compute(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(2.0), 2: Behaviour(4.0)})
    async with open_simulated_backend(behave, open_s=10.0) as backend, open_stage(backend) as stage:
        async with stage.job() as job:
            job.submit("r1.core0", 1, 2, timeout_s=3.0)
            assert await job.wait(2) == [(1, "finished"), (2, "failed")]
            assert job.outcomes[1].error == TaskError("timeout", "it ran longer than its timeout of 3 s")
            assert [run.how for run in backend.runs] == ["finished", "killed"]


async def test_revoke_kills_and_answers_when_the_work_is_gone(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(1000.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1)
        await trio.sleep(1)
        stage.rts.peer.post(Revoke((1, 1), ("r1.core0",)))
        assert await job.wait(1) == [(1, "lost")]
        await trio.sleep(1)
        assert stage.rts.said == [Revoked((1, 1), ("r1.core0",))]
        assert [run.how for run in backend.runs] == ["killed"]


async def test_remove_kills_what_runs_there(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(1000.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1)
        await trio.sleep(1)
        await stage.rts.peer.call(RemoveResources(("r1.core0",)))
        assert await job.wait(1) == [(1, "lost")]
        assert backend.computes == []
        await stage.rts.peer.call(AddResources((CORES[0],)))
        job.submit("r1.core0", 2)
        assert (await job.wait(2))[1] == (2, "finished")
        assert len(backend.computes) == 1
        await stage.rts.peer.call(RemoveResources(("r1.core0",)))
        await trio.sleep(1)
        assert backend.computes == []


async def test_the_end_of_a_scheduler_kills_its_work_at_once(autojump_clock: MockClock) -> None:
    async with (
        open_simulated_backend(by_task({1: Behaviour(1000.0)})) as backend,
        open_stage(backend) as stage,
    ):
        async with stage.job() as job:
            job.submit("r1.core0", 1)
            await trio.sleep(1)
            assert len(backend.computes) == 1
        begin = autojump_clock.current_time()
        await trio.testing.wait_all_tasks_blocked()
        assert autojump_clock.current_time() == begin
        assert backend.computes == []
        async with stage.job() as job:
            job.submit("r1.core0", 2, grant=9)
            assert await job.wait(1) == [(2, "finished")]


async def test_a_job_that_connects_again_replaces_its_old_connection(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(1000.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage:
        async with stage.job() as old:
            old.submit("r1.core0", 1)
            await trio.sleep(1)
            async with stage.job() as new:
                await trio.sleep(1)
                assert old.peer.lost.is_set()
                assert backend.runs[0].how == "killed"
                new.submit("r1.core0", 2, grant=2)
                assert (await new.wait(2))[-1] == (2, "finished")


async def test_what_a_scheduler_must_not_say_ends_its_connection_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    async with open_simulated_backend() as backend, open_stage(backend) as stage, stage.job("j2") as good:
        async with stage.job() as job:
            job.peer.post(StopRif())
            await job.peer.lost.wait()
        async with stage.job() as job:
            job.peer.post(DefineCode("j2", 1, b""))
            await job.peer.lost.wait()
            assert job.peer.reason == "DefineCode of job j2 instead of j1"
        async with stage.job() as job:
            job.peer.post(OpenJob("j1"))
            await job.peer.lost.wait()
        async with stage.job() as job:
            job.submit("r1.core0", Submission(1, 1, 99))
            await job.peer.lost.wait()
            assert job.peer.reason == "Submit: job j1 submits code that it has not defined: [99]"
        good.submit("r1.core0", 1, grant=50)
        assert await good.wait(1) == [(1, "finished")]


async def test_who_makes_up_a_grant_loses_its_connection_and_its_work_there(
    autojump_clock: MockClock,
) -> None:
    behave = by_task({1: Behaviour(60.0)})
    async with (
        open_simulated_backend(behave) as backend,
        open_stage(backend) as stage,
        stage.job("j2") as good,
        stage.job() as liar,
    ):
        stage.rts.newest["r1.core0"] = (1, 5)
        liar.submit("r1.core0", 1, grant=9)
        await trio.sleep(1.0)
        assert len(backend.runs) == 1
        good.submit("r1.core0", 2, grant=5)
        assert await good.wait(1) == [(2, "returned")]
        await liar.peer.lost.wait()
        assert liar.peer.reason == "r1.core0: grant (1, 9) was never given"
        await trio.sleep(1.0)
        good.submit("r1.core0", 3, grant=5)
        assert (await good.wait(2))[1:] == [(3, "finished")]
        assert [(run.task_id, run.how) for run in backend.runs] == [(1, "killed"), (3, "finished")]


async def test_who_has_nobody_to_ask_which_grant_was_given_goes_on(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(60.0)})
    async with (
        open_simulated_backend(behave) as backend,
        open_stage(backend) as stage,
        stage.job("j1") as one,
        stage.job("j2") as two,
    ):
        one.submit("r1.core0", 1, grant=5)
        two.submit("r1.core0", 2, grant=6)
        assert await two.wait(1) == [(2, "returned")]
        await trio.sleep(30.0)
        assert not one.peer.lost.is_set()
        stage.rts.newest["r1.core0"] = (1, 6)
        two.submit("r1.core0", 3, grant=6)
        assert (await two.wait(2))[1:] == [(3, "returned")]
        assert await one.wait(1) == [(1, "lost")]


async def test_only_jobs_are_served(autojump_clock: MockClock) -> None:
    async with open_simulated_backend() as backend, open_stage(backend) as stage:
        connection = stage.network.connect(stage.rif.address, role="control", name="me", expect="rif")
        async with connection as peer:
            await peer.lost.wait()
            assert peer.reason == "a RIF serves jobs, not control"


async def _gone(stage: Stage) -> str:
    with trio.fail_after(1):
        return await stage.rif.wait_ended()


async def test_a_rif_ends_with_its_rts_and_takes_everything_down(autojump_clock: MockClock) -> None:
    behave = by_task({1: Behaviour(1000.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1)
        await trio.sleep(1)
        stage.rts.peer.drop("gone")
        assert await _gone(stage) == "its run-time system is gone: gone"
        assert backend.computes == []


async def test_a_rif_stops_when_told(autojump_clock: MockClock) -> None:
    async with open_simulated_backend() as backend, open_stage(backend) as stage, stage.job() as job:
        job.submit("r1.core0", 1)
        await job.wait(1)
        stage.rts.peer.post(StopRif())
        assert await _gone(stage) == "it was told to stop"
        await stage.rts.gone.wait()
        assert backend.computes == []
    assert stage.rts.states()[-2:] == [("r1.core0", "stopped"), ("r1.core1", "stopped")]


async def test_leaving_the_scope_stops_the_rif(autojump_clock: MockClock) -> None:
    async with open_simulated_backend(by_task({1: Behaviour(1000.0)})) as backend:
        async with open_stage(backend) as stage, stage.job() as job:
            job.submit("r1.core0", 1)
            await trio.sleep(1)
        assert backend.computes == []
        assert await stage.rif.wait_ended() == "its scope was left"


async def test_records_tell_the_last_state_and_no_more_often_than_one_can_look(
    autojump_clock: MockClock,
) -> None:
    behave = by_task({}, Behaviour(0.01))
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage, stage.job() as job:
        for task_id in range(100):
            job.submit("r1.core0", task_id)
            await job.wait(task_id + 1)
        await trio.sleep(1)
        states = stage.rts.states()
        assert len(states) < 20
        assert states[-1] == ("r1.core0", "idle")
        busy = [record for record in stage.rts.records if record.state == "busy"]
        assert {(record.pid, record.job) for record in busy[1:]} == {(1, "j1")}


class SlowStaging:
    """Takes a second each way, and notes what goes on."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def stage_in(self, resource: Resource, job: str, submission: Submission) -> None:
        del resource, job
        await self._work(f"in {submission.task_id}")

    async def stage_out(self, resource: Resource, job: str, submission: Submission, outcome: Outcome) -> None:
        del resource, job, outcome
        await self._work(f"out {submission.task_id}")

    async def _work(self, what: str) -> None:
        self.log.append(f"{what} begins")
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            self.log.append(f"{what} is aborted")
            raise
        if what == "out 9":
            raise OSError("disk full")
        self.log.append(f"{what} ends")


async def test_staging_overlaps_with_compute(autojump_clock: MockClock) -> None:
    staging = SlowStaging()
    behave = by_task({}, Behaviour(1.0))
    async with open_simulated_backend(behave) as backend, open_stage(backend, staging=staging) as stage:
        async with stage.job() as job:
            begin = trio.current_time()
            job.submit("r1.core0", 1, 2, 3, stage_in=True, stage_out=True)
            assert await job.wait(3) == [(1, "finished"), (2, "finished"), (3, "finished")]
            assert trio.current_time() - begin == pytest.approx(5.0)
            assert job.begun == [1, 2, 3]


async def test_what_only_stores_data_has_begun_when_it_computes(autojump_clock: MockClock) -> None:
    async with open_simulated_backend() as backend, open_stage(backend, staging=SlowStaging()) as stage:
        async with stage.job() as job:
            job.submit("r1.core0", 1, 2)
            job.submit("r1.core0", 3, 4, grant=1, stage_out=True)
            await job.wait(4)
            assert job.begun == [3, 4]


async def test_fate_aborts_the_staging_of_the_neighbours(autojump_clock: MockClock) -> None:
    staging = SlowStaging()
    behave = by_task({2: Behaviour(0.5, error=TaskError("ValueError", "no"))}, Behaviour(1.0))
    async with open_simulated_backend(behave) as backend, open_stage(backend, staging=staging) as stage:
        async with stage.job() as job:
            job.submit("r1.core0", 1, 2, 3, stage_in=True, stage_out=True)
            assert sorted(await job.wait(3)) == [(1, "returned"), (2, "failed"), (3, "returned")]
            assert {"out 1 is aborted", "in 3 is aborted"} <= set(staging.log)


async def test_failed_staging_fails_the_task(autojump_clock: MockClock) -> None:
    staging = SlowStaging()
    async with open_simulated_backend() as backend, open_stage(backend, staging=staging) as stage:
        async with stage.job() as job:
            job.submit("r1.core0", Submission(9, 1, 7, (), TaskOptions(stage_out=True)))
            assert await job.wait(1) == [(9, "failed")]
            assert job.outcomes[0].error == TaskError("staging", "disk full")
