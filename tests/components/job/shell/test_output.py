"""What tasks print is shown while they run, and written to files."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from gspc_trio import JobSettings, Net, open_job, open_rts
from gspc_trio.components.job.messages import GetOutput
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.output import show_output, write_output
from gspc_trio.core.messages import OutputLine
from tests.components.tasks.output import speak, speak_and_die_once
from tests.support import until

HANG_S = 60.0


def one_task() -> Net:
    net = Net("one")
    net.transition("speak", run=speak, inputs={"go": net.input("in")}, outputs=net.output("out"))
    return net


def texts(lines: Sequence[OutputLine]) -> set[tuple[str, bool]]:
    return {(line.text, line.stderr) for line in lines}


async def test_a_task_is_heard_while_it_runs(tmp_path: Path) -> None:
    shown: list[OutputLine] = []
    heard = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def show(lines: Sequence[OutputLine], _: int) -> None:  # in a thread
        shown.extend(lines)
        if len(shown) >= 2:
            token.run_sync_soon(heard.set)

    go = tmp_path / "go"
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts, open_job(one_task(), rts=rts, values={"in": [str(go)]}) as job:
            async with show_output(job, show):
                await heard.wait()
                assert texts(shown) == {("begin", False), ("careful", True)}
                assert job.output(1) == ("begin\n", "careful\n")
                go.touch()
                await job.wait()
    assert texts(shown[2:]) == {("end", False)}
    assert job.output(1) == ("begin\nend\n", "careful\n")


class BlockFailed(Exception):
    """Ends a block."""


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_being_shown_when_the_block_ends_is_shown_to_its_end(
    tmp_path: Path, fails: bool
) -> None:
    shown: list[OutputLine] = []
    begun, ending, go = trio.Event(), threading.Event(), tmp_path / "go"
    token = trio.lowlevel.current_trio_token()
    alone = threading.Lock()

    def show(lines: Sequence[OutputLine], _: int) -> None:  # in a thread
        assert alone.acquire(blocking=False), "two threads show lines at a time"
        token.run_sync_soon(begun.set)
        ending.wait(HANG_S)
        shown.extend(lines)
        alone.release()

    async def end_soon() -> None:
        await trio.testing.wait_all_tasks_blocked(0.01)
        ending.set()

    go.touch()
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts, open_job(one_task(), rts=rts, values={"in": [str(go)]}) as job:
            async with trio.open_nursery() as nursery:
                with suppress(BlockFailed):
                    async with show_output(job, show):
                        await begun.wait()
                        await job.wait()
                        nursery.start_soon(end_soon)
                        if fails:
                            raise BlockFailed
                assert texts(shown) == {("begin", False), ("careful", True), ("end", False)}


async def test_what_an_attempt_has_printed_that_ended_its_process_is_kept(tmp_path: Path) -> None:
    net = Net("dies")
    net.transition(
        "speak", run=speak_and_die_once, inputs={"begun": net.input("in")}, outputs=net.output("out")
    )
    values = {"in": [str(tmp_path / "begun")]}
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts, open_job(net, rts=rts, values=values) as job:
            await job.wait()
    begin, why, end = job.output(1)[0].splitlines()
    assert (begin, end) == ("begin", "end")
    assert why.startswith("[... attempt 1 was lost: compute process ")


async def test_a_client_that_looks_once_hears_what_a_running_task_has_printed_so_far(tmp_path: Path) -> None:
    go = tmp_path / "go"
    listening = JobSettings(listen="memory:job")
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_job(one_task(), rts=rts, values={"in": [str(go)]}, settings=listening) as job,
        ):
            await until((tmp_path / "go.begun").exists)
            async with rts.connect_to_job(job.job_id) as peer:
                told = await peer.call(GetOutput(0, wait=False))
            assert texts(told.lines) == {("begin", False), ("careful", True)}
            go.touch()
            await job.wait()


async def test_each_task_has_files_of_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "outputs"

    async def run(job: Job) -> None:
        async with write_output(job, directory):
            await job.wait()

    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts, open_job(one_task(), rts=rts, values={"in": ["", ""]}) as job:
            await run(job)
    found = {path.name: path.read_text() for path in directory.iterdir()}
    assert found == {
        f"{number}-speak.{suffix}": text
        for number in (1, 2)
        for suffix, text in (("out", "begin\nend\n"), ("err", "careful\n"))
    }
