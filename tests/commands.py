"""Commands of ours that begin at once: they are forks of a process that has loaded them.

To load a command takes longer than most of them run. Whoever wants to see how one is started, or to stop it,
starts a process of its own.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).parents[1]

LOADED = ("iml", "jobserver", "rts")
"""The others are loaded in the fork."""

MESSAGE_BYTES = 1 << 17

kept: set[int] = set()
"""The process that forks, once it is there: it stays as long as this one."""

_one_at_a_time = threading.Lock()


@cache
def _server() -> socket.socket:
    """Start the process that forks, once; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.commands", str(theirs.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        process.returncode = 0  # nobody waits for it
        kept.add(process.pid)
    return ours


def run_command(
    command: str, *arguments: str, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run ``gspc-COMMAND`` to its end, in a session of its own, as ``subprocess.run`` does."""
    asked = json.dumps([command, arguments, str(cwd), dict(env)]).encode()
    with _one_at_a_time, TemporaryFile() as out, TemporaryFile() as err:
        server = _server()
        server.settimeout(timeout_s)
        socket.send_fds(server, [asked], [out.fileno(), err.fileno()])
        pid = int(server.recv(MESSAGE_BYTES))
        try:
            status = int(server.recv(MESSAGE_BYTES))
        except TimeoutError:
            os.killpg(pid, signal.SIGKILL)
            server.recv(MESSAGE_BYTES)
            raise subprocess.TimeoutExpired([command, *arguments], timeout_s) from None
        out.seek(0)
        err.seek(0)
        printed = out.read().decode(), err.read().decode()
    return subprocess.CompletedProcess([command, *arguments], status, *printed)


def serve(connection: socket.socket) -> str:
    """Fork for each command, and wait for it; return, in a fork, the command that it is to run."""
    for name in LOADED:
        import_module(f"gspc_trio.cli.{name}")
    gc.freeze()
    while True:
        asked, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 2)
        if not asked:
            sys.exit()
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            connection.send(b"%d" % pid)
            connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            continue
        connection.close()
        os.setsid()
        for number, file in enumerate(files, 1):
            os.dup2(file, number)
            os.close(file)
        command, arguments, cwd, env = json.loads(asked)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv[:] = [f"gspc-{command}", *arguments]
        sys.path[0] = cwd
        return str(command)


if __name__ == "__main__":
    import_module(f"gspc_trio.cli.{serve(socket.socket(fileno=int(sys.argv[1])))}").main()
