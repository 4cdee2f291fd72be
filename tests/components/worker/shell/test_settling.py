"""Results in a memory layer are reported when other hosts can read them, or as lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from gspc_trio.components.worker.messages import Finished
from gspc_trio.components.worker.shell.iml_staging import DataStaging
from gspc_trio.core.task import Outcome, Reason
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.local import LocalClient
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.host import HostLayers
from gspc_trio.protocol.values import bytes_reference, dumps
from tests.iml.shell.support import TOKEN, Stage, open_stage

LISTEN = "ws://127.0.0.1:0"


@asynccontextmanager
async def staged(job: str = "j1") -> AsyncIterator[tuple[Stage, DataStaging, LocalClient, Iml]]:
    """What the RIF of host north has, and what a task of a job there has; with a client elsewhere."""
    async with open_stage("south", listen=LISTEN) as stage, trio.open_nursery() as nursery:
        server = await stage.add("north", local=True, listen=LISTEN)
        async with stage.client("j1", host="south") as iml:
            layer = DataLayer(stage.coordinator.address, TOKEN, job)
            staging = DataStaging(layer, HostLayers("north", nursery))
            task = await trio.to_thread.run_sync(LocalClient, server.local_address, job)
            try:
                yield stage, staging, task, iml
            finally:
                task.close()
                nursery.cancel_scope.cancel()


async def make(task: LocalClient) -> str:
    """What a task does with a result."""
    return await trio.to_thread.run_sync(lambda: task.write([memoryview(b"data")], promise=True))


def report(*values: bytes) -> Finished:
    return Finished(
        "j1", "r2.core0", (Outcome(1, 1, Reason.FINISHED, (values,)), Outcome(2, 1, Reason.FAILED))
    )


async def settled(staging: DataStaging, finished: Finished) -> Finished:
    settle = staging.settling(finished)
    return finished if settle is None else await settle()


async def test_a_result_is_reported_when_all_can_read_it() -> None:
    async with staged() as (_, staging, task, iml):
        made = [await make(task) for _ in range(3)]
        told = report(dumps(1), *(bytes_reference(it, 4, "north") for it in made))
        assert await settled(staging, told) == told
        for data_id in made:
            assert await iml.get(data_id) == b"data"


async def test_what_has_no_data_waits_for_nothing() -> None:
    async with staged() as (_, staging, _, _):
        assert staging.settling(report(dumps(1))) is None


async def test_a_result_that_went_with_its_server_is_lost() -> None:
    async with staged() as (stage, staging, task, _):
        told = report(bytes_reference(await make(task), 4, "north"))
        await stage.kill("north")
        await stage.add("north", local=True, listen=LISTEN)
        first, second = (await settled(staging, told)).outcomes
        assert (first.reason, first.values, second.reason) == (Reason.LOST, (), Reason.FAILED)
        assert first.error is not None
        assert "its result was lost before it was reported" in first.error.message


async def test_a_result_that_the_layer_does_not_take_has_failed() -> None:
    async with staged("j9") as (_, staging, task, _):
        told = report(bytes_reference(await make(task), 4, "north"))
        first = (await settled(staging, told)).outcomes[0]
        assert first.reason is Reason.FAILED
        assert first.error is not None
        assert first.error.kind == "WrongJob"


async def test_where_nothing_is_promised_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as (stage, staging, task, _):
        monkeypatch.setattr(stage.servers["north"]._own, "promises", False)
        told = report(bytes_reference(await make(task), 4, "north"))
        assert await settled(staging, told) == told
        assert staging.settling(told) is None
