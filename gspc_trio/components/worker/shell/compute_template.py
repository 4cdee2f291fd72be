"""The RIF's end of its template: starts it, has it fork and kill, and clears up when it has died."""

from __future__ import annotations

import logging
import os
import signal
import socket
import stat
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio
from msgspec import Struct, field

from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.components.worker.shell.compute_channel import Printed
from gspc_trio.components.worker.shell.template_process import (
    StartedTemplate,
    python_command,
    start_template,
)
from gspc_trio.compute.channel import (
    BUSY,
    BUSY_S,
    CONTROL_BYTES_MAX,
    EXITED,
    FORK,
    FORKED,
    KILL,
    KILLED,
    MARKER,
    OUTPUT_BYTES_MAX,
    READY,
    pack,
    unpack,
)
from gspc_trio.core.ids import Counter, JobId
from gspc_trio.nursery.scopes.process import Process, open_process, supervised
from gspc_trio.nursery.scopes.spawn import ProcessStartError

if TYPE_CHECKING:  # few hosts count
    from gspc_trio.components.worker.shell.io_watch import IoWatch

SWEEP = "gspc_trio.compute.sweep"
"""A module that runs as a program of its own: not imported here, its process stays small."""

START_S = 30.0
"""Bound on the start of the template."""

EXIT_S = 1.0
"""One that has closed its channel without having been ready ends within this."""

ANSWER_S = 10.0
"""A template that does not answer within this is taken for dead and killed; its bound on a kill is 5 s."""

SILENT_STEPS = 6
STEP_S = BUSY_S
"""One that owes an answer and is not heard of for so many steps of so many seconds (it may have been stopped)
is taken for dead, too: within the lease in which an RTS wants to hear that work has ended. In steps, so that
a pause of this process counts as one."""

GRACE_S = 7.0
"""The template has so long to end everything below it before it is killed itself."""

SWEEP_S = 10.0
"""Bound on clearing up after a template that has died."""


_log = logging.getLogger(__name__)


class ComputeError(RuntimeError):
    """Compute cannot be started; the message is one line for people."""


class Forked(Struct, eq=False):
    """A compute process, as its template knows it."""

    number: int
    template: Template
    job: _JobFile
    pid: int = 0
    problem: str = ""
    status: int | None = None
    last_words: str = ""
    left: tuple[bytes, bytes] = (b"", b"")
    survivors: int = 0
    forked: trio.Event = field(default_factory=trio.Event)
    exited: trio.Event = field(default_factory=trio.Event)
    killed: trio.Event = field(default_factory=trio.Event)

    async def end(self, drained: trio.Event) -> None:
        """End the process and everything below it; return when it is gone (bounded)."""
        del drained
        await self.template.kill(self)

    async def printed(self, seen: tuple[int, int]) -> Printed:
        """Return the last of what it has printed so far, without what is ``seen``."""
        return await printed_by(self.pid, seen)

    def close(self) -> None:
        """Do nothing: the template has its files."""

    def why(self) -> str:
        """Say in one line how the process ended."""
        if self.status is None:
            return f"compute process {self.pid} was ended: {self.template.why or 'its template has died'}"
        if self.status < 0:
            how = f"was killed by {_signal_name(-self.status)}"
        else:
            how = f"exited with status {self.status}"
        last = f"; {self.last_words}" if self.last_words else ""
        return f"compute process {self.pid} {how}{last}"


class _JobFile:
    """What compute processes of a job need to know, in memory; open as long as one of them lives."""

    def __init__(self, job: OpenJob, address: str, io: str) -> None:
        self.job = job
        self.users = 0
        self.descriptor: int = os.memfd_create("gspc-job")
        described: dict[str, object] = {
            "sys_path": job.sys_path,
            "cwd": job.cwd,
            "modules": job.modules,
            "place": (address, job.job, job.traceparent),
        }
        if job.data is not None:
            described["data"] = (job.data.local_address, job.data.host, job.data.job, job.data.bytes_min)
        if job.process_key is not None:
            described["process_key"] = job.process_key.value
        if job.initializer:
            described["initializer"] = job.initializer
        if job.process_tasks_max:
            described["tasks_max"] = job.process_tasks_max
        if io:
            described["io"] = io
        content = pack(described)
        with open(self.descriptor, "wb", closefd=False) as file:
            file.write(content)


