"""The template: a small process without trio that forks compute processes, kills them and reaps them.

Started by exec as ``python -m gspc_trio.compute.template DESCRIPTOR PARENT MODULE... "" LIBRARY...`` (its
control channel to the RIF, the pid of the RIF, what to import at once, and what while nobody wants anything).
Every process below it that loses its parent becomes its child; those that it did not fork itself are ended.
When the RIF is gone it ends everything below it, then itself.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from gspc_trio.compute import process_tree, system
from gspc_trio.compute.channel import (
    BUSY,
    BUSY_S,
    CONTROL_BYTES_MAX,
    EXITED,
    FOLDER_PREFIX,
    FORK,
    FORKED,
    KILL,
    KILLED,
    READY,
    TASKS,
    Message,
    open_nameless_file,
    pack,
    unpack,
)
from gspc_trio.compute.child import run_child
from gspc_trio.compute.output import last_words

KILL_S = 5.0
"""After so long a kill is answered even if something could not be ended."""

STOP_S = 1.0
"""After so long a compute process that cannot be stopped first is killed all the same."""

_STEP_MS = 1

_FIRST_MS = 500
"""So long the first compute process is waited for: most often it is wanted at once, libraries are not, and
whoever will want it may still be starting."""


_NEEDED = ("cloudpickle", "multiprocessing.process")
"""What compute processes of nearly every job need, the first one too; unless it is said what they need."""

_IN_PEACE = ("gspc_trio.compute.programs",)
"""What those of some jobs need: no compute process is kept waiting for it."""


_TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp", os.curdir)
"""Among these :mod:`tempfile` chooses the directory for temporary files; to import it takes longer."""


def _do_nothing(number: int, frame: object) -> None:
    """Handle a signal only so that it wakes the loop."""


class _Child:
    """A compute process, and the kill of it if that was asked for."""

    def __init__(self, pid: int = 0, output: Sequence[int] = (), *, reaped: bool = False) -> None:
        self.pid = pid
        self.output = output
        self.reaped = reaped
        self.kill_began_s: float | None = None
        self.dying = False


class Template:
    """Serves one RIF on the control channel."""

    def __init__(self, control: socket.socket, parent_pid: int, libraries: Sequence[str]) -> None:
        self._control = control
        self._parent_pid = parent_pid
        self._libraries = [*libraries, *_IN_PEACE]  # still to be imported
        self._pid = os.getpid()
        self._children: dict[int, _Child] = {}  # by number, until reaped and, if asked for, killed
        self._by_pid: dict[int, int] = {}
        self._rif_is_there = True
        self._busy_said_s = 0.0
        self._wakeup, wakeup_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.signal(signal.SIGTERM, self._told_to_end)
        signal.signal(signal.SIGCONT, self._continued)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> bool:
        """Serve until the RIF is gone, end everything below; return whether nothing is left."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        self._say([READY])
        idle_ms = _FIRST_MS
        while self._rif_is_there:
            killing = any(child.kill_began_s is not None for child in self._children.values())
            if killing:
                wait_ms: int | None = _STEP_MS
            else:
                wait_ms = idle_ms if self._libraries else None
            events = poll.poll(wait_ms)
            idle_ms = 0
            if not events and self._libraries:
                self._import_library()
            for descriptor, _ in events:
                if descriptor == self._wakeup:
                    with suppress(BlockingIOError):
                        os.read(self._wakeup, 4096)
                else:
                    self._receive()
            self._reap()
            self._step_kills()
            if killing and monotonic() - self._busy_said_s > BUSY_S / 2:
                self._busy_said_s = monotonic()
                self._say([BUSY])
        return self._end_everything()

    def _told_to_end(self, number: int, frame: object) -> None:
        del number, frame
        self._rif_is_there = False

    def _continued(self, number: int, frame: object) -> None:
        """End if the RIF is gone, else go on."""
        if os.getppid() != self._parent_pid:
            self._told_to_end(number, frame)

    def _say(self, message: list[Message], descriptors: Sequence[int] = ()) -> None:
        if descriptors:
            with suppress(OSError):  # too many are on their way: then it is said without them
                attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))]
                self._control.sendmsg([pack(message)], attached)
                return
        try:
            self._control.sendall(pack(message))
        except OSError:
            self._rif_is_there = False

    def _receive(self) -> None:
        try:
            data, ancillary, _, _ = self._control.recvmsg(
                CONTROL_BYTES_MAX, socket.CMSG_SPACE(4 * 4), socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._rif_is_there = False
            return
        descriptors = array("i")
        for _, _, attached in ancillary:
            descriptors.frombytes(attached)
        said, number, *fields = unpack(data)
        if said == FORK:
            self._fork(number, descriptors, *fields)
        elif said == KILL:
            child = self._children.setdefault(
                number, _Child(reaped=True)
            )  # what it left is still to be ended
            if child.kill_began_s is None:
                child.kill_began_s = monotonic()

    def _import_library(self) -> None:
        """Import the next library, so that compute processes find it imported."""
        with suppress(ImportError):
            importlib.import_module(self._libraries.pop(0))
        if not self._libraries:
            gc.freeze()

    def _fork(
        self, number: int, descriptors: array[int], cpus: list[int], gpus: list[int], kind: int
    ) -> None:
        while self._children and len(self._libraries) > len(
            _IN_PEACE
        ):  # the first one is not kept waiting, the others gain
            self._import_library()
        output: list[int] = []
        try:
            if len(descriptors) != (3 if kind == TASKS else 2):
                raise OSError("too many open files to take its channels")
            output = [open_nameless_file(), open_nameless_file()]
            pid = os.fork()
        except OSError as error:
            for descriptor in (*descriptors, *output):
                os.close(descriptor)
            self._say([FORKED, number, 0, error.strerror or str(error)])
            return
        if pid == 0:
            self._control.detach()  # its descriptor is closed with all others, and must not be closed again
            run_child(
                descriptors[0],
                descriptors[1:],
                (output[0], output[1]),
                cpus=cpus,
                gpus=gpus,
                kind=kind,
                template_pid=self._pid,
            )
        for descriptor in descriptors:
            os.close(descriptor)
        self._children[number] = _Child(pid, output)
        self._by_pid[pid] = number
        self._say([FORKED, number, pid, ""])

    def _reap(self) -> None:
        """Reap all that have ended; end what a dead compute process has left to us."""
        somebody_ended = False
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                break
            if found is None:
                break
            somebody_ended = True
            number = self._by_pid.pop(found.si_pid, None)
            if number is not None:
                self._report_exit(number, found.si_code, found.si_status)
        if somebody_ended:
            self._kill_orphans()

    def _report_exit(self, number: int, code: int, status: int) -> None:
        child = self._children[number]
        child.reaped = True
        status = status if code == os.CLD_EXITED else -status
        self._say([EXITED, number, status, last_words(child.output[1])], child.output)
        for descriptor in child.output:
            os.close(descriptor)
        if child.kill_began_s is None:
            del self._children[number]

    def _kill_orphans(self) -> int:
        """Kill the children that are no compute processes; theirs become ours and are next.

        None is left only if a look finds those alone that were dead before it: one that dies between the look
        at the children and the look at its state leaves us children that the first has not seen.
        """
        dead: set[int] = set()
        while orphans := set(process_tree.children(self._pid)).difference(self._by_pid, dead):
            alive = set(filter(process_tree.is_alive, orphans))
            for pid in alive:
                process_tree.kill(pid, signal.SIGKILL)
            if alive:
                return len(alive)
            dead |= orphans
        return 0

    def _step_kills(self) -> None:
        """Advance every kill: stop the process, end all below it, kill it, reap it, see what is left."""
        for number, child in list(self._children.items()):
            if child.kill_began_s is None:
                continue
            taken_s = monotonic() - child.kill_began_s
            if not child.reaped and not child.dying:
                process_tree.kill(child.pid, signal.SIGSTOP)
                stopped = process_tree.state(child.pid) in "TtZX"
                # Twice, because a process may be missed while its parent dies.
                busy = process_tree.kill_descendants(child.pid) or process_tree.kill_descendants(child.pid)
                if (stopped and not busy) or taken_s > STOP_S:
                    process_tree.kill(child.pid, signal.SIGKILL)
                    child.dying = True
            if child.reaped or taken_s > KILL_S:
                survivors = self._kill_orphans()
                if not survivors or taken_s > KILL_S:
                    child.kill_began_s = None  # done; one that could not be ended may still exit later
                    if child.reaped:
                        del self._children[number]
                    self._say([KILLED, number, survivors + (not child.reaped)])

    def _end_everything(self) -> bool:
        gone = process_tree.kill_all_descendants(self._pid, KILL_S)
        if _are_folders_left():
            from gspc_trio.compute.folders import sweep  # only then: a fifth of all that a start would import

            sweep()
        while True:
            try:
                if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                    return gone
            except ChildProcessError:
                return True


def _are_folders_left() -> bool:
    """Return whether there are directories of tasks, of whatever owner, where temporary files may be."""
    for parent in {*filter(None, map(os.environ.get, _TEMPORARY_VARIABLES)), *_TEMPORARY}:
        with suppress(OSError), os.scandir(parent) as entries:
            if any(entry.name.startswith(FOLDER_PREFIX) for entry in entries):
                return True
    return False


def main() -> None:
    """Run as a program.

    Its arguments are the descriptor of the control channel, the pid of the RIF, names of modules that all
    tasks import, "", and names of libraries that tasks often import.
    """
    descriptor, parent_pid = map(int, sys.argv[1:3])
    system.set_name("gspc-template")
    system.become_subreaper()
    system.keep_freed_memory()
    control = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    end = sys.argv.index("", 3)
    template = Template(control, parent_pid, sys.argv[end + 1 :])
    for name in sys.argv[3:end] or _NEEDED:
        importlib.import_module(name)
    system.set_parent_death_signal(signal.SIGCONT)  # SIGTERM would not wake it if it is stopped
    if os.getppid() != parent_pid:
        sys.exit(0)
    gc.collect()
    gc.freeze()
    gc.disable()
    # Without Python's own way out: there a late SIGTERM would end it with another status.
    os._exit(0 if template.run() else 1)
