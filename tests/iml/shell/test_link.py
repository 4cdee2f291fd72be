"""The connection to the memory server of a host: whoever asks gets its answer, nothing is kept for nobody."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from gspc_trio.iml import local
from gspc_trio.iml.errors import LayerGone, NoRoom, UnknownData
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.shell.client import Allocation
from gspc_trio.iml.shell.layer import join_layer, open_layer
from gspc_trio.iml.shell.link import LocalLink
from gspc_trio.iml.shell.server import ImlServer
from tests.support import until

SIZE = 1 << 20


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[LocalLink, ImlServer, Allocation]]:
    """Run a server with some data; yield a connection to it that nobody holds yet."""
    async with (
        open_layer(hosts=("a",), memory_bytes=2 * SIZE) as (network, coordinator, servers),
        join_layer(network, coordinator.address, host="a", server=servers[0]) as iml,
    ):
        data = await iml.alloc(SIZE, bytes(range(256)) * (SIZE // 256), layout=Layout(("a",)))
        yield LocalLink(servers[0].local_address), servers[0], data


async def test_one_question_after_another_has_its_answer() -> None:
    async with linked() as (link, _, data), trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        for offset in range(50):
            (found, _), descriptor = await link.ask(local.READ, data.data_id, 0, offset, 1)
            assert (found, descriptor) == (bytes([offset]), -1)
        nursery.cancel_scope.cancel()


async def test_many_questions_at_a_time_have_each_their_own_answer() -> None:
    async with linked() as (link, _, data), trio.open_nursery() as nursery:
        nursery.start_soon(link.run)

        async def ask(first: int) -> None:
            for offset in range(first, first + 20):
                (found, _), _ = await link.ask(local.READ, data.data_id, 0, offset, 1)
                assert found == bytes([offset % 256])
            with pytest.raises(UnknownData):
                await link.ask(local.READ, "nothing", 0, 0, 1)

        async with trio.open_nursery() as asking:
            for first in range(30):
                asking.start_soon(ask, first)
        nursery.cancel_scope.cancel()


async def test_whoever_stops_waiting_does_not_take_the_answers_of_others_away() -> None:
    async with linked() as (link, _, data), trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        got = []

        async def ask(offset: int, scope: trio.CancelScope) -> None:
            with scope:
                (found, _), _ = await link.ask(local.READ, data.data_id, 0, offset, 1)
                got.append(found[0])

        async with trio.open_nursery() as asking:
            scopes = [trio.CancelScope() for _ in range(10)]
            for offset, scope in enumerate(scopes):
                asking.start_soon(ask, offset, scope)
            await trio.lowlevel.checkpoint()  # all have asked, and one of them waits for the socket
            for scope in scopes[::2]:
                scope.cancel()
        assert set(got) >= {1, 3, 5, 7, 9}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("operation", [local.BRING, local.MAP])
async def test_what_was_brought_for_somebody_who_was_cancelled_is_given_back(operation: int) -> None:
    async with linked() as (link, server, data), trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        before = len(os.listdir("/proc/self/fd"))
        fields = ("", data.data_id) if operation == local.BRING else (data.data_id, 0)
        with trio.CancelScope() as scope:
            scope.cancel()
            await link.ask(operation, *fields)
        assert scope.cancelled_caught
        await link.ask(local.READ, data.data_id, 0, 0, 1)  # that comes after it
        server.store.drop((data.data_id, 0))
        await until(lambda: server.machine.used_bytes == 0)  # nobody has pinned it any more
        assert len(os.listdir("/proc/self/fd")) <= before
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("question", [(local.NEW, "", "", SIZE // 2), (local.LEND, SIZE // 2)])
async def test_what_was_made_for_somebody_who_was_cancelled_goes(question: tuple[Any, ...]) -> None:
    async with linked() as (link, _, _), trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        for _ in range(2):
            with trio.CancelScope() as scope:
                scope.cancel()
                await link.ask(*question)
            assert scope.cancelled_caught
        with trio.fail_after(60):
            while True:
                try:
                    _, descriptor = await link.ask(local.NEW, "", "", SIZE)
                    break
                except NoRoom:
                    await trio.sleep(0.01)
        os.close(descriptor)
        nursery.cancel_scope.cancel()


async def test_what_has_no_answer_is_told_though_nobody_asks_again() -> None:
    async with linked() as (link, server, data), trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        (_, part), descriptor = await link.ask(local.BRING, "", data.data_id)
        os.close(descriptor)
        server.store.drop((data.data_id, 0))
        assert server.machine.used_bytes == SIZE
        link.tell_soon(local.UNMAP, data.data_id, part)
        await until(lambda: server.machine.used_bytes == 0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("asked", range(3))
async def test_the_end_of_the_server_ends_it_whether_somebody_asks_or_not(asked: int) -> None:
    ended = trio.Event()

    async def serve(*, task_status: trio.TaskStatus[tuple[LocalLink, Allocation]]) -> None:
        async with linked() as (link, _, data):
            task_status.started((link, data))
            await ended.wait()

    async with trio.open_nursery() as nursery:
        link, data = await nursery.start(serve)
        nursery.start_soon(link.run)
        for _ in range(asked):
            await link.ask(local.READ, data.data_id, 0, 0, 1)
        ended.set()
        await until(lambda: link.is_over)
        link.tell_soon(local.UNMAP, data.data_id, 0)
        await link.tell_now()  # nobody is there to hear it, which is no error
        with pytest.raises(LayerGone):
            await link.ask(local.READ, data.data_id, 0, 0, 1)


async def test_what_somebody_has_lent_goes_with_its_connection() -> None:
    async with linked() as (link, server, _), trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        (lent_id, part, address), descriptor = await link.ask(local.LEND, SIZE // 2)
        assert address == server.address
        os.pwrite(descriptor, b"x" * (SIZE // 2), 0)
        os.close(descriptor)
        await link.ask(local.SHOW, lent_id, part)
        assert (await server.store.read((lent_id, part), SIZE // 2 - 1, 1))[0] == b"x"
        server_machine = server.machine
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await until(lambda: server_machine.used_bytes == SIZE)
