"""What a job server says of a job of which nothing runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.cli.waiting import LOOK_INTERVAL_S, tell_waiting
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.rm.messages import Demand
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.task import Requirement, Shape, TaskState
from gspc_trio.nursery.connections.network import Network
from tests.components.rts.shell.support import RTS

GPU = Shape((Requirement("gpu"),), wait=True)


async def wait_for_a_gpu(network: Network) -> None:
    async with network.connect(RTS, role="job", name="fit", expect="rts") as peer:
        registered = await peer.call(RegisterJob("fit", 5, "anna"))
        peer.post(Demand(registered.job, GPU, 1, NO_GRANT))
        await peer.lost.wait()


async def test_it_is_told_of_the_run_time_system_that_came_back_too(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job goes on there; why it waited nobody said from then on."""
    del autojump_clock
    network = Network(wire_codec)
    waiting = SimpleNamespace(name="fit", counts=lambda: {TaskState.READY: 1})
    job = cast(Job, SimpleNamespace(job_id="j1", machine=waiting))
    opened: Any = {"listen": (RTS,), "strategies": {}}
    async with trio.open_nursery() as nursery:
        async with open_rts_service(network, **opened):
            async with network.connect(RTS, role="control", name="client", expect="rts") as peer:
                nursery.start_soon(tell_waiting, job, RunTimeSystem(network, RTS, peer))
                await trio.sleep(2 * LOOK_INTERVAL_S)
        assert capsys.readouterr().err == "", "it waits for nothing yet"
        await trio.sleep(10 * LOOK_INTERVAL_S)
        async with open_rts_service(network, **opened):
            nursery.start_soon(wait_for_a_gpu, network)
            await trio.sleep(10 * LOOK_INTERVAL_S)
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith("gspc-jobserver: j1 (fit) waits for gpu")
            nursery.cancel_scope.cancel()
