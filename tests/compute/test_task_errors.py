"""What is told of a task that did not finish."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from gspc_trio.compute import errors
from gspc_trio.compute.code import function_code
from gspc_trio.compute.errors import TaskFailure, describe
from gspc_trio.compute.functions import Runner
from gspc_trio.core.task import TaskError
from gspc_trio.protocol.values import loads
from gspc_trio.workflow.failures import exception_of


class OddlyMade(Exception):
    """Can be pickled, but not opened again."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__("odd")
        self.sum = first + second


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def caught(action: Callable[[], Any]) -> BaseException:
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def fail(message: str = "boom") -> None:
    raise ValueError(message)


def fail_twice() -> None:
    try:
        fail("first")
    except ValueError as error:
        raise LookupError("second") from error


def run_by_us(function: Callable[[], Any]) -> BaseException:
    return caught(lambda: Runner(function_code(function)).run([], 0))


def test_the_traceback_begins_with_the_users_first_frame() -> None:
    kind, message, traceback, pickled = describe(_without_frames_of_this_test(run_by_us(fail_twice)))
    assert (kind, message) == ("LookupError", "second")
    assert "gspc_trio" not in traceback.replace(__file__, "")
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert 'fail("first")' in traceback
    assert "The above exception was the direct cause" in traceback
    assert traceback.endswith("LookupError: second\n")
    assert isinstance(loads(pickled), LookupError)


def _without_frames_of_this_test(error: BaseException) -> BaseException:
    """As in a compute process, where our frames come first."""
    frames = error.__traceback__
    while (
        frames is not None and frames.tb_frame.f_code.co_filename == __file__ and frames.tb_next is not None
    ):
        if frames.tb_frame.f_code.co_name == "fail_twice":
            break
        frames = frames.tb_next
    return error.with_traceback(frames)


def test_without_a_frame_of_the_user_there_is_no_traceback() -> None:
    error = _without_frames_of_this_test(caught(lambda: Runner(b"no code")))
    assert describe(error)[2] == ""


def test_a_syntax_error_shows_its_place() -> None:
    error = caught(lambda: compile("def (", "tool.py", "exec")).with_traceback(None)
    assert 'File "tool.py", line 1' in describe(error)[2]


def test_a_failure_of_our_own_has_no_traceback_and_keeps_what_a_program_printed() -> None:
    failure = TaskFailure("exit status", "it\nended", b"a" * 100_000, b"b")
    assert describe(failure) == ("exit status", "it ended", "", b"")
    assert (len(failure.stdout), failure.stderr) == (65536, b"b")


def test_messages_are_one_line_of_bounded_length() -> None:
    assert describe(ValueError("a\n  b\tc"))[1] == "a b c"
    assert describe(ValueError("x" * 5000))[1] == "x" * 997 + "..."
    assert describe(Mute())[1] == "(its text cannot be shown: RuntimeError)"


def test_text_that_is_no_unicode_is_escaped_so_that_it_can_travel() -> None:
    error = caught(lambda: fail("no file caf\udce9 \ud800"))
    _, message, traceback, _ = describe(error)
    assert message == r"no file caf\udce9 \ud800"
    assert message in traceback


def test_running_out_of_memory_names_the_limit() -> None:
    text = "the task needed more than its memory_bytes of 77"
    assert describe(MemoryError(), 77)[1] == text
    assert describe(MemoryError("for an array"), 77)[1] == f"{text}: for an array"
    assert describe(MemoryError("plain"))[1] == "plain"
    assert describe(MemoryError())[1] == "the task needed more memory than its host gives"


def test_a_print_for_which_there_is_no_room_names_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def print_much() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("TMPDIR", "/proc")  # which has no room ever
    text = describe(caught(print_much))[2]
    assert text.endswith("\n/proc is full, which takes what tasks print; TMPDIR names another directory\n")
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    assert "TMPDIR" not in describe(caught(print_much))[2]


def test_an_executor_says_which_limit_there_was() -> None:
    for error, text, notes in (
        (MemoryError(), "the task needed more than its memory_bytes of 77", None),
        (MemoryError("an array"), "an array", ["the task needed more than its memory_bytes of 77: an array"]),
    ):
        raised = exception_of(TaskError(*describe(error, 77)))
        assert (type(raised), str(raised), getattr(raised, "__notes__", None)) == (MemoryError, text, notes)


@pytest.mark.parametrize(
    "error",
    [OddlyMade(1, 2), ValueError(number for number in ()), ValueError(bytes(errors.PICKLED_BYTES_MAX))],
)
def test_an_exception_that_cannot_travel_goes_without(error: Exception) -> None:
    kind, _, _, pickled = describe(error)
    assert (kind, pickled) == (type(error).__name__, b"")


def test_a_very_long_traceback_loses_its_middle() -> None:
    text = describe(caught(lambda: fail("x" * 200_000)))[2]
    assert len(text) < errors.TRACEBACK_CHARACTERS_MAX + 100
    assert "\n[...]\n" in text
