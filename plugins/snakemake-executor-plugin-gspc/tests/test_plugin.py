"""The plugin by itself, and the workflows with which Snakemake tests any executor."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

WHY = "Snakemake or the plugin is not installed: make bridges"
tests = pytest.importorskip("snakemake.common.tests", reason=WHY)
plugin = pytest.importorskip("snakemake_executor_plugin_gspc", reason=WHY)
jobs = pytest.importorskip("snakemake_executor_plugin_gspc.jobs", reason=WHY)
needs = pytest.importorskip("snakemake_executor_plugin_gspc.needs", reason=WHY)
running = pytest.importorskip("snakemake_executor_plugin_gspc.running", reason=WHY)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore")  # Snakemake runs in this process
class TestWorkflows(tests.TestWorkflowsLocalStorageBase):
    """Snakemake's own tests of executors."""

    __test__ = True

    def get_executor(self) -> str:
        return "gspc"

    def get_executor_settings(self) -> object:
        return plugin.ExecutorSettings()


def test_a_host_without_the_directory(tmp_path: Path) -> None:
    job = jobs.JobCommand("true", None, str(tmp_path / "there"), {}, str(tmp_path / "log"))
    with pytest.raises(
        jobs.NotShared, match=r"host \S+ cannot use .*/there: No such file or directory\. The"
    ):
        jobs.run_job(job)


def test_what_jobs_need() -> None:
    offered = {"core": 4, "node": 1, "gpu": 2}
    stated = {
        "mem_mb": 300,
        "runtime": 5,
        "gpu": 2,
        "disk_mb": 9,
        "tmpdir": "/tmp",
        "flag": True,
        "_cores": 3,
    }
    assert needs.needs_of(3, stated, offered) == needs.JobNeeds(
        3, ("core",) * 3 + ("gpu",) * 2, 300_000_000, 300.0
    )
    assert needs.needs_of(64, {}, offered) == needs.JobNeeds(4, ("core",) * 4)
    assert needs.needs_of(64, {"gpu": 1}, {}) == needs.JobNeeds(64, ("core",) * 64)
    assert needs.needs_of(0, {"node": 1, "gpu": 0}, offered) == needs.JobNeeds(1, ("node",))
    with pytest.raises(needs.NotOffered, match="the job asks for gpu=3, but there is gpu=2"):
        needs.needs_of(1, {"gpu": 3}, offered)


def test_commands_that_need_a_shell_are_run_by_one() -> None:
    start = f"{sys.executable} -m snakemake"
    assert plugin.arguments_of(f"""{start} --target-jobs 'a:b=c d' "it's" """) == [
        "--target-jobs",
        "a:b=c d",
        "it's",
    ]
    assert plugin.arguments_of(f"module load x && {start} --force") is None
    assert plugin.arguments_of(f"{start} 'not closed") is None


@pytest.mark.parametrize(
    ("status", "why"),
    [(0, ""), (3, "ended with exit status 3"), (-9, "ended by signal SIGKILL"), (-35, "35")],
)
def test_how_a_job_has_ended(status: int, why: str) -> None:
    future: Future[int] = Future()
    future.set_result(status)
    assert running.how(future).why.endswith(why)
