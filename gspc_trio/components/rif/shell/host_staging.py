"""Staging on the host of a RIF, for all its jobs: memory servers and the directories of tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from gspc_trio.components.worker.messages import OpenJob, Submit
from gspc_trio.components.worker.shell.file_staging import (
    JobStaging,  # here: a fork in the midst of it could never end it
)
from gspc_trio.components.worker.shell.staging import Staging
from gspc_trio.components.worker.shell.worker import JobCode
from gspc_trio.compute.folders import Folders
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.protocol.values import BadValue, decode_reference, is_reference

if TYPE_CHECKING:
    from gspc_trio.iml.shell.host import HostLayers


class HostStaging:
    """Stages for the jobs of one RIF.

    Args:
        staging: stages for jobs without memory layer; None: what stages files.

    Attributes:
        make_layers: makes what finds or starts memory servers, when a job wants the first.
    """

    make_layers: Callable[[], HostLayers]

    def __init__(self, staging: Staging | None) -> None:
        self._staging = staging
        self._folders = Folders()
        self._layers: HostLayers | None = None

    def open_job(self, opening: OpenJob, server: Callable[[], Peer | None]) -> JobCode:
        """Return what the RIF keeps of a job; it begins to find the memory server that the job wants.

        Args:
            opening: of the job.
            server: returns the connection to its job server, None if there is none now.
        """
        if opening.data is None:
            staging = self._staging or JobStaging(None, self._folders, opening.stage, server)
            return JobCode(opening, staging=staging)
        from gspc_trio.components.worker.shell.iml_staging import DataStaging

        if self._layers is None:
            self._layers = self.make_layers()
        layers = self._layers
        layers.prepare(opening.data)
        staging = JobStaging(DataStaging(opening.data, layers), self._folders, opening.stage, server)
        return JobCode(opening, settle=partial(layers.settle_job, opening), staging=staging)

    def close(self) -> None:
        """Remove the directories of tasks."""
        self._folders.close()


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
