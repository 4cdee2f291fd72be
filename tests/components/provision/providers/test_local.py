"""Processes as batch jobs: what lists of processes say of them, and real ones."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from attrs import evolve

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    QueryFailed,
)
from gspc_trio.components.provision.providers.local import LocalProvider
from gspc_trio.components.provision.providers.mpi import MpiProvider
from tests.e2e.support import wait_until

LOCAL = LocalProvider()

LISTED = """
    7     7 Ss   timeout --kill-after=5 0 /bin/sh /a/script gspc-job=one
    8     7 S    /bin/sh /a/script gspc-job=one
    9     9 T    timeout --kill-after=5 0 /bin/sh /b/script gspc-job=two
   10    10 Ss   sleep 10
seen """

ONE = BatchJob("7", "one", BatchState.RUNNING)
TWO = BatchJob("9", "two", BatchState.HELD, "its process is stopped")


def listed(asked: str, status: int = 0) -> tuple[BatchJob, ...]:
    return LOCAL.told(CommandResult(status, f"{LISTED}{asked}\n", ""))


def test_a_list_has_the_leaders_of_sessions_that_are_jobs():
    assert listed("") == (ONE, TWO)
    assert listed("9") == (TWO,)


def test_a_process_that_is_not_there_has_ended_and_a_list_that_is_not_whole_says_nothing():
    assert listed("8") == (BatchJob("8", "", BatchState.ENDED, "its process has ended"),)
    for result in (CommandResult(0, LISTED.removesuffix("seen "), ""), CommandResult(1, "", "no ps")):
        with pytest.raises(QueryFailed):
            LOCAL.told(result)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (BatchRequest("one", queue="short"), "local has no queues and no accounts"),
        (BatchRequest("one", account="me"), "local has no queues and no accounts"),
        (BatchRequest("one", arguments=("-x",)), "local has no command for which there could be arguments"),
    ],
)
def test_what_processes_cannot_be_asked_for_is_refused(request_: BatchRequest, why: str):
    with pytest.raises(BadRequest, match=why):
        LOCAL.submit(request_)


def test_open_mpi_starts_the_command_as_each_rank():
    request = BatchRequest("one", 4, nodes=3, arguments=("--hostfile", "my hosts"))
    assert MpiProvider().submit(request)[:2] == ("/bin/sh", "-c")
    assert MpiProvider().launch(request, "echo 'a b'") == (
        "export GSPC_BATCH_ID=$PPID\n"
        "mpiexec -n 3 --enable-recovery --mca orte_abort_on_non_zero_status 0 --bind-to none "
        "-x GSPC_BATCH_ID --hostfile 'my hosts' /bin/sh -c "
        """'GSPC_NODE="$OMPI_COMM_WORLD_RANK" GSPC_BATCH_ID="$GSPC_BATCH_ID" GSPC_RESTARTS="0"; """
        """export GSPC_NODE GSPC_BATCH_ID GSPC_RESTARTS; echo '"'"'a b'"'"''"""
    )


def run(command: Command) -> CommandResult:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return CommandResult(done.returncode, done.stdout, done.stderr)


def test_a_job_of_two_processes_is_found_loses_one_and_is_cancelled(tmp_path: Path):
    name = f"test-{os.getpid()}"
    request = BatchRequest(name, nodes=2, folder=str(tmp_path), output=str(tmp_path / "output"))
    command = f'echo $$ > "{tmp_path}/$GSPC_NODE.$GSPC_BATCH_ID.$GSPC_RESTARTS"; exec sleep 100'
    (tmp_path / "script").write_text(LOCAL.launch(evolve(request, nodes=2), f"exec sh -c {command!r}"))
    job_id = LOCAL.submitted(run(LOCAL.submit(request)))
    assert job_id is not None
    job = BatchJob(job_id, name, BatchState.RUNNING)
    wait_until(lambda: LOCAL.told(run(LOCAL.query(job_id))) == (job,), "it runs")
    assert job in LOCAL.told(run(LOCAL.query()))
    pids = [
        int(wait_until(lambda at=tmp_path / f"{node}.{job_id}.0": at.exists() and at.read_text(), "a node"))
        for node in (0, 1)
    ]
    os.kill(pids[0], signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pids[0]}").exists(), "one has ended")
    assert LOCAL.told(run(LOCAL.query(job_id))) == (job,)
    assert run(LOCAL.cancel(job_id, name)).status == 0
    assert LOCAL.told(run(LOCAL.query(job_id)))[0].state is BatchState.ENDED
    assert not Path(f"/proc/{pids[1]}").exists()
