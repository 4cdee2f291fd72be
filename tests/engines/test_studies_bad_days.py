"""Studies while Slurm has a bad day: held jobs, walltime, lost nodes, answers that do not come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.support import World, wait_until
from tests.engines import slurm as slurm_cluster
from tests.engines.conftest import skip_without
from tests.engines.slurm import UNCLEAR_SBATCH, Slurm
from tests.engines.studies import LONG_S, StudyRun, open_study_world

ON_NODES = {"scheduler_arg_server": ["--nodelist=node1"], "scheduler_arg_client": ["--nodelist=node2"]}


@pytest.fixture(scope="module")
def wide() -> Iterator[Slurm]:
    """A cluster on which a server and clients run side by side, on nodes of their own."""
    skip_without(slurm_cluster.missing())
    with TemporaryDirectory(prefix="slurm-") as folder:
        with slurm_cluster.open_slurm(Path(folder), nodes=2, cores=2) as cluster:
            yield cluster


@pytest.fixture
def world(wide: Slurm) -> Iterator[World]:
    with open_study_world(wide) as place:
        yield place


def launch(world: World, groups: int, has_journal: bool = False, **options: object) -> StudyRun:
    return StudyRun.of_clients(world, "slurm", groups, 1, has_journal, **{**ON_NODES, **options})


def job_id(study: StudyRun, client_id: int) -> str:
    """Return the id of the job of a client, which was told."""
    return str([entry[3] for entry in study.log() if entry[1] == client_id][-1])


def finish(study: StudyRun) -> None:
    """Let all clients end."""
    study.touch("gate")
    assert study.end() == 0, study.describe()


def test_a_job_that_is_held_is_told_as_held_until_it_is_released(world: World, wide: Slurm):
    study = launch(world, 1, scheduler_arg_client=["--nodelist=node2", "--hold"])
    study.wait_for("held", 0)
    wide.run("scontrol", "release", job_id(study, 0))
    study.wait_for("running", 0)
    finish(study)
    assert study.states(0)[-3:] == ["held", "running", "completed"]


def test_a_client_beyond_its_walltime_has_failed(world: World, wide: Slurm):
    study = launch(world, 2)
    study.wait_for_output(0, 1)
    study.wait_for("running", 0, 1)
    wide.run("scontrol", "update", f"JobId={job_id(study, 0)}", "EndTime=now")
    study.wait_for("failed", 0)
    assert study.states(1)[-1] == "running"
    finish(study)


def test_clients_on_a_node_that_is_lost_have_failed(world: World, wide: Slurm):
    study = launch(world, 2)
    study.wait_for("running", 0, 1)
    wide.run("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=test")
    try:
        study.wait_for("failed", 0, 1)
    finally:
        wide.run("scontrol", "update", "NodeName=node2", "State=RESUME")
    finish(study)


def test_a_job_whose_submission_seems_to_fail_is_found_by_its_name(world: World, wide: Slurm):
    commands = world.folder / "commands"
    commands.mkdir()
    (commands / "sbatch").write_text(UNCLEAR_SBATCH.format(path=wide.environment["PATH"]))
    (commands / "sbatch").chmod(0o755)
    world.environment["PATH"] = f"{commands}:{wide.environment['PATH']}"
    study = launch(world, 1)
    study.wait_for("running", 0)
    assert len(wide.jobs("RUNNING", "PENDING")) == 2
    finish(study)


def test_a_study_that_is_interrupted_while_sbatch_hangs_leaves_nothing(world: World, wide: Slurm):
    study = launch(world, 1)
    study.wait_for_output(0)
    wide.pause_controller()
    try:
        study.touch("more")
        wait_until(lambda: world.pids("sbatch --parsable"), "sbatch hangs")
        study.interrupt()
    finally:
        wide.continue_controller()
    assert study.end() == 130, study.describe()
    wait_until(lambda: wide.jobs("RUNNING", "PENDING") == [], "no batch job is left")


def test_a_server_that_is_killed_is_followed_by_another_which_has_clients_of_its_own(
    world: World, wide: Slurm
):
    study = launch(world, 1)
    study.wait_for_output(0)
    study.wait_for("running", 0)
    before = job_id(study, 0)
    study.kill_server(0)
    wait_until(lambda: [1, "connected", "CHECKPOINT"] in study.log(), "another server connects", LONG_S)
    wait_until(lambda: job_id(study, 0) not in ("", before), "it has a client of its own", LONG_S)
    wait_until(lambda: before not in wide.jobs("RUNNING", "PENDING"), "the client of before is gone", LONG_S)
    finish(study)


def test_a_launcher_that_is_started_again_takes_back_the_jobs_of_a_killed_one(world: World, wide: Slurm):
    """One client ends while there is no launcher; the server stays, and is told."""
    study = launch(world, 2, has_journal=True)
    study.wait_for("running", 0, 1)
    before = [job_id(study, 0), job_id(study, 1)]
    study.kill_launcher()
    study.touch("gate.0")
    wait_until(lambda: before[0] not in wide.jobs("RUNNING"), "a client ends", 180)
    study.start_again()
    study.wait_for("completed", 0)
    assert study.states(1)[-1] == "running"
    finish(study)
    assert [job_id(study, 0), job_id(study, 1)] == before
    assert [study.states(client_id).count("completed") for client_id in (0, 1)] == [1, 1]
    assert [entry[0] for entry in study.log() if entry[1] == "connected"] == [0]
