"""Starting the template process, without trio: it imports what it needs while its RIF still imports trio."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gspc_trio.compute.channel import MARKER
from gspc_trio.compute.io.area import VARIABLE
from gspc_trio.nursery.scopes.spawn import Spawned, require_linux, spawn
from gspc_trio.version import SOURCES

TEMPLATE = "gspc_trio.compute.template"
"""A module that runs as a program of its own: not imported here, its process stays small."""

LIBRARIES = (
    "gspc_trio.workflow.patterns.map_reduce",
    "gspc_trio.workflow.definition",
    "gspc_trio.core.held",
    "pickle",
    "traceback",
)
"""What workflow files and tasks often import: once in the template instead of once in each compute process.
No code of users, nothing that starts a thread, and no trio.
"""

FOR_COMMANDS = ("gspc_trio.compute.commands",)
"""What the tasks import that run a list of commands."""


class StartedTemplate:
    """A template that was started, for the one who runs it.

    Attributes:
        marker: in the environment of everything below it.
        pid: its process id.
    """

    def __init__(self, marker: str, spawned: Spawned, control: socket.socket) -> None:
        self.marker = marker
        self.pid: int = spawned.popen.pid
        self._spawned = spawned
        self._control = control
        self._is_taken = False

    def take(self) -> tuple[Spawned, socket.socket]:
        """Return the program and our end of its control channel: they are the caller's from now on."""
        assert not self._is_taken
        self._is_taken = True
        return self._spawned, self._control

    def abandon(self) -> None:
        """End it at once, unless somebody has taken it: nobody has asked it for anything."""
        if self._is_taken:
            return
        spawned, control = self.take()
        control.close()
        os.close(spawned.stdout)
        with suppress(ProcessLookupError):
            spawned.popen.kill()
        spawned.popen.wait()


def start_template(library: Path | None = None, at_once: Sequence[str] = ()) -> StartedTemplate:
    """Start a template.

    Args:
        library: that it and all below it load first, None for none.
        at_once: modules that all its tasks need: it imports these before anything is asked of it, and no
            others.

    Raises:
        UnsupportedSystem: not on Linux.
        ProcessStartError: no process could be made.
        OSError: there is no room for its channel.
    """
    require_linux()
    marker = secrets.token_hex(8)
    environment = dict(os.environ)
    outer = environment.get(MARKER)
    if library is not None:
        environment["LD_PRELOAD"] = f"{library} {environment.get('LD_PRELOAD', '')}".strip()
        environment.pop(VARIABLE, None)  # of one that this process may be below
    environment[MARKER] = f"{outer}:{marker}" if outer else marker
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs:
            modules = (*at_once, "") if at_once else ("", *LIBRARIES)
            command = python_command(TEMPLATE, theirs.fileno(), os.getpid(), *modules)
            spawned = spawn(command, environment=environment, pass_fds=(theirs.fileno(),))
    except BaseException:
        ours.close()
        raise
    return StartedTemplate(marker, spawned, ours)


@contextmanager
def early_template(wanted: bool = True, at_once: Sequence[str] = ()) -> Iterator[StartedTemplate | None]:
    """Start the process that forks compute processes, if there are to be any here; end it after an error.

    It imports what it needs while this process still imports trio and the run-time system.

    Args:
        wanted: whether there are to be any.
        at_once: as for :func:`start_template`.
    """
    template = None
    if wanted:
        with suppress(OSError):  # whoever needs it will meet that again, and say it
            template = start_template(at_once=at_once)
    try:
        yield template
    except BaseException:
        if template is not None:
            template.abandon()
        raise


def python_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs ``main`` of a module of this package, whatever the search path is.

    ``-P`` and the order of imports keep files of the working directory from standing in for library modules.
    The garbage collector is off: what is imported is no garbage.
    """
    code = (
        "import gc, sys; gc.disable(); "
        "sys.path.insert(0, sys.argv.pop(1)); import gspc_trio; del sys.path[0]; "
        f"from {module} import main; main()"
    )
    return [sys.executable, "-P", "-c", code, str(SOURCES), *map(str, arguments)]
