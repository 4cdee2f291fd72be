"""Sudden ends, with real processes: signals and deaths of every role; nothing is left (``world`` looks).

Requirements: RTS-5.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.support import GATED, HANG_S, MARKING, SLEEPERS, World, completed, one_line, wait_until


def start_and_see_a_task_finish(world: World) -> subprocess.Popen[str]:
    process = world.start("jobserver", "run", world.workflow(SLEEPERS), "--records", "records")
    records = world.folder / "records"
    wait_until(lambda: records.exists() and '"finished"' in records.read_text(), "a task to finish")
    return process


@pytest.mark.parametrize(
    ("signals", "statuses"),
    [
        ((signal.SIGINT,), {130}),
        ((signal.SIGTERM,), {143}),
        ((signal.SIGHUP,), {129}),
        # Each may be taken by another thread, so which of them comes first is the kernel's affair.
        ((signal.SIGINT, signal.SIGINT, signal.SIGTERM), {130, 143}),
    ],
)
def test_a_signal_in_the_middle_ends_everything(
    world: World, signals: tuple[int, ...], statuses: set[int]
) -> None:
    process = start_and_see_a_task_finish(world)
    for number in signals:
        process.send_signal(number)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode in statuses
    assert "gspc-jobserver: interrupted: " in err
    assert "Traceback" not in err
    world.wait_nothing_left()


def test_a_run_time_system_takes_its_file_along_when_its_terminal_is_closed(world: World) -> None:
    rts = world.start_rts("--cores", "1")
    rts.send_signal(signal.SIGHUP)
    assert completed(rts).returncode == 129
    assert not Path(world.connection_file).exists()
    world.wait_nothing_left()


def test_under_nohup_the_end_of_the_terminal_is_survived(world: World) -> None:
    rts = world.start_program("nohup", sys.executable, "-m", "gspc_trio.cli.rts", "start", "--cores", "1")
    wait_until(Path(world.connection_file).exists, "the run-time system to be there")
    rts.send_signal(signal.SIGHUP)
    world.stop_rts()
    assert rts.poll() == 0, "it has ended when it is said to be stopped"


def test_ctrl_c_at_a_terminal_reaches_only_the_job_server(world: World) -> None:
    """A terminal sends SIGINT to the whole foreground process group."""
    process = start_and_see_a_task_finish(world)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "Traceback" not in err


# Deaths -----------------------------------------------------------------------------------------------------


def test_kill_of_a_compute_process_runs_its_task_again(world: World) -> None:
    traces = world.folder / "traces"
    traces.mkdir()
    process = world.start("jobserver", "run", world.workflow(MARKING), "--set", f"folder={traces}", "--json")

    def computing() -> int | None:
        latest = max(traces.iterdir(), key=lambda path: path.stat().st_mtime_ns, default=None)
        return int(latest.suffix[1:]) if latest is not None and len(list(traces.iterdir())) > 20 else None

    os.kill(wait_until(computing, "tasks to run"), signal.SIGKILL)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    data = json.loads(out)
    assert sorted(data["outputs"]["results"]) == list(range(200))
    assert data["tasks"]["finished"] == 200
    assert len(list(traces.iterdir())) <= 201, "only what was in compute runs again"


def test_kill_of_a_rif_runs_its_tasks_again(world: World) -> None:
    world.start_rts("--cores", "1", "--host", "here", "--host", "there")
    gate = world.folder / "gate"
    given = ("--set", f"gate={gate}", "--rts", world.connection_file, "--json")
    process = world.start("jobserver", "run", world.workflow(GATED), *given)
    wait_until(lambda: world.held_cores() == 2, "both RIFs to work")
    os.kill(world.pids("rif_process")[0], signal.SIGKILL)
    gate.touch()
    done = completed(process)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(100))
    wait_until(
        lambda: world.status()["classes"]["core"]["total"] == 2,
        "the RIF to be started again",
    )
    world.stop_rts()


def test_kill_of_the_job_server_gives_everything_back(world: World) -> None:
    world.start_rts("--cores", "2")
    path = world.workflow(SLEEPERS)
    process = world.start("jobserver", "run", path, "--set", "seconds=60", "--rts", world.connection_file)
    wait_until(lambda: world.held_cores() == 2, "the job to hold the cores")
    process.kill()
    wait_until(lambda: world.held_cores() == 0, "the cores to be free")
    data = world.run_json("jobserver", "run", path, "--set", "n=4", "--rts", world.connection_file)
    assert data["tasks"]["finished"] == 4
    world.stop_rts()


def test_kill_of_the_rts_leaves_no_process(world: World) -> None:
    rts = world.start_rts("--cores", "2")
    job = world.start(
        "jobserver", "run", world.workflow(SLEEPERS), "--set", "seconds=60", "--rts", world.connection_file
    )
    wait_until(lambda: world.held_cores() == 2, "the job to hold the cores")
    rts.kill()
    _, err = job.communicate(timeout=HANG_S)
    assert job.returncode == 1
    assert "run-time system" in one_line(err)
    world.wait_nothing_left()
    again = world.start_rts("--cores", "1")
    assert again.poll() is None, "the stale connection file is replaced"
    world.stop_rts()


def test_kill_of_an_embedded_job_server_leaves_no_process(world: World) -> None:
    process = world.start("jobserver", "run", world.workflow(SLEEPERS), "--set", "seconds=60")
    wait_until(lambda: len(world.pids("compute")) >= 2, "compute processes")
    process.kill()
    process.wait()
    world.wait_nothing_left()


def test_cancel_takes_the_children_of_a_program(world: World) -> None:
    script = "setsid sh -c 'sleep 1000 & sleep 1000' & (sh -c 'sleep 1000' &) ; sleep 1000"
    text = f"""
from gspc_trio import Program, Workflow, farm

def workflow():
    return Workflow(farm(Program(["sh", "-c", {script!r}]), name="family"), {{"items": [1, 2]}})
"""
    process = world.start("jobserver", "run", world.workflow(text), "--cores", "2")
    wait_until(lambda: len(world.pids("sleep 1000")) >= 8, "the family to be there")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HANG_S)
    world.wait_nothing_left()


def test_stop_takes_everything_down(world: World) -> None:
    rts = world.start_rts("--cores", "2")
    world.stop_rts()
    assert rts.wait(timeout=HANG_S) == 0
    assert not Path(world.connection_file).exists()


def test_the_world_sees_what_is_left(world: World) -> None:
    """The check itself: a marked process is seen until it is gone."""
    left = subprocess.Popen(["sleep", "1000"], env=world.environment)
    assert world.pids("sleep") == [left.pid]
    left.kill()
    left.wait()
    assert world.pids() == []
