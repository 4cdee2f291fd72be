"""Kills, crashes and deaths of real processes: what is reported, and that nothing is left (WRK-4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.rm.state import Limits
from gspc_trio.components.worker.shell.compute import ComputeError, ProcessBackend, open_process_backend
from gspc_trio.components.worker.shell.compute_channel import ChannelCompute
from gspc_trio.components.worker.shell.compute_template import SILENT_STEPS, STEP_S, Template
from gspc_trio.compute import process_tree
from gspc_trio.compute.channel import BUSY
from gspc_trio.compute.code import function_code, program_code
from gspc_trio.compute.sweep import marked
from gspc_trio.core.code import Program
from tests.components.tasks import behaviour
from tests.components.worker.shell import support
from tests.components.worker.shell.support import (
    CORE,
    PATIENCE_S,
    Recorder,
    a_job,
    submission,
    until_gone,
    value_of,
)
from tests.support import until

pytestmark = pytest.mark.process


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    async with open_process_backend() as opened:
        yield opened


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def compute(backend: ProcessBackend, recorder: Recorder) -> ChannelCompute:
    return await backend.open(CORE, a_job(), recorder)


async def begin(compute: ChannelCompute, code: bytes, path: Path, lines: int = 1) -> list[int]:
    """Hand a task that writes pids to a file, wait until it has, return them."""
    compute.define(7, code)
    compute.hand([submission(7, 7, str(path))])
    return [int(line) for line in await until(lambda: support.lines_of(path, lines))]


@pytest.mark.parametrize("function", [behaviour.spin_after_note, behaviour.sleep_after_note])
async def test_kill_ends_a_running_task_reports_neither_it_nor_a_loss_and_returns_its_output(
    compute: ChannelCompute, recorder: Recorder, tmp_path: Path, function: object
) -> None:
    compute.define(1, function_code(behaviour.identity))
    compute.hand([submission(1, 1, "before")])
    await recorder.wait(1)
    (pid,) = await begin(compute, function_code(function), tmp_path / "begun")  # type: ignore[arg-type]
    compute.hand([submission(8, 1, "after")])
    with trio.fail_after(PATIENCE_S):
        assert await compute.kill() == (b"begun\n", b"")
        await compute.kill()  # again: nothing happens
    assert pid == compute.pid
    assert not process_tree.is_alive(pid)
    assert (recorder.keys, recorder.losses) == ([(1, 1)], [])
    compute.hand([submission(9, 1, "to nobody")])
    assert compute.retract() == ()


async def test_the_replacement_of_a_killed_process_works(
    backend: ProcessBackend, compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    await begin(compute, function_code(behaviour.spin_after_note), tmp_path / "begun")
    await compute.kill()
    again = await backend.open(CORE, a_job(), recorder)
    again.define(1, function_code(behaviour.process_id))
    again.hand([submission(1, 1)])
    assert value_of((await recorder.wait(1))[0]) == again.pid != compute.pid


async def test_kill_takes_detached_children_too(
    backend: ProcessBackend, compute: ChannelCompute, tmp_path: Path
) -> None:
    pids = await begin(compute, function_code(behaviour.detach_children), tmp_path / "pids", 3)
    assert all(map(process_tree.is_alive, pids))
    with trio.fail_after(PATIENCE_S):
        await compute.kill()
    assert not any(map(process_tree.is_alive, pids))
    assert marked(backend.marker) == [backend.template_pid]


async def test_kill_takes_a_program_with_its_detached_children(
    compute: ChannelCompute, tmp_path: Path
) -> None:
    path = tmp_path / "pids"
    script = "setsid sh -c 'sleep 3600 & echo $! >> {path}; echo $$ >> {path}; wait' & sleep 3600"
    compute.define(1, program_code(Program(["sh", "-c", script]), ["path"]))
    compute.hand([submission(1, 1, str(path))])
    pids = [int(line) for line in await until(lambda: support.lines_of(path, 2))]
    with trio.fail_after(PATIENCE_S):
        await compute.kill()
    assert not any(map(process_tree.is_alive, pids))


@pytest.mark.parametrize(
    ("code", "arguments", "how", "output"),
    [
        (
            behaviour.exit_at_once,
            (3,),
            "exited with status 3; last line on its standard error: about to go",
            b"about to go\n",
        ),
        (behaviour.crash, (), "was killed by SIGSEGV; Segmentation fault in ", b"Fatal Python error: "),
    ],
)
async def test_a_process_that_dies_of_its_task_is_reported_lost_with_its_output_after_what_had_finished(
    compute: ChannelCompute,
    recorder: Recorder,
    code: object,
    arguments: tuple[int, ...],
    how: str,
    output: bytes,
) -> None:
    compute.define(1, function_code(behaviour.identity))
    compute.define(2, function_code(code))  # type: ignore[arg-type]
    compute.hand(
        [submission(1, 1, "a"), submission(2, 1, "b"), submission(3, 2, *arguments), submission(4, 1, "c")]
    )
    detail = await recorder.wait_lost()
    assert detail.startswith(f"compute process {compute.pid} {how}")
    assert recorder.keys == [(1, 1), (2, 1)]
    assert recorder.printed[1].startswith(output)
    with trio.fail_after(PATIENCE_S):
        await compute.kill()
    assert len(recorder.losses) == 1


async def test_kill_9_of_a_compute_process_takes_what_it_left_and_spares_the_others(
    backend: ProcessBackend, compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    other_recorder = Recorder()
    other = await backend.open(CORE, a_job(), other_recorder)
    pids = await begin(compute, function_code(behaviour.detach_children), tmp_path / "pids", 3)
    os.kill(compute.pid, signal.SIGKILL)
    assert await recorder.wait_lost() == f"compute process {compute.pid} was killed by SIGKILL"
    assert not any(map(process_tree.is_alive, pids))
    other.define(1, function_code(behaviour.process_id))
    other.hand([submission(1, 1)])
    assert value_of((await other_recorder.wait(1))[0]) == other.pid


async def test_a_process_that_dies_before_it_has_read_its_first_task_has_begun_nothing(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    os.kill(compute.pid, signal.SIGSTOP)
    await until(lambda: process_tree.state(compute.pid) == "T")
    compute.define(1, function_code(behaviour.identity))
    compute.hand([submission(1, 1, "a"), submission(2, 1, "b")])
    os.kill(compute.pid, signal.SIGKILL)
    await recorder.wait_lost()
    assert (recorder.keys, recorder.begun) == ([], False)


async def test_a_process_that_dies_of_its_task_may_have_begun_it(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    compute.define(1, function_code(behaviour.crash))
    compute.hand([submission(1, 1)])
    await recorder.wait_lost()
    assert recorder.begun


async def test_a_template_that_dies_when_it_is_started_is_named_with_its_status(
    backend: ProcessBackend, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(broken))
        with pytest.raises(ComputeError, match=r"^the template of compute processes died .*exit status 3;"):
            await backend.open(CORE, a_job(), recorder)
    compute = await backend.open(CORE, a_job(), recorder)
    compute.define(1, function_code(behaviour.process_id))
    compute.hand([submission(1, 1)])
    assert value_of((await recorder.wait(1))[0]) == compute.pid


async def test_a_fork_of_a_dead_compute_process_does_not_keep_its_loss_secret(
    compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    (forked,) = await begin(compute, function_code(behaviour.fork_and_wait), tmp_path / "pids")
    os.kill(compute.pid, signal.SIGKILL)
    await recorder.wait_lost()
    assert not process_tree.is_alive(forked)


async def test_a_process_that_closes_its_channels_is_lost(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    compute.define(1, function_code(os.closerange))
    compute.hand([submission(1, 1, 3, 1000)])
    assert str(compute.pid) in await recorder.wait_lost()
    assert not process_tree.is_alive(compute.pid)


async def test_a_process_that_sends_nonsense_is_ended_and_lost(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    def write_everywhere() -> None:
        for descriptor in range(3, 20):
            with suppress(OSError):
                os.write(descriptor, bytes((8, 0, 0, 0, 0, 0, 0, 0)) + b"nonsense")
        time.sleep(3600)

    compute.define(1, function_code(write_everywhere))
    compute.hand([submission(1, 1)])
    await recorder.wait_lost()
    assert not process_tree.is_alive(compute.pid)


async def test_kill_9_of_the_template_leaves_nothing_and_the_next_open_works(
    backend: ProcessBackend, compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    marker = backend.marker
    pids = await begin(compute, function_code(behaviour.detach_children), tmp_path / "pids", 3)
    deaf_recorder = Recorder()
    deaf = await backend.open(CORE, a_job(), deaf_recorder)
    pids += await begin(deaf, function_code(behaviour.sleep_deaf_after_note), tmp_path / "begun")
    template_pid = backend.template_pid
    os.kill(template_pid, signal.SIGKILL)
    detail = await recorder.wait_lost()
    assert detail == f"compute process {compute.pid} was ended: its template has died (SIGKILL)"
    await deaf_recorder.wait_lost()
    assert marked(marker) == []
    assert not any(map(process_tree.is_alive, pids))
    again = await backend.open(CORE, a_job(), recorder)
    assert backend.template_pid not in (0, template_pid)
    again.define(1, function_code(behaviour.process_id))
    again.hand([submission(1, 1)])
    await until(lambda: recorder.outcomes)
    assert value_of(recorder.outcomes[0]) == again.pid


async def test_a_template_that_does_not_answer_is_replaced(
    backend: ProcessBackend, compute: ChannelCompute, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspc_trio.components.worker.shell.compute_template.STEP_S", 0.02)
    marker = backend.marker
    os.kill(backend.template_pid, signal.SIGSTOP)
    with trio.fail_after(PATIENCE_S):
        await compute.kill()
    assert marked(marker) == []
    monkeypatch.undo()
    again = await backend.open(CORE, a_job(), recorder)
    assert process_tree.is_alive(again.pid)


async def test_a_stopped_template_is_replaced_when_a_process_is_wanted(
    backend: ProcessBackend, compute: ChannelCompute, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspc_trio.components.worker.shell.compute_template.STEP_S", 0.02)
    stopped = backend.template_pid
    os.kill(stopped, signal.SIGSTOP)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(backend.open, CORE, a_job(), Recorder())
        detail = await recorder.wait_lost()
        monkeypatch.undo()  # for the new one
    assert "its template did not answer for" in detail
    assert not process_tree.is_alive(stopped)
    assert not process_tree.is_alive(compute.pid)
    assert backend.template_pid not in (0, stopped)


def test_a_stopped_template_is_noticed_well_within_the_lease() -> None:
    """Else the run-time system gives the whole RIF up before."""
    assert Limits().lease_s > SILENT_STEPS * STEP_S + 2


async def test_a_template_that_is_stopped_for_a_moment_goes_on(
    backend: ProcessBackend, compute: ChannelCompute
) -> None:
    template_pid = backend.template_pid
    os.kill(template_pid, signal.SIGSTOP)
    await until(lambda: process_tree.state(template_pid) == "T")
    os.kill(template_pid, signal.SIGCONT)
    with trio.fail_after(PATIENCE_S):
        await compute.kill()
    assert backend.template_pid == template_pid


async def test_a_template_that_owes_an_answer_but_is_heard_of_is_spared(autojump_clock: MockClock) -> None:
    template = Template()
    began_s = autojump_clock.current_time()
    answer = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(template._answered, answer)
        for _ in range(3):
            await trio.sleep(SILENT_STEPS * STEP_S - 0.1)
            template._handle(BUSY)
        answer.set()
    assert autojump_clock.current_time() - began_s > SILENT_STEPS * STEP_S
    assert template.why == ""


async def test_leaving_the_backend_ends_everything_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    async with open_process_backend() as backend:
        compute = await backend.open(CORE, a_job(), recorder)
        pids = await begin(compute, function_code(behaviour.detach_children), tmp_path / "pids", 3)
        marker = backend.marker
    assert marked(marker) == []
    assert not any(map(process_tree.is_alive, pids))
    assert recorder.losses == []
    assert caplog.records == []
    with trio.fail_after(PATIENCE_S):
        await compute.kill()
    with pytest.raises(ComputeError, match="the backend is closed"):
        await backend.open(CORE, a_job(), recorder)


async def test_an_open_may_be_cancelled_at_any_moment_and_the_next_one_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    async with open_process_backend() as backend:
        for step in range(60):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(backend.open, CORE, a_job(), recorder)
                    for _ in range(step % 30):
                        await trio.lowlevel.checkpoint()
                    if step % 3 == 0:
                        await trio.sleep(0.001 * (step % 20))
                    scope.cancel()
        compute = await backend.open(CORE, a_job(), recorder)
        compute.define(1, function_code(behaviour.process_id))
        compute.hand([submission(1, 1)])
        await until(lambda: recorder.outcomes)
        assert value_of(recorder.outcomes[0]) == compute.pid
    assert marked(backend.marker) == []
    assert caplog.records == []


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(LookupError, match="mine"):  # noqa: PT012 - the block is what is tested
        async with open_process_backend() as backend:
            await backend.open(CORE, a_job(), Recorder())
            raise LookupError("mine")
    assert marked(backend.marker) == []


async def test_a_cancelled_backend_leaves_nothing(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_process_backend() as backend:
            compute = await backend.open(CORE, a_job(), Recorder())
            pids = await begin(compute, function_code(behaviour.detach_children), tmp_path / "pids", 3)
            scope.cancel()
            await trio.sleep_forever()
    assert marked(backend.marker) == []
    assert not any(map(process_tree.is_alive, pids))


RIF = """
    import os, signal, sys, trio
    sys.path[:0] = {path!r}
    from tests.components.tasks import behaviour
    from tests.components.worker.shell import support
    from gspc_trio.components.worker.shell.compute import open_process_backend
    from gspc_trio.compute.code import function_code

    async def main():
        async with open_process_backend() as backend:
            compute = await backend.open(support.CORE, support.a_job(), support.Recorder())
            compute.define(1, function_code(behaviour.detach_children))
            compute.hand([support.submission(1, 1, sys.argv[1])])
            await support.until(lambda: len(support.lines_of(support.Path(sys.argv[1]), 3)) == 3)
            if sys.argv[2:]:
                os.kill(backend.template_pid, signal.SIGSTOP)
            print(backend.marker, flush=True)
            await trio.sleep_forever()

    trio.run(main)
"""


@pytest.mark.parametrize("stopped", [(), ("stopped",)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_nothing_survives_the_process_of_the_rif(
    tmp_path: Path, number: signal.Signals, stopped: tuple[str, ...]
) -> None:
    path = tmp_path / "pids"
    script = textwrap.dedent(RIF.format(path=sys.path))
    rif = subprocess.Popen(  # noqa: ASYNC220 - it takes no time
        [sys.executable, "-c", script, str(path), *stopped], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with rif:
        assert rif.stdout is not None
        marker = (await trio.to_thread.run_sync(rif.stdout.readline)).decode().strip()
        assert len(marked(marker)) >= 3
        rif.send_signal(number)
        await until_gone(marker)
    pids = [int(line) for line in path.read_text().splitlines()]
    await until(lambda: not any(map(process_tree.is_alive, pids)))
