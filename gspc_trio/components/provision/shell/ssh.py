"""The strategy ``ssh``: RIFs on other hosts, started by the OpenSSH client (RTS-1).

The user's ``~/.ssh/config`` says how a host is reached. Host keys must be known, nothing is asked for,
nothing is forwarded; what the RIF is told, its secrets among it, goes over standard input. One connection to
a host is shared by all that is started there.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from gspc_trio.components.provision.shell.strategies import (
    RIF_OPTIONS,
    check_reachable,
    describe_exit,
    remote_command,
    run_command,
)
from gspc_trio.components.provision.strategy import OutOfSight, RifOrder, StrategyError, check_options
from gspc_trio.compute.folders import Folders

CONNECT_TIMEOUT_S = 10
ALIVE_INTERVAL_S = 2
ALIVE_COUNT_MAX = 3
"""A connection over which nothing comes for six seconds is over."""

CONFIG_TIMEOUT_S = 10.0

SOCKET_FOLDER_CHARACTERS_MAX = 28
"""Longest name of the directory for temporary files in which sockets are made: a socket's has 108 at most."""

SSH_FAILED = 255
"""Exit status of the client when it is the client that failed."""

_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]*\Z")


class SshStrategy:
    """Starts a RIF on a host by ``ssh``; it ends with its RTS, or when it has not heard of it for 5 s.

    Options: ``python``, the interpreter on the host (by default that of this process if it is there, else
    ``python3``); ``config``, a file in place of ``~/.ssh/config``; those of ``rif_process``.

    Args:
        program: the client.
    """

    def __init__(self, program: str = "ssh") -> None:
        self._program = program
        parent = tempfile.gettempdir()
        short = parent if len(parent) <= SOCKET_FOLDER_CHARACTERS_MAX else "/tmp"
        self._folders = Folders(short, "gspc-ssh-")
        self._folder = ""
        self._users = 0

    async def run(self, order: RifOrder) -> str:
        """Run the RIF until it ends or this is cancelled."""
        check_options(order, "python", "config", *RIF_OPTIONS)
        if not _HOST.match(order.host):
            raise StrategyError(f"{order.host!r} is no name of a host")
        check_reachable(order)
        with self._sockets() as folder:
            command = [*await self._client(order, folder), "--", order.host, remote_command(order.options)]
            # The client's own words come with those of the RIF.
            status = await run_command(("/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *command), order)
        if status == SSH_FAILED and order.grace_s:
            raise OutOfSight("ssh lost the connection")
        return "ssh could not connect" if status == SSH_FAILED else describe_exit(status)

    async def _client(self, order: RifOrder, folder: str) -> list[str]:
        """Return the client's command line up to the host."""
        command = [self._program]
        if "config" in order.options:
            command += ["-F", order.options["config"]]
        known = await self._configured([*command, "-G", "--", order.host])
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": str(CONNECT_TIMEOUT_S),
            "ServerAliveInterval": str(ALIVE_INTERVAL_S),
            "ServerAliveCountMax": str(ALIVE_COUNT_MAX),
            "ClearAllForwardings": "yes",
            "ForwardAgent": "no",
            "ForwardX11": "no",
            "PermitLocalCommand": "no",
            "RequestTTY": "no",
            "ControlMaster": "auto",
        }
        # A connection that the user has open already is used: it may have taken a second factor.
        if known.get("controlpath", "none") == "none":
            options |= {"ControlPath": f"{folder}/%C", "ControlPersist": "no"}
        for name, value in options.items():
            command += ["-o", f"{name}={value}"]
        return command

    async def _configured(self, command: Sequence[str]) -> dict[str, str]:
        """Return what the user's configuration says of a host."""
        try:
            with trio.fail_after(CONFIG_TIMEOUT_S):
                done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        except trio.TooSlowError:
            raise StrategyError(f"{self._program} does not say what its configuration is") from None
        except OSError as error:
            raise StrategyError(f"cannot start {self._program}: {error.strerror}") from error
        if done.returncode:
            words = " ".join(done.stderr.decode(errors="replace").split())
            raise StrategyError(f"{self._program} cannot read its configuration: {words}")
        lines = done.stdout.decode(errors="replace").splitlines()
        return {name.lower(): value for name, _, value in (line.partition(" ") for line in lines)}

    @contextmanager
    def _sockets(self) -> Iterator[str]:
        """A directory for the sockets of shared connections, for as long as somebody needs it."""
        if not self._users:
            self._folder = self._folders.make().path
        self._users += 1
        try:
            yield self._folder
        finally:
            self._users -= 1
            if not self._users:
                self._folders.close()
