"""Real compute processes tell what their tasks read and write."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

import gspc_trio
from gspc_trio.components.monitor.frames import add_up
from gspc_trio.components.monitor.io_frames import LOST_PROCESS, IoFrame, IoTold, TaskEvent, coverage
from gspc_trio.components.worker.messages import OpenJob, Submission
from gspc_trio.components.worker.shell.compute import ProcessBackend, open_process_backend
from gspc_trio.components.worker.shell.compute_channel import ChannelCompute
from gspc_trio.compute.code import function_code
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome
from gspc_trio.protocol.values import dumps
from gspc_trio.workflow.formats.in_tasks.native import CompileError, compiler_command
from tests.components.worker.shell.io_tasks import BYTES, speak, write_and_read, write_and_stay


class Events:
    """What a compute reports."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.lost = trio.Event()

        self.wanted = 0
        self.has_all = trio.Event()

    def computed(self, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes += outcomes
        if len(self.outcomes) >= self.wanted:
            self.has_all.set()

    def compute_lost(self, *_: object) -> None:
        self.lost.set()

    def speaks(self, _line: object) -> None:
        raise AssertionError("no task speaks")


class Host:
    """A backend whose job has a worker."""

    def __init__(self, backend: ProcessBackend) -> None:
        self.backend = backend
        self.told: list[IoTold] = []
        self.events = Events()
        self.has_event = trio.Event()

    def hear(self, told: IoTold) -> None:
        self.told.append(told)
        if told.events:
            self.has_event.set()

    async def open(self, task: Callable[..., object], **job: int) -> ChannelCompute:
        core = Resource("r1.core0", "core", ())
        compute = await self.backend.open(
            core, OpenJob("j", process_tasks_max=job.get("turns", 0)), self.events
        )
        compute.define(1, function_code(task))
        return compute

    async def run(self, compute: ChannelCompute, tasks: Iterable[int], argument: object) -> None:
        wanted = [Submission(task, 1, 1, (dumps(argument),)) for task in tasks]
        self.events.wanted, self.events.has_all = len(self.events.outcomes) + len(wanted), trio.Event()
        compute.hand(wanted)
        with trio.fail_after(60):
            await self.events.has_all.wait()
        assert {one.error for one in self.events.outcomes} == {None}

    @property
    def frames(self) -> list[IoFrame]:
        return [frame for one in self.told for frame in one.frames]


@asynccontextmanager
async def opened(mode: str) -> AsyncIterator[Host]:
    async with open_process_backend(io=mode) as backend, trio.open_nursery() as nursery:
        host = Host(backend)
        nursery.start_soon(backend.tell_io, host.hear)
        await trio.testing.wait_all_tasks_blocked()
        yield host
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("mode", ["counts", "calls"])
async def test_tasks_and_their_programs_are_counted(tmp_path: Path, mode: str, turns: int) -> None:
    if mode == "calls":
        try:
            compiler_command("CC", "cc", "C")
        except CompileError as error:
            pytest.skip(str(error))
    async with opened(mode) as host:
        compute = await host.open(write_and_read, turns=turns)
        await host.run(compute, (1, 2), str(tmp_path))
        await compute.kill()
    for task in (1, 2):
        amounts = add_up(one.amounts for one in host.frames if one.task_id == task)
        assert 2 * BYTES <= amounts["write_bytes"] < 3 * BYTES  # modules that are compiled, too
        assert 2 * BYTES <= amounts["read_bytes"] < 3 * BYTES
        seen = coverage(amounts)
        assert seen is not None
        if mode == "counts":
            assert seen == 0.0
            continue
        assert seen > 0.9
        assert (amounts["file_write_bytes"], amounts["file_write_files"]) == (2 * BYTES, 2)
        assert amounts["file_read_bytes"] >= 2 * BYTES


async def test_what_a_killed_task_has_done_counts_once(tmp_path: Path) -> None:
    try:
        compiler_command("CC", "cc", "C")
    except CompileError as error:
        pytest.skip(str(error))
    async with opened("calls") as host:
        compute = await host.open(write_and_stay)
        compute.hand([Submission(5, 1, 1, (dumps(str(tmp_path)),))])
        with trio.fail_after(60):
            await host.has_event.wait()
        os.kill(compute.pid, signal.SIGKILL)
        with trio.fail_after(60):
            await host.events.lost.wait()
    assert add_up(one.amounts for one in host.frames if one.task_id == 5)["file_write_bytes"] == BYTES
    written, lost = (event for one in host.told for event in one.events)
    assert written == TaskEvent(written.at_s, "j", "r1.core0", 5, 1, "written")
    assert lost == TaskEvent(lost.at_s, "j", "r1.core0", 5, 1, lost.text, LOST_PROCESS)
    assert "SIGKILL" in lost.text


async def test_short_tasks_that_read_nothing_are_not_told() -> None:
    async with opened("counts") as host:
        compute = await host.open(abs)
        await host.run(compute, range(1, 300), -1)
        await compute.kill()
    assert sum(one.task_id > 0 for one in host.frames) <= 3  # the first, which has imported something


async def test_without_a_compiler_the_counts_of_the_kernel_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    async with opened("calls") as host:
        compute = await host.open(write_and_read)
        await host.run(compute, (1,), str(tmp_path))
        await compute.kill()
    amounts = add_up(one.amounts for one in host.frames)
    assert amounts["write_bytes"] >= 2 * BYTES
    assert coverage(amounts) == 0.0
    assert "there is no compiler for C here ($CC is no-such-compiler)" in caplog.text


async def test_an_event_outside_of_tasks_is_refused_and_without_counting_it_is_nothing() -> None:
    with pytest.raises(RuntimeError, match="for the code of tasks"):
        gspc_trio.event("here")
    async with opened("off") as host:
        compute = await host.open(speak)
        await host.run(compute, (1,), "unheard")
        await compute.kill()
    assert host.told == []
