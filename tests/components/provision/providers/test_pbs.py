"""Commands for PBS, and answers: as Slurm 22.05 for users of Torque gave them, and as OpenPBS words them."""

from __future__ import annotations

import pytest

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    CommandResult,
    QueryFailed,
)
from gspc_trio.components.provision.providers.pbs import PbsProvider

PBS = PbsProvider()

SLURM = """\
Job Id:\t1
\tJob_Name = gspc-a
\tJob_Owner = root@localhost
\tjob_state = R
\tqueue = debug
\texec_host = node1/1+node2/1
\tResource_List.walltime = 00:02:00

Job Id:\t2
\tJob_Name = held
\tjob_state = C

"""

OPENPBS = """\
Job Id: 12.server
    Job_Name = gspc-a
    Job_Owner = anna@login
    job_state = Q
    comment = Can Never Run: Insufficient amount of resource: ncpus (R: 1000 A: 2 T:
\t2)
    Variable_List = PBS_O_HOME=/home/anna,PBS_O_LANG=C,
\tPBS_O_SHELL=/bin/bash

Job Id: 13.server
    Job_Name = gspc-b
    job_state = H
    Hold_Types = u

Job Id: 14.server
    Job_Name = gspc-c
    job_state = F
    Exit_status = 271

Job Id: 15.server
    Job_Name = gspc-d
    job_state = M
"""


def test_a_request_becomes_a_command():
    request = BatchRequest("gspc-a", 4, 3725, "short", "me", ("-W", "x=y"), "/a/output", 2, folder="/a")
    assert PBS.submit(request) == (
        *("qsub", "-N", "gspc-a", "-j", "oe", "-o", "/a/output", "-r", "n"),
        *("-l", "nodes=2:ppn=4,walltime=1:02:05", "-q", "short", "-A", "me", "-W", "x=y", "/a/script"),
    )
    with pytest.raises(BadRequest, match="say how many of each node"):
        PBS.check(BatchRequest("gspc-a"))


def test_a_submission_has_an_id_or_is_unclear_or_refused():
    for output in ("12.server.example.org\n", "17\n", "a word\n18[].server\n"):
        assert PBS.submitted(CommandResult(0, output, "")) == output.split()[-1]
    assert PBS.submitted(CommandResult(0, "?", "")) is None
    for errors in (
        "qsub: cannot connect to server pbs (errno=15034)",
        "Connection refused\nqsub: cannot connect to server",
        "qsub: End of File",
    ):
        assert PBS.submitted(CommandResult(1, "", errors)) is None
    for output, errors in (
        ("", "qsub: Unknown queue"),
        ("", "qsub: Job violates queue and/or server resource limits"),
        ("There was an error running the Slurm sbatch command.", ""),
    ):
        with pytest.raises(BadRequest, match="qsub refused it: "):
            PBS.submitted(CommandResult(1, output, errors))


def test_lists_are_read():
    assert PBS.told(CommandResult(0, SLURM, "")) == (
        BatchJob("1", "gspc-a", BatchState.RUNNING),
        BatchJob("2", "held", BatchState.ENDED),
    )
    never = "Can Never Run: Insufficient amount of resource: ncpus (R: 1000 A: 2 T:2)"
    assert PBS.told(CommandResult(0, OPENPBS, "")) == (
        BatchJob("12.server", "gspc-a", BatchState.QUEUED, never, is_hopeless=True),
        BatchJob("13.server", "gspc-b", BatchState.HELD, "hold u"),
        BatchJob("14.server", "gspc-c", BatchState.ENDED, "exit status 271"),
        BatchJob("15.server", "gspc-d", BatchState.UNKNOWN, "M"),
    )


def test_an_unknown_job_is_none_and_a_failed_query_says_nothing():
    for status, errors in (
        (153, ""),
        (35, "qstat: 12.server Job has finished, use -x or -H to obtain historical job information"),
        (1, "qstat: Unknown Job Id 99.server"),
    ):
        assert PBS.told(CommandResult(status, "", errors)) == ()
    with pytest.raises(QueryFailed, match="cannot connect to server"):
        PBS.told(CommandResult(255, "", "qstat: cannot connect to server pbs (errno=15034)"))


def test_each_node_runs_the_command_the_first_one_without_pbsdsh():
    assert PBS.launch(BatchRequest("gspc-a", 1), "echo x").endswith("echo x")
    script = PBS.launch(BatchRequest("gspc-a", 1, nodes=2), "echo 'a b'")
    assert script.startswith("""command='echo '"'"'a b'"'"''\nnode=0\n""")
    assert """awk '!seen[$0]++ { print NR - 1 }' "$PBS_NODEFILE\"""" in script


def test_a_job_is_asked_for_and_cancelled_by_its_id_or_its_name():
    assert PBS.query("17") == ("qstat", "-f", "17")
    assert "qselect" in PBS.query()[-1]
    assert PBS.cancel("17", "gspc-a") == ("qdel", "17")
    assert PBS.cancel("", "gspc-a")[-1] == "gspc-a"
