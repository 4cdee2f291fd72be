"""Memory layers that are wrong on purpose: each must be found by simulating."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Any

from gspc_trio.components import iml_store, iml_transfer
from gspc_trio.components.iml_server import ImlServer
from gspc_trio.components.job_data import JobData
from gspc_trio.core.iml.coordinator import Coordinator
from gspc_trio.core.iml.ledger import Ledger
from gspc_trio.core.iml.store import Store
from gspc_trio.core.iml.store_events import Moved
from gspc_trio.core.rm import lapse
from gspc_trio.iml.segment import Segment, SpillFile

Patch = Callable[[Any, str, Any], None]
"""``monkeypatch.setattr``."""


def freed_while_tasks_refer(patch: Patch) -> None:
    """A job frees every tenth of its data though tasks need it."""
    track, numbers = JobData.track, count(1)

    def free(data: JobData, value: bytes, origin: Any = None) -> Any:
        tracked = track(data, value, origin)
        if next(numbers) % 10 == 0:
            data.unneeded(tracked.reference.data_id)
        return tracked

    patch(JobData, "track", free)


def half_of_a_put(patch: Patch) -> None:
    """A server copies only the first half of what is put, and says that it is done."""
    copy = iml_store._copy_bytes

    def half(source: int, begin: int, target: int, offset: int, size_bytes: int) -> None:
        copy(source, begin, target, offset, (size_bytes + 1) // 2)

    patch(iml_store, "_copy_bytes", half)


def copy_without_a_put(patch: Patch) -> None:
    """A put is applied on one holder; the other copies stay as they were."""
    call = Ledger.call

    def first_only(ledger: Ledger, operation: Any, rank: int, part: int, message: Any) -> None:
        is_put = type(message).__name__ == "ApplyPut"
        if not is_put or all(other != part for _, other in operation.calls.values()):
            call(ledger, operation, rank, part, message)

    patch(Ledger, "call", first_only)


def freed_data_kept(patch: Patch) -> None:
    """A server says that it has dropped a part, and keeps it."""
    patch(ImlServer, "_drop", lambda server, order: server._done(order.call))


def data_outlives_its_job(patch: Patch) -> None:
    """The coordinator does not drop the data of a job when its last client goes."""
    down = Coordinator._client_down

    def keep(machine: Coordinator, event: Any) -> None:
        entries = machine._ledger.data
        machine._ledger.data = {}
        down(machine, event)
        machine._ledger.data = entries

    patch(Coordinator, "_client_down", keep)


def loss_unsaid(patch: Patch) -> None:
    """The coordinator does not tell a job which of its data is lost."""
    patch(Ledger, "take_losses", lambda ledger: ledger._lost.clear() or {})


def half_of_it_spilled(patch: Patch) -> None:
    """A server writes only the first half of a part to disk."""

    def half(spill: SpillFile, segment: Segment, offset: int) -> None:
        os.pwrite(spill.descriptor, os.pread(segment.descriptor, segment.size_bytes // 2, 0), offset)

    patch(SpillFile, "write_from", half)


def full_disk_unnoticed(patch: Patch) -> None:
    """A server believes that what the disk has not taken is there."""
    moved = Store._moved
    patch(Store, "_moved", lambda store, event: moved(store, Moved(event.key, "")))


def refused_and_kept(patch: Patch) -> None:
    """What could not be made on all hosts of its layout stays on the others."""
    patch(Ledger, "discard", lambda ledger, data: ledger.remove(data))


def last_chunk_forgotten(patch: Patch) -> None:
    """Of what takes several chunks the last one is not sent."""
    in_chunks = iml_transfer.in_chunks

    async def some(link: Any, size_bytes: int, move: Any) -> None:
        chunk_bytes = link.sizes.chunk_bytes
        await in_chunks(link, max(min(size_bytes, chunk_bytes), size_bytes - chunk_bytes), move)

    patch(iml_transfer, "in_chunks", some)


def memory_gone_unsaid(patch: Patch) -> None:
    """The resource manager lets a server keep a grant whose memory was removed."""
    patch(lapse, "memory_lost", lambda state, _now, _actions: state.pool.memories_lost.clear())


LAYER_VARIANTS = [
    memory_gone_unsaid,
    freed_while_tasks_refer,
    half_of_a_put,
    copy_without_a_put,
    freed_data_kept,
    data_outlives_its_job,
    loss_unsaid,
    half_of_it_spilled,
    full_disk_unnoticed,
    refused_and_kept,
    last_chunk_forgotten,
]
