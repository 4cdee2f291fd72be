"""How adapters of batch systems and of Open MPI start jobs: command lines, scripts of groups, containers."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
from pathlib import Path

import pytest

from gspc_trio.components.launcher.adapter import DirectStart, HostProcess, IndirectStart, find_adapter
from gspc_trio.components.launcher.adapters.oar_hybrid import OarHybridAdapter
from gspc_trio.components.launcher.events import SubmitToEngine
from gspc_trio.components.launcher.options import BadOption
from gspc_trio.components.provision.batch import CommandResult
from tests.components.launcher.test_adapters import CLIENT, GROUP, SERVER, job_of, usual
from tests.e2e.support import HANG_S


def direct(scheduler: str, asked: SubmitToEngine, **options: object) -> DirectStart:
    said = usual(scheduler, **options)
    start = find_adapter(said).start(job_of(asked, said))
    assert isinstance(start, DirectStart)
    return start


def indirect(scheduler: str, asked: SubmitToEngine, **options: object) -> IndirectStart:
    said = usual(scheduler, **options)
    start = find_adapter(said).start(job_of(asked, said))
    assert isinstance(start, IndirectStart)
    return start


def line(script: str, program: str) -> list[str]:
    """Return the words of the only line that runs this program, without what says for srun that it ended."""
    [found] = [one for one in script.splitlines() if one.startswith(f"{program} ")]
    words = shlex.split(re.sub("( >[^ ]+ 2>[^ ]+)? </dev/null$", "", found))
    if program == "srun":
        at = words.index("/bin/sh")
        del words[at : at + 4]
    return words


# Open MPI ---------------------------------------------------------------------------------------------------


def test_a_job_of_open_mpi_is_an_mpiexec_that_hands_on_what_the_job_is_told():
    start = direct("openmpi", CLIENT, scheduler_arg=("--oversubscribe",))
    assert start.processes == (HostProcess(("/bin/sh", "/out/mpiexec.3.sh", "gspc-job=s-3"), (7,)),)
    assert line(start.files["/out/mpiexec.3.sh"], "mpiexec") == [
        *("mpiexec", "--oversubscribe", "-n", "1"),
        *("-x", "GSPC_INCARNATION", "-x", "GSPC_OUTPUT_DIR", "-x", "GSPC_CLIENT_ID", "-x", "GSPC_BATCH_ID"),
        *("solve", "a b"),
    ]
    server = direct("openmpi", SERVER, scheduler_server_command="mpirun")
    assert server.processes[0].client_ids == ()
    assert line(server.files["/out/mpiexec.0.sh"], "mpirun")[-2:] == ["serve", "-n"]


def test_a_group_of_open_mpi_is_one_mpiexec_with_colons():
    start = direct("openmpi", GROUP, scheduler_client_command_options=("-n", "2"))
    assert [one.client_ids for one in start.processes] == [(7, 8)]
    words = line(start.files["/out/mpiexec.4.sh"], "mpiexec")
    assert words[words.index("-n") :] == [
        *("-n", "1", "-n", "2", "/bin/sh", "/out/job.4.client.7.sh", ":"),
        *("-n", "1", "-n", "2", "/bin/sh", "/out/job.4.client.8.sh"),
    ]
    assert "--enable-recovery" in words


def write(start: DirectStart | IndirectStart) -> None:
    for path, content in start.files.items():
        Path(path).write_text(content)


def run(script: Path, held: int | None = None, **environment: str) -> int:
    told = {"PATH": os.environ["PATH"], **environment}
    files = () if held is None else (held,)
    return subprocess.run(["/bin/sh", str(script)], env=told, pass_fds=files, check=False).returncode


def statuses(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in folder.glob("*.status")}


def test_the_last_rank_of_a_client_tells_the_worst_status_of_all(tmp_path: Path):
    options = usual("openmpi")
    asked = SubmitToEngine(4, "s-4", 1, (7, 8), ("/bin/sh", "-c", "exit $OMPI_COMM_WORLD_RANK"))
    start = find_adapter(options).start(job_of(asked, options, tmp_path))
    write(start)
    script = tmp_path / "job.4.client.8.sh"
    assert run(script, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="3") == 3
    assert statuses(tmp_path) == {}
    assert run(script, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="2") == 2
    assert statuses(tmp_path) == {"job.4.client.8.status": "3"}
    (tmp_path / "job.4.client.7.cancel").touch()
    run(tmp_path / "job.4.client.7.sh", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
    assert statuses(tmp_path)["job.4.client.7.status"] == "143"


def test_who_watches_for_a_cancel_ends_with_what_it_watches(tmp_path: Path):
    """They end though the signal that is to end them may come before their shell has begun."""
    options = usual("openmpi")
    asked = SubmitToEngine(4, "s-4", 1, (7, 8), ("true",))
    write(find_adapter(options).start(job_of(asked, options, tmp_path)))
    ended, held = os.pipe()  # what they read ends when all who hold it have ended
    for _ in range(5):
        assert (
            run(tmp_path / "job.4.client.8.sh", held, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1") == 0
        )
    os.close(held)
    try:
        assert select.select([ended], [], [], HANG_S)[0]
    finally:
        os.close(ended)


def test_a_client_whose_ranks_were_all_killed_has_a_status(tmp_path: Path):
    """Here mpiexec is a program that runs nothing."""
    options = usual("openmpi", scheduler_client_command="false")
    start = find_adapter(options).start(job_of(GROUP, options, tmp_path))
    write(start)
    (tmp_path / "job.4.client.7.status").write_text("0\n")
    run(tmp_path / "mpiexec.4.sh")
    assert statuses(tmp_path) == {"job.4.client.7.status": "0", "job.4.client.8.status": "1"}


# Slurm ------------------------------------------------------------------------------------------------------


def test_a_group_of_slurm_is_a_job_with_a_step_for_each_client():
    start = indirect("slurm", GROUP, scheduler_arg_client=("--mem=1G",))
    assert start.command[-2:] == ("--ntasks=2", "--mem=1G")
    assert start.stdin == start.files["/out/sbatch.4.sh"]
    assert "watch /out/job.4.client.7 &\nwatch /out/job.4.client.8 &\n" in start.stdin
    step = line(start.files["/out/job.4.client.8.sh"], "srun")
    assert step == ["srun", "--nodes=1", "--ntasks=1", "--exact", "solve"]
    more = indirect("slurm", GROUP, scheduler_client_command_options=("-n4",))
    step = line(more.files["/out/job.4.client.8.sh"], "srun")
    assert step == ["srun", "--ntasks=1", "--exact", "-n4", "solve"]


@pytest.mark.parametrize(
    ("srun", "status"),
    [
        ('for SLURM_PROCID in 0 1; do export SLURM_PROCID; "$@"; done', "0"),
        ('export SLURM_PROCID=1; "$@"', "1"),
        ("exit 0", "1"),
        ("exit 3", "3"),
    ],
    ids=["all tasks", "one of two", "none", "srun fails"],
)
def test_what_srun_says_is_no_success_if_the_tasks_do_not_say_so_too(srun: str, status: str, tmp_path: Path):
    """When the node of a task is lost, srun ends with the status 0."""
    (tmp_path / "srun").write_text(f"#!/bin/sh\nexport SLURM_STEP_NUM_TASKS=2\n{srun}\n")
    (tmp_path / "srun").chmod(0o755)
    options = usual("slurm")
    asked = SubmitToEngine(3, "s-3", 1, (7,), ("true",))
    start = find_adapter(options).start(job_of(asked, options, tmp_path))
    write(start)
    assert run(tmp_path / "sbatch.3.sh", PATH=f"{tmp_path}:{os.environ['PATH']}") == int(status)
    assert statuses(tmp_path) == {"job.3.client.7.status": status}
    assert not list(tmp_path.glob("*.ended*"))


def test_a_job_is_not_told_how_large_the_job_is_that_the_launcher_runs_in():
    outside = indirect("slurm", SERVER).command[:4]
    there = {"PATH": os.environ["PATH"], "SLURM_NTASKS": "3", "SLURM_CONF": "/conf"}
    told = subprocess.run((*outside, "env"), env=there, capture_output=True, text=True, check=True).stdout
    assert [line for line in told.splitlines() if "SLURM" in line] == ["SLURM_CONF=/conf"]


def test_jobs_in_the_allocation_of_the_launcher_are_steps():
    start = direct("slurm-srun", GROUP, scheduler_arg=("--mem=0",))
    assert [(one.command, one.client_ids, one.end_rest[3:]) for one in start.processes] == [
        (("/bin/sh", "/out/job.4.client.7.sh", "gspc-job=s-4"), (7,), ("sh", "s-4.7")),
        (("/bin/sh", "/out/job.4.client.8.sh", "gspc-job=s-4"), (8,), ("sh", "s-4.8")),
    ]
    step = line(start.files["/out/job.4.client.7.sh"], "srun")
    assert step == ["srun", "--job-name=s-4.7", "--nodes=1", "--ntasks=1", "--exact", "--mem=0", "solve"]
    assert line(direct("slurm-srun", SERVER).files["/out/job.0.server.sh"], "srun")[-2:] == ["serve", "-n"]


@pytest.mark.parametrize(
    ("allocation", "asked", "cancelled"),
    [
        ("5", "--steps --noheader --format=%i %j --jobs=5", ["--signal=KILL 5.1"]),
        ("", "--steps --noheader --format=%i %j", ["--signal=KILL 5.1", "--quiet --name=s-4.7"]),
    ],
)
def test_the_step_of_a_killed_srun_is_cancelled_and_no_other(
    allocation: str, asked: str, cancelled: list[str], tmp_path: Path
):
    (tmp_path / "squeue").write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/asked\necho 5.0 s-4\necho 5.1 s-4.7\necho 5.2 s-4.70\n'
    )
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/cancelled\n')
    for name in ("squeue", "scancel"):
        (tmp_path / name).chmod(0o755)
    command = direct("slurm-srun", GROUP).processes[0].end_rest
    subprocess.run(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": allocation}, check=True)
    assert (tmp_path / "asked").read_text().strip() == asked
    assert (tmp_path / "cancelled").read_text().splitlines() == cancelled


def test_a_mixed_study_has_its_server_by_sbatch_and_its_clients_by_srun():
    assert indirect("slurm-mixed", SERVER).command[4] == "sbatch"
    assert direct("slurm-mixed", CLIENT).processes[0].client_ids == (7,)


def test_mpirun_starts_what_runs_in_jobs_of_slurm():
    start = indirect("slurm-openmpi", GROUP, scheduler_arg=("--mem=0",))
    assert start.command[-2:] == ("--ntasks=2", "--mem=0")
    words = line(start.stdin, "mpiexec")
    assert words.count(":") == 1
    assert "--mem=0" not in words
    single = indirect("slurm-openmpi", CLIENT)
    assert single.command[-1].startswith("--error=")
    assert line(single.stdin, "mpiexec")[:3] == ["mpiexec", "-n", "1"]


# Groups -----------------------------------------------------------------------------------------------------


def test_each_client_of_a_group_has_its_own_output_status_and_end(tmp_path: Path):
    options = usual("oar")
    ids = (7, 8, 9)
    command = ("/bin/sh", "-c", 'echo "I am $GSPC_CLIENT_ID"; [ $GSPC_CLIENT_ID = 7 ] || kill -s KILL 0')
    start = find_adapter(options).start(job_of(SubmitToEngine(4, "s-4", 1, ids, command), options, tmp_path))
    write(start)
    (tmp_path / "job.4.client.9.cancel").touch()
    assert run(tmp_path / "oarsub.4.sh") == 0
    assert statuses(tmp_path) == {
        "job.4.client.7.status": "0",
        "job.4.client.8.status": "137",
        "job.4.client.9.status": "143",
    }
    outputs = {path.name: path.read_text() for path in tmp_path.glob("*.out")}
    assert outputs == {"job.4.client.7.out": "I am 7\n", "job.4.client.8.out": "I am 8\n"}


# OAR --------------------------------------------------------------------------------------------------------


def test_jobs_of_oar_are_submitted_with_the_arguments_of_the_options():
    start = indirect("oar", CLIENT, scheduler_arg=("--project=x",), scheduler_arg_client=("-l", "/nodes=2"))
    assert start.command == (
        *("oarsub", "-n", "s-3", "-O", "/out/job.3.client.7.out", "-E", "/out/job.3.client.7.err"),
        *("--project=x", "-l", "/nodes=2", "/bin/sh /out/oarsub.3.sh"),
    )
    assert "\nsolve 'a b' </dev/null\n" in start.files["/out/oarsub.3.sh"]
    assert indirect("oar", GROUP).command[-3:] == ("-l", "/resource_id=2", "/bin/sh /out/oarsub.4.sh")


def test_options_of_a_command_need_the_command_in_oar():
    with pytest.raises(BadOption, match="scheduler_client_command_options: they need a command: set sche"):
        find_adapter(usual("oar", scheduler_client_command_options=("-n", "2")))


TIMES: dict[str, object] = {
    "scheduler_arg_server": ("-l", "walltime=1"),
    "scheduler_arg_client": ("-l", "walltime=1"),
    "scheduler_arg_container": ("-l", "/nodes=2,walltime=2"),
}


def test_what_runs_in_a_container_has_to_end_before_it():
    with pytest.raises(BadOption, match='scheduler_arg_client: say for how long, "-l", "/nodes=1,wallt'):
        find_adapter(usual("oar-hybrid", **{**TIMES, "scheduler_arg_client": ("-l", "/nodes=1")}))


def test_a_container_counts_as_a_job():
    assert find_adapter(usual("oar-hybrid", job_limit=3, **TIMES)).jobs_per_server == 2
    with pytest.raises(BadOption, match="job_limit: 2 is too few: a container, its server"):
        find_adapter(usual("oar-hybrid", job_limit=2, **TIMES))


def test_a_hybrid_server_is_submitted_with_a_container(tmp_path: Path):
    options = usual("oar-hybrid", scheduler_arg=("--project=x",), **TIMES)
    start = find_adapter(options).start(job_of(SERVER, options, tmp_path))
    assert isinstance(start, IndirectStart)
    log = tmp_path / "log"
    for name in ("oarsub", "oardel"):
        said = f'#!/bin/sh\necho "{name} $*" >>{log}\necho "[ADMISSION RULE] x"\necho "OAR_JOB_ID=12"\n'
        (tmp_path / name).write_text(said + 'case "$*" in *inner*) exit $STATUS;; esac\n')
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(start.command, env={**path, "STATUS": "0"}, capture_output=True, check=False)
    container, server = log.read_text().splitlines()
    assert container.startswith("oarsub -n s-0-container -O /dev/null -E /dev/null -t container --project=x")
    assert container.endswith(f"-l /nodes=2,walltime=2 /bin/sh {tmp_path}/container.0.sh")
    assert server.startswith("oarsub -t inner=12 -n s-0 ")
    assert server.endswith(f"--project=x -l walltime=1 /bin/sh {tmp_path}/oarsub.0.sh")
    adapter = OarHybridAdapter()
    assert adapter.provider is not None
    told = CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert adapter.provider.submitted(told) == "12"
    assert (tmp_path / "container.1").read_text() == "12\n"
    done = subprocess.run(start.command, env={**path, "STATUS": "4"}, capture_output=True, check=False)
    assert (done.returncode, log.read_text().splitlines()[-1]) == (4, "oardel 12")


def test_hybrid_clients_fill_the_container_and_then_some_are_best_effort():
    options = usual("oar-hybrid", container_client_size=2, besteffort_allocation_frequency=2, **TIMES)
    adapter = OarHybridAdapter()

    def is_best_effort(uid: int) -> bool:
        start = adapter.start(job_of(SubmitToEngine(uid, f"s-{uid}", 1, (uid,), ("solve",)), options))
        assert ("besteffort" in start.command) != ("/out/container.1" in start.command)
        return "besteffort" in start.command

    assert [is_best_effort(uid) for uid in range(1, 7)] == [False, False, False, True, False, True]
    ended = ", ".join(
        f'"{uid}": {{"Job_Id": {uid}, "name": "s-{uid}", "state": "Terminated"}}' for uid in (1, 2, 3)
    )
    adapter.provider.told(CommandResult(0, f"{{{ended}}}", ""))
    assert [is_best_effort(uid) for uid in range(7, 10)] == [False, False, True]


def test_a_container_is_cancelled_with_its_server():
    where = "job_name = 's-0' OR job_name = 's-0-container'"
    assert OarHybridAdapter().provider.cancel("12", "s-0") == ("oardel", "--sql", where)
