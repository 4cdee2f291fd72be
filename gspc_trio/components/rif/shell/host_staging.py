"""Staging on the host of a RIF, for all its jobs: memory servers and the directories of tasks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from gspc_trio.components.monitor.locality import DataReads
from gspc_trio.components.provision.messages import FilesFailed, TurnBegins, TurnOver, WantTurn
from gspc_trio.components.rif.messages import MemoryServer, ServerEnded, StartServer
from gspc_trio.components.worker.messages import OpenJob, Submit
from gspc_trio.components.worker.shell.compute import ComputeBackend, ProcessBackend
from gspc_trio.components.worker.shell.file_staging import (
    JobStaging,  # here: a fork in the midst of it could never end it
)
from gspc_trio.components.worker.shell.file_transfer import FileTransfer, TaskFiles
from gspc_trio.components.worker.shell.staging import Staging, StagingError
from gspc_trio.components.worker.shell.worker import JobCode
from gspc_trio.compute.folders import Folders
from gspc_trio.core.ids import JobId
from gspc_trio.core.messages import Done
from gspc_trio.iml.errors import ImlError
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network, address_towards
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone
from gspc_trio.protocol.values import BadValue, decode_reference, is_reference

if TYPE_CHECKING:
    from gspc_trio.components.provision.staging import StagingSettings
    from gspc_trio.components.worker.shell.site_files import FileTurns, Site
    from gspc_trio.components.worker.shell.uri_files import UriTransfers
    from gspc_trio.iml.shell.host import HostLayers


class HostStaging:
    """Stages for the jobs of one RIF.

    Args:
        staging: stages for jobs without memory layer; None: what stages files.
        buffers: what this process has for transfers that it asks for.
        files: how files get to the tasks; None: straight from the host of their job.
        name: of the RIF.
        host: where it runs, for errors.
        backend: starts processes that move what URIs name.

    Attributes:
        make_layers: makes what finds or starts memory servers, when a job wants the first.
        tell: tells the run-time system.
        reads: from where tasks take data of memory layers.
    """

    make_layers: Callable[[], HostLayers]
    tell: Callable[[WantTurn | TurnOver | FilesFailed], None]

    def __init__(
        self,
        staging: Staging | None,
        buffers: Budget,
        files: StagingSettings | None,
        name: str,
        host: str,
        backend: ComputeBackend,
    ) -> None:
        self._staging = staging
        self._buffers = buffers
        self._folders = Folders()
        self._is_wrapped = files is not None and files.mode == "wrapper"
        self._site: Site | None = None
        self._turns: FileTurns | None = None
        if files is not None and files.site_directory:
            from gspc_trio.components.worker.shell.site_files import FileTurns, Site

            self._turns = FileTurns(files.throttles, lambda said: self.tell(said))
            self._site = Site(files.site_directory, self._turns)
            self._folders = Folders(files.site_directory, f"tasks-{name}-")  # where files can be linked
        self._layers: HostLayers | None = None
        self.reads: DataReads = DataReads()
        self._host = host
        self._backend = backend
        self._allowed = files.allow_files if files is not None else ()
        self._uri_turns: trio.CapacityLimiter | None = None
        self._transfers: dict[JobId, UriTransfers] = {}

    def open_job(self, opening: OpenJob, server: Callable[[], Peer | None]) -> JobCode:
        """Return what the RIF keeps of a job; it begins to find the memory server that the job wants.

        Args:
            opening: of the job.
            server: returns the connection to its job server, None if there is none now.
        """
        home = opening.directory if self._is_wrapped else ""
        with_uris = partial(self._with_uris, opening)
        files: TaskFiles
        files = transfer = FileTransfer(server, self._buffers)
        if self._site is not None:
            files = self._site.files_of(opening.job, transfer)
        if opening.data is None:
            staging = self._staging or JobStaging(
                None, self._folders, opening.stage, files, home, self._failed, with_uris
            )
            return JobCode(opening, staging=staging)
        from gspc_trio.components.worker.shell.iml_staging import DataStaging

        if self._layers is None:
            self._layers = self.make_layers()
            self._layers.took = self._took
        layers = self._layers
        layers.prepare(opening.data)
        data = DataStaging(opening.data, layers)
        staging = JobStaging(data, self._folders, opening.stage, files, home, self._failed, with_uris)
        settle = partial(layers.settle_job, opening)
        return JobCode(opening, settle=settle, staging=staging, settled=data.settling)

    def _took(self, job: str, source: str, size_bytes: int) -> None:
        """Note that a task has taken data from a memory layer."""
        self.reads.took(job.partition("@")[0], source, size_bytes, time.time())

    def _with_uris(self, opening: OpenJob, files: TaskFiles) -> TaskFiles:
        """Return what moves the files of a job, and those that URIs name."""
        from gspc_trio.components.worker.shell.uri_files import TRANSFERS_MAX, UriFiles, UriTransfers

        transfers = self._transfers.get(opening.job)
        if transfers is None:
            if not isinstance(self._backend, ProcessBackend):
                raise StagingError("this host has no processes that could move what URIs name")
            if self._uri_turns is None:
                self._uri_turns = trio.CapacityLimiter(TRANSFERS_MAX)
            fork = partial(self._backend.fork_transfers, replace(opening, data=None, initializer=b""))
            allowed = (opening.directory, *self._allowed)
            transfers = UriTransfers(fork, self._folders, self._host, allowed, self._uri_turns)
            self._transfers[opening.job] = transfers
        return UriFiles(files, transfers)

    def forget_job(self, job: JobCode) -> None:
        """A job is over here."""
        transfers = self._transfers.pop(job.opening.job, None)
        if transfers is not None:
            transfers.close()

    def _failed(self, detail: str) -> None:
        self.tell(FilesFailed(detail))

    def turn_begins(self, said: TurnBegins) -> None:
        """The run-time system lets a file transfer or file operation begin."""
        if self._turns is not None:
            self._turns.begins(said.number)

    def tell_again(self) -> None:
        """Tell a run-time system that may know nothing of it which transfers and operations there are."""
        if self._turns is not None:
            self._turns.tell_again()

    def close(self) -> None:
        """Remove the directories of tasks, and let processes go that move files."""
        for transfers in self._transfers.values():
            transfers.close()
        self._folders.close()


class OwnServer:
    """The memory server that a RIF runs because it was asked to (RIF-1), one at a time.

    Args:
        host: its name in the layer.
        network: by which the run-time system at ``rts`` is reached, whose memory it takes.
        rts: address of that.
        tell: tells the run-time system that the server is there, or has ended by itself.

    Attributes:
        running: what runs; None: nothing.
    """

    def __init__(
        self, host: str, network: Network, rts: str, tell: Callable[[MemoryServer | ServerEnded], None]
    ) -> None:
        self.running: MemoryServer | None = None
        self._host = host
        self._network = network
        self._rts = rts
        self._tell = tell
        self._scope: trio.CancelScope | None = None
        self._stopped, self._over = trio.Event(), trio.Event()

    async def run(self, call: IncomingCall, wanted: StartServer) -> None:
        """Run a server until it ends or is stopped; the call is answered when it is there."""
        if self._scope is not None:
            call.fail(ValueError(f"the host {self._host} runs a memory server already"))
            return
        self._stopped, self._over = trio.Event(), trio.Event()
        try:
            with trio.CancelScope() as self._scope:
                await self._serve(call, wanted)
        except (ImlError, ConnectionProblem, PeerGone, OSError) as error:
            if self.running is None:
                call.fail(error)
            else:
                self._tell(ServerEnded(str(error)))
        else:
            if self.running is None:
                call.fail(ValueError("it was stopped before it was there"))
        finally:
            self._scope = self.running = None
            self._over.set()

    async def _serve(self, call: IncomingCall, wanted: StartServer) -> None:
        from gspc_trio.iml.shell.arena import arena_at
        from gspc_trio.iml.shell.server_process import open_server_process

        arena = arena_at(self._network, self._rts, of_rif=True)
        async with arena(self._host, secrets.token_hex(4), wanted.memory_bytes) as told:
            quota = replace(told, spill_bytes=wanted.spill_bytes) if wanted.spill_bytes else told
            memory_only = self._rts.startswith("memory:")
            async with open_server_process(
                self._host,
                quota,
                layer=wanted.layer,
                listen="" if memory_only or wanted.layer is not None else address_towards(self._rts),
                credentials=self._network.credentials,
            ) as server:
                pid = self._network.process_info().pid
                limits = (quota.memory_bytes, quota.spill_bytes)
                self.running = MemoryServer(server.layer, self._host, pid, *limits)
                self._tell(self.running)  # whoever asked may be gone
                call.reply(self.running)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._until_stopped, nursery.cancel_scope)
                    await server.wait()
                    nursery.cancel_scope.cancel()
        if not self._stopped.is_set():
            self._tell(ServerEnded("it has died"))

    async def _until_stopped(self, scope: trio.CancelScope) -> None:
        await self._stopped.wait()
        scope.cancel()

    async def stop(self, call: IncomingCall) -> None:
        """End the server, and say so."""
        if self._scope is None:
            call.fail(ValueError(f"the host {self._host} runs no memory server that was asked for"))
            return
        self._stopped.set()
        if self.running is None:  # it is being started
            self._scope.cancel()
        await self._over.wait()
        call.reply(Done())


def make_layers(host: str, nursery: trio.Nursery, network: Network, rts: str) -> HostLayers:
    """Return what finds or starts memory servers of a host.

    Args:
        host: its name.
        nursery: in which they are held.
        network: by which the run-time system at ``rts`` is reached, whose memory they take.
        rts: its address.
    """
    from gspc_trio.iml.shell.arena import arena_at
    from gspc_trio.iml.shell.host import HostLayers

    return HostLayers(host, nursery, arena=arena_at(network, rts, of_rif=True))


def measured(submit: Submit) -> Submit:
    """Return what a RIF was given, with the bytes of data that each stage-in fetches."""
    options = None
    for one in submit.submissions:
        if one.options is not options:  # most have the same
            options = one.options
            if options.stage_in:
                break
    else:
        return submit
    return replace(
        submit,
        submissions=tuple(
            replace(one, input_bytes=sum(map(_size_of, set(filter(is_reference, one.arguments)))))
            if one.options.stage_in
            else one
            for one in submit.submissions
        ),
    )


def _size_of(value: bytes) -> int:
    try:
        return decode_reference(value).size_bytes
    except BadValue:  # its task will say so
        return 0
