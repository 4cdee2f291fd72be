"""Staging of a RIF: data of tasks in a memory layer comes to its host before they compute (WRK-2)."""

from __future__ import annotations

from functools import partial

import trio

from gspc_trio.components.iml_host import HostLayers
from gspc_trio.components.worker import JobCode, StagingError
from gspc_trio.core.exchange import DataLayer, OpenJob, Submission
from gspc_trio.core.ids import JobId
from gspc_trio.core.iml.errors import ImlError
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome
from gspc_trio.iml import local
from gspc_trio.protocol.references import decode_reference, is_reference


def job_code(opening: OpenJob, layers: HostLayers) -> JobCode:
    """Return what a RIF keeps of a job; it begins to find the memory server that the job wants."""
    if opening.data is None:
        return JobCode(opening)
    layers.prepare(opening.data)
    settle = partial(layers.settle_job, opening)
    return JobCode(opening, settle=settle, staging=DataStaging(opening.data, layers))


class DataStaging:
    """Fetches the arguments of a task that lie elsewhere, and has copies made of what it returns.

    Args:
        layer: of the job.
        layers: this host's memory servers.
    """

    def __init__(self, layer: DataLayer, layers: HostLayers) -> None:
        self._layer = layer
        self._layers = layers

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> None:
        """Have the data of the arguments on this host.

        What cannot be had is left to the task: it fails with the layer's own error when it wants it.
        """
        del resource, job
        layer = self._layer
        wanted = {
            decode_reference(argument).data_id for argument in submission.arguments if is_reference(argument)
        }
        if not wanted:
            await trio.lowlevel.checkpoint()
            return
        try:
            link = await self._layers.link(layer)
            for data_id in sorted(wanted):
                await link.ask(local.FETCH, layer.job, data_id)
        except ImlError:
            return

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> None:
        """Have copies of the results on as many hosts as the job wants.

        Raises:
            StagingError: there is no room for them, or there are not so many hosts.
        """
        del resource, job, submission
        layer = self._layer
        made = [value for values in outcome.values for value in values if is_reference(value)]
        if layer.copies < 2 or not made:
            await trio.lowlevel.checkpoint()
            return
        try:
            link = await self._layers.link(layer)
            for value in made:
                await link.ask(local.COPY, layer.job, decode_reference(value).data_id, layer.copies)
        except ImlError as error:
            raise StagingError(f"its results cannot be copied: {error}") from error