class Template:
    """One template process; :meth:`run` is its life.

    Args:
        address: at which tasks reach their host.
        started: its process, if that was started before; it is taken over when this runs.
        io: who watches what tasks read and write, None for nobody.

    Attributes:
        marker: in the environment of everything below it, once it was started.
        pid: its process id once it runs.
        lost: whether it has ended or is about to.
        gone: set when it and everything below it have ended.
        why: how it ended, one line, or "".
    """

    def __init__(
        self, address: str = "", started: StartedTemplate | None = None, io: IoWatch | None = None
    ) -> None:
        self._address = address
        self._io = io
        self._started = started
        self.marker: str = started.marker if started is not None else ""
        self.pid: int = 0
        self.lost: bool = False
        self.gone: trio.Event = trio.Event()
        self.why: str = ""
        self._forked: dict[int, Forked] = {}  # until it has exited
        self._kills: dict[int, Forked] = {}  # until the kill is answered
        self._jobs: dict[JobId, _JobFile] = {}
        self._numbers = Counter()
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()
        self._control: trio.socket.SocketType | None = None
        self._process: Process | None = None
        self._ready = False
        self._heard = 0  # messages from it

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start it and listen to it until it ends or :meth:`aclose` is called; then leave nothing behind.

        Raises:
            ComputeError: it does not start.
        """
        process = None
        try:
            started = self._started or start_template(None if self._io is None else self._io.library)
            self.marker = started.marker
            spawned, ours = started.take()
            async with supervised(spawned, GRACE_S) as process:
                with trio.socket.from_stdlib_socket(ours) as control, self._scope:
                    self._control = control
                    self._process = process
                    self.pid = process.pid
                    try:
                        await self._listen(control, task_status)
                    finally:
                        self.lost = True
                        control.close()  # tells it to end everything, and with that all its output to us
        except (ProcessStartError, OSError) as error:
            raise ComputeError(f"cannot start the template of compute processes: {error}") from error
        finally:
            with trio.CancelScope(shield=True):
                await self._clear_up(process)

    async def aclose(self) -> None:
        """End it and everything below it; return when all is gone (bounded)."""
        self._scope.cancel()
        await self.gone.wait()

    async def fork(
        self, job: OpenJob, cpus: Sequence[int], gpus: Sequence[int], kind: int, descriptors: Sequence[int]
    ) -> Forked | None:
        """Fork a compute process and hand it the descriptors; return None if the template died meanwhile.

        Raises:
            ComputeError: the host has no room for another process.
        """
        forked = Forked(self._numbers.next(), self, self._job_file(job))
        self._forked[forked.number] = forked
        forked.job.users += 1
        sent = False
        try:
            message = [FORK, forked.number, cpus, gpus, kind]
            sent = await self._send(message, (forked.job.descriptor, *descriptors))
            if sent:
                await self._answered(forked.forked)
        finally:
            if not sent:
                self._forget(forked)
        if forked.problem:
            raise ComputeError(f"cannot start a compute process: {forked.problem}")
        return forked if forked.pid else None

    async def kill(self, forked: Forked) -> None:
        """End a compute process and everything below it; return when it is gone (bounded)."""
        self._kills[forked.number] = forked
        if await self._send([KILL, forked.number]):
            await self._answered(forked.killed)
        if forked.survivors:
            _log.warning("%d processes of compute process %d cannot be ended", forked.survivors, forked.pid)

    def _job_file(self, job: OpenJob) -> _JobFile:
        file = self._jobs.get(job.job)
        if file is None or file.job != job:
            file = self._jobs[job.job] = _JobFile(
                job, self._address, "" if self._io is None else self._io.mode
            )
        return file

    def _forget(self, forked: Forked) -> None:
        if self._forked.pop(forked.number, None) is None:
            return
        file = forked.job
        file.users -= 1
        if not file.users:
            os.close(file.descriptor)
            if self._jobs.get(file.job.job) is file:
                del self._jobs[file.job.job]

    async def _send(self, message: Sequence[object], descriptors: Sequence[int] = ()) -> bool:
        """Send a packet; return False, once all is gone, if the template has died."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        async with self._sending:
            try:
                if self._control is not None and not self.lost:
                    await self._control.sendmsg([pack(message)], ancillary)
                    return True
            except (ConnectionError, trio.ClosedResourceError):
                self.lost = True
        await self.gone.wait()
        return False

    async def _listen(self, control: trio.socket.SocketType, task_status: trio.TaskStatus[None]) -> None:
        ready = b""
        with trio.move_on_after(START_S):
            ready, _ = await _receive(control)
        if not ready:
            raise ComputeError(f"the template of compute processes {await self._how_it_failed()}")
        assert unpack(ready) == [READY]
        self._ready = True
        task_status.started()
        while True:
            data, descriptors = await _receive(control)
            if not data:
                return
            kind, *fields = unpack(data)
            if kind == EXITED:
                self._forked[fields[0]].left = await _what_is_left(descriptors)
            self._handle(kind, *fields)

    async def _how_it_failed(self) -> str:
        """Say what a template that is not ready has done instead."""
        assert self._process is not None
        with trio.move_on_after(EXIT_S):
            status = await self._process.wait()
            how = f"exit status {status}" if status >= 0 else _signal_name(-status)
            return f"died when it was started ({how}; its messages are on the standard error of its RIF)"
        return f"was not ready within {START_S:g} s"

    def _handle(self, kind: int, number: int = 0, *fields: Any) -> None:
        self._heard += 1
        if kind == BUSY:
            return
        if kind == KILLED:
            forked = self._kills.pop(number)
            (forked.survivors,) = fields
            forked.killed.set()
            return
        forked = self._forked[number]
        if kind == FORKED:
            forked.pid, forked.problem = fields
            forked.forked.set()
            if forked.problem:
                self._forget(forked)
        elif kind == EXITED:
            forked.status, forked.last_words = fields
            forked.exited.set()
            self._forget(forked)

    async def _answered(self, answer: trio.Event) -> None:
        """Wait for an answer; end a template that does not give it, what is below it is then swept up."""
        silent = 0
        with trio.move_on_after(ANSWER_S):
            while silent < SILENT_STEPS:
                heard = self._heard
                with trio.move_on_after(STEP_S):
                    await answer.wait()
                    return
                silent = silent + 1 if heard == self._heard else 0
        if self._process is not None and not self.lost:
            self.why = f"its template did not answer for {silent * STEP_S or ANSWER_S:g} s"
            self._process.kill()
        await self.gone.wait()

    async def _clear_up(self, process: Process | None) -> None:
        self.lost = True
        status = process.exit_status if process is not None else 0
        if status and self._ready:  # before that it has forked nothing
            how = f"exit status {status}" if status > 0 else _signal_name(-status)
            self.why = self.why or f"its template has died ({how})"
            _log.warning("the template of compute processes has died (%s): ending all below it", how)
            await self._sweep()
        for forked in list(self._forked.values()):
            forked.forked.set()
            forked.exited.set()
            self._forget(forked)
        for forked in self._kills.values():
            forked.killed.set()
        self.gone.set()

    async def _sweep(self) -> None:
        with trio.move_on_after(SWEEP_S):
            try:
                async with open_process(python_command(SWEEP, self.marker), grace_s=0) as process:
                    if await process.wait() == 0:
                        return
            except ProcessStartError as error:
                _log.error("cannot look for what a dead template has left: %s", error)
                return
        _log.error("some processes with %s=%s in their environment cannot be ended", MARKER, self.marker)


