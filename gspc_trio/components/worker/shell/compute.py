"""Compute of a RIF's workers: a process per worker and job, forked from a template; threads on request.

What the worker's shell sees are :class:`ComputeBackend`, :class:`Compute` and :class:`ComputeEvents`; the
simulated cluster has a backend of its own behind the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import trio
from msgspec.structs import replace

from gspc_trio.components.worker.messages import OpenJob, Submission
from gspc_trio.components.worker.shell.compute_channel import (
    ChannelCompute,
    Channels,
    ComputeEvents,
    Origin,
    Printed,
)
from gspc_trio.components.worker.shell.compute_tasks import CodeTimes
from gspc_trio.components.worker.shell.compute_template import ComputeError, Forked, Template
from gspc_trio.components.worker.shell.compute_threads import ThreadHosts
from gspc_trio.components.worker.shell.task_listener import TaskConnection, TaskListener
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.compute.channel import TASKS, TRANSFERS
from gspc_trio.core.ids import Attempt, JobId, TaskId
from gspc_trio.core.nested import TaskHello
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.nursery.scopes.spawn import require_linux

if TYPE_CHECKING:  # few hosts count
    from gspc_trio.components.monitor.io_frames import IoTold
    from gspc_trio.components.worker.shell.io_watch import IoWatch

__all__ = [
    "Compute",
    "ComputeBackend",
    "ComputeError",
    "ComputeEvents",
    "ProcessBackend",
    "open_process_backend",
]

FORK_TRIES = 3
"""How often a compute process is tried when its template dies meanwhile."""


class Compute(Protocol):
    """The compute of one worker for one job: runs what it is handed, in order."""

    @property
    def pid(self) -> int:
        """The process that computes."""
        ...

    def define(self, code_id: int, data: bytes) -> None:
        """Make an entry of the job's code table known, before its first use here."""
        ...

    def hand(self, submissions: Sequence[Submission]) -> None:
        """Run these after what was handed before; never blocks."""
        ...

    def retract(self) -> tuple[tuple[TaskId, Attempt], ...]:
        """Take back all that the process has not read; return which, in order: they will not be reported."""
        ...

    async def printed(self, seen: tuple[int, int] = (0, 0)) -> Printed:
        """Return the last of what the task in compute has printed so far, without what is ``seen``."""
        ...

    async def kill(self) -> tuple[bytes, bytes]:
        """End the compute with everything that it has started; return when it is gone.

        Results that were written before are delivered through ``computed`` first; ``compute_lost`` is not
        called.

        Returns:
            The last of standard output and error of the attempt that was in compute.
        """
        ...


class ComputeBackend(Protocol):
    """Makes the compute of workers."""

    async def open(self, resource: Resource, job: OpenJob, events: ComputeEvents) -> Compute:
        """Start the compute of the worker of ``resource`` for ``job``.

        Raises:
            ComputeError: it cannot be started, and has taken nothing; one line says why.
        """
        ...

    async def tell_io(self, post: Callable[[IoTold], None]) -> None:
        """Tell what tasks read and write, until cancelled; return at once if nobody wants to know."""
        ...

    async def aclose(self) -> None:
        """End all that was opened, within a bound."""
        ...


