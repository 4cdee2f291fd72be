"""Runs external programs: no shell, output by pipes with bounded memory, nothing left when interrupted."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import threading
from contextlib import suppress
from time import monotonic
from typing import Protocol

from gspc_trio.compute import process_tree
from gspc_trio.compute.channel import OUTPUT_BYTES_MAX
from gspc_trio.compute.code import ProgramCall
from gspc_trio.compute.errors import TaskFailure
from gspc_trio.compute.tidy import changes
from gspc_trio.core.current import Gathered, current_place
from gspc_trio.core.held import held_environment
from gspc_trio.core.rules import fill

STDOUT_BYTES_MAX = 1 << 20
"""Most standard output that a program may have as a value."""

ECHO_BYTES_MAX = 4 * STDOUT_BYTES_MAX
"""A file that shows what a program writes begins anew when it is longer."""

KILL_S = 2.0
"""Bound on ending what an interrupted program has started."""

_IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores."""

_PLAIN = {str, int, float, bool, bytes, type(None)}

PATHS_KEPT_S = 1.0
"""So long a program is taken to be where it was found: to look for it costs a call for each directory."""

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
    call: ProgramCall,
    named: dict[str, object],
    memory_bytes: int,
    watch: Watch | None = None,
    echo: tuple[int, int] | None = None,
) -> tuple[dict[str, object], bytes, bytes]:
    """Run a program to its end.

    Args:
        call: what to run.
        named: values for the placeholders.
        memory_bytes: memory that each of its processes may take, 0 for no limit.
        watch: told of the program, if given.
        echo: files that have, while it runs, the last of what it has written to standard output and error.

    Returns:
        ``{"exit_status", "stdout", "stderr"}``, and the last part of both outputs.

    Raises:
        TaskFailure: it could not be started, wrote too much, or ended with a status other than 0 (if
            checked).
    """
    if not _PLAIN.issuperset(map(type, named.values())):
        changes.only_programs = False  # classes of users have run code to make these
    arguments = [fill(argument, named) for argument in call.arguments]
    more = held_environment()
    more.update((name, fill(value, named)) for name, value in call.environment.items())
    if watch is not None:
        more.update(watch.environment)
    directory = fill(call.working_directory, named) or None
    reap_orphans()
    stdout_echo, stderr_echo = echo or (-1, -1)
    with Pipe(stdout_echo) as stdout, Pipe(stderr_echo) as stderr:
        program = start(arguments, more, directory, stdout.writing, stderr.writing)
        running = Running(program, stdout, stderr)
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
            left_groups.add(program.pid)
    status = program.wait()
    return _result(call.check, arguments, status, bytes(stdout.kept), bytes(stderr.kept))


class Started(Protocol):
    """A program that was started, as ``subprocess.Popen`` has it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Reap it if it has ended; return its exit status, or minus the signal that ended it; else None."""
        ...

    def wait(self) -> int:
        """Wait until it has ended, reap it and return its exit status."""
        ...

    def kill(self) -> None:
        """Kill it, unless it was reaped."""
        ...


class _Spawned:
    """A program started by ``posix_spawn``, which costs a third of what ``subprocess.Popen`` does.

    Attributes:
        pid, returncode: as of ``subprocess.Popen``.
    """

    __slots__ = ("pid", "returncode")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Reap it if it has ended; return its exit status, None if it runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Wait until it has ended, reap it and return its exit status."""
        status = self._reap(0)
        assert status is not None
        return status

    def kill(self) -> None:
        """Kill it, unless it was reaped."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def start(
    arguments: list[str], more: dict[str, str], directory: str | None, stdout: int, stderr: int
) -> Started:
    """Start a program in a session of its own, with nothing on standard input.

    Args:
        arguments: the program, and its arguments.
        more: variables beside those of this process.
        directory: where it runs; None: in the working directory.
        stdout, stderr: files for what it writes.

    Raises:
        TaskFailure: it cannot be started.
    """
    try:
        if directory is None and "PATH" not in more and min(stdout, stderr) > 2 and _passes_nothing_on():
            return _spawn(arguments, more, stdout, stderr)
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            # Ours as it is, if it can be: to decode and encode it again costs as much as to start a program.
            env={**os.environ, **more} if more else None,
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


def _passes_nothing_on() -> bool:
    """Whether a new process would get none of our descriptors but 0 to 2, without anything being closed.

    Those of Python are closed by themselves. What a task has opened in a library may not be, and other
    threads may open more at any moment.
    """
    if threading.active_count() > 1:
        return False
    if not changes.only_programs:
        return _keeps_descriptors()
    if not _own.is_known:
        _own.is_known = _keeps_descriptors()
    return _own.is_known


