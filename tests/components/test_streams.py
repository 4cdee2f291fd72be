"""What goes into a running job and comes out of it, with real compute processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial

import pytest
import trio

from gspc_trio import (
    Job,
    JobFailed,
    JobSettings,
    Net,
    NotAnswered,
    WorkflowError,
    accumulate,
    farm,
    open_job,
    open_rts,
    pipeline,
    respond,
)
from tests.components.tasks.plain import double

pytestmark = pytest.mark.process


def add(so_far: int, item: int) -> int:
    return so_far + item


def is_small(number: int) -> bool:
    return number < 100


def fails_at_0(number: int) -> bool:
    return 1 / number > 0


KEEP_GOING = JobSettings(keep_going=True)


async def test_streams_are_read_as_they_are_wanted_and_end_when_they_are_closed() -> None:
    read = 0

    def count() -> Iterator[int]:
        nonlocal read
        while True:
            yield read
            read += 1

    async def count_to(number: int) -> AsyncIterator[int]:
        for item in range(number):
            await trio.lowlevel.checkpoint()
            yield item

    def raise_soon() -> Iterator[int]:
        yield 1
        raise ValueError("enough")

    async with open_rts(cores=1) as rts:
        net = pipeline(double, double, read_ahead=100)
        seen = []
        with suppress(JobFailed):  # of the stop
            async with open_job(net, rts=rts, values={"items": count()}) as job:
                async for value in job.results():
                    seen.append(value)
                    if len(seen) == 300:
                        assert read < 1000, "who reads holds the source back"
                        break
                job.stop("that is enough")
        assert seen == [4 * number for number in range(300)]

        async with open_job(net, rts=rts, values={"items": count_to(500)}) as job:
            assert (await job.wait_outputs())["results"] == [4 * number for number in range(500)]

        with pytest.raises(JobFailed, match="the input port 'items' raised ValueError: enough"):
            async with open_job(net, rts=rts, values={"items": raise_soon()}):
                pass

        opened = pipeline(double, accumulate(2, 0, 0, add, partial=True), is_open=True)
        async with open_job(opened, rts=rts) as job:
            results = job.results()
            job.put("items", [1, 2])
            assert await anext(results) == 6
            job.put("items", [3])
            with pytest.raises(ValueError, match=r"no open input port 'item' \(did you mean 'items'\?\)"):
                job.close("item")
            job.close()
            with pytest.raises(WorkflowError, match="the input port 'items' is closed"):
                job.put("items", [4])
            assert [value async for value in results] == [6]
        assert (await job.wait()).outputs == {"results": []}

        asked = Net("asked")
        questions = asked.input("questions", is_open=True)
        asked.transition("answer", double, [questions], respond(0), condition=is_small)
        with suppress(JobFailed):  # of the question that nobody takes
            async with open_job(asked, rts=rts) as job:
                assert await job.ask("questions", 21) == 42
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(ask_in_vain, job))
                    await trio.testing.wait_all_tasks_blocked()
                    job.close()


async def test_items_go_on_when_others_have_failed() -> None:
    async with open_rts(cores=1) as rts:
        opened = pipeline(farm(fails_at_0), is_open=True)
        with suppress(JobFailed):  # others go on until the port is closed
            async with open_job(opened, rts=rts, settings=KEEP_GOING) as job:
                job.put("items", [0])
                while not job.machine.failures:
                    await trio.testing.wait_all_tasks_blocked(0.01)
                job.put("items", [1])
                job.close()
        assert (await job.wait_ended()).tasks["finished"] == 1
        with pytest.raises(JobFailed):  # a stage that can go no further reads no more
            async with open_job(
                pipeline(fails_at_0, read_ahead=4, buffer=1),
                rts=rts,
                values={"items": iter(range(100))},
                settings=KEEP_GOING,
            ):
                pass


async def ask_in_vain(job: Job) -> None:
    with pytest.raises(NotAnswered, match=r"1000 at .* has no answer: the job has ended before"):
        await job.ask("questions", 1000)
