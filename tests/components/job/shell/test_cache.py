"""The shell of a cache, without a job: what the job's machine is told, and when it may end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from gspc_trio.components.job.cache import CacheSettings
from gspc_trio.components.job.machine import Look, LookedUp, LookUpTasks
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.cache import ResultCache
from gspc_trio.compute.code import function_code
from gspc_trio.core.staging import FilePlan
from gspc_trio.core.task import CORE, Outcome, Reason, Task, TaskState
from gspc_trio.nursery.scopes.drive import Inbox
from gspc_trio.protocol.values import bytes_reference, dumps


class Bench:
    """A cache whose events are taken one by one."""

    def __init__(self, directory: Path, size_bytes: int = 1 << 20) -> None:
        self._inbox: Inbox[Any] = Inbox()
        self.files = directory
        settings = CacheSettings(str(directory / "cache"), size_bytes)
        self.cache = ResultCache(settings, lambda _: function_code(abs), str(directory), self._inbox.put)

    async def event(self) -> Any:
        with trio.fail_after(60):
            (event,) = await self._inbox.take()
            return event

    async def look_up(self, *tasks: Task) -> Any:
        self.cache.look_up(LookUpTasks(tasks))
        return await self.event()

    async def finish(self, task_id: int, value: bytes) -> None:
        """A task finishes; return when that is kept."""
        self.cache.ended(done(task_id, value))
        assert not self.cache.may_end()
        assert await self.event() == Look()
        assert self.cache.may_end()


def task(task_id: int, *arguments: bytes) -> Task:
    return Task(task_id, "work", 1, arguments, CORE)


def done(task_id: int, value: bytes, state: TaskState = TaskState.FINISHED) -> TaskDone:
    outcome = Outcome(task_id, 1, Reason(state.value), ((value,),) if value else ())
    return TaskDone(task_id, state, outcome, "work", "r1.core0")


async def test_what_one_run_keeps_the_next_one_finds(tmp_path: Path) -> None:
    for run in range(2):
        async with trio.open_nursery() as nursery:
            bench = Bench(tmp_path)
            nursery.start_soon(bench.cache.run)
            told = await bench.look_up(task(1, dumps(-1)), task(2, dumps(-2)))
            if run == 0:
                assert told == LookedUp((), (1, 2))
                assert not bench.cache.may_end()
                bench.cache.ended(done(2, b"", TaskState.FAILED))
                await bench.finish(1, dumps(1))
                assert str(bench.cache.counts()) == "0 from the cache, 1 kept"
            else:
                assert told == LookedUp((Outcome(1, 0, Reason.FINISHED, ((dumps(1),),)),), (2,))
                assert str(bench.cache.counts()) == "1 from the cache, 0 kept"
            nursery.cancel_scope.cancel()


async def test_a_task_that_ends_before_it_was_looked_up_does_not_keep_the_job_from_ending(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.cache.look_up(LookUpTasks((task(1, dumps(-1)),)))
    bench.cache.ended(done(1, b"", TaskState.CANCELLED))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.cache.run)
        assert await bench.event() == LookedUp((), (1,))
        assert bench.cache.may_end()
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_kept_is_counted_with_the_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path, size_bytes=100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.cache.run)
        await bench.look_up(task(1, dumps(-1)), task(2, dumps(-2)), task(3, bytes_reference("d", 1, "h")))
        bench.cache.ended(done(1, dumps(bytes(200))))
        bench.cache.ended(done(2, bytes_reference("d", 1, "h")))
        assert not bench.cache.may_end()
        assert await bench.event() == Look()
        assert dict(bench.cache.counts().reasons) == {
            "work: an argument lies in a memory layer": 1,
            "work: its result has more bytes than the cache may have": 1,
            "work: its result lies in a memory layer": 1,
        }
        nursery.cancel_scope.cancel()


async def test_files_that_a_task_has_stored_have_to_be_there_still(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("one")
    plan = FilePlan(0, (("text", "in"),), (("result", "out"),)).encoded()
    bench = Bench(tmp_path)

    async def is_found(number: int) -> bool:
        told = await bench.look_up(task(number, plan))
        if told.missed:
            target.write_text(f"made of {source.read_text()}")
            await bench.finish(number, dumps(None))
        return bool(told.found)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.cache.run)
        assert [await is_found(1), await is_found(2)] == [False, True]
        target.write_text("something else")
        assert [await is_found(3), await is_found(4)] == [False, True]
        target.unlink()
        assert [await is_found(5), await is_found(6)] == [False, True]
        source.write_text("two")
        assert [await is_found(7), await is_found(8)] == [False, True]
        nursery.cancel_scope.cancel()


async def test_a_result_of_a_file_that_has_changed_meanwhile_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("one")
    bench = Bench(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.cache.run)
        await bench.look_up(task(1, FilePlan(0, (("text", "in"),)).encoded()))
        (tmp_path / "in").write_text("two")
        await bench.finish(1, dumps(None))
        assert bench.cache.counts().reasons == (("work: a file that it reads has changed while it ran", 1),)
        nursery.cancel_scope.cancel()
