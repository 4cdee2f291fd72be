"""What people are told of a task that failed."""

from __future__ import annotations

from gspc_trio.components.job.machine import TaskFailure
from gspc_trio.components.job.result import (
    SHOWN_CHARACTERS_MAX,
    SHOWN_LINES_MAX,
    describe_failure,
    describe_failures,
)
from gspc_trio.core.task import Outcome, Reason, TaskError


def story(stdout: bytes) -> list[str]:
    error = TaskError("ValueError", "bad", traceback="Traceback\nValueError: bad\n")
    outcome = Outcome(7, 1, Reason.FAILED, error=error, stdout=stdout)
    return describe_failure(TaskFailure(7, "task", outcome, "r1.core0"), "here").split("\n")


def test_a_failure_tells_who_where_why_and_what_was_printed() -> None:
    assert story(b"one\ntwo\n") == [
        "task 7 (task), attempt 1 on r1.core0 (here):",
        "  Traceback",
        "  ValueError: bad",
        "  its standard output (the last of it):",
        "  one",
        "  two",
    ]


def test_of_many_lines_the_last_are_told() -> None:
    told = story(b"y\n" * 10_000)
    assert told[4:] == ["  [...]", *["  y"] * SHOWN_LINES_MAX]


def test_of_a_long_line_the_end_is_told() -> None:
    assert story(b"x" * 60_000)[4:] == ["  [...]", "  " + "x" * SHOWN_CHARACTERS_MAX]


def test_what_is_the_same_of_many_tasks_that_never_began_is_told_once() -> None:
    def failure(task_id: int, message: str, resource_id: str = "") -> TaskFailure:
        outcome = Outcome(task_id, 0, Reason.FAILED, error=TaskError("refused", message))
        return TaskFailure(task_id, "task", outcome, resource_id)

    paused = [failure(task_id, "site hpc is paused") for task_id in (1, 2, 3)]
    others = [failure(4, "too long"), failure(5, "bad", "r1.core0"), failure(6, "bad", "r1.core0")]
    assert list(describe_failures([*paused, *others], lambda _: "")) == [
        "task 1 (task), attempt 0:\n  refused: site hpc is paused",
        "task 4 (task), attempt 0:\n  refused: too long",
        "task 5 (task), attempt 0 on r1.core0:\n  refused: bad",
        "task 6 (task), attempt 0 on r1.core0:\n  refused: bad",
        "other tasks failed in the same words before they began",
    ]
