"""Calls at a worker of one's own, with real compute processes (RIF-4)."""

from __future__ import annotations

import os
import time

import pytest
import trio

from gspc_trio import CallFailed, open_resources, open_rts, open_worker
from gspc_trio.nursery.connections.rpc import PeerGone

HANG_S = 60.0


def pid(_: int = 0) -> int:
    return os.getpid()


def complain() -> None:
    raise ValueError("not today")


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
                with pytest.raises(PeerGone):
                    await worker.run(pid)
            resources.release(both)
            pair = await resources.acquire("core", "core")
            with pytest.raises(ValueError, match="an endpoint is for a grant of one"):
                async with open_worker(rts, resources, pair):
                    pass
