"""Runs external programs: no shell, output by pipes with bounded memory, nothing left when interrupted."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
from contextlib import suppress
from typing import Any, Protocol

from gspc_trio.compute import process_tree
from gspc_trio.compute.errors import TaskFailure
from gspc_trio.core.held import held_environment
from gspc_trio.core.rules import fill
from gspc_trio.protocol.code import ProgramCall
from gspc_trio.protocol.compute_channel import OUTPUT_BYTES_MAX

STDOUT_BYTES_MAX = 1 << 20
"""Most standard output that a program may have as a value."""

KILL_S = 2.0
"""Bound on ending what an interrupted program has started."""

READS_AFTER_END = 32
"""Enough to empty a full pipe; a child that the program left may go on writing for ever."""


class Watch(Protocol):
    """Knows which program a thread runs, so that it can be ended from outside."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which its programs are known."""
        ...

    def started(self, pid: int) -> None:
        """A program has started."""
        ...

    def ended(self) -> None:
        """It has ended, and is about to be reaped."""
        ...


def run(
    call: ProgramCall, named: dict[str, Any], memory_bytes: int, watch: Watch | None = None
) -> tuple[dict[str, Any], bytes, bytes]:
    """Run a program to its end.

    Args:
        call: what to run.
        named: values for the placeholders.
        memory_bytes: memory that each of its processes may take, 0 for no limit.
        watch: told of the program, if given.

    Returns:
        ``{"exit_status", "stdout", "stderr"}``, and the last part of both outputs.

    Raises:
        TaskFailure: it could not be started, wrote too much, or ended with a status other than 0 (if
            checked).
    """
    arguments = [fill(argument, named) for argument in call.arguments]
    environment = dict(os.environ)
    environment.update(held_environment())
    environment.update((name, fill(value, named)) for name, value in call.environment.items())
    if watch is not None:
        environment.update(watch.environment)
    directory = fill(call.working_directory, named) or None
    _reap_orphans()
    program = _start(arguments, environment, directory)
    running = _Running(program)
    try:
        if watch is not None:
            watch.started(program.pid)
        if memory_bytes:
            _limit_memory(program.pid, memory_bytes)
        running.collect()
    finally:
        if watch is not None:
            watch.ended()
        running.end()
        _left_groups.add(program.pid)
    return _result(call.check, arguments, program.returncode, bytes(running.stdout), bytes(running.stderr))


def _start(
    arguments: list[str], environment: dict[str, str], directory: str | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
    except OSError as error:
        if directory is not None and not os.path.isdir(directory):
            message = f"working directory {directory} not found, asked for by: {shlex.join(arguments)}"
        elif isinstance(error, FileNotFoundError):
            message = f"program not found: {arguments[0]}"
        else:
            message = f"cannot start {arguments[0]}: {error.strerror or error}"
        raise TaskFailure(type(error).__name__, message) from None
    except ValueError as error:  # a zero byte in an argument, a "=" in a name
        raise TaskFailure("ValueError", f"cannot start {arguments[0]!r}: {error}") from None


class _Running:
    """A program and what has been read of its output."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        assert program.stdout is not None
        assert program.stderr is not None
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._program = program
        self._pidfd = os.pidfd_open(program.pid)
        self._open = {program.stdout.fileno(): self.stdout, program.stderr.fileno(): self.stderr}
        for descriptor in self._open:
            os.set_blocking(descriptor, False)

    def collect(self) -> None:
        """Read until the program itself has ended; a child of it may hold the pipes open for longer."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        for descriptor in self._open:
            poll.register(descriptor, select.POLLIN)
        ended = False
        while not ended:
            for descriptor, _ in poll.poll():
                if descriptor == self._pidfd:
                    ended = True
                elif not self._read(descriptor):
                    poll.unregister(descriptor)
        for descriptor in self._open:
            for _ in range(READS_AFTER_END):
                if not self._read(descriptor):
                    break

    def _read(self, descriptor: int) -> bool:
        """Read once; return whether there may be more."""
        kept = self._open[descriptor]
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return False
        kept += data
        if kept is self.stderr:
            del kept[: max(0, len(kept) - OUTPUT_BYTES_MAX)]
        elif len(kept) > STDOUT_BYTES_MAX:
            limit = f"more than {STDOUT_BYTES_MAX} bytes"
            message = f"the program wrote {limit} to standard output: let it write to a file instead"
            raise TaskFailure("output", message, bytes(self.stdout), bytes(self.stderr))
        return bool(data)

    def end(self) -> None:
        """Leave nothing of a program that has not ended by itself; reap it."""
        program = self._program
        if program.poll() is None:
            process_tree.kill(program.pid, signal.SIGSTOP)
            process_tree.kill_all_descendants(program.pid, KILL_S)
            program.kill()
            program.wait()
        os.close(self._pidfd)
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        program.stderr.close()


_left_groups: set[int] = set()
"""Process groups of programs that have ended: what they left behind is ours to reap."""


def _reap_orphans() -> None:
    for group in tuple(_left_groups):
        try:
            while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG):
                pass  # None: nothing to reap, but somebody lives
        except ChildProcessError:
            _left_groups.discard(group)


def _limit_memory(pid: int, memory_bytes: int) -> None:
    import resource

    # It may have ended, or be another user's program: the system guards that one.
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _result(
    check: bool, arguments: list[str], status: int, stdout: bytes, stderr: bytes
) -> tuple[dict[str, Any], bytes, bytes]:
    if status != 0 and check:
        how = f"exit status {status}" if status > 0 else f"signal {_signal_name(-status)}"
        message = f"{shlex.join(arguments)} ended with {how}"
        last = stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise TaskFailure("exit status", f"{message}: {last}" if last else message, stdout, stderr)
    value = {
        "exit_status": status,
        "stdout": stdout.decode(errors="replace"),
        "stderr": stderr.decode(errors="replace"),
    }
    return value, stdout[-OUTPUT_BYTES_MAX:], stderr[-OUTPUT_BYTES_MAX:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
