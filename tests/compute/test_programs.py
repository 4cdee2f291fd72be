"""External programs: what they give, how they fail, what is left of them."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Executor
from gspc_trio.compute import process_tree, programs
from gspc_trio.compute.code import ProgramCall
from gspc_trio.compute.errors import TaskFailure
from gspc_trio.compute.tidy import changes

pytestmark = pytest.mark.process

WHOLE = ((None, False),)


def call(*arguments: str, directory: str = "", check: bool = True, **environment: str) -> ProgramCall:
    return ProgramCall((), WHOLE, arguments, environment, directory, check)


def run(program: ProgramCall, memory_bytes: int = 0, **named: Any) -> dict[str, Any]:
    return programs.run(program, named, memory_bytes)[0]


def failure_of(program: ProgramCall, memory_bytes: int = 0) -> TaskFailure:
    with pytest.raises(TaskFailure) as caught:
        run(program, memory_bytes)
    return caught.value


def test_placeholders_are_filled_everywhere_and_other_braces_stay(tmp_path: Path) -> None:
    program = call(
        "sh", "-c", "echo {word} ${VARIABLE} {other}; pwd", directory="{place}", VARIABLE="{word}!"
    )
    result = run(program, word="hi", place=tmp_path)
    assert result == {"exit_status": 0, "stdout": f"hi hi! {{other}}\n{tmp_path}\n", "stderr": ""}


def test_standard_input_is_empty_and_the_environment_is_added_to() -> None:
    assert run(call("cat"))["stdout"] == ""
    assert run(call("sh", "-c", "echo $HOME $MORE", MORE="more"))["stdout"] == f"{os.environ['HOME']} more\n"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert run(call("printf", r"a\377b"))["stdout"] == "a\N{REPLACEMENT CHARACTER}b"


def test_only_the_last_part_of_standard_error_is_kept() -> None:
    script = "i=0; while [ $i -lt 30000 ]; do echo line $i >&2; i=$((i+1)); done"
    text = run(call("sh", "-c", script))["stderr"]
    assert len(text) == 65536
    assert text.endswith("line 29999\n")


def test_too_much_standard_output_is_refused_and_the_program_ended() -> None:
    failure = failure_of(call("yes"))
    assert failure.kind == "output"
    assert "more than 1048576 bytes to standard output: let it write to a file" in str(failure)
    assert failure.stdout.endswith(b"y\ny\n")


@pytest.mark.parametrize(
    ("program", "kind", "message"),
    [
        (call("/no/such", "a"), "FileNotFoundError", "program not found: /no/such"),
        (
            call("echo", "two words", directory="/no/such"),
            "FileNotFoundError",
            "working directory /no/such not found, asked for by: echo 'two words'",
        ),
        (call("/etc/passwd"), "PermissionError", "cannot start /etc/passwd: Permission denied"),
        (call("sh", "-c", "exit 4"), "exit status", "sh -c 'exit 4' ended with exit status 4"),
        (
            call("sh", "-c", "echo so sorry >&2; kill -SEGV $$"),
            "exit status",
            "sh -c 'echo so sorry >&2; kill -SEGV $$' ended with signal SIGSEGV: so sorry",
        ),
    ],
)
def test_failures_say_what_was_asked_and_what_happened(program: ProgramCall, kind: str, message: str) -> None:
    failure = failure_of(program)
    assert (failure.kind, str(failure)) == (kind, message)


def test_a_name_that_cannot_be_one_is_told_as_python_says_it() -> None:
    failure = failure_of(call("a\0b"))
    assert failure.kind == "ValueError"
    assert re.fullmatch(r"cannot start 'a\\x00b': .*embedded null.*", str(failure))


def test_an_unchecked_status_is_a_value() -> None:
    assert run(call("sh", "-c", "exit 4", check=False))["exit_status"] == 4
    assert run(call("sh", "-c", "kill -9 $$", check=False))["exit_status"] == -9


def test_a_child_left_behind_does_not_hold_up_the_task() -> None:
    result = run(call("sh", "-c", "sleep 3600 & echo $!"))
    os.kill(int(result["stdout"]), signal.SIGKILL)


def test_memory_is_limited_for_the_program() -> None:
    limited = "import resource\nwhile resource.getrlimit(resource.RLIMIT_DATA)[0] != 200 << 20: pass\n"
    take = "bytearray(500 << 20)"
    greedy = call(sys.executable, "-c", limited + take)  # it is limited just after it has begun
    assert "MemoryError" in str(failure_of(greedy, memory_bytes=200 << 20))
    assert run(call(sys.executable, "-c", take))["exit_status"] == 0


class Interruption(BaseException):
    pass


def print_more(value: str) -> tuple[str, bytes]:
    """Return what a program has of a variable before and after this task sets it."""
    before = run(call("sh", "-c", "echo $MORE"))["stdout"]
    os.environ["MORE"] = value
    return before, run(call("sh", "-c", "echo $MORE"))["stdout"]


def test_programs_have_the_environment_as_it_is_now() -> None:
    with Executor(cores=1) as executor:
        assert [*executor.map(print_more, ["a", "b"])] == [("\n", "a\n"), ("\n", "b\n")]


def test_programs_inherit_no_descriptor() -> None:
    listing = call("ls", "/proc/self/fd")
    spawned = run(listing)["stdout"]
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        os.set_inheritable(descriptor, True)
        assert run(listing)["stdout"].split() == spawned.split() == ["0", "1", "2", "3"]
    finally:
        os.close(descriptor)


def spawn(name: str) -> str:
    with programs.Pipe() as stdout, programs.Pipe() as stderr:
        assert programs._spawn([name], {}, stdout.writing, stderr.writing).wait() == 0
        stdout.read()
        return stdout.kept.decode()


def test_a_program_that_has_moved_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "moving").write_text(f"#!/bin/sh\necho {folder.name}\n")
        (folder / "moving").chmod(0o755)
    monkeypatch.setenv("PATH", f"{first}:{second}:{os.environ['PATH']}")
    assert spawn("moving") == "first\n"
    monkeypatch.setattr(changes, "watched", True)  # the environment is known to be as it was
    assert spawn("moving") == "first\n"
    (first / "moving").unlink()
    assert spawn("moving") == "second\n"
    (second / "moving").unlink()
    with pytest.raises(FileNotFoundError):
        spawn("moving")


class InterruptAtStart:
    """Interrupts the task once its program runs."""

    def __init__(self) -> None:
        self.environment = {"INTERRUPT": "me"}
        self.pid = 0

    def started(self, pid: int) -> None:
        self.pid = pid
        raise Interruption

    def ended(self) -> None:
        self.environment = {}


def test_an_interrupted_task_leaves_nothing_of_its_program() -> None:
    watch = InterruptAtStart()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(Interruption):
        programs.run(call("sh", "-c", "sleep 3600 & sleep 3600"), {}, 0, watch)
    assert not process_tree.is_alive(watch.pid)
    assert watch.environment == {}
    assert set(os.listdir("/proc/self/fd")) == before
