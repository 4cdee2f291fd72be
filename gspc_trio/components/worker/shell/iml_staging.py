"""Data of tasks in a memory layer, as a RIF handles it: fetched, stored, copied, put into ranges (WRK-2)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

import trio
from msgspec.structs import replace

from gspc_trio.components.worker.messages import Finished
from gspc_trio.components.worker.shell.file_transfer import Room
from gspc_trio.components.worker.shell.staging import Settle, StagingError
from gspc_trio.components.worker.verdict import without_values
from gspc_trio.core.task import Outcome, Reason, TaskError
from gspc_trio.iml import local
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import DataLost, DuplicateData, ImlError, LayerGone, UnknownData
from gspc_trio.iml.layout import Range
from gspc_trio.iml.segment import map_readonly
from gspc_trio.iml.shell.host import HostLayers
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.iml.shell.link import LocalLink
from gspc_trio.iml.shell.platform import platform
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.pieces import Piece, pieces_of
from gspc_trio.protocol.values import (
    BadValue,
    Reference,
    bytes_reference,
    decode_reference,
    encoded_reference,
    is_reference,
    plain_range,
)

Moved = tuple[tuple[str, int, float], ...]
"""(host, bytes, seconds) of data that came from another host."""

TRIES = 100
PAUSE_S = 0.1
"""How often, and after how long, to look for a server that takes the place of one that has died."""

AT_ONCE = 4
"""So many values of a task are fetched at a time."""

T = TypeVar("T")

COPY_BYTES = 16 << 20
"""So much is copied between two descriptors before whoever wants to cancel that can."""


class DataStaging:
    """Brings data of one job's tasks to this host, and stores what they make.

    Args:
        layer: of the job.
        layers: this host's memory servers.

    Attributes:
        promises: whether results may be here before other hosts can read them, as the server has said.
    """

    def __init__(self, layer: DataLayer, layers: HostLayers) -> None:
        self.promises: bool = True
        self._layer = layer
        self._layers = layers

    @property
    def bytes_min(self) -> int:
        """Values of so many bytes or more go into the layer."""
        return self._layer.bytes_min

    async def fetch(self, arguments: Iterable[bytes]) -> Moved:
        """Have the data of the arguments on this host; return what came from other hosts, and how fast.

        What cannot be had is left to the task: it fails with the layer's own error when it wants it.
        """
        wanted: dict[str, Reference] = {}
        for argument in filter(is_reference, arguments):
            with suppress(BadValue):
                reference = decode_reference(argument)
                wanted[reference.data_id] = reference
        if not wanted:
            return ()
        moved: list[tuple[str, int, float]] = []
        limit, begun_s = trio.CapacityLimiter(AT_ONCE), trio.current_time()

        async def fetch_one(link: LocalLink, data_id: str) -> None:
            async with limit:
                with suppress(ImlError):
                    moved.extend(await self._fetch(link, wanted[data_id]))

        with suppress(ImlError):
            link = await self._layers.link(self._layer)
            if len(wanted) == 1:
                return tuple(await self._fetch(link, *wanted.values()))
            async with open_scope() as nursery:
                for data_id in sorted(wanted):
                    nursery.start_soon(fetch_one, link, data_id)
        return _one_after_the_other(moved, trio.current_time() - begun_s)

    async def _fetch(self, link: LocalLink, reference: Reference) -> list[tuple[str, int, float]]:
        places = [host for host, _ in reference.places]
        elsewhere = len(places) == 1 and self._layers.host not in places and self._layer.copies == 1
        if elsewhere:
            try:
                await link.ask(local.READ, reference.data_id, 0, 0, 1)
                elsewhere = False  # a copy came earlier
            except UnknownData:
                pass
        begun_s = trio.current_time()
        await link.ask(local.FETCH, self._layer.job, reference.data_id)
        taken_s = trio.current_time() - begun_s
        if self._layers.took is not None:
            alone = len(places) == 1 and self._layer.copies == 1  # then it is known whether it came
            is_near = not places or self._layers.host in places or (alone and not elsewhere)
            source = self._layers.host if is_near else places[0]
            self._layers.took(self._layer.job, source, reference.size_bytes)
        return [(places[0], reference.size_bytes, taken_s)] if elsewhere and taken_s > 0 else []

    async def copy(self, outcome: Outcome) -> None:
        """Have copies of the results on as many hosts as the job wants.

        Raises:
            StagingError: there is no room for them, or there are not so many hosts.
        """
        layer = self._layer
        made = [value for values in outcome.values for value in values if is_reference(value)]
        if layer.copies < 2 or not made:
            return
        try:
            link = await self._layers.link(layer)
            for value in made:
                await link.ask(local.COPY, layer.job, decode_reference(value).data_id, layer.copies)
        except ImlError as error:
            raise StagingError(f"its results cannot be copied: {error}") from error

    def settling(self, finished: Finished) -> Settle | None:
        """Return what waits until all hosts can read the results in what a worker reports; None: they can.

        A result that is gone before anybody could read it is lost, and its attempt with it.
        """
        if not (self.promises and any(map(makes_data, finished.outcomes))):
            return None
        return partial(self._settled, finished)

    async def _settled(self, finished: Finished) -> Finished:
        outcomes = list(finished.outcomes)

        async def settle(place: int) -> None:
            outcomes[place] = await self._settle(outcomes[place])

        async with open_scope() as nursery:
            for place, outcome in enumerate(outcomes):
                if makes_data(outcome):
                    nursery.start_soon(settle, place)
        return replace(finished, outcomes=tuple(outcomes))

    async def _settle(self, outcome: Outcome) -> Outcome:
        made = [value for values in outcome.values for value in values if is_reference(value)]
        for data_id in [decode_reference(value).data_id for value in made]:

            async def ask(data_id: str = data_id) -> bool:
                link = await self._layers.link(self._layer)
                (promises, *_), _ = await link.ask(local.SETTLE, self._layer.job, data_id)
                return bool(promises)

            try:
                self.promises = await _patiently(ask)
            except (DataLost, UnknownData, LayerGone) as error:
                why = f"its result was lost before it was reported: {error}"
                return replace(outcome, reason=Reason.LOST, values=(), error=TaskError("lost", why))
            except ImlError as error:
                return without_values(outcome, error)
        return outcome

    async def read_into(self, reference: Reference, target: int, room: Room) -> None:
        """Write the bytes that a reference stands for to a descriptor.

        Raises:
            StagingError: they are too many, or not to be had.
            BadValue: it does not stand for bytes.
        """
        offset, size_bytes = plain_range(reference)
        room.take(size_bytes)
        async with self.opened(reference.data_id) as (_, source):
            await self.copy_bytes(source, target, offset, size_bytes)

    @staticmethod
    def pieces(descriptor: int, size_bytes: int, pieces_max: int) -> list[Piece]:
        """Return the texts and bytes of the encoded value behind a descriptor.

        Raises:
            BadValue: there is something else in it, or too much.
        """
        with map_readonly(descriptor, size_bytes) as whole, memoryview(whole) as view:
            return pieces_of(view, pieces_max)

    async def store(self, source: int, size_bytes: int, data_id: str = "") -> bytes:
        """Make data of the bytes of a descriptor; return the reference that stands for it.

        Args:
            source: has the bytes.
            size_bytes: how many.
            data_id: of data that was lost, to be had again.

        Raises:
            StagingError: there is no room for it.
        """

        async def write(target: int) -> None:
            await self.copy_bytes(source, target, 0, size_bytes)

        made = await self._make(size_bytes, data_id, write)
        return bytes_reference(made, size_bytes, self._layers.host)

    async def store_encoded(
        self, size_bytes: int, write: Callable[[int], Awaitable[None]], data_id: str = ""
    ) -> bytes:
        """Make data of an encoded value; return the reference that stands for the value.

        Args:
            size_bytes: of its encoding.
            write: writes that to a descriptor, from where it stands.
            data_id: of data that was lost, to be had again.

        Raises:
            StagingError: there is no room for it.
        """
        made = await self._make(size_bytes, data_id, write)
        return encoded_reference(made, size_bytes, self._layers.host)

    async def _make(self, size_bytes: int, data_id: str, write: Callable[[int], Awaitable[None]]) -> str:
        async def make() -> str:
            link = await self._layers.link(self._layer)
            try:
                (made, *_), descriptor = await link.ask(local.NEW, self._layer.job, data_id, size_bytes)
            except DuplicateData:  # that one was not lost
                return data_id
            try:
                try:
                    await write(descriptor)
                finally:
                    os.close(descriptor)
                await link.ask(local.COMMIT, made)
            except BaseException:
                with trio.CancelScope(shield=True), suppress(LayerGone):
                    await link.ask(local.ABORT, made)
                raise
            return str(made)

        try:
            return await _patiently(make)
        except ImlError as error:
            raise StagingError(f"it cannot become data: {error}") from error

    async def put(self, where: Reference, content: bytes | Reference) -> None:
        """Overwrite a range; every get that begins after this finds the new bytes.

        Args:
            where: the range.
            content: bytes, or data of which they are all, and which is freed.

        Raises:
            StagingError: the range has another size, or cannot be written; nothing has changed.
            BadValue: ``where`` is no range, or the content no bytes.
        """
        offset, size_bytes = plain_range(where)
        given = len(content) if isinstance(content, bytes) else plain_range(content)[1]
        if given != size_bytes:
            raise StagingError(f"{given} bytes for a range of {size_bytes}: nothing was put there")
        target = Range(where.data_id, offset, size_bytes)
        layer, network = self._layer, platform().network(self._layer)
        try:
            async with join_layer(network, layer.address, host=self._layers.host) as iml:
                iml.job = layer.job  # for which it asks, but whose data does not wait for it to leave
                if isinstance(content, bytes):
                    await iml.put(target, content)
                    return
                try:
                    async with self.opened(content.data_id) as (bytes_there, descriptor):
                        with map_readonly(descriptor, bytes_there) as whole, memoryview(whole) as view:
                            begin, _ = plain_range(content)
                            with view[begin : begin + size_bytes] as part:
                                await iml.put(target, part)
                finally:
                    with trio.CancelScope(shield=True), suppress(ImlError):
                        await iml.free(content.data_id)
        except (ImlError, ConnectionProblem) as error:
            raise StagingError(f"its range cannot be written: {error}") from error

    @asynccontextmanager
    async def opened(self, data_id: str) -> AsyncIterator[tuple[int, int]]:
        """Have data here, and a descriptor of it, for as long as the block lasts: (size, descriptor).

        Raises:
            StagingError: it is not to be had.
        """

        async def bring() -> tuple[LocalLink, local.Fields, int]:
            link = await self._layers.link(self._layer)
            return link, *await link.ask(local.BRING, self._layer.job, data_id)

        try:
            link, (size_bytes, part, *_), descriptor = await _patiently(bring)
        except ImlError as error:
            kind = "DataLost" if isinstance(error, DataLost) else "staging"
            raise StagingError(f"its data is not to be had: {error}", kind=kind) from error
        try:
            yield size_bytes, descriptor
        finally:
            os.close(descriptor)
            link.tell_soon(local.UNMAP, data_id, part)

    @staticmethod
    async def copy_bytes(source: int, target: int, offset: int, size_bytes: int) -> None:
        """Copy bytes between two descriptors, in pieces; the kernel does it.

        Args:
            source, target: the descriptors; the target is written from where it stands.
            offset: in the source.
            size_bytes: how many.

        Raises:
            OSError: they cannot be read or written, or the source has fewer.
        """
        end = offset + size_bytes
        while offset < end:
            count = min(COPY_BYTES, end - offset)
            done = await trio.to_thread.run_sync(os.sendfile, target, source, offset, count)
            if not done:
                raise OSError("the file has become shorter while it was staged")
            offset += done


def makes_data(outcome: Outcome) -> bool:
    """Return whether an attempt has made data that lies in a memory layer."""
    return any(is_reference(value) for values in outcome.values for value in values)


def _one_after_the_other(moved: list[tuple[str, int, float]], taken_s: float) -> Moved:
    """Return what came at the same time as if it had come one after the other, in as many seconds."""
    sum_s = sum(seconds for *_, seconds in moved)
    share = min(1.0, taken_s / sum_s) if sum_s else 1.0
    return tuple((host, size_bytes, seconds * share) for host, size_bytes, seconds in moved)


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the memory server of this host; when it has died, the one that takes its place."""
    for _ in range(TRIES - 1):
        with suppress(LayerGone):
            return await ask()
        await trio.sleep(PAUSE_S)
    return await ask()
