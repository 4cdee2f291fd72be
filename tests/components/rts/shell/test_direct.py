"""Calls at a worker of one's own, with real compute processes (RIF-4)."""

from __future__ import annotations

import os
import time

import pytest
import trio
import trio.testing

from gspc_trio import CallFailed, current_executor, open_resources, open_rts, open_worker
from gspc_trio.components.rts.shell.direct import DirectWorker
from gspc_trio.core.code import Program
from gspc_trio.nursery.connections.rpc import PeerGone

HANG_S = 60.0


def pid(_: int = 0) -> int:
    return os.getpid()


def complain() -> None:
    raise ValueError("not today")


def delegate() -> int:
    return current_executor().submit(pid).result()


async def test_a_function_runs_at_the_worker_of_a_resource_that_is_held() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts, open_resources(rts) as resources:
            one, both = await resources.acquire("core"), await resources.acquire("core")
            async with open_worker(rts, resources, one) as worker:
                assert worker.resource_id == one.resources[0]
                first = await worker.run(pid, 1)
                assert await worker.run(pid) == first != os.getpid()
                with pytest.raises(CallFailed, match="ValueError: not today") as failed:
                    await worker.run(complain)
                assert failed.value.kind == "ValueError"
                with trio.move_on_after(0.1) as stopped:
                    await worker.run(time.sleep, 3600)
                assert stopped.cancelled_caught
                assert await worker.run(pid) != first, "what was cancelled has been stopped"
                resources.release(one)
                with pytest.raises(PeerGone, match="grant is over"):  # before any task could have noticed
                    worker.begin(Program(("true",)), {}, lambda _: None)
                with pytest.raises(PeerGone, match="grant is over"):
                    await worker.run(pid)
            resources.release(both)
            pair = await resources.acquire("core", "core")
            with pytest.raises(ValueError, match="an endpoint is for a grant of one"):
                async with open_worker(rts, resources, pair):
                    pass


async def test_calls_end_when_the_connection_to_the_worker_does() -> None:
    gone: list[str] = []

    async def call_for_ever(worker: DirectWorker) -> None:
        with pytest.raises(PeerGone) as caught:
            await worker.run(time.sleep, 3600)
        gone.append(caught.value.reason)

    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts, open_resources(rts) as resources, trio.open_nursery() as nursery:
            one, other = await resources.acquire("core"), await resources.acquire("core")
            async with open_worker(rts, resources, one) as worker:
                await worker.run(pid)
                nursery.start_soon(call_for_ever, worker)
                await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(PeerGone, match="closed here"):
                await worker.run(pid)
            async with open_worker(rts, resources, other) as worker:
                await worker.run(pid)
                resources.release(other)
                for _ in range(2):
                    with pytest.raises(PeerGone, match="grant is over"):
                        await worker.run(pid)
    assert gone == ["closed here"]


async def test_a_call_that_would_start_tasks_is_refused_and_others_go_on() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts, open_resources(rts) as resources:
            held = await resources.acquire("core")
            async with open_worker(rts, resources, held) as worker:
                with pytest.raises(CallFailed, match="called by open_worker, at one worker alone"):
                    await worker.run(delegate)
                assert await worker.run(pid) != os.getpid()
