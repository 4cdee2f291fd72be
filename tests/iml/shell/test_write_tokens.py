"""Who may write what is being made: only the client that makes it, though everybody knows its id."""

from __future__ import annotations

import pytest
import trio

from gspc_trio.iml import local
from gspc_trio.iml import messages as x
from gspc_trio.iml.errors import ImlError, WrongJob
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.local import open_socket, pack, receive, unpack
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.iml.shell.transfer import ServerLinks
from tests.iml.shell.support import Stage, open_stage

OLD, NEW, FORGED = b"old bytes", b"new bytes", b"forged!!!"
GUESSES = ("", "w1", "0" * 32)


async def say(stage: Stage, server: ImlServer, message: object) -> None:
    """Ask a server as another client, which has the secret."""
    problem: ImlError | None = None
    async with trio.open_nursery() as nursery:
        entry = x.ServerEntry(0, server.host, server.address, server.local_address, 0)
        link = ServerLinks(stage.network, nursery, "other").to(entry)
        try:
            await link.call(message)
        except ImlError as error:
            problem = error
        nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def refused(stage: Stage, server: ImlServer, data_id: str, part: int) -> None:
    """Try to write what somebody else is writing."""
    lent = await server.lend(len(FORGED))
    server.store.write(lent, 0, FORGED)
    server.store.seal(lent)
    source = x.ServerEntry(0, server.host, server.address, "", 0)
    for guess in GUESSES:
        messages: list[object] = [x.PutChunk(data_id, part, 0, guess, FORGED)]
        if part >= 0:
            messages.append(x.PutFrom(data_id, part, len(FORGED), source, *lent, guess))
        for message in messages:
            with pytest.raises(WrongJob, match="is being written by another client"):
                await say(stage, server, message)
    server.store.drop(lent)


async def test_what_a_client_puts_is_written_by_nobody_else() -> None:
    async with open_stage("a") as stage, stage.client("j1") as iml:
        server = stage.servers["a"]
        data = await iml.alloc(len(OLD), OLD)
        begun = await iml._peer.call(x.BeginPut("j1", data.data_id, 0, len(NEW)))
        put = begun.located
        await say(stage, server, x.PutChunk(begun.staging_id, 0, 0, put.write_token, NEW))
        await refused(stage, server, begun.staging_id, 0)
        await iml._peer.call(x.CommitData(begun.staging_id))
        assert await iml.get(data) == NEW


async def test_nobody_is_told_the_token_but_who_makes_the_data() -> None:
    async with open_stage("a") as stage, stage.client("j1") as iml, stage.client("") as other:
        made = await iml._peer.call(x.Alloc("j1", len(NEW), writing=True))
        begun = await iml._peer.call(x.BeginPut("j1", (await iml.alloc(4)).data_id, 0, 4))
        assert len({made.write_token, begun.located.write_token, ""}) == 3
        told = repr(await other._peer.call(x.GetLayerStatus()))
        assert made.data_id in told
        assert made.write_token not in told
        await say(stage, stage.servers["a"], x.PutChunk(made.data_id, 0, 0, made.write_token, NEW))
        await iml._peer.call(x.CommitData(made.data_id))
        assert (await iml._peer.call(x.Locate("j1", made.data_id))).write_token == ""


async def test_what_a_server_itself_writes_is_written_by_nobody_else() -> None:
    """A copy that it fetches, memory that it lends, stripes that it puts together."""
    async with open_stage("a") as stage:
        server = stage.servers["a"]
        for key in (("d1", 0), ("lent", -50), ("d1", -51)):
            await server.store.create(key, len(NEW), writing=True)
            server.store.write(key, 0, NEW)
            await refused(stage, server, *key)
            server.store.seal(key)
            assert (await server.store.read(key, 0, len(NEW)))[0] == NEW
            server.store.drop(key)


async def test_a_process_of_the_host_gets_no_descriptor_for_what_another_writes() -> None:
    async with open_stage(listen="ws://127.0.0.1:0") as stage:
        server = await stage.add("a", local=True)
        async with join_layer(stage.network, stage.coordinator.address, job="j1", host="far") as iml:
            made = await iml._peer.call(x.Alloc("j1", len(NEW), Layout(("a",)), writing=True))
            with open_socket(server.local_address) as process:
                for guess in GUESSES:
                    process.send(pack((local.WRITER, 1, made.data_id, 0, guess)))
                    await trio.lowlevel.wait_readable(process)
                    packet, descriptor = receive(process, local.packet_buffer())
                    assert descriptor < 0
                    assert unpack(packet)[1] == "WrongJob"
