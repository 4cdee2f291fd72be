"""The pool for programs that run under trio."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing

from gspc_trio import ExecutorBroken, TaskFailed, TaskOptions, open_pool, open_rts
from gspc_trio.executor.flight import Flight, PoolCall
from gspc_trio.workflow.arcs import WorkflowError
from tests.e2e.support import wait_until
from tests.executor.support import double, fail

PATIENCE_S = 60.0


class Sender:
    """Sends the calls of a map nowhere; the test says how each ends."""

    def __init__(self) -> None:
        self.sent: dict[Any, PoolCall] = {}

    async def __call__(self, item: Any, on_end: Callable[[PoolCall], object]) -> PoolCall:
        if item == "unknown":
            raise ValueError("it cannot be sent")
        call = self.sent[item] = PoolCall(str(item), on_end)
        return call


async def test_items_are_read_when_there_is_room_and_results_come_in_order() -> None:
    sender, numbers = Sender(), iter(range(1000))
    flight = Flight(numbers, 2, True, sender)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flight.next)
        await trio.testing.wait_all_tasks_blocked()
        assert list(sender.sent) == [0, 1]
        sender.sent[1].finish(b"")
        await trio.testing.wait_all_tasks_blocked()
        assert list(sender.sent) == [0, 1]
        sender.sent[0].finish(b"")
    assert await flight.next() is sender.sent[1]
    assert list(sender.sent) == [0, 1, 2]


async def test_results_come_as_they_are_there() -> None:
    sender = Sender()
    flight = Flight(iter("abc"), 3, False, sender)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flight.next)
        await trio.testing.wait_all_tasks_blocked()
        sender.sent["c"].finish(b"")
        sender.sent["a"].fail(ValueError())
    assert await flight.next() is sender.sent["a"]
    sender.sent["b"].give_up()
    assert await flight.next() is sender.sent["b"]
    assert type(sender.sent["b"].error) is TaskFailed
    assert await flight.next() is None


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_item_that_cannot_be_sent_or_read_comes_after_the_results_before_it(is_async: bool) -> None:
    def items() -> Iterator[str]:
        yield "a"
        raise LookupError("no more")

    async def later(items: Iterator[str]) -> AsyncIterator[str]:
        for item in items:
            await trio.lowlevel.checkpoint()
            yield item

    for given, problem in ((items(), LookupError), (iter(["a", "unknown", "b"]), ValueError)):
        sender = Sender()
        flight = Flight(None if is_async else given, 5, True, sender)
        async with trio.open_nursery() as nursery:
            if is_async:
                nursery.start_soon(flight.feed, later(given))
            nursery.start_soon(flight.next)
            await trio.testing.wait_all_tasks_blocked()
            sender.sent["a"].finish(b"")
        with pytest.raises(problem):
            await flight.next()
        assert list(sender.sent) == ["a"]


async def test_items_that_come_late_wait_for_room() -> None:
    sender = Sender()
    flight = Flight(None, 1, True, sender)
    send, receive = trio.open_memory_channel[str](10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flight.feed, receive)
        nursery.start_soon(flight.next)
        await trio.testing.wait_all_tasks_blocked()
        for item in "abc":
            send.send_nowait(item)
        await trio.testing.wait_all_tasks_blocked()
        assert list(sender.sent) == ["a"]
        sender.sent["a"].finish(b"")
        await trio.testing.wait_all_tasks_blocked()
        assert list(sender.sent) == ["a", "b"]
        flight.feeding.cancel()


def say_pids_and_hang(file: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    Path(file).write_text(f"{os.getpid()} {child.pid}\n")
    while True:
        signal.pause()


def read_pids(file: Path) -> list[int]:
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "its processes")
    found = [int(pid) for pid in file.read_text().split()]
    file.unlink()
    return found


async def pids(file: Path) -> list[int]:
    """Return the processes that a task has named."""
    return await trio.to_thread.run_sync(read_pids, file)


async def gone(found: list[int]) -> None:
    """Wait until none of these processes is left, not even one that nobody has reaped yet."""
    await trio.to_thread.run_sync(wait_until, lambda: not any(map(psutil.pid_exists, found)), "their end")


@pytest.mark.process
async def test_functions_run_as_tasks_and_cancelled_ones_leave_nothing(tmp_path: Path) -> None:
    async with open_pool(cores=2) as pool:
        assert await pool.run_sync(pow, 2, 10) == 1024
        assert await pool.run_sync(lambda text: text + "!", "yes") == "yes!"
        with pytest.raises(LookupError, match="nothing") as raised:
            await pool.run_sync(fail, "nothing")
        assert "in fail" in str(raised.value.__cause__)
        with pytest.raises(ValueError, match="make a list of what it yields"):
            await pool.run_sync(list, (number for number in [1]))
        with pytest.raises(TaskFailed, match="exited with status 3"):
            await pool.run_sync(os._exit, 3, options=TaskOptions(loss_attempts=1))
        with pytest.raises(TaskFailed, match=r"its timeout of 0\.1 s"):
            await pool.run_sync(trio.run, trio.sleep_forever, options=TaskOptions(timeout_s=0.1))
        assert [value async for value in pool.map(double, range(300), in_flight=7)] == list(range(0, 600, 2))
        assert {value async for value in pool.map(double, "abc", ordered=False)} == {"aa", "bb", "cc"}
        with pytest.raises(LookupError, match=r"^0$"):
            await anext(pool.map(fail, map(str, range(10**9))))
        file = tmp_path / "pids"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run_sync, say_pids_and_hang, str(file))
            left = await pids(file)
            nursery.cancel_scope.cancel()
        await gone(left)
        async with aclosing(pool.map(say_pids_and_hang, [str(file)])) as results:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, results)
                left = await pids(file)
                nursery.cancel_scope.cancel()
            await gone(left)
    with pytest.raises(RuntimeError, match="its block was left"):
        await pool.run_sync(double, 1)


@pytest.mark.process
async def test_it_joins_run_time_systems_and_says_when_they_are_gone(tmp_path: Path) -> None:
    published, file = tmp_path / "rts.json", tmp_path / "pids"
    async with open_rts(cores=2, publish=published) as rts:
        async with open_pool(rts) as pool:
            assert await pool.run_sync(double, 2) == 4
        with pytest.raises(ValueError, match="leave cores out"):
            await open_pool(rts, 2).__aenter__()
        with trio.CancelScope() as scope:
            async with open_pool(published) as pool, trio.open_nursery() as nursery:
                nursery.start_soon(pool.run_sync, say_pids_and_hang, str(file))
                left = await pids(file)
                scope.cancel()
        await gone(left)


@pytest.mark.process
async def test_calls_fail_when_the_run_time_system_goes(tmp_path: Path) -> None:
    published, file = tmp_path / "rts.json", tmp_path / "pids"

    async def use() -> None:
        async with open_pool(published) as pool:
            with pytest.raises(
                ExecutorBroken, match="the pool ended before the task did: the run-time system"
            ):
                await pool.run_sync(say_pids_and_hang, str(file))
            with pytest.raises(ExecutorBroken, match="the pool can run no more tasks: the run-time system"):
                await pool.run_sync(double, 2)

    async with trio.open_nursery() as nursery:
        async with open_rts(cores=1, publish=published):
            nursery.start_soon(use)
            left = await pids(file)
    await gone(left)


async def test_what_makes_no_sense_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"^rts is a connection file, or what open_rts has opened, not 5$"):
        async with open_pool(wrong):
            pass
    with pytest.raises(WorkflowError, match="attempts must be at least 1"):
        async with open_pool(options=TaskOptions(attempts=0)):
            pass
