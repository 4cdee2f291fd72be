"""Compute in threads: one host process per job, in which each worker is a thread (RIF-2)."""

from __future__ import annotations

import logging
import os
import socket
from array import array
from collections.abc import Awaitable, Callable, Sequence

import trio
from msgspec import Struct, field

from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.components.worker.shell.compute_channel import Printed
from gspc_trio.components.worker.shell.compute_template import ComputeError, Forked, end_of
from gspc_trio.compute.channel import INTERRUPT_THREAD, OPEN_THREAD, THREADS, open_nameless_file, pack
from gspc_trio.core.ids import Counter, JobId
from gspc_trio.core.resources import Resource

PATIENCE_S = 5.0
"""A thread that has not ended so long after it was asked to is named in a warning."""

_log = logging.getLogger(__name__)

ForkHost = Callable[[OpenJob, Sequence[int], Sequence[int], int, Sequence[int]], Awaitable[Forked]]


class _Host(Struct, eq=False):
    """A process whose threads are workers of one job, and how many of them are in use."""

    forked: Forked
    control: trio.socket.SocketType
    users: int = 0
    ending: bool = False
    numbers: Counter = field(default_factory=Counter)

    async def send(self, message: list[object], descriptors: Sequence[int] = ()) -> bool:
        """Send a packet; return False if the host is gone."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        try:
            await self.control.sendmsg([pack(message)], ancillary)
        except (OSError, trio.ClosedResourceError):
            return False
        return True


class ThreadHosts:
    """The hosts of threads of a backend, one for each job that computes in threads."""

    def __init__(self, fork: ForkHost) -> None:
        self._fork = fork
        self._hosts: dict[JobId, _Host] = {}
        self._starting = trio.Lock()

    async def open(self, job: OpenJob, resource: Resource, descriptors: Sequence[int]) -> ThreadOrigin:
        """Start a thread for the worker of ``resource``, in the job's host.

        Raises:
            ComputeError: the host cannot be started, or died at once.
        """
        host = await self._host(job)
        host.users += 1
        number = host.numbers.next()
        files: list[int] = []
        try:
            files += [open_nameless_file(), open_nameless_file()]
            if not await host.send([OPEN_THREAD, number, resource.cpus], [*descriptors, *files]):
                raise ComputeError(f"cannot start a thread: {host.forked.why()}")
        except BaseException as error:
            host.users -= 1
            for each in files:
                os.close(each)
            if isinstance(error, OSError):
                raise ComputeError(f"cannot start a thread: {error.strerror}") from error
            raise
        return ThreadOrigin(self, host, number, resource.resource_id, (files[0], files[1]))

    async def leave(self, host: _Host, number: int) -> None:
        """End a thread: ask it, or take its host down if it is the last one there."""
        host.users -= 1
        if host.users:
            await host.send([INTERRUPT_THREAD, number])
            return
        host.ending = True
        try:
            await host.forked.end(host.forked.exited)
        finally:
            self._forget(host)

    def close(self) -> None:
        """Close the control channels of all hosts, which are gone or about to go."""
        for host in list(self._hosts.values()):
            self._forget(host)

    def _forget(self, host: _Host) -> None:
        host.control.close()
        job = host.forked.job.job.job
        if self._hosts.get(job) is host:
            del self._hosts[job]

    async def _host(self, job: OpenJob) -> _Host:
        async with self._starting:
            host = self._hosts.get(job.job)
            if host is None or host.ending or host.forked.exited.is_set():
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    try:
                        forked = await self._fork(job, (), (), THREADS, (theirs.fileno(),))
                    except BaseException:
                        ours.close()
                        raise
                if host is not None:
                    self._forget(host)
                host = self._hosts[job.job] = _Host(forked, trio.socket.from_stdlib_socket(ours))
            return host


class ThreadOrigin:
    """The thread behind a compute."""

    def __init__(
        self, hosts: ThreadHosts, host: _Host, number: int, resource_id: str, files: tuple[int, int]
    ) -> None:
        self.pid: int = host.forked.pid
        self.exited: trio.Event = host.forked.exited
        self._hosts = hosts
        self._host = host
        self._number = number
        self._resource_id = resource_id
        self._files: tuple[int, ...] = files
        self.left: tuple[bytes, bytes] = (b"", b"")

    async def end(self, drained: trio.Event) -> None:
        """Have the thread end at its next bytecode; the last thread takes its host with it.

        A thread that does not end (it may be in a long call of compiled code) is named in a warning; its
        worker is out of use until this returns.
        """
        await self._hosts.leave(self._host, self._number)
        with trio.move_on_after(PATIENCE_S):
            await drained.wait()
        if not drained.is_set():
            _log.warning(
                "the worker of %s is out of use: its thread (process %d) does not end",
                self._resource_id,
                self.pid,
            )
            await drained.wait()

    async def printed(self, seen: tuple[int, int]) -> Printed:
        """Return the last of what its task has printed so far, without what is ``seen``."""
        await trio.lowlevel.checkpoint()
        if not self._files:
            return Printed()
        (stdout, stdout_bytes), (stderr, stderr_bytes) = map(end_of, self._files, seen)
        return Printed(stdout, stderr, stdout_bytes, stderr_bytes)

    def close(self) -> None:
        """Keep what its last task has printed, and close the files."""
        if self._files:
            stdout, stderr = ((end_of(each)[0]) for each in self._files)
            self.left = stdout, stderr
            for each in self._files:
                os.close(each)
            self._files = ()

    def why(self) -> str:
        """Say in one line how it ended."""
        if self.exited.is_set():
            return f"the process of all threads of the job has ended: {self._host.forked.why()}"
        return f"a thread of compute process {self.pid} has ended"