async def _receive(control: trio.socket.SocketType) -> tuple[bytes, array[int]]:
    """Return a packet and the descriptors that came with it; b"" when the template is gone."""
    descriptors = array("i")
    try:
        room = socket.CMSG_SPACE(2 * descriptors.itemsize)
        data, ancillary, _, _ = await control.recvmsg(CONTROL_BYTES_MAX, room, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return b"", descriptors
    for _, _, attached in ancillary:
        descriptors.frombytes(attached)
    return data, descriptors


async def _what_is_left(descriptors: Sequence[int]) -> tuple[bytes, bytes]:
    """Return the last of standard output and error of a process that has ended, and close both files.

    What tasks have printed that were reported is not there any more. Where there were too many open files
    to get them, nothing is returned.
    """
    try:
        if len(descriptors) < 2 or not any(os.fstat(each).st_size for each in descriptors):
            return b"", b""
        stdout, stderr = await trio.to_thread.run_sync(lambda: [end_of(each)[0] for each in descriptors])
        return stdout, stderr
    except OSError:
        return b"", b""
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


STDOUT, STDERR = 1, 2


async def printed_by(pid: int, seen: tuple[int, int] = (0, 0)) -> Printed:
    """Return the last part of what a process has written to its standard output and error, without ``seen``.

    Nothing is returned of what is no file. A file may lie where reading takes long; whoever waits may be
    cancelled.
    """

    def read() -> Printed:
        stdout, stdout_bytes = _tail(pid, STDOUT, seen[0])
        stderr, stderr_bytes = _tail(pid, STDERR, seen[1])
        return Printed(stdout, stderr, stdout_bytes, stderr_bytes)

    return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


def _tail(pid: int, descriptor: int, seen: int) -> tuple[bytes, int]:
    """Return the last part of an open file of another process, without what is seen, and its size.

    Of what is no file, or of a process that has gone, that is nothing.
    """
    try:
        file = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b"", 0
    try:
        return end_of(file, seen)
    except OSError:
        return b"", 0
    finally:
        os.close(file)


def end_of(file: int, seen: int = 0) -> tuple[bytes, int]:
    """Return the last part of a file without what is seen, and its size; nothing of what is no file."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        return b"", 0
    size = found.st_size
    return os.pread(file, OUTPUT_BYTES_MAX, max(0, seen, size - OUTPUT_BYTES_MAX)), size
