"""How adapters start jobs (MEL-4, MEL-6): commands, scripts and files; those of installed packages, too."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from gspc_trio.components.launcher.adapter import (
    BUILT_IN,
    DirectStart,
    HostProcess,
    IndirectStart,
    find_adapter,
)
from gspc_trio.components.launcher.events import SubmitToEngine
from gspc_trio.components.launcher.options import BadOption, LauncherOptions, launcher_options, option_table
from gspc_trio.components.launcher.script import describe_job
from gspc_trio.components.launcher.study_job import StudyJob, study_job

SERVER = SubmitToEngine(0, "s-0", 1, from_checkpoint=True)
CLIENT = SubmitToEngine(3, "s-3", 1, (7,), ("solve", "a b"))
GROUP = SubmitToEngine(4, "s-4", 1, (7, 8), ("solve",))


def usual(scheduler: str, **changed: object) -> LauncherOptions:
    change: Callable[..., LauncherOptions] = partial(evolve, LauncherOptions(scheduler=scheduler))
    return change(**{"server_command": ("serve", "-n"), **changed})


def job_of(asked: SubmitToEngine, options: LauncherOptions, folder: Path = Path("/out")) -> StudyJob:
    return study_job(asked, options, str(folder), str(folder), "/out/server.0.json")


def test_each_built_in_adapter_is_there_under_its_own_name():
    times = {f"scheduler_arg_{kind}": ("-l", "walltime=1") for kind in ("container", "server", "client")}
    said = {name: usual(name, **(times if name == "oar-hybrid" else {})) for name in BUILT_IN}
    assert [find_adapter(options).name for options in said.values()] == list(BUILT_IN)


def test_files_are_named_by_the_number_of_the_submission():
    server, client, group = (job_of(asked, usual("local")) for asked in (SERVER, CLIENT, GROUP))
    assert (server.output, server.errors) == ("/out/job.0.server.out", "/out/job.0.server.err")
    assert client.processes[0].status == "/out/job.3.client.7.status"
    assert [one.output for one in group.processes] == ["/out/job.4.client.7.out", "/out/job.4.client.8.out"]
    assert (group.output, group.file("sbatch", "sh")) == ("/out/job.4.out", "/out/sbatch.4.sh")
    assert [describe_job(one) for one in (server, client, group)] == ["server 1", "client 7", "clients 7, 8"]


def test_jobs_are_told_what_they_are():
    server, client = job_of(SERVER, usual("local")), job_of(CLIENT, usual("local"))
    both = {"GSPC_INCARNATION": "1", "GSPC_OUTPUT_DIR": "/out"}
    own = {"GSPC_CHECKPOINT": "1", "GSPC_SERVER_FILE": "/out/server.0.json"}
    assert server.processes[0].environment == both | own
    assert client.processes[0].environment == both | {"GSPC_CLIENT_ID": "7"}
    first = job_of(evolve_first(), usual("local"))
    assert "GSPC_CHECKPOINT" not in first.processes[0].environment


def evolve_first() -> SubmitToEngine:
    return SubmitToEngine(0, "s-0", 0)


def test_local_jobs_are_processes_that_are_found_by_their_name():
    start = find_adapter(usual("local")).start(job_of(GROUP, usual("local")))
    assert isinstance(start, DirectStart)
    assert start.processes == (
        HostProcess(("/bin/sh", "/out/job.4.client.7.sh", "gspc-job=s-4"), (7,)),
        HostProcess(("/bin/sh", "/out/job.4.client.8.sh", "gspc-job=s-4"), (8,)),
    )
    assert set(start.files) == {"/out/job.4.client.7.sh", "/out/job.4.client.8.sh"}


def test_a_script_runs_a_command_and_tells_how_it_has_ended(tmp_path: Path):
    command = ("/bin/sh", "-c", 'echo "$GSPC_CLIENT_ID $GSPC_CHECKPOINT$0"; exit 3', "a b")
    asked = SubmitToEngine(3, "s-3", 1, (7,), command)
    start = find_adapter(usual("local")).start(job_of(asked, usual("local"), tmp_path))
    assert isinstance(start, DirectStart)
    for path, content in start.files.items():
        Path(path).write_text(content)
    done = subprocess.run(start.processes[0].command, env={"GSPC_CHECKPOINT": "1"}, check=False)
    assert done.returncode == 3
    names = {path.name: path.read_text() for path in tmp_path.iterdir() if path.suffix != ".sh"}
    assert names == {
        "job.3.client.7.out": "7 a b\n",
        "job.3.client.7.err": "",
        "job.3.client.7.status": "3\n",
    }


def test_without_output_what_jobs_print_goes_nowhere():
    job = job_of(CLIENT, usual("local", std_output=False))
    start = find_adapter(usual("local")).start(job)
    assert "solve 'a b' >/dev/null 2>/dev/null" in start.files["/out/job.3.client.7.sh"]
    assert (job.output, job.errors) == ("/dev/null", "/dev/null")


def test_slurm_jobs_are_submitted_with_the_arguments_of_the_options():
    options = usual("slurm", scheduler_arg=("-p", "x"), scheduler_arg_server=("-n2",), std_output=False)
    start = find_adapter(options).start(job_of(SERVER, options, Path("/o%t")))
    assert isinstance(start, IndirectStart)
    assert start.command[4:] == (
        *("sbatch", "--parsable", "--job-name=s-0", "--output=/dev/null", "--no-requeue"),
        *("--error=/dev/null", "-p", "x", "-n2"),
    )
    assert start.files == {"/o%t/sbatch.0.sh": start.stdin}
    assert "\nsrun /bin/sh -c " in start.stdin
    assert " serve -n </dev/null\n" in start.stdin
    assert "unset GSPC_CLIENT_ID" in start.stdin


def test_outputs_of_slurm_jobs_are_files_of_the_study_whatever_its_name():
    start = find_adapter(usual("slurm")).start(job_of(CLIENT, usual("slurm"), Path("/o%t")))
    assert isinstance(start, IndirectStart)
    files = ("--output=/o%%t/job.3.client.7.out", "--error=/o%%t/job.3.client.7.err")
    assert set(files) < set(start.command)


def test_the_command_that_starts_processes_may_be_another():
    options = usual(
        "slurm", scheduler_client_command="mpirun", scheduler_client_command_options=("--oversubscribe",)
    )
    start = find_adapter(options).start(job_of(CLIENT, options))
    assert isinstance(start, IndirectStart)
    assert "\nmpirun --oversubscribe solve 'a b' </dev/null\n" in start.stdin


def test_local_has_no_arguments_of_a_scheduler():
    with pytest.raises(BadOption, match="scheduler_arg: local has no scheduler that could be given '-p'"):
        find_adapter(usual("local", scheduler_arg_client=("-p",)))


FOG = """
from gspc_trio.components.launcher.adapters.local import LocalAdapter

class Fog(LocalAdapter):
    name = "fog"

class Thin:
    name = "thin"
"""


def test_adapters_of_installed_packages_are_values_of_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "fog_adapter.py").write_text(FOG)
    info = tmp_path / "fog_adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fog-adapter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gspc_trio.adapters]\nfog = fog_adapter:Fog\nthin = fog_adapter:Thin\ngone = fog_adapter:absent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_adapter(launcher_options({"scheduler": "fog"})).name == "fog"
    row = next(one for one in option_table() if one.name == "scheduler")
    assert set(row.choices) > {"fog", "slurm"}
    with pytest.raises(BadOption, match=r"there is no 'fogg' \(did you mean 'fog'\?\)"):
        launcher_options({"scheduler": "fogg"})
    with pytest.raises(BadOption, match=r"scheduler: 'thin' of fog_adapter:Thin is .*, which has no check"):
        find_adapter(usual("thin"))
    with pytest.raises(BadOption, match="'gone' of fog_adapter:absent cannot be used: AttributeError"):
        find_adapter(usual("gone"))
