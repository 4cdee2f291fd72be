"""Commands for Slurm, and its answers as version 22.05 gave them."""

from __future__ import annotations

import pytest

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    CommandResult,
    HopelessRequest,
    QueryFailed,
)
from gspc_trio.components.provision.providers.slurm import SlurmProvider

SLURM = SlurmProvider()


def failed(errors: str) -> CommandResult:
    return CommandResult(1, "", errors)


def test_a_request_becomes_a_command():
    request = BatchRequest("gspc-r1-1", 16, 601, "debug", "physics", ("--qos=low",), "/home/anna/out")
    assert SLURM.submit(request) == (
        *("sbatch", "--parsable", "--job-name=gspc-r1-1", "--output=/home/anna/out", "--no-requeue"),
        *("--nodes=1", "--ntasks=1", "--cpus-per-task=16", "--time=11", "--partition=debug"),
        *("--account=physics", "--qos=low"),
    )


def test_without_cores_and_time_it_is_a_whole_node_for_as_long_as_the_queue_allows():
    assert SLURM.submit(BatchRequest("one")) == (
        *("sbatch", "--parsable", "--job-name=one", "--output=/dev/null", "--no-requeue"),
        *("--nodes=1", "--ntasks=1", "--exclusive"),
    )


def test_several_nodes_each_run_the_command_and_a_lost_one_ends_no_other():
    request = BatchRequest("one", 4, nodes=3, script="the script")
    assert SLURM.submit(request) == (
        *("sbatch", "--parsable", "--job-name=one", "--output=/dev/null", "--no-requeue", "--no-kill"),
        *("--nodes=3", "--ntasks=3", "--cpus-per-task=4"),
    )
    assert SLURM.submit_input(request) == "the script"
    assert SLURM.launch(request, "echo 'a b'") == (
        "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=4 --no-kill --kill-on-bad-exit=0 "
        "--wait=0 --mpi=none /bin/sh -c "
        """'GSPC_NODE="$SLURM_NODEID" GSPC_BATCH_ID="$SLURM_JOB_ID" """
        """GSPC_RESTARTS="${SLURM_RESTART_COUNT:-0}"; export GSPC_NODE GSPC_BATCH_ID GSPC_RESTARTS; """
        """echo '"'"'a b'"'"''"""
    )
    assert SLURM.launch(BatchRequest("one"), "echo 'a b'").endswith("GSPC_RESTARTS; echo 'a b'")


def test_slurm_says_what_can_never_run_without_being_asked_to_run_it():
    assert SLURM.check(BatchRequest("one"))[-1] == "--test-only"
    told = "sbatch: Job 7 to start at 2026-01-01T10:00:00 using 1 processors on nodes node1 in partition x"
    assert SLURM.checked(CommandResult(0, "", told)) == ""
    never = "allocation failure: Requested node configuration is not available"
    assert SLURM.checked(failed(never)) == never
    with pytest.raises(QueryFailed, match="Unable to contact"):
        SLURM.checked(failed("allocation failure: Unable to contact slurm controller (connect failure)"))


@pytest.mark.parametrize(
    ("output", "found"),
    [("17\n", "17"), ("17;alpha\n", "17"), ("a word\n18\n", "18"), ("", None), ("?", None)],
)
def test_the_id_of_a_submitted_job_is_read_or_unclear(output: str, found: str | None):
    assert SLURM.submitted(CommandResult(0, output, "")) == found


@pytest.mark.parametrize(
    "errors",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: slurm_receive_msgs: Zero Bytes were transmitted or received",
    ],
)
def test_a_submission_that_could_not_be_answered_is_unclear(errors: str):
    assert SLURM.submitted(failed(errors)) is None


def test_a_refused_submission_says_why():
    errors = (
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    )
    with pytest.raises(HopelessRequest, match=r"sbatch refused it: .* invalid partition specified: nope"):
        SLURM.submitted(failed(errors))


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ("sbatch: unrecognized option '--nope'\nTry \"sbatch --help\" for more information", HopelessRequest),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination",
            HopelessRequest,
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            HopelessRequest,
        ),
        ("sbatch: error: Batch job submission failed: Disk quota exceeded", BadRequest),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", BadRequest),
    ],
)
def test_what_will_always_be_refused_is_told_from_what_may_pass(errors: str, kind: type[BadRequest]):
    with pytest.raises(BadRequest) as caught:
        SLURM.submitted(failed(errors))
    assert caught.type is kind


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("1|RUNNING|gspc-x|None", BatchJob("1", "gspc-x", BatchState.RUNNING)),
        ("1|COMPLETING|gspc-x|None", BatchJob("1", "gspc-x", BatchState.RUNNING)),
        ("2|PENDING|a|Resources", BatchJob("2", "a", BatchState.QUEUED, "Resources")),
        ("2|PENDING|a|PartitionConfig", BatchJob("2", "a", BatchState.QUEUED, "PartitionConfig", True)),
        ("4|PENDING|a|JobHeldUser", BatchJob("4", "a", BatchState.HELD, "JobHeldUser")),
        ("4|SUSPENDED|a|None", BatchJob("4", "a", BatchState.HELD, "SUSPENDED")),
        ("5|CANCELLED|a|None", BatchJob("5", "a", BatchState.ENDED, "CANCELLED")),
        ("5|FAILED|a|NonZeroExitCode", BatchJob("5", "a", BatchState.ENDED, "FAILED (NonZeroExitCode)")),
        ("6|TIMEOUT|a|TimeLimit", BatchJob("6", "a", BatchState.ENDED, "TIMEOUT (TimeLimit)")),
        ("7|NODE_FAIL|a|None", BatchJob("7", "a", BatchState.LOST, "NODE_FAIL")),
        ("7|WANDERING|a|None", BatchJob("7", "a", BatchState.UNKNOWN, "WANDERING")),
        ("8|PENDING|a|a | b", BatchJob("8", "a", BatchState.QUEUED, "a | b")),
    ],
)
def test_a_line_of_a_list_is_read(line: str, job: BatchJob):
    assert SLURM.told(CommandResult(0, line + "\n", "")) == (job,)


def test_lines_that_are_none_of_a_list_are_left_out():
    assert SLURM.told(CommandResult(0, "\nsqueue: a word\n1|RUNNING|x|None\n", ""))[0].job_id == "1"


def test_an_unknown_job_is_none_and_a_failed_query_says_nothing():
    assert SLURM.told(failed("slurm_load_jobs error: Invalid job id specified")) == ()
    with pytest.raises(QueryFailed, match="Unable to contact"):
        SLURM.told(failed("slurm_load_jobs error: Unable to contact slurm controller (connect failure)"))


def test_a_job_is_asked_for_and_cancelled_by_its_id_or_its_name():
    usual = ("squeue", "--noheader", "--states=all", "--format=%i|%T|%j|%r")
    assert SLURM.query("17") == (*usual, "--jobs=17")
    assert SLURM.query() == (*usual, "--me")
    assert SLURM.cancel("17", "gspc-x") == ("scancel", "17")
    assert SLURM.cancel("", "gspc-x") == ("scancel", "--me", "--name=gspc-x")
