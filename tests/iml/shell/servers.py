"""Memory servers as processes of their own, which a test can kill."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gspc_trio.iml.local import socket_address_of
from gspc_trio.nursery.connections.connection_file import read_connection_file
from tests.commands import Forked, run_command

HANG_S = 60.0
MARK = "GSPC_TEST_MARK"


class Servers:
    """``gspc-iml start`` for some hosts, with one connection file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "iml.json"
        self.folder = folder
        self.mark = secrets.token_hex(8)
        self.pids: list[int] = []
        self.sockets: set[str] = set()
        self.processes: dict[str, Forked] = {}

    def command(self, *arguments: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "gspc_trio.cli.iml", *arguments, "--connection-file", str(self.file))

    def start(self, host: str, *arguments: str) -> None:
        """Start a server; return when it says that it is there."""
        command = self.command("start", "--host", host, "--memory", "64MiB", *arguments)
        process = Forked(command, cwd=self.folder, env={**os.environ, MARK: self.mark})
        self.pids.append(process.pid)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        assert line.startswith(f"memory server of host {host}, rank ")
        self.processes[host] = process
        info = read_connection_file(self.file)
        address = socket_address_of(info.token, info.address, host)
        self.sockets.add(address)
        assert address in Path("/proc/net/unix").read_text()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        named = (*arguments, "--connection-file", str(self.file))
        return run_command("iml", *named, cwd=self.folder, env=os.environ, timeout_s=HANG_S)

    def kill(self, host: str) -> None:
        process = self.processes.pop(host)
        process.kill()
        process.communicate(timeout=HANG_S)

    def end(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.kill()
        for process in self.processes.values():
            process.communicate(timeout=HANG_S)


@contextmanager
def open_servers(folder: Path) -> Iterator[Servers]:
    """Run servers with their files in a folder; then all are killed, and none of their sockets is left."""
    folder.chmod(0o700)
    running = Servers(folder)
    try:
        yield running
    finally:
        running.end()
    sockets = Path("/proc/net/unix").read_text()
    assert [address for address in running.sockets if address in sockets] == []
