"""Commands and programs that begin at once: they are forks of a process that has loaded what they import.

To load it takes longer than most of them run. Whoever wants to see how one is started, or to stop it while it
loads, starts a process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Any

ROOT = Path(__file__).parents[1]

LOADED = (
    *(f"gspc_trio.cli.{command}" for command in ("iml", "jobserver", "rts")),
    *(
        "gspc_trio.components.embedded_job",
        "gspc_trio.components.job.shell.data",
        "gspc_trio.components.wire.registry",
    ),
    *("gspc_trio.executor.loop", "gspc_trio.workflow.patterns", "gspc_trio.nursery.connections.websocket"),
    *("cloudpickle", "email.parser", "encodings.idna", "multiprocessing.reduction", "h11"),
)
"""What is loaded before the first fork, with what most commands load late; other commands are when they are
first asked for."""

HANG_S = 60.0
"""After so long it is an error that the process that forks has not answered."""

MESSAGE_BYTES = 1 << 17
ROOM_BYTES = 1 << 16
"""For the arguments, and for the environment, of whatever is asked for."""

kept: set[int] = set()
"""The process that forks, once it is there: it stays as long as this one."""

_one_at_a_time = threading.Lock()


@cache
def _server() -> socket.socket:
    """Start the process that forks, once; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.commands", str(theirs.fileno()), "-" * ROOM_BYTES],
            cwd=ROOT,
            env={**os.environ, "ROOM": "-" * ROOM_BYTES},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        process.returncode = 0  # nobody waits for it
        kept.add(process.pid)
    return ours