class ProcessBackend:
    """Compute in processes of this host; made by :func:`open_process_backend`."""

    def __init__(
        self, nursery: trio.Nursery, started: StartedTemplate | None, io: IoWatch | None = None
    ) -> None:
        self._io = io
        self._nursery = nursery
        self._started = started  # until the first template is wanted
        self._starting = trio.Lock()
        self._template: Template | None = None
        self._hosts = ThreadHosts(self._fork)
        self._claims = CpuClaims()
        self._computes: WeakKeyDictionary[ChannelCompute, JobId] = WeakKeyDictionary()
        self.task_listener: TaskListener = TaskListener(self._who_runs)
        self._times: WeakValueDictionary[JobId, CodeTimes] = WeakValueDictionary()
        self._closed = False

    @property
    def template_pid(self) -> int:
        """Process id of the template, 0 if there is none now."""
        return self._template.pid if self._template is not None and not self._template.lost else 0

    @property
    def marker(self) -> str:
        """What the environment of every process of the present template carries, or ""."""
        return self._template.marker if self._template is not None else ""

    def prepare(self) -> None:
        """Start the template now, in the background: the first compute process then comes sooner."""
        self._nursery.start_soon(self._prepare)

    async def _prepare(self) -> None:
        with suppress(ComputeError):  # which whoever needs it will meet again
            await self._living_template()

    async def open(self, resource: Resource, job: OpenJob, events: ComputeEvents) -> ChannelCompute:
        """Start the compute of the worker of ``resource`` for ``job``; the template too at first use.

        Args:
            resource: its GPUs are those that the process gets, and its CPUs, unless another system of this
                user has its own pinned there: then the process runs where the kernel has it run.
            job: working directory, search path and modules; ``threads`` says that a thread will do.
            events: told of results and of the loss of the process, from a trio task.

        Raises:
            ComputeError: it cannot be started; one line says why.
        """
        if not self._claims.take(resource.cpus):
            resource = replace(resource, cpus=())
        try:
            channels = Channels.make()
            try:
                origin = await self._origin(resource, job, channels)
            except BaseException:
                channels.close()
                raise
        except OSError as error:
            raise ComputeError(f"cannot start a compute process: {error.strerror or error}") from error
        times = self._times.setdefault(job.job, CodeTimes())
        compute = ChannelCompute(self._nursery, channels, origin, times, events)
        if self._io is not None and not job.threads:
            compute.io = self._io.of(job.job, resource.resource_id, compute)
        compute.start()
        self._computes[compute] = job.job
        return compute

    def _who_runs(self, task: TaskHello) -> Callable[[TaskConnection], None] | None:
        """Return who takes the connection of a task, None if it does not run here."""
        for compute, job in list(self._computes.items()):
            if job == task.job and compute.has(task.task_id, task.attempt):
                return compute.speaks
        return None

    async def fork_transfers(self, job: OpenJob, descriptor: int) -> Forked:
        """Start a process that moves what URIs name.

        Args:
            job: working directory, search path and modules.
            descriptor: its end of the channel.

        Raises:
            ComputeError: it cannot be started; one line says why.
        """
        return await self._fork(job, (), (), TRANSFERS, (descriptor,))

    async def tell_io(self, post: Callable[[IoTold], None]) -> None:
        """Tell what tasks read and write, until cancelled; return at once if nobody wants to know."""
        if self._io is not None:
            self._io.post = post
            await self._io.run()

    async def aclose(self) -> None:
        """End all compute processes with everything below them, and the template; bounded."""
        self._closed = True
        if self._template is not None:
            await self._template.aclose()
        self._hosts.close()
        self._claims.close()

    async def _origin(self, resource: Resource, job: OpenJob, channels: Channels) -> Origin:
        if job.threads:
            return await self._hosts.open(job, resource, channels.theirs)
        return await self._fork(job, resource.cpus, resource.gpus, TASKS, channels.theirs)

    async def _fork(
        self, job: OpenJob, cpus: Sequence[int], gpus: Sequence[int], kind: int, descriptors: Sequence[int]
    ) -> Forked:
        for _ in range(FORK_TRIES):
            template = await self._living_template()
            forked = await template.fork(job, cpus, gpus, kind, descriptors)
            if forked is not None:
                return forked
        raise ComputeError(f"cannot start a compute process: its template died {FORK_TRIES} times meanwhile")

    async def _living_template(self) -> Template:
        async with self._starting:
            if self._closed:
                raise ComputeError("cannot start a compute process: the backend is closed")
            if self._template is not None and self._template.lost:
                await self._template.gone.wait()
                self._template = None
            if self._template is None:
                started, self._started = self._started, None
                template = Template(self.task_listener.address, started, self._io)
                await self._nursery.start(template.run)
                self._template = template
            return self._template


@asynccontextmanager
async def open_process_backend(
    started: StartedTemplate | None = None, io: str = "off"
) -> AsyncIterator[ProcessBackend]:
    """Compute in processes for as long as the block lasts; after it none of them is left.

    Args:
        started: the first template, if it was started before. Unless it is wanted, it stays the caller's.
        io: what is told of the reading and writing of tasks: ``off``, ``counts`` or ``calls``.

    Raises:
        UnsupportedSystem: not on Linux.
    """
    require_linux()
    watch = None
    if io != "off":
        from gspc_trio.components.worker.shell.io_watch import open_watch

        watch = await open_watch(io)
        if started is not None and watch is not None and watch.library is not None:
            started.abandon()  # it has not loaded the library
            started = None
    async with open_scope() as nursery:
        backend = ProcessBackend(nursery, started, watch)
        await nursery.start(backend.task_listener.run)
        try:
            yield backend
        finally:
            with trio.CancelScope(shield=True):
                await backend.aclose()
            nursery.cancel_scope.cancel()


GROUP_VARIABLE = "GSPC_PINNING_GROUP"
"""Run-time systems in whose environment it differs do not heed each other's pinning."""


class CpuClaims:
    """The CPUs that one backend has claimed, so that no other system of this user pins to them.

    Two run-time systems on one host (two executors in a program, two programs, two RIFs) do not know of each
    other, and each begins with its first core. Were both to pin there, their tasks would share that core
    while others are idle. So who pins to a CPU claims it first: by the name of a socket, which only one can
    have, which leaves no file, and which the kernel gives back when its owner ends in whatever way.
    """

    def __init__(self) -> None:
        group = os.environ.get(GROUP_VARIABLE, "")
        self._prefix = f"\0gspc-trio/{os.getuid()}/{group}/cpu"
        self._held: dict[int, socket.socket] = {}
        self._closed = False

    def take(self, cpus: Iterable[int]) -> bool:
        """Claim these CPUs; return whether all are ours now. If not, nothing has changed."""
        new: dict[int, socket.socket] = {}
        if self._closed:
            return False
        for cpu in cpus:
            if cpu in self._held or cpu in new:
                continue
            claim = _claim(f"{self._prefix}{cpu}")
            if claim is None:
                for taken in new.values():
                    taken.close()
                return False
            new[cpu] = claim
        self._held.update(new)
        return True

    def close(self) -> None:
        """Give all of them back, and take no more."""
        self._closed = True
        for claim in self._held.values():
            claim.close()
        self._held.clear()


def _claim(name: str) -> socket.socket | None:
    """Return the socket that has this name, None if another has it or there can be none."""
    try:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        claim.bind(name)
    except OSError:
        claim.close()
        return None
    return claim
