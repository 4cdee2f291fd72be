"""A RIF as a process of its own, with real compute processes, over authenticated websockets."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
import trio

from gspc_trio.components.rif.messages import RemoveResources, StopRif
from gspc_trio.components.rif.shell.rif_process import BadOrder, read_order
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import Cancel, DefineCode, OpenJob, Submission
from gspc_trio.compute.code import function_code
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.scopes.process import Process, open_process
from gspc_trio.protocol.values import dumps, loads
from tests.components.rif.shell.support import FakeRts, FakeScheduler
from tests.components.tasks.processes import die, nap, pid_and_cpus
from tests.support import until

TOKEN = bytes(range(32))
COMMAND = (sys.executable, "-m", "gspc_trio.components.rif.shell.rif_process")
SMALL = (Resource("r1.core0", "core"), Resource("r1.core1", "core", cpus=(0,)))

ORDER: dict[str, Any] = {
    "rts": "ws://127.0.0.1:1",
    "token": base64.b64encode(TOKEN).decode(),
    "rif_id": "r1",
    "incarnation": 1,
    "host": "here",
    "cores": 2,
    "options": {},
}


CODES: dict[int, Callable[..., Any]] = {1: pid_and_cpus, 2: nap, 3: die}


class World:
    """A RIF in a process of its own, the RTS that it dialled, and schedulers."""

    def __init__(self, network: Network, rts: FakeRts, process: Process) -> None:
        self.network = network
        self.rts = rts
        self.process = process

    @asynccontextmanager
    async def job(self, job: str = "j1") -> AsyncIterator[FakeScheduler]:
        assert self.rts.hello is not None
        connection = self.network.connect(self.rts.hello.address, role="job", name=job, expect="rif")
        async with trio.open_nursery() as nursery, connection as peer:
            scheduler = FakeScheduler(peer, job)
            nursery.start_soon(scheduler.listen)
            peer.post(OpenJob(job, sys_path=tuple(filter(None, sys.path)), cwd=os.getcwd()))
            for code_id, function in CODES.items():
                peer.post(DefineCode(job, code_id, function_code(function)))
            yield scheduler
            nursery.cancel_scope.cancel()

    def descendants(self) -> list[psutil.Process]:
        """The processes below the RIF."""
        return psutil.Process(self.process.pid).children(recursive=True)


def call(task_id: int, code_id: int, *arguments: Any) -> Submission:
    return Submission(task_id, 1, code_id, tuple(map(dumps, arguments)))


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    network = Network(wire_codec, TOKEN)
    rts = FakeRts()
    async with trio.open_nursery() as nursery:

        async def listen(task_status: trio.TaskStatus[str]) -> None:
            await network.listen(
                "ws://127.0.0.1:0", rts.serve, role="rts", name="rts", task_status=task_status
            )

        address = await nursery.start(listen)
        line = json.dumps(ORDER | {"rts": address}).encode() + b"\n"
        async with open_process(COMMAND, stdin=line, hold_stdin=True) as process:
            world = World(network, rts, process)
            with trio.fail_after(60):
                await rts.up.wait()
            yield world
        nursery.cancel_scope.cancel()


@pytest.mark.process
async def test_tasks_run_in_pinned_processes_of_their_own_and_die_alone() -> None:
    async with open_world() as world:
        assert world.rts.hello is not None
        assert (world.rts.hello.pid, world.rts.hello.host) == (world.process.pid, "here")
        assert [r.resource_class for r in world.rts.hello.hardware].count("core") == 2
        await world.rts.add(SMALL)
        assert world.descendants() == []
        async with world.job() as job:
            job.submit("r1.core0", call(1, 1), call(2, 1))
            job.submit("r1.core1", call(3, 1))
            assert sorted(await job.wait(3)) == [(1, "finished"), (2, "finished"), (3, "finished")]
            answers = {outcome.task_id: loads(outcome.values[0][0]) for outcome in job.outcomes}
            assert answers[1] == answers[2]
            assert answers[1][0] != answers[3][0]
            assert answers[3][1] == [0]
            # One crashes: the next on that worker runs in a new process, the other worker notices nothing.
            job.submit("r1.core1", call(4, 2, 0.3))
            job.submit("r1.core0", call(5, 3), call(6, 1))
            assert sorted((await job.wait(6))[3:]) == [(4, "finished"), (5, "lost"), (6, "finished")]
            answers = {o.task_id: loads(o.values[0][0]) for o in job.outcomes if o.values}
            assert answers[4] == answers[3][0]
            assert answers[6][0] != answers[1][0]
            lost = next(outcome for outcome in job.outcomes if outcome.task_id == 5)
            assert lost.error is not None
            assert "SIGKILL" in lost.error.message


@pytest.mark.process
async def test_cancel_revoke_and_remove_stop_the_work_within_a_second() -> None:
    async with open_world() as world:
        await world.rts.add(SMALL)
        async with world.job() as job:
            job.submit("r1.core0", call(1, 2, 1000), call(2, 1))
            await until(lambda: len(world.descendants()) >= 2)
            job.peer.post(Cancel("j1", "r1.core0", ((1, 1),)))
            assert await job.wait(2) == [(1, "cancelled"), (2, "finished")]
            job.submit("r1.core0", call(3, 2, 1000))
            world.rts.peer.post(Revoke((1, 2), ("r1.core0",)))
            assert (await job.wait(3))[2][0] == 3
            await until(lambda: world.rts.said == [Revoked((1, 2), ("r1.core0",))])
            job.submit("r1.core1", call(4, 2, 1000))
            await world.rts.peer.call(RemoveResources(("r1.core1",)))
            await job.wait(4)


@pytest.mark.process
async def test_the_end_of_a_job_server_frees_everything_it_had() -> None:
    async with open_world() as world:
        await world.rts.add(SMALL)
        async with world.job() as job:
            job.submit("r1.core0", call(1, 2, 1000))
            job.submit("r1.core1", call(2, 2, 1000))
            await until(lambda: len(world.descendants()) >= 3)
        # The template stays for the next job.
        await until(lambda: len(world.descendants()) == 1)
        async with world.job("j2") as job:
            job.submit("r1.core0", call(1, 1), grant=9)
            assert await job.wait(1) == [(1, "finished")]


@pytest.mark.process
@pytest.mark.parametrize("how", ["told", "rts gone", "signal"])
async def test_no_process_survives_the_end_of_a_rif(how: str) -> None:
    async with open_world() as world:
        await world.rts.add(SMALL)
        async with world.job() as job:
            job.submit("r1.core0", call(1, 2, 1000))
            await until(lambda: len(world.descendants()) >= 2)
            below = world.descendants()
            if how == "told":
                world.rts.peer.post(StopRif())
            elif how == "rts gone":
                world.rts.peer.drop("gone")
            else:
                world.process.terminate()
            with trio.fail_after(60):
                assert await world.process.wait() == 0
            await until(lambda: not any(process.is_running() for process in below))


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "status"),
    [(b"nonsense\n", 2), (json.dumps(ORDER).encode() + b"\n", 1)],
    ids=["no order", "no RTS there"],
)
async def test_a_rif_that_cannot_start_says_so_and_ends(line: bytes, status: int) -> None:
    with trio.fail_after(60):
        done = await trio.run_process(
            COMMAND, stdin=line, capture_stdout=True, capture_stderr=True, check=False
        )
    assert done.returncode == status
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1


def test_an_order_is_read() -> None:
    order = read_order(json.dumps(ORDER).encode())
    assert (order.token, order.cores, order.options) == (TOKEN, 2, {})
    assert "token" not in repr(order)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "no order for a RIF"),
        (b"[]", "no order for a RIF"),
        (b"{}", "missing required field `rts`"),
        (json.dumps(ORDER | {"cores": "2"}).encode(), r"Expected `int`, got `str` - at `\$.cores`"),
        (json.dumps(ORDER | {"token": "?"}).encode(), "no order for a RIF"),
    ],
)
def test_what_is_no_order_is_refused_with_one_line(line: bytes, message: str) -> None:
    with pytest.raises(BadOrder, match=message):
        read_order(line)