class Forked:
    """A process that the server has forked, in a session of its own; it is used as ``subprocess.Popen`` is.

    Args:
        args: Python, then maybe ``-W error``, then ``-m`` and a command of ours, or the file of a program.
        cwd: where it runs.
        env: its environment.
        stdout: takes what it prints; a pipe unless said.
        stderr: the same.
    """

    def __init__(
        self,
        args: tuple[str, ...],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        self.args = args
        self.returncode: int | None = None
        self._told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._told.settimeout(HANG_S)
        self.stdout, out = _pipe() if stdout is None else (None, os.dup(stdout.fileno()))
        self.stderr, err = _pipe() if stderr is None else (None, os.dup(stderr.fileno()))
        asked = json.dumps([args, str(cwd), dict(env)]).encode()
        try:
            with _one_at_a_time, theirs:
                socket.send_fds(_server(), [asked], [out, err, theirs.fileno()])
                self.pid = int(self._told.recv(MESSAGE_BYTES))
        finally:
            os.close(out)
            os.close(err)

    def poll(self) -> int | None:
        """Return the exit status, None if it has not ended."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = int(self._told.recv(MESSAGE_BYTES))
            self._told.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit status.

        Raises:
            subprocess.TimeoutExpired: it has not ended for so long.
        """
        if self.returncode is None:
            select.select([self._told], [], [], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it still prints, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended for so long.
        """
        end = None if timeout is None else time.monotonic() + timeout
        printed = ["", ""]

        def read(number: int, pipe: IO[str]) -> None:
            with pipe:
                printed[number] = pipe.read()

        readers = [
            threading.Thread(target=read, args=(number, pipe), daemon=True)
            for number, pipe in enumerate((self.stdout, self.stderr))
            if pipe is not None and not pipe.closed
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        return printed[0], printed[1]

    def send_signal(self, number: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Tell it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _pipe() -> tuple[IO[str], int]:
    read, write = os.pipe()
    return open(read, encoding="utf-8"), write


def can_fork(args: tuple[str, ...], options: Mapping[str, object]) -> bool:
    """Whether it is one of our commands or the file of a program, and nothing else is asked of Popen."""
    if options or args[0] != sys.executable:
        return False
    is_command = args[1:2] == ("-m",) and args[2].startswith("gspc_trio.cli.")
    return is_command or args[1].endswith(".py")


def run_command(
    command: str, *arguments: str, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run ``gspc-COMMAND`` to its end, as ``subprocess.run`` does."""
    words = (sys.executable, "-m", f"gspc_trio.cli.{command}", *arguments)
    return run_program(*words, cwd=cwd, env=env, timeout_s=timeout_s)


def run_program(
    *words: str, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command, or a program in Python, to its end, as ``subprocess.run`` does."""
    with TemporaryFile() as out, TemporaryFile() as err:
        process = Forked(words, cwd=cwd, env=env, stdout=out, stderr=err)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read().decode(), err.read().decode())


class _Room:
    """The memory in which the kernel looks for the arguments and the environment of this process."""

    def __init__(self) -> None:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        self._areas = [(int(fields[45]), int(fields[46])), (int(fields[47]), int(fields[48]))]

    def show(self, args: list[str], env: Mapping[str, str]) -> None:
        """Have others see these from now on."""
        shown = (args, [f"{name}={value}" for name, value in env.items()])
        for (begin, end), texts in zip(self._areas, shown, strict=True):
            text = b"".join(os.fsencode(one) + b"\0" for one in texts)
            ctypes.memmove(begin, text[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def serve(connection: socket.socket) -> tuple[str, ...]:
    """Fork for each command; return, in a fork, the command that it is to run.

    Who has ended is reaped when that is known to who has asked for it: until then its number is its own.
    """
    room = _Room()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in LOADED:
            import_module(name)
    gc.collect()
    gc.freeze()
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells of its end
    ended: dict[int, tuple[int, socket.socket]] = {}  # by that of the connection
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in running:
                poll.unregister(descriptor)
                pid, asker = running.pop(descriptor)
                os.close(descriptor)
                ended[asker.fileno()] = pid, asker
                poll.register(asker, select.POLLIN)
                state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                assert state is not None
                status = state.si_status if state.si_code == os.CLD_EXITED else -state.si_status
                _tell(asker, status)
            elif descriptor in ended:
                poll.unregister(descriptor)
                pid, asker = ended.pop(descriptor)
                os.waitpid(pid, 0)
                asker.close()
            else:
                asked, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
                if not asked:  # the tests have ended; killed ones have left what they had started
                    for pid, _ in running.values():
                        os.kill(pid, signal.SIGTERM)
                    sys.exit()
                args, cwd, env = json.loads(asked)
                if args[1] == "-m" and args[2] not in sys.modules:
                    import_module(args[2])
                    gc.freeze()
                out, err, told = files
                asker = socket.socket(fileno=told)
                pid = os.fork()
                if not pid:
                    for _, one in (*running.values(), *ended.values(), (0, asker), (0, connection)):
                        one.close()
                    for number in running:
                        os.close(number)
                    _become(out, err, cwd, env)
                    room.show(args, env)
                    return tuple(args)
                os.close(out)
                os.close(err)
                _tell(asker, pid)
                watched = os.pidfd_open(pid)
                running[watched] = pid, asker
                poll.register(watched, select.POLLIN)


def _tell(asker: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody wants to know any more
        asker.send(b"%d" % number)


def _become(out: int, err: int, cwd: str, env: Mapping[str, str]) -> None:
    os.setsid()
    for number, file in enumerate((out, err), 1):
        os.dup2(file, number)
        os.close(file)
    sys.stdout = sys.__stdout__ = _stream(1)
    sys.stderr = sys.__stderr__ = _stream(2, line_buffering=True, errors="backslashreplace")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)


def _stream(descriptor: int, **options: Any) -> TextIOWrapper:
    return TextIOWrapper(BufferedWriter(FileIO(descriptor, "w", closefd=False)), encoding="utf-8", **options)


def run(args: tuple[str, ...]) -> None:
    """Do what Python does for a command line."""
    words = list(args[1:])
    if words[:2] == ["-W", "error"]:
        del words[:2]
        sys.warnoptions.append("error")
        warnings.simplefilter("error")
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv[:] = [words[1].replace("gspc_trio.cli.", "gspc-"), *words[2:]]
        import_module(words[1]).main()
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        sys.argv[:] = words
        program = ModuleType("__main__")
        program.__dict__.update(__file__=words[0], __builtins__=__builtins__)
        sys.modules["__main__"] = program
        exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), program.__dict__)


if __name__ == "__main__":
    run(serve(socket.socket(fileno=int(sys.argv[1]))))
