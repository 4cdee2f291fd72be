"""Commands for OAR, and its answers as version 2.5.9 gave them."""

from __future__ import annotations

import json

import pytest

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    CommandResult,
    QueryFailed,
)
from gspc_trio.components.provision.providers.oar import OarProvider

OAR = OarProvider()
WHY = "R=4,W=0:2:0,J=B,N=gspc-1 (Karma=0.000,quota_ok)"


def told(state: str, **more: object) -> tuple[BatchJob, ...]:
    job = {"Job_Id": 1, "name": "gspc-1", "message": WHY, "state": state, "types": [], **more}
    return OAR.told(CommandResult(0, json.dumps({"1": job}), ""))


def test_a_request_becomes_a_command_for_a_script_in_a_file():
    request = BatchRequest("gspc-1", 4, 3725, "short", "me", ("-t", "x"), "/a/output", 2, folder="/a b")
    assert OAR.submit(request) == (
        *("oarsub", "-n", "gspc-1", "-l", "/nodes=2/resource_id=4,walltime=1:02:05"),
        *("-O", "/a/output", "-E", "/a/output", "-q", "short", "--project=me", "-t", "x"),
        "/bin/sh '/a b/script'",
    )
    assert OAR.submit(BatchRequest("gspc-1"))[4] == "/nodes=1"


def test_a_submission_has_an_id_or_is_unclear_or_refused():
    rule = "[ADMISSION RULE] Modify resource description with type constraints\n"
    assert OAR.submitted(CommandResult(0, f"{rule}OAR_JOB_ID=17\n", "")) == "17"
    gone = "[ERROR] Cannot connect to executor localhost:6666. Job is killed.\n"
    assert OAR.submitted(CommandResult(9, f"{rule}OAR_JOB_ID=5\n", gone)) is None
    assert OAR.submitted(CommandResult(25, "", "DB connection error, exiting.\n")) is None
    for status, output, errors in (
        (8, f"{rule}OAR_JOB_ID=-5\n", "There are not enough resources for your request\n"),
        (248, rule, "ERROR : The queue nope does not exist\n"),
        (254, "", "[ADMISSION RULE] root and oar users are not allowed to submit jobs.\n"),
    ):
        with pytest.raises(BadRequest, match="oarsub refused it: "):
            OAR.submitted(CommandResult(status, output, errors))


@pytest.mark.parametrize(
    ("state", "where", "reason"),
    [
        ("Waiting", BatchState.QUEUED, WHY),
        ("toLaunch", BatchState.QUEUED, WHY),
        ("Launching", BatchState.QUEUED, WHY),
        ("Hold", BatchState.HELD, "Hold"),
        ("Suspended", BatchState.HELD, "Suspended"),
        ("Running", BatchState.RUNNING, ""),
        ("Finishing", BatchState.RUNNING, ""),
        ("Dreaming", BatchState.UNKNOWN, "Dreaming"),
    ],
)
def test_states_are_read(state: str, where: BatchState, reason: str):
    assert told(state) == (BatchJob("1", "gspc-1", where, reason),)


def test_how_a_job_ended_is_said_by_its_last_event_or_its_exit_code():
    events = [{"type": "FRAG_JOB_REQUEST", "description": "User anna requested to frag the job 3"}]
    assert told("Error", events=events)[0].reason == "Error (User anna requested to frag the job 3)"
    assert told("Terminated", exit_code=768, events=[])[0].reason == "Terminated (exit code 768)"
    assert told("Terminated")[0] == BatchJob("1", "gspc-1", BatchState.ENDED, "Terminated")


def test_no_answer_is_no_job_and_a_failed_query_says_nothing():
    assert OAR.told(CommandResult(0, "", "")) == ()
    for result in (
        CommandResult(25, "", "DB connection error, exiting."),
        CommandResult(0, "{", ""),
        CommandResult(0, "[]", ""),
    ):
        with pytest.raises(QueryFailed):
            OAR.told(result)


def test_each_node_runs_the_command_the_first_one_without_oarsh():
    assert OAR.launch(BatchRequest("gspc-1"), "echo x").endswith("echo x")
    script = OAR.launch(BatchRequest("gspc-1", nodes=2), "echo 'a b'")
    assert script.startswith("""command='echo '"'"'a b'"'"''\nnode=0\n""")
    assert """printf '%s\\n' "$told" | oarsh "$place" /bin/sh -s &""" in script


def test_a_job_is_asked_for_and_cancelled_by_its_id_or_its_name():
    assert OAR.query() == ("oarstat", "-u", "-J")
    assert OAR.query("17") == ("oarstat", "-j", "17", "-f", "-J")
    assert OAR.cancel("17", "gspc-1") == ("oardel", "17")
    assert OAR.cancel("", "gspc-1") == ("oardel", "--sql", "job_name = 'gspc-1'")
