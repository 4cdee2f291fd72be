"""A job's large values in the memory layer: freed when nothing refers to them, opened where needed."""

from __future__ import annotations

import logging
import math
import operator
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Lock
from typing import TypeVar

import trio
from msgspec.structs import replace

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.components.job.lineage import BYTES_MAX, Origin
from gspc_trio.components.job.machine import JobEvent, Look
from gspc_trio.components.job.messages import MemoryStatus
from gspc_trio.components.job.scheduler.interface import (
    HostEvacuated,
    ResourcesLost,
    ResourcesUp,
    Restored,
    TaskDone,
)
from gspc_trio.components.job.shell.recovery import FIRST_TASK_ID, Recovery, ResultReader, StagingEngine
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import Named
from gspc_trio.core.task import Outcome, Reason, Task, TaskOptions
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import DuplicateData, ImlError, LayerGone, NoRoom
from gspc_trio.iml.local import LocalClient
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.host import Arena, HostLayers, is_top, no_arena, resources_by_host
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.iml.shell.platform import platform
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.nursery.scopes.drive import Put
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.transfer import TransferCost
from gspc_trio.protocol.values import (
    Placed,
    Reference,
    TrackedReference,
    Value,
    decode_reference,
    dumps,
    is_range,
    is_reference,
    open_published,
    published_pieces,
    spread,
)
from gspc_trio.workflow.tokens import Outputs

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

FREES_AT_ONCE = 64
"""So many frees are under way at one time."""

_SHORT = frozenset({type(None), bool, int, float})
"""Values of these types are never large."""

TRIES = 100
PAUSE_S = 0.1
"""How often, and after how long, to look for a server that takes the place of one that has died."""

SWEEP_S = 30.0
"""How often to look for data that nothing refers to."""


class _Keep:
    """Says that some data is not needed any more, when nothing has this object any more."""

    __slots__ = ("__weakref__", "_data", "data_id", "origin")

    def __init__(self, data: JobData, data_id: str, origin: Origin | None) -> None:
        self._data = data
        self.data_id = data_id
        self.origin = origin

    def __del__(self) -> None:
        self._data.unneeded(self.data_id)