def _keeps_descriptors() -> bool:
    """Whether none of our descriptors but 0 to 2 would be a new process's too."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and os.get_inheritable(descriptor):
                return False
        except OSError:  # the listing had one itself
            continue
    return True


def _spawn(arguments: list[str], more: dict[str, str], stdout: int, stderr: int) -> _Spawned:
    variables = _own.environment()
    found = _own.path_of(arguments[0], variables)
    if more:
        variables = {**variables, **{os.fsencode(name): os.fsencode(value) for name, value in more.items()}}
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
    )
    if found:
        try:
            pid = os.posix_spawn(
                found,
                arguments,
                variables,
                file_actions=actions,
                setsid=True,
                setsigdef=_IGNORED_HERE,
            )
        except OSError:  # it is not where it was
            pass
        else:
            return _Spawned(pid)
    pid = os.posix_spawnp(
        arguments[0],
        arguments,
        variables,
        file_actions=actions,
        setsid=True,
        setsigdef=_IGNORED_HERE,
    )
    return _Spawned(pid)


class _Own:
    """What is known of this process, so that it need not be found out for each program.

    Attributes:
        is_known: whether it was seen that no descriptor would be inherited, as :data:`changes` lets it stay.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._of = -1
        self._environment: dict[bytes, bytes] = {}
        self._paths: dict[str, str] = {}
        self._paths_until_s = 0.0

    def environment(self) -> dict[bytes, bytes]:
        """Return the variables of now as bytes: to encode them costs as much as to start a program."""
        if not changes.watched or self._of != changes.variables:
            self._of = changes.variables
            self._environment = dict(os.environb)
            self._paths_until_s = 0.0
        return self._environment

    def path_of(self, name: str, variables: dict[bytes, bytes]) -> str:
        """Return where a program was found a moment ago, "" if it is to be looked for by who starts it."""
        now = monotonic()
        if now > self._paths_until_s:
            self._paths.clear()
            self._paths_until_s = now + PATHS_KEPT_S
        path = self._paths.get(name)
        if path is None:
            path = self._paths[name] = _find(name, os.fsdecode(variables.get(b"PATH", b"")))
        return path


def _find(name: str, search: str) -> str:
    """Return the path of the program that a name stands for, "" for one with a path and for none."""
    folders = search.split(os.pathsep)
    if "/" in name or not all(folder.startswith("/") for folder in folders):
        return ""
    candidates = (f"{folder}/{name}" for folder in folders)
    return next((path for path in candidates if os.access(path, os.X_OK) and os.path.isfile(path)), "")


_own = _Own()


class Pipe:
    """A pipe for what a program writes.

    Both ends stay open here until the program has ended. That is seen from the program itself, for a child of
    it may hold the pipe open for longer; so nobody is woken by the end of the pipe and then again.

    Args:
        echo: a file for others to see what has been read so far, -1 for none.

    Attributes:
        reading, writing: the two ends.
        kept: what has been read and not dropped.
    """

    def __init__(self, echo: int = -1) -> None:
        self.kept: bytearray = bytearray()
        self._echo = echo
        self._echoed = self._echo_begin = 0
        self._is_blocking = True  # until it is read: most programs write nothing to one of their pipes
        self.reading: int
        self.writing: int
        self.reading, self.writing = os.pipe()

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reading)
        os.close(self.writing)
        if self._echoed:
            with suppress(OSError):
                os.ftruncate(self._echo, self._echo_begin)

    def read(self) -> bool:
        """Read once; return whether there was anything."""
        if self._is_blocking:
            self._is_blocking = False
            os.set_blocking(self.reading, False)
        try:
            data = os.read(self.reading, 65536)
        except BlockingIOError:
            return False
        self.kept += data
        if self._echo >= 0:
            with suppress(OSError):  # nobody sees it, the program goes on
                self._show(data)
        return True

    def _show(self, data: bytes) -> None:
        if not self._echoed:
            self._echo_begin = os.fstat(self._echo).st_size
        elif self._echoed > ECHO_BYTES_MAX:
            os.ftruncate(self._echo, self._echo_begin)
            data, self._echoed = bytes(self.kept[-OUTPUT_BYTES_MAX:]), 0
        self._echoed += os.write(self._echo, data)


