"""A job's large values in the memory layer: freed when nothing refers to them, opened where needed."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio
from attrs import evolve

from gspc_trio.components.iml import join_layer
from gspc_trio.components.iml_client import Iml
from gspc_trio.components.iml_host import HostLayers
from gspc_trio.core.exchange import DataLayer, Finished
from gspc_trio.core.iml.errors import ImlError
from gspc_trio.core.task import Outcome
from gspc_trio.iml.local import LocalClient
from gspc_trio.nursery.network import Network
from gspc_trio.protocol.references import TrackedReference, decode_reference, is_reference

FREES_AT_ONCE = 64
"""So many frees are under way at one time."""


class _Keep:
    """Says that some data is not needed any more, when nothing has this object any more."""

    __slots__ = ("_data", "data_id")

    def __init__(self, data: JobData, data_id: str) -> None:
        self._data = data
        self.data_id = data_id

    def __del__(self) -> None:
        self._data.unneeded(self.data_id)


class JobData:
    """The data of one job; made by :func:`open_job_data`.

    A value in the layer lives as long as its reference in this process: in tokens, in tasks whose outcome is
    not final, in futures that the user holds.

    Args:
        iml: the layer, as a client that speaks for the job.
        layer: with the address of the server near this process.
    """

    def __init__(self, iml: Iml, layer: DataLayer) -> None:
        self.iml = iml
        self.layer = layer
        self._client: LocalClient | None = None
        self._unneeded: deque[str] = deque()
        self._token = trio.lowlevel.current_trio_token()
        self._wake = trio.Event()
        self._closed = False

    def taking(self, put: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return what takes events for a job and tracks the references in them."""
        return lambda event: put(self.take(event) if type(event) is Finished else event)

    def take(self, finished: Finished) -> Finished:
        """Return what a worker has reported, its references tracked."""
        tokens = (token for outcome in finished.outcomes for values in outcome.values for token in values)
        if not any(map(is_reference, tokens)):
            return finished
        return evolve(finished, outcomes=tuple(map(self._take_outcome, finished.outcomes)))

    def _take_outcome(self, outcome: Outcome) -> Outcome:
        return evolve(
            outcome,
            values=tuple(
                tuple(self.track(value) if is_reference(value) else value for value in values)
                for values in outcome.values
            ),
        )

    def track(self, value: bytes) -> TrackedReference:
        """Return a reference that keeps its data as long as it lives."""
        tracked = TrackedReference(value)
        tracked.keep = _Keep(self, decode_reference(value).data_id)
        tracked.open_data = self.open_data
        return tracked

    def open_data(self, data_id: str) -> memoryview:
        """Return the memory of data, mapped for reading; blocks for as long as that takes.

        Raises:
            ImlError: there is no such data (any more), or the layer is gone.
        """
        if self._client is None:
            self._client = LocalClient(self.layer.local_address, self.iml.job)
        mapped: mmap.mmap = self._client.map(data_id)
        # What is mapped stays as it is: the kernel knows of it, and its segment is not used again.
        self._client.release(data_id)
        return memoryview(mapped)

    def unneeded(self, data_id: str) -> None:
        """Free data soon; from any thread, also in the middle of anything."""
        if not self._closed:
            self._unneeded.append(data_id)
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._wake.set, idempotent=True)

    async def free_unneeded(self) -> None:
        """Free what is not needed any more, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._unneeded:
                async with trio.open_nursery() as nursery:
                    for _ in range(min(FREES_AT_ONCE, len(self._unneeded))):
                        nursery.start_soon(self._free, self._unneeded.popleft())

    async def _free(self, data_id: str) -> None:
        with suppress(ImlError):  # it was lost, or the layer is gone
            await self.iml.free(data_id)

    def close(self) -> None:
        """The job is over, and its data goes with it."""
        self._closed = True
        if self._client is not None:
            self._client.close()


@asynccontextmanager
async def open_job_data(layer: DataLayer, host: str) -> AsyncIterator[JobData]:
    """Take part in a memory layer for a job, for as long as the block lasts.

    Args:
        layer: which one, and as which job: its data goes with the block.
        host: the name of this host.

    Raises:
        ConnectionProblem, LayerGone: the layer cannot be reached.
    """
    async with trio.open_nursery() as nursery:
        settled = await HostLayers(host, nursery).settle(layer)
        async with join_layer(Network(layer.token), layer.address, job=layer.job, host=host) as iml:
            data = JobData(iml, settled)
            nursery.start_soon(data.free_unneeded)
            try:
                yield data
            finally:
                data.close()
        nursery.cancel_scope.cancel()
