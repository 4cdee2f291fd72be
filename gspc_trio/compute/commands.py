"""Runs commands of a list, as tasks do it for whoever has the list."""

from __future__ import annotations

import os
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from gspc_trio.compute.errors import TaskFailure
from gspc_trio.compute.programs import Pipe, Running, Started, left_groups, reap_orphans, signal_name, start
from gspc_trio.core.held import held_environment

COMMAND_STDOUT_BYTES_MAX = 64 << 20
"""Most standard output of a command of a list."""

Fields: TypeAlias = list[Any]
"""The fields of a :class:`CommandLine`, or of :class:`Ended`: lists are packed at once."""


class Ended(NamedTuple):
    """How a command has ended.

    Attributes:
        status: its exit status; minus the number of the signal that ended it; None: it has none.
        how: that in words; "" if it is 0.
        stdout: what it wrote to standard output.
        stderr: the last part of what it wrote to standard error.
        seconds: how long it ran.
    """

    status: int | None
    how: str
    stdout: bytes
    stderr: bytes
    seconds: float


class CommandLine(NamedTuple):
    """A command of a list.

    Attributes:
        number: for whoever wants it run.
        line: for ``sh -c``.
        words: if they need no shell.
        timeout_s: seconds that it may take, or None.
        attempts: how often it is tried until its exit status is 0.
    """

    number: int
    line: str
    words: list[str] | None
    timeout_s: float | None
    attempts: int


def working_directory() -> str:
    """Return where this process is: asked by a task, it runs no code of users."""
    return os.getcwd()


def run_command(fields: Fields) -> Fields:
    """Run a command line as :func:`run_line` does, both ways as lists."""
    return list(run_line(CommandLine(*fields)))


def run_line(command: CommandLine) -> Ended:
    """Run a command line; return how it has ended, the last time that it was tried."""
    _, line, words, timeout_s, attempts = command
    reap_orphans()
    ended = _run_once(line, words, timeout_s)
    while ended.how and attempts > 1:
        attempts -= 1
        ended = _run_once(line, words, timeout_s)
    return ended


def _run_once(line: str, words: list[str] | None, timeout_s: float | None) -> Ended:
    begun_s = monotonic()
    with Pipe() as stdout, Pipe() as stderr:
        program = _start_command(line, words, stdout.writing, stderr.writing)
        running = Running(program, stdout, stderr, COMMAND_STDOUT_BYTES_MAX)
        try:
            how = "" if running.collect(timeout_s) else f"timeout after {timeout_s:g} s"
        except TaskFailure as failure:
            how = str(failure)
        finally:
            running.end()
            left_groups.add(program.pid)
    status = program.returncode if not how else None
    if status:
        how = f"exit status {status}" if status > 0 else f"signal {signal_name(-status)}"
    return Ended(status, how, bytes(stdout.kept), bytes(stderr.kept), monotonic() - begun_s)


def _start_command(line: str, words: list[str] | None, stdout: int, stderr: int) -> Started:
    more = held_environment()
    for arguments in (*((words,) if words else ()), ["sh", "-c", line]):
        try:
            return start(arguments, more, None, stdout, stderr)
        except TaskFailure:
            if arguments is not words:
                raise  # else the shell says what is wrong with it, or knows it
    raise AssertionError