class JobData:
    """The data of one job; made by :func:`open_job_data`.

    A value in the layer lives as long as its reference in this process: in tokens, in tasks whose outcome is
    not final, in futures that the user holds.

    Args:
        iml: the layer, as a client that speaks for the job.
        layer: with the address of the server near this process.
        put: takes events for the job's machine.
        lineage_bytes_max: arguments that are remembered to make lost data again.
        near_data: whether tasks are to go where their data lies.

    Attributes:
        hosts: where that can be.
    """

    def __init__(
        self, iml: Iml, layer: DataLayer, put: Put, lineage_bytes_max: int = BYTES_MAX, near_data: bool = True
    ) -> None:
        self.iml = iml
        self.layer = layer
        self._unneeded: deque[str] = deque()
        self._soon = platform().waker()
        self._wake = trio.Event()
        self._closed = False
        self._put_for_good: list[_Keep] = []
        self._vacate, self._vacated = trio.open_memory_channel[tuple[str, bool]](math.inf)
        connect = partial(platform().client, layer.local_address, iml.job)
        self._reader, self._writer = _SharedClient(connect), _SharedClient(connect)
        self.policy: TransferCost = TransferCost(data=self)
        self.hosts: DataHosts = DataHosts(iml, self.policy)
        self._near_data = near_data
        self._put = put
        self.recovery: Recovery = Recovery(
            iml, lineage_bytes_max, self._put_again, lambda: put(Look()), lambda: put(Restored())
        )
        self._options: dict[TaskOptions, TaskOptions] = {}
        iml.on_loss = self.recovery.lost

    def places_of(self, task: Task) -> Mapping[str, int]:
        """Return host -> bytes of the task's arguments that were made there."""
        places: dict[str, int] = {}
        for argument in task.arguments:
            if is_reference(argument):
                for host, size_bytes in _reference_of(argument).places:
                    places[host] = places.get(host, 0) + size_bytes
        return places

    def bytes_of(self, task: Task) -> int:
        """Return the bytes of all data that the task's arguments are, or are ranges of."""
        found = {}
        for argument in task.arguments:
            if is_reference(argument):
                reference = _reference_of(argument)
                found[reference.data_id] = reference.size_bytes
        return sum(found.values())

    def staged(self, task: Task) -> Task:
        """Return the task with the staging and the place that its data wants; on one host it wants none."""
        copies = self.layer.copies > 1
        fetch = len(self.policy.tops) > 1 and any(map(is_reference, task.arguments))
        if not (copies or fetch):
            return task
        options = task.options
        wanted = replace(options, stage_in=options.stage_in or fetch, stage_out=options.stage_out or copies)
        shape, variants = task.shape, task.variants
        if fetch and (self._near_data or not self.policy.fits_everywhere(task)):
            shape, variants = self.policy.shape_of(task), self.policy.variants_of(task)
        options = self._options.setdefault(wanted, wanted)
        return replace(task, shape=shape, options=options, variants=variants)

    def but_for_again(self, on_done: Callable[[TaskDone], None]) -> Callable[[TaskDone], None]:
        """Return what is told of tasks that are done, but not of those that ran again for their data."""
        return lambda done: None if done.task_id >= FIRST_TASK_ID else on_done(done)

    def reader(self, read: Callable[[], Outputs], nursery: trio.Nursery) -> ResultReader:
        """Return what opens the job's results before it ends; see :class:`ResultReader`."""
        return ResultReader(self.recovery, read, nursery)

    def staging(self, engine: Engine) -> Engine:
        """Return the engine with tasks that state the staging that their data needs."""
        return StagingEngine(engine, self.staged, self.recovery)

    def taking(self, hosts: Mapping[ResourceId, str]) -> Put:
        """Return what takes events for the job: it tracks references, and notes which hosts there are.

        Args:
            hosts: resource -> its host.
        """
        put = self._put

        def take(event: JobEvent, by: Peer | None = None) -> None:
            if type(event) is Finished:
                for outcome in event.outcomes:
                    for source, size_bytes, seconds in outcome.moved:
                        target = hosts.get(event.resource_id, "")
                        self.policy.bandwidths.note(source, target, size_bytes, seconds)
                event = self.take(event)
            elif type(event) is ResourcesUp:
                for resource in event.resources:
                    self.hosts.note_up(hosts[resource.resource_id], (resource,))
            elif type(event) is ResourcesLost:
                self.hosts.note_lost(event.resource_ids)
            elif type(event) is HostEvacuated:
                host = hosts[event.resources[0].resource_id]
                self._vacate.send_nowait((host, not event.reason))
            put(event, by)

        return take

    async def vacate(self) -> None:
        """Have data copied away from hosts that may fail, until cancelled."""
        async for host, is_over in self._vacated:
            with suppress(ImlError):
                copied, left = await self.iml.vacate(host, is_over=is_over)
                if not is_over:
                    log.info("%d values were copied away from host %s", copied, host)
                if left:
                    log.warning("%d values stay on host %s alone: other hosts have no room", left, host)

    def take(self, finished: Finished) -> Finished:
        """Return what a worker has reported, its references tracked."""
        outcomes = tuple(map(self._take_outcome, finished.outcomes))
        same = all(map(operator.is_, outcomes, finished.outcomes))
        return finished if same else replace(finished, outcomes=outcomes)

    def _take_outcome(self, outcome: Outcome) -> Outcome:
        if outcome.reason is not Reason.FINISHED:
            return self.recovery.excuse(outcome)
        if outcome.task_id >= FIRST_TASK_ID:
            return outcome  # its data is known
        if not any(is_reference(token) for values in outcome.values for token in values):
            return outcome
        origin = self.recovery.origin_of(outcome)
        values = tuple(
            tuple(self.track(token, origin) if is_reference(token) else token for token in values)
            for values in outcome.values
        )
        return replace(outcome, values=values)

    def track(self, value: bytes, origin: Origin | None = None) -> TrackedReference:
        """Return a reference that keeps its data as long as it lives.

        Args:
            value: the reference.
            origin: how the data was made, None if it cannot be made again.
        """
        tracked = TrackedReference(value)
        tracked.reference = decode_reference(value)
        if is_range(tracked.reference):
            tracked.keep = None  # somebody else's data
        else:
            tracked.keep = keep = _Keep(self, tracked.reference.data_id, origin)
            self.recovery.kept[keep.data_id] = keep
            if keep.data_id in self.iml.lost:  # before its task was reported
                self._soon(partial(self.recovery.lost, (keep.data_id,)))
        tracked.open_data = self.open_data
        return tracked

    def encode(self, value: object) -> bytes:
        """Return a value as an argument of a task; a large one goes into the layer, from any thread.

        When there is no room it travels with the task.

        Raises:
            BadValue: it cannot be sent to another process.
            UnknownName: it stands for published data that is not there.
        """
        if type(value) in _SHORT:
            return dumps(value)
        if type(value) is Named:
            data_id, size_bytes, places = self._writer.use(lambda writer: writer.look_up(value.name))
            return Placed(data_id, 0, size_bytes, size_bytes, places).encoded()
        parts = spread(value, self.layer.bytes_min)
        if isinstance(parts, bytes):
            return parts
        try:
            made = self._writer.use(lambda writer: writer.write(parts.pieces))
        except (LayerGone, NoRoom):
            return dumps(value)
        tracked = self.track(parts.reference(made, self.layer.host))
        pieces = self.recovery.copy_of(parts.pieces)
        if pieces is not None:
            with suppress(trio.RunFinishedError):
                self._soon(self.recovery.remember, tracked.keep, pieces)
        return tracked

    async def _put_again(self, data_id: str, pieces: Sequence[memoryview]) -> None:
        """Make data of an initial value that was lost; the server of this host may just be started again."""
        for left in reversed(range(TRIES)):
            try:
                with suppress(DuplicateData):  # it was not lost
                    await platform().in_thread(
                        self._writer.use, lambda writer: writer.write(list(pieces), data_id)
                    )
                return
            except LayerGone:
                if not left:
                    raise
            await trio.sleep(PAUSE_S)

    def put(self, view: memoryview) -> str:
        """Put bytes into the layer; return the id of the data. It goes with the job.

        Raises:
            ImlError: there is no room for it, or the layer is gone.
        """
        made = self._writer.use(lambda writer: writer.write([view]))
        keep = self.recovery.kept[made] = _Keep(self, made, None)
        self._put_for_good.append(keep)
        return made

    def publish(self, name: str, value: object) -> None:
        """Keep a value under a name, in place of what has it now; from any thread.

        Raises:
            BadValue: it cannot be sent to another process.
            ImlError: there is no room for it, or the layer is gone.
        """
        pieces = published_pieces(value)
        self._writer.use(lambda writer: writer.publish(name, pieces))

    def read_published(self, name: str) -> Value:
        """Return the value of a name; from any thread.

        Raises:
            ImlError: nothing has this name, or the layer is gone.
        """
        return open_published(self._open(lambda client: client.map_published(name)))

    async def find(self, name: str) -> Placed:
        """Return published data as a value.

        Raises:
            UnknownName: there is none of this name.
        """
        return await self.iml.placed(await self.iml.look_up(name))

    def open_data(self, data_id: str) -> memoryview:
        """Return the memory of data, mapped for reading; blocks for as long as that takes.

        Raises:
            ImlError: there is no such data (any more), or the layer is gone.
        """
        return self._open(lambda client: (data_id, client.map(data_id)))

    def _open(self, map_some: Callable[[LocalClient], tuple[str, memoryview]]) -> memoryview:
        def map_data(client: LocalClient) -> memoryview:
            data_id, mapped = map_some(client)
            # What is mapped stays as it is: the kernel knows of it, and its segment is not used again.
            client.release(data_id)
            return mapped

        return self._reader.use(map_data)

    def unneeded(self, data_id: str) -> None:
        """Free data soon; from any thread, also in the middle of anything."""
        if not self._closed:
            self._unneeded.append(data_id)
            with suppress(trio.RunFinishedError):
                self._soon(self._wake.set, idempotent=True)

    async def status(self) -> MemoryStatus:
        """Return the state of the layer, with the bandwidths that the job has measured."""
        return MemoryStatus(await self.iml.status(), self.policy.bandwidths.dump())

    async def free_unneeded(self) -> None:
        """Free what is not needed any more, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._unneeded:
                async with trio.open_nursery() as nursery:
                    for _ in range(min(FREES_AT_ONCE, len(self._unneeded))):
                        nursery.start_soon(self._free, self._unneeded.popleft())

    async def sweep(self) -> None:
        """Free what was made by attempts whose outcome never came, until cancelled.

        Between the commit of such data and the report of its task lie milliseconds; what nothing refers to
        for a whole interval belongs to an attempt that was lost.
        """
        before: set[str] = set()
        while True:
            await trio.sleep(SWEEP_S)
            with suppress(ImlError):
                entries = (await self.iml.status()).data
                mine = (entry.data_id for entry in entries if entry.job == self.layer.job)
                kept, busy = self.recovery.kept, self.recovery.busy
                unclaimed = [data_id for data_id in mine if data_id not in kept and not busy]
                for data_id in unclaimed:
                    if data_id in before:
                        await self._free(data_id)
                before = set(unclaimed)

    async def _free(self, data_id: str) -> None:
        if self.recovery.frees_later(data_id):
            return
        with suppress(ImlError):  # it was lost, or the layer is gone
            await self.iml.free(data_id)

    def close(self) -> None:
        """The job is over, and its data goes with it."""
        self._closed = True
        self._reader.close()
        self._writer.close()


def _reference_of(argument: bytes) -> Reference:
    return argument.reference if type(argument) is TrackedReference else decode_reference(argument)


class _SharedClient:
    """A client of the memory server of this host for all threads; a new one when its server has gone."""

    def __init__(self, connect: Callable[[], LocalClient]) -> None:
        self._connect = connect
        self._client: LocalClient | None = None
        self._lock = Lock()

    def use(self, work: Callable[[LocalClient], T]) -> T:
        """Do something with the client; from any thread.

        Raises:
            ImlError: what the server answers, or that it is gone.
        """
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            client = self._client
        try:
            return work(client)
        except LayerGone:
            with self._lock:
                if self._client is client:
                    self._client = None  # the next one asks the server that takes its place
            client.close()
            raise

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


@asynccontextmanager
async def open_job_data(
    layer: DataLayer,
    host: str,
    put: Put,
    lineage_bytes_max: int = BYTES_MAX,
    arena: Arena = no_arena,
    *,
    near_data: bool = True,
) -> AsyncIterator[JobData]:
    """Take part in a memory layer for a job, for as long as the block lasts.

    Args:
        layer: which one, and as which job: its data goes with the block.
        host: the name of this host.
        put: takes events for the job's machine.
        lineage_bytes_max: arguments that are remembered to make lost data again.
        arena: has the memory of a server that is started here.
        near_data: whether tasks are to go where their data lies.

    Raises:
        ConnectionProblem, LayerGone: the layer cannot be reached.
    """
    async with trio.open_nursery() as nursery:
        settled = await HostLayers(host, nursery, arena=arena).settle(layer)
        joined = join_layer(platform().network(layer), layer.address, job=layer.job, host=host)
        async with joined as iml, open_scope() as asking:  # what asks the layer ends before the connection
            data = JobData(iml, settled, put, lineage_bytes_max, near_data)
            asking.start_soon(data.free_unneeded)
            asking.start_soon(data.hosts.follow)
            asking.start_soon(data.vacate)
            asking.start_soon(data.recovery.run)
            if layer.copies == 1:  # else copies are made before the outcome is reported, which takes time
                asking.start_soon(data.sweep)
            try:
                yield data
            finally:
                data.close()
                asking.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


LOOK_FIRST_S, LOOK_MAX_S = 0.1, 10.0
"""Pauses between looks for memory servers that are not there yet."""


class DataHosts:
    """Tells the policy of a job what hosts there are.

    Args:
        iml: the layer, which has the memory servers.
        policy: sends tasks where their data is, and fits.
    """

    def __init__(self, iml: Iml, policy: TransferCost) -> None:
        self._iml = iml
        self._policy = policy
        self._news = trio.Event()

    async def learn(self, rts: RunTimeSystem) -> None:
        """Ask which hosts there are, and how much the memory of each can hold, before the first task goes."""
        await self._look()
        for host, resources in (await resources_by_host(rts)).items():
            self.note_up(host, resources)

    async def follow(self) -> None:
        """Learn of memory servers as they come, until cancelled: a RIF starts that of its host for a job."""
        while True:
            pause_s = LOOK_FIRST_S
            while not self._policy.tops.keys() <= self._policy.memory_bytes.keys():
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_MAX_S)
                with suppress(ImlError):
                    await self._look()
            self._news = trio.Event()
            await self._news.wait()

    async def _look(self) -> None:
        for server in await self._iml.servers():
            self._policy.memory_bytes[server.host] = server.memory_bytes

    def note_up(self, host: str, resources: Iterable[Resource]) -> None:
        """A host has these resources."""
        for resource in resources:
            self._policy.note_resource(host, resource.resource_id, resource.resource_class)
            if is_top(resource):
                tops = self._policy.tops.setdefault(host, [])
                if resource.resource_id not in tops:
                    tops.append(resource.resource_id)
                    self._news.set()

    def note_lost(self, resource_ids: Iterable[ResourceId]) -> None:
        """These resources are not there any more."""
        lost, tops = set(resource_ids), self._policy.tops
        self._policy.forget_resources(lost)
        for host in list(tops):
            tops[host] = [top for top in tops[host] if top not in lost]
            if not tops[host]:
                del tops[host]
