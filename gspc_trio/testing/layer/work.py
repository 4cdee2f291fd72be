"""Values of tasks that lie in a memory layer, as simulated compute opens and makes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

from gspc_trio.compute.data import LayerSerializer, TaskData
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.local import LocalClient
from gspc_trio.iml.shell.platform import Platform, platform
from gspc_trio.protocol.values import decode_reference, dumps, is_reference, loads
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.layer.threads import SimulatedThreads, Unwound, call_trio

T = TypeVar("T")

Values = tuple[tuple[bytes, ...], ...]


class _LayerSerializer(LayerSerializer):
    """That of a compute process, with simulated sockets and pauses."""

    def __init__(self, layer: DataLayer, platform: Platform) -> None:
        super().__init__(layer.local_address, layer.host, layer.job, layer.bytes_min)
        self._mine = TaskData()  # its threads run the same task
        self._platform = platform
        self.views: dict[str, tuple[memoryview, bytes]] = {}
        self.dead = False

    def _connect(self, address: str, job: str) -> LocalClient:
        if self.dead:
            raise Unwound
        return self._platform.client(address, job)

    def _pause(self, pause_s: float) -> None:
        if self.dead:
            raise Unwound
        call_trio(partial(trio.sleep, pause_s))

    def look(self, data: bytes) -> None:
        """Keep some data mapped for the time of a task."""
        data_id = decode_reference(data).data_id
        view = memoryview(self._with_server(lambda client: client.map(data_id)))
        self._mine.mapped.append(data_id)
        self.views[data_id] = (view, bytes(view))

    def kill(self) -> None:
        """The process is gone: its sockets close, whatever it was doing."""
        self.dead = True
        self.views.clear()
        if self._client is not None:
            self._client.close()


class DataWork:
    """Opens the arguments of one compute process's tasks, and encodes what they return.

    Args:
        layer: of the job.
        threads: in which that blocks.
    """

    def __init__(self, layer: DataLayer, threads: SimulatedThreads) -> None:
        self._threads = threads
        self._serializer = _LayerSerializer(layer, platform())

    async def open(self, arguments: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the arguments of a task that begins as they would travel without a layer; they stay mapped.

        Raises:
            ImlError: some data is not to be had.
        """
        return await self._run(self._open, list(arguments))

    def _open(self, arguments: list[bytes]) -> tuple[bytes, ...]:
        serializer, opened = self._serializer, []
        for argument in serializer.begin(arguments):
            if is_reference(argument):
                serializer.look(argument)
            opened.append(dumps(serializer.loads(argument)))
        return tuple(opened)

    async def make(self, values: Values) -> Values:
        """Return what a task has made as it travels: large values go into the layer.

        Raises:
            ImlError: there is no room.
        """
        for data_id, (view, before) in self._serializer.views.items():
            if view != before:
                raise Broken(f"data {data_id} changed while a task looked at it", data_id)
        return await self._run(self._make, values)

    def _make(self, values: Values) -> Values:
        return tuple(tuple(self._serializer.dumps(loads(value)) for value in group) for group in values)

    async def end(self) -> None:
        """The task has ended: what it has looked at is not needed any more."""
        self._serializer.views.clear()
        await self._run(self._serializer.task_ended)

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        try:
            return await self._threads.run(function, *arguments)
        except Unwound:
            await trio.sleep_forever()  # it was killed: its task is cancelled
            raise

    def kill(self) -> None:
        """The process is gone."""
        self._serializer.kill()
