"""What a job server tells of its job at the end: enough to look into it, within limits, and always told."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest

from gspc_trio.components.job.machine import JobMachine, TaskFailure
from gspc_trio.components.job.result import JobResult
from gspc_trio.components.job.shell import summary
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.summary import summary_of
from gspc_trio.components.rts.history import JOB_BYTES_MAX
from gspc_trio.components.rts.messages import FailedTask, JobSummary, PortOutputs
from gspc_trio.core.messages import OutputLine
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskState
from gspc_trio.nursery.scopes.drive import Inbox
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.json_values import json_text
from gspc_trio.protocol.plain import to_json
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.patterns.farm import farm

WIDE = "\N{GRINNING FACE}"
"""A character that is twelve in JSON."""


class Odd:
    """Its text cannot be had."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")

    __repr__ = __str__


def a_job() -> Job:
    engine = WorkflowEngine(
        farm(len, name="work"), {"items": ["a", "b"]}, dumps=dumps, loads=loads, join=join
    )
    return Job(
        JobMachine("j1", "work", engine, USUAL.scheduler("j1")),
        dict,
        {"r1.core0": "anna"},
        7,
        Inbox(),
    )


def failure(number: int, text: str) -> TaskFailure:
    error = TaskError("ValueError", "bad", f"Traceback: {text}")
    outcome = Outcome(number, 2, Reason.FAILED, error=error, stdout=text.encode(), stderr=b"\xff")
    return TaskFailure(number, "work", outcome, "r1.core0")


def result(outputs: dict[str, list[object]], *failures: TaskFailure) -> JobResult:
    return JobResult("failed", outputs, {}, 1.0, failures)


async def test_what_is_told() -> None:
    job = a_job()
    assert job.machine.engine.next() == 1
    job.printed.ended(1, "work", 1, (b"one\ntwo", b""), 0.0, failed=False)
    job.printed.of_job_server(b"a warning\n", 0.0)
    job.report = "the end"
    assert summary_of(job, result({"results": [1, {"a": (2, 3)}]}, failure(2, "text"))) == JobSummary(
        {"work": {TaskState.FINISHED: 0, TaskState.READY: 1}},
        (
            FailedTask(
                *(2, "work", 2, "r1.core0", "anna", "ValueError: bad", "Traceback: text", "text", "\ufffd")
            ),
        ),
        (
            OutputLine(1, "work", False, "one"),
            OutputLine(1, "work", False, "two"),
            OutputLine(0, "gspc-jobserver", False, "a warning"),
        ),
        0,
        {"results": PortOutputs(("1", '{"a": [2, 3]}'), 2)},
        "the end",
    )


async def test_it_stays_within_limits_whatever_there_is() -> None:
    job = a_job()
    for number in range(3_000):
        job.printed.ended(number, "work", 1, (f"{WIDE * 200}\n".encode(), b""), 0.0, failed=False)
    job.report = WIDE * 10**6
    outputs: dict[str, list[object]] = {
        "many": list(range(5_000)),
        "large": [WIDE * 10**6, [0] * 10**6, Odd()],
        "more": [WIDE * 1_000] * 500,
        **{f"port{number}": [1] for number in range(200)},
    }
    told = summary_of(job, result(outputs, *(failure(number, WIDE * 10**5) for number in range(100))))
    assert len(to_json(told)) < JOB_BYTES_MAX
    assert len(told.lines) + told.left_out == 3_000
    assert told.lines[-1].task_id == 2_999
    assert 0 < len(told.failures) < 100
    assert (len(told.outputs["many"].values), told.outputs["many"].count) == (summary.VALUES_MAX, 5_000)
    large = [json.loads(text) for text in told.outputs["large"].values]
    assert [len(text) < 5_000 for text in large] == [True] * 3
    assert large[1].startswith("[0, 0, ")
    assert large[2] == "<Odd whose text cannot be had: RuntimeError>"
    assert 0 < len(told.outputs["more"].values) < 500


def test_json_of_any_value_that_has_no_room_is_not_made() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert json_text({"a": {1}, 2: float("inf")}) == '{"a": [1], "0x2": "inf"}'
    assert json_text([1, 2], 2) == "[1, 2]"
    for value, room in (([1, 2, 3], 2), ("text", 4), ({"text": 1}, 5)):
        with pytest.raises(ValueError, match="no room"):
            json_text(value, room)
    with pytest.raises(RecursionError):
        json_text(loop)
