"""The progress bar: what it says of tasks that did not finish."""

from __future__ import annotations

import sys

import pytest
import trio

from gspc_trio.cli.beside import Interruption, describe_interruption, show_progress
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.job.result import JobFailed
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.core.task import TaskState
from gspc_trio.workflow.patterns.farm import farm
from tests.e2e.support import HANG_S
from tests.executor.support import Terminal


class Failing(Terminal):
    """A terminal.

    Attributes:
        failed: something was said of a failure.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failed = trio.Event()

    def write(self, text: str) -> int:
        if "1 failed" in text:
            self.failed.set()
        return super().write(text)


def divide(number: int) -> float:
    return 1 / number


async def test_the_bar_shows_how_many_tasks_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Failing()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    settings = JobSettings(keep_going=True, threads=True)
    net = farm(divide, attempts=1)
    failing = pytest.RaisesGroup(JobFailed, flatten_subgroups=True, allow_unwrapped=True)
    async with open_rts(cores=1) as rts:
        with failing:
            async with (
                open_job(net, rts=rts, values={"items": [0, 1]}, settings=settings) as job,
                show_progress(job),
            ):
                with trio.fail_after(HANG_S):
                    await terminal.failed.wait()


COUNTS = {
    TaskState.READY: 5,
    TaskState.SUBMITTED: 1,
    TaskState.RUNNING: 2,
    TaskState.FINISHED: 3,
    TaskState.FAILED: 1,
}


def test_what_had_ended_is_told_of_a_run_that_was_interrupted() -> None:
    assert describe_interruption(COUNTS, None) == (
        "interrupted: 4 tasks had ended, 2 were running, 6 had not begun"
    )
    for none in (None, {TaskState.READY: 0}):
        assert describe_interruption(none, None) == "interrupted before the job had any task"


@pytest.mark.parametrize("from_without", [True, False])
async def test_only_an_interruption_from_without_is_told(
    from_without: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        with trio.CancelScope() as own:
            if not from_without:
                own.cancel()
            await trio.sleep(HANG_S)

    with trio.move_on_after(0 if from_without else HANG_S):
        await Interruption(None).told(run())
    told = "gspc-jobserver: interrupted before the job had any task\n"
    assert capsys.readouterr().err == (told if from_without else "")
