"""What the commands say of jobs that are over."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gspc_trio.cli.common import CommandError
from gspc_trio.cli.job_commands import (
    describe_end,
    describe_task,
    exit_status,
    plain_results,
    print_log,
    print_results,
    row_of_ended,
)
from gspc_trio.components.job.messages import TaskDetails
from gspc_trio.components.rts.messages import EndedJob, FailedTask, JobSummary, PortOutputs
from gspc_trio.core.messages import OutputLine
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import TaskChanged

FAILED = FailedTask(
    2, "work", 1, "r1.core0", "anna", "ValueError: bad", "Traceback:\n  bad\n", "out\n", "err\n"
)
SUMMARY = JobSummary(
    {"work": {TaskState.FINISHED: 2, TaskState.FAILED: 1}},
    (FAILED,),
    (
        OutputLine(1, "work", False, "one"),
        OutputLine(2, "work", False, "out"),
        OutputLine(1, "work", True, "two"),
        OutputLine(0, "gspc-jobserver", False, "a warning"),
    ),
    5,
    {"results": PortOutputs(("1", '{"a": "b"}'), 7)},
)
TASKS = {TaskState.FINISHED: 2, TaskState.FAILED: 1}
JOB = EndedJob("j1", "count", "failed", "a task failed", TASKS, 1.5, 11, "anna", 0.0, SUMMARY)


def test_a_row_and_a_description() -> None:
    assert row_of_ended(JOB).split()[:3] == ["j1", "count", "failed"]
    assert row_of_ended(JOB).split()[-4:] == ["1.5", "s", "3", "1"]
    lines = list(describe_end(JOB))
    assert lines[:2] == [
        "j1 (count): failed after 1.5 s; tasks: 2 finished, 1 failed\na task failed",
        lines[1],
    ]
    assert lines[1].endswith("its job server was process 11 on anna")
    assert lines[2:] == [
        "  work: 2 finished, 1 failed",
        "task 2 (work), attempt 1 on r1.core0 (anna):",
        "  Traceback:",
        "    bad",
        "  its standard output (the last of it):",
        "  out",
        "  its standard error (the last of it):",
        "  err",
    ]


def test_the_tasks_of_a_job_whose_server_was_lost_are_not_known() -> None:
    lost = EndedJob("j1", "count", "stopped", "connection reset", {}, 1.5, 11, "anna")
    assert row_of_ended(lost).split()[-4:] == ["1.5", "s", "-", "-"]
    assert next(describe_end(lost)).startswith("j1 (count): stopped after 1.5 s; tasks: not known\n")


def test_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    print_log(JOB, None)
    assert capsys.readouterr() == (
        "[... 5 lines before these are no longer kept ...]\n"
        "[work 1] one\n[work 2] out\n[work 1] two\n[gspc-jobserver] a warning\n",
        "",
    )
    print_log(JOB, 2)
    assert capsys.readouterr() == ("out\n", "err\n")
    print_log(JOB, 1)
    assert capsys.readouterr() == ("one\n", "two\n")
    with pytest.raises(CommandError, match="j1 keeps no output of a task 3"):
        print_log(JOB, 3)


def test_where_a_task_is_and_how_it_has_ended() -> None:
    assert list(describe_task(TaskDetails(3, "task 3 (work) runs on r1.core0"))) == [
        "task 3 (work) runs on r1.core0"
    ]
    record = TaskChanged(1.0, "j1", 3, TaskState.FAILED, 2, "work", "r1.core0")
    told = TaskDetails(3, "task 3 has failed", record, "anna", error="ValueError: bad")
    assert list(describe_task(told)) == [
        "task 3 (work): failed, attempt 2 on r1.core0 (anna)",
        "ValueError: bad",
    ]


def test_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(JOB)
    assert capsys.readouterr().out.splitlines() == [
        "results: 1",
        "results: {'a': 'b'}",
        "results: 5 more, which are not kept: gspc-jobserver run --output FILE keeps all",
        "j1 (count): failed after 1.5 s; tasks: 2 finished, 1 failed",
        "a task failed",
    ]
    assert plain_results(JOB) == {
        "outputs": {"results": [1, {"a": "b"}]},
        "tasks": TASKS,
        "elapsed_s": 1.5,
        "left_out": {"results": 5},
    }


def test_the_exit_status() -> None:
    done = EndedJob("j1", "one", "finished")
    assert exit_status(done) == 0
    assert exit_status(replace(done, state="failed")) == 1
    assert exit_status(replace(done, state="stopped")) == 1
    assert exit_status(replace(done, summary=JobSummary(report_error="the report failed: oh"))) == 1


def test_a_report_and_what_was_wrong_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(
        EndedJob("j1", "one", "finished", "", {TaskState.FINISHED: 1}, summary=JobSummary(report="done"))
    )
    assert capsys.readouterr().out == "done\n1 task in 0.00 s\n"
    with pytest.raises(CommandError, match="the report failed"):
        print_results(
            EndedJob("j1", "one", "finished", summary=JobSummary(report_error="the report failed: oh"))
        )
