"""What the programs for running clusters share: ``submit|list|cancel|size ADDRESS [NAME]``, or ``serve FD``.

``serve`` answers on a socket what the others print, one line of JSON each, and stays connected to the cluster
until the socket is closed. What a question is, and its answer: see ``shell/helper.py``.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import msgspec

from gspc_trio.components.provision.providers.task_engine import (
    REFUSED,
    EngineJob,
    EngineRequest,
    EngineSize,
)

SERVE = "serve"

CLOSE_S = 2.0
"""How long leaving the cluster may take."""


class Refused(Exception):
    """There is no job for certain, or no way to the cluster; the message is one line for people."""


class Unanswered(Exception):
    """The cluster cannot say it now; the message is one line for people."""


class EngineCluster(Protocol):
    """A cluster, connected.

    Its methods raise Refused and Unanswered; after any other error it is connected anew.
    """

    def submit(self, wanted: EngineRequest, told: bytes) -> None:
        """Start a job; ``told`` is the request as its nodes read it."""
        ...

    def jobs(self, only: str) -> Iterable[EngineJob]:
        """Return the jobs, or this one."""
        ...

    def cancel(self, name: str) -> None:
        """End a job, if it is there."""
        ...

    def size(self) -> EngineSize:
        """Return how large it is."""
        ...

    def close(self) -> None:
        """Leave it; jobs go on."""
        ...


Connect = Callable[[str], EngineCluster]
"""Connects to the cluster at an address; raises Refused."""

Answer = tuple[int, str, str]
"""Exit status, output, and errors of a command."""


def main(connect: Connect) -> int:
    """Do what the command line says; return the exit status."""
    if sys.argv[1] == SERVE:
        _serve(connect, int(sys.argv[2]))
        return 0
    told = sys.stdin.read() if sys.argv[1] == "submit" else ""
    output = os.dup(1)
    os.dup2(2, 1)  # the library may print what is no answer
    status, said, errors = Commands(connect).answer(tuple(sys.argv[1:]), told)
    os.write(output, said.encode())
    print(errors, end="", file=sys.stderr)
    return status


class Commands:
    """Answers commands; it is connected when it was asked for the first time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._address = ""
        self._cluster: EngineCluster | None = None

    def answer(self, arguments: tuple[str, ...], told: str) -> Answer:
        """Return what a process with these arguments, and this on standard input, would say."""
        verb, address, *names = arguments
        try:
            if self._cluster is None or address != self._address:
                self.close()
                self._cluster, self._address = self._connect(address), address
            return 0, _said(self._cluster, verb, "".join(names), told.encode()), ""
        except Refused as error:
            return REFUSED, "", f"{error}\n"
        except Unanswered as error:
            return 1, "", f"{error}\n"
        except Exception as error:
            self.close()
            return 1, "", f"{type(error).__name__}: {error}\n"

    def close(self) -> None:
        """Leave the cluster."""
        if self._cluster is not None:
            with suppress(Exception):  # it may be gone
                self._cluster.close()
            self._cluster = None


def _said(cluster: EngineCluster, verb: str, name: str, told: bytes) -> str:
    if verb == "submit":
        wanted = msgspec.json.decode(told, type=EngineRequest)
        cluster.submit(wanted, told)
        return f"{wanted.name}\n"
    if verb == "list":
        return "".join(f"{msgspec.json.encode(job).decode()}\n" for job in cluster.jobs(name))
    if verb == "cancel":
        cluster.cancel(name)
        return ""
    return f"{msgspec.json.encode(cluster.size()).decode()}\n"


def _serve(connect: Connect, fd: int) -> None:
    """Answer questions until there are no more; then leave the cluster, whatever it does meanwhile."""
    os.dup2(1, 2)  # what the library prints is no answer
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of the socket says it, too
    commands, asked = Commands(connect), queue.SimpleQueue[bytes]()
    with socket.socket(fileno=fd) as link:
        link.set_inheritable(False)
        threading.Thread(target=_listen, args=(link.makefile("rb"), asked), daemon=True).start()
        while question := asked.get():
            arguments, told = msgspec.json.decode(question, type=tuple[tuple[str, ...], str])
            answer = commands.answer(arguments, told)
            with suppress(OSError):
                link.sendall(msgspec.json.encode(answer) + b"\n")
        commands.close()


def _listen(lines: Iterable[bytes], asked: queue.SimpleQueue[bytes]) -> None:
    """Take in questions; after the last this process ends soon, even within a call of the library."""
    with suppress(OSError):
        for line in lines:
            asked.put(line)
    timer = threading.Timer(CLOSE_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    asked.put(b"")
