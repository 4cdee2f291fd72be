"""The run-time system with RIFs in processes of their own, which are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import trio

from gspc_trio.components.provision.shell.strategies import LocalStrategy
from gspc_trio.components.rts.messages import BootstrapReport
from gspc_trio.components.rts.shell.service import RtsService, open_rts_service
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import Network
from tests.processes import is_alive
from tests.support import until_ended

pytestmark = pytest.mark.process

TOKEN = b"0123456789abcdef0123456789abcdef"

RTS_PROGRAM = """
import trio
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.provision.shell.strategies import LocalStrategy
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import Network

async def main():
    strategies = {"local": LocalStrategy()}
    network = Network(wire_codec, b"0123456789abcdef0123456789abcdef")
    async with open_rts_service(network, listen=("ws://127.0.0.1:0",), strategies=strategies) as service:
        report = await service.bootstrap(("anna",), "local", 1)
        print(service.status().rifs[0].pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def state(service: RtsService, incarnation: int) -> dict[str, object]:
    """Return the entry of the first RIF when this incarnation is up."""
    with trio.fail_after(60):
        while True:
            rif = service.status().rifs[0]
            if (rif.state, rif.incarnation) == ("up", incarnation):
                return rif
            await trio.sleep(0.02)


async def test_a_rif_process_that_is_killed_is_started_again_and_none_is_left_at_the_end():
    network = Network(wire_codec, TOKEN)
    strategies = {"local": LocalStrategy()}
    async with open_rts_service(network, listen=("ws://127.0.0.1:0",), strategies=strategies) as service:
        with trio.fail_after(60):
            report = await service.bootstrap(("anna", "bert"), "local", 2)
        assert report == BootstrapReport({"anna": "r1", "bert": "r2"}, {})
        pids = [rif.pid for rif in service.status().rifs]
        assert os.getpid() not in pids
        before = service.host_to_resource()
        assert sum(name.startswith("r1.core") for name in before["anna"]) == 2
        os.kill(pids[0], signal.SIGKILL)
        rif = await state(service, 2)
        assert rif.pid not in pids
        assert {host: set(ids) for host, ids in service.host_to_resource().items()} == {
            host: set(ids) for host, ids in before.items()
        }
        with trio.fail_after(30):
            assert await service.teardown(("r2",)) == ("r2",)
        assert not is_alive(pids[1])
    assert not is_alive(rif.pid)


async def test_rif_processes_end_when_their_run_time_system_is_killed():
    process = subprocess.Popen((sys.executable, "-c", RTS_PROGRAM), stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        assert process.stdout is not None
        line = await trio.to_thread.run_sync(process.stdout.readline)
        pid = int(line)
        assert is_alive(pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    await until_ended(pid)
