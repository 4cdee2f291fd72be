"""Jobs that are over are known to the next run-time system that has the same state."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from gspc_trio.components.rts.history import History
from gspc_trio.components.rts.messages import (
    EndState,
    FailedTask,
    JobEnd,
    JobSummary,
    LeaveJob,
    PortOutputs,
    RegisterJob,
)
from gspc_trio.components.rts.shell.history_files import HistoryFiles
from gspc_trio.components.rts.shell.service import RtsService, open_rts_service
from gspc_trio.components.rts.state import Limits
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.messages import OutputLine
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.network import Network
from tests.components.rts.shell.support import RTS
from tests.support import until

STORED = Path(__file__).parents[3] / "e2e" / "stored" / "ended"

SUMMARY = JobSummary(
    {"work": {TaskState.FINISHED: 2}}, lines=(OutputLine(1, "work", False, "höre"),), report="two\n"
)
END = JobEnd(EndState.FINISHED, "", {TaskState.FINISHED: 2}, 1.5, SUMMARY)


@asynccontextmanager
async def run_time_system(folder: Path, grace_s: float = 30.0) -> AsyncIterator[tuple[Network, RtsService]]:
    """A run-time system that keeps jobs in a directory."""
    network, files = Network(wire_codec), HistoryFiles(folder)
    async with open_rts_service(
        network, listen=(RTS,), strategies={}, prepare=files.restore, limits=Limits(grace_s=grace_s)
    ) as service:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(files.follow, service)
            yield network, service
            nursery.cancel_scope.cancel()
    files.finish(service)


async def leave(network: Network, name: str, end: JobEnd) -> None:
    async with network.connect(RTS, role="job", name="job", expect="rts") as peer:
        await peer.call(RegisterJob(name, 5, "anna"))
        await peer.call(LeaveJob(end=end))


async def test_the_next_run_time_system_knows_how_jobs_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "ended"
    async with run_time_system(folder) as (network, service):
        await leave(network, "count", END)
        await leave(network, "fail", JobEnd(EndState.FAILED, "a task failed"))
        await until(lambda: len(list(folder.glob("j*.json"))) == 2)
        async with network.connect(RTS, role="job", name="job", expect="rts") as peer:
            await peer.call(RegisterJob("endless", 7, "anna"))
            await service.stop()
        told = [service.ended_job(job) for job in ("j1", "j2")]
    folder.joinpath("j9.json").write_text('{"job": 3}')
    folder.joinpath("new").write_text("half a fi")

    async with run_time_system(folder) as (network, service):
        assert "j9.json is damaged" in caplog.text
        for before in told:
            assert before is not None
            after = service.ended_job(before.job)
            assert after is not None
            assert after.ended_s == pytest.approx(before.ended_s, abs=1e-3)
            assert (after.summary, after.tasks, after.pid) == (before.summary, before.tasks, before.pid)
        names = [(job.job, job.name, job.state, job.detail) for job in service.ended_jobs()]
        assert names == [
            ("j1", "count", "finished", ""),
            ("j2", "fail", "failed", "a task failed"),
            ("j3", "endless", "stopped", "the run-time system was stopped"),
        ]
        shown = service.records.progress.ended_jobs  # in gspc-top
        assert [(job.job, job.state, job.total) for job in shown] == [
            ("j1", "finished", 2),
            ("j2", "failed", 0),
            ("j3", "stopped", 0),
        ]
    assert not folder.joinpath("j9.json").exists()


async def test_files_of_jobs_that_are_forgotten_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ended"
    monkeypatch.setattr(History.__init__, "__defaults__", (2, 1 << 20))
    async with run_time_system(folder) as (network, _):
        for _number in range(4):
            await leave(network, "count", END)
    assert sorted(path.name for path in folder.glob("*.json")) == ["j3.json", "j4.json"]


async def test_a_disk_that_takes_no_more_ends_nothing_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "ended"
    async with run_time_system(folder) as (network, _):
        await until(folder.exists)
        folder.rename(tmp_path / "away")
        await leave(network, "count", END)
        await until(lambda: "cannot be saved" in caplog.text)
        (tmp_path / "away").rename(folder)
        await until(folder.joinpath("j1.json").exists)


async def test_a_job_that_an_earlier_commit_has_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "ended"
    shutil.copytree(STORED, folder)
    async with run_time_system(folder) as (_, service):
        job = service.ended_job("j3")
    assert job is not None
    assert (job.name, job.state, job.pid, job.tasks[TaskState.FAILED]) == ("count", "failed", 4711, 1)
    summary = job.summary
    assert summary.failures == (
        FailedTask(*(2, "work", 1, "r1.core0", "anna", "ValueError: bad", "Traceback", "out\n", "err\n")),
    )
    assert summary.lines == (OutputLine(1, "work", True, "one"),)
    assert summary.outputs == {"results": PortOutputs(("1",), 2)}
    assert (summary.left_out, summary.report) == (3, "a report\n")
    assert summary.report_error == "the report failed: oh"
