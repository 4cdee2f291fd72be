"""Proxies of ``multiprocessing`` managers are arguments: tasks know the key of the user's process."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from gspc_trio import Executor, farm, open_job, open_rts
from gspc_trio.components.worker.messages import OpenJob, ProcessKey

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def manager() -> Iterator[SyncManager]:
    with multiprocessing.get_context("spawn").Manager() as manager:
        yield manager


def tell(queue: Any, value: int) -> Any:
    queue.put(value)
    return queue


def own_key() -> bytes:
    return bytes(multiprocessing.current_process().authkey)


@pytest.mark.parametrize("kind", ["processes", "threads", "joined"])
def test_tasks_put_into_a_queue_of_a_manager(
    manager: SyncManager, executor: Executor, world: Any, kind: str
) -> None:
    queue = manager.Queue()
    with ExitStack() as stack:
        if kind == "threads":
            executor = stack.enter_context(Executor(cores=2, threads=True))
        elif kind == "joined":
            world.start_rts("--cores", "2")
            stack.callback(world.stop_rts)
            executor = stack.enter_context(Executor(connection_file=world.connection_file))
        futures = [executor.submit(tell, queue, number) for number in range(4)]
        assert sorted(queue.get(timeout=PATIENCE_S) for _ in futures) == [0, 1, 2, 3]
        futures[0].result(PATIENCE_S).put("and back")
    assert queue.get(timeout=PATIENCE_S) == "and back"


async def test_tasks_of_a_job_put_into_a_queue_of_a_manager(manager: SyncManager) -> None:
    queue: Any = manager.Queue()
    async with open_rts(cores=1) as rts:
        net = farm(lambda value: queue.put(value))
        async with open_job(net, rts=rts, values={"items": [1]}):
            assert await trio.to_thread.run_sync(lambda: queue.get(timeout=PATIENCE_S)) == 1


def test_the_key_is_in_no_command_line_environment_or_log(
    executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        key = executor.submit(own_key).result(PATIENCE_S)
    assert key == own_key()
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for name in ("cmdline", "environ"):
            text = Path(f"/proc/{process.pid}/{name}").read_bytes()
            assert key not in text
            assert key.hex().encode() not in text
    shown = repr(OpenJob("j1", process_key=ProcessKey(key)))
    for text in (caplog.text, shown):
        assert key.hex() not in text
        assert repr(key)[2:-1] not in text