class Running:
    """A program and the pipes that it writes to.

    Args:
        program: that was started.
        stdout, stderr: the pipes.
        stdout_bytes_max: most that it may write to standard output.
    """

    def __init__(
        self,
        program: Started,
        stdout: Pipe,
        stderr: Pipe,
        stdout_bytes_max: int = STDOUT_BYTES_MAX,
    ) -> None:
        self._program = program
        self._stdout_bytes_max = stdout_bytes_max
        self._stdout = stdout
        self._stderr = stderr
        try:
            self._pidfd = os.pidfd_open(program.pid)
        except OSError:  # too many open files
            program.kill()
            program.wait()
            raise

    def collect(self, timeout_s: float | None = None) -> bool:
        """Read until the program itself has ended; return False if that takes longer."""
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        poll = _poll_of((self._pidfd, self._stdout.reading, self._stderr.reading))
        ended = False
        place = current_place()
        results = None if place is None else place.take_results()
        while not ended and (deadline_s is None or monotonic() < deadline_s):
            ready = [descriptor for descriptor, _ in poll.poll(_wait_ms(deadline_s, results))]
            ended = self._pidfd in ready
            if ended and len(ready) == 1:
                return True  # all that it wrote has been read
            if self._stdout.reading in ready:
                self._read_stdout()
            if self._stderr.reading in ready:
                self._read_stderr()
        for pipe, read in ((self._stdout, self._read_stdout), (self._stderr, self._read_stderr)):
            if ended and pipe.reading not in ready:
                continue  # it was looked at after the program had ended: whatever that wrote was there
            for _ in range(READS_AFTER_END):
                if not read():
                    break
        return ended

    def _read_stdout(self) -> bool:
        found, kept = self._stdout.read(), self._stdout.kept
        if len(kept) > self._stdout_bytes_max:
            limit = f"more than {self._stdout_bytes_max} bytes"
            message = f"the program wrote {limit} to standard output: let it write to a file instead"
            raise TaskFailure("output", message, bytes(kept), bytes(self._stderr.kept))
        return found

    def _read_stderr(self) -> bool:
        found, kept = self._stderr.read(), self._stderr.kept
        if len(kept) > OUTPUT_BYTES_MAX:
            del kept[: len(kept) - OUTPUT_BYTES_MAX]
        return found

    def end(self) -> None:
        """Leave nothing of a program that has not ended by itself; reap it."""
        program = self._program
        if program.poll() is None:
            process_tree.kill_tree(program.pid, KILL_S)
            program.wait()
        os.close(self._pidfd)


_polled: tuple[tuple[int, ...], select.poll] = ((), select.poll())


def _poll_of(descriptors: tuple[int, ...]) -> select.poll:
    """Return what waits until one of these can be read: the same as last time, if they have the same numbers.

    They have most often, as each program gets the lowest ones that are free. It holds the numbers alone.
    """
    global _polled
    known, poll = _polled
    if known != descriptors:
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        _polled = descriptors, poll
    return poll


def _wait_ms(deadline_s: float | None, results: Gathered | None) -> float | None:
    """Return for how long to wait for a program; send first what is due."""
    due_s = None if results is None else results.due_s()
    if due_s is None and deadline_s is None:
        return None
    if results is not None and due_s == 0:
        results.send()
        due_s = None
    left_s = None if deadline_s is None else max(0.0, deadline_s - monotonic())
    waits_s = [seconds for seconds in (due_s, left_s) if seconds is not None]
    return min(waits_s) * 1000 if waits_s else None


left_groups: set[int] = set()
"""Process groups of programs that have ended: what they left behind is ours to reap."""


def reap_orphans() -> None:
    """Reap what programs that have ended have left behind, and has died since."""
    for group in tuple(left_groups):
        try:
            while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG):
                pass  # None: nothing to reap, but somebody lives
        except ChildProcessError:
            left_groups.discard(group)


def _limit_memory(pid: int, memory_bytes: int) -> None:
    import resource

    # It may have ended, or be another user's program: the system guards that one.
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _result(
    check: bool, arguments: list[str], status: int, stdout: bytes, stderr: bytes
) -> tuple[dict[str, object], bytes, bytes]:
    if status != 0 and check:
        how = f"exit status {status}" if status > 0 else f"signal {signal_name(-status)}"
        message = f"{shlex.join(arguments)} ended with {how}"
        last = stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise TaskFailure("exit status", f"{message}: {last}" if last else message, stdout, stderr)
    value = {
        "exit_status": status,
        "stdout": stdout.decode(errors="replace"),
        "stderr": stderr.decode(errors="replace"),
    }
    return value, stdout[-OUTPUT_BYTES_MAX:], stderr[-OUTPUT_BYTES_MAX:]


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
