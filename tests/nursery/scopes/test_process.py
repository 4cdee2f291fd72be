"""Programs as scopes: real processes start, talk, and are gone when the block ends."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

import pytest
import trio
import trio.testing

from gspc_trio.nursery.scopes.process import open_process
from gspc_trio.nursery.scopes.spawn import (
    STDIN_BYTES_MAX,
    ProcessStartError,
    UnsupportedSystem,
    require_linux,
)
from tests.processes import is_alive
from tests.support import until_ended

pytestmark = pytest.mark.process

PATIENCE_S = 60


async def test_it_reads_its_input_and_its_lines_and_status_come_back() -> None:
    script = "read secret; echo got $secret; echo; printf last; exit 3"
    with trio.fail_after(PATIENCE_S):
        async with open_process(["sh", "-c", script], stdin=b"token\n") as process:
            assert [await process.receive_line() for _ in range(2)] == ["got token", ""]
            with pytest.raises(trio.EndOfChannel):
                await process.receive_line()
            assert process.exit_status is None
            assert (await process.wait(), await process.wait(), process.exit_status) == (3, 3, 3)


async def test_it_is_a_session_of_its_own_with_the_given_environment_and_directory() -> None:
    script = "echo $$ $(ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat); echo $WORD; pwd"
    environment = {"PATH": os.environ["PATH"], "WORD": "hello"}
    async with open_process(["sh", "-c", script], environment=environment, working_directory="/") as process:
        assert (await process.receive_line()).split() == [str(process.pid)] * 2
        assert [await process.receive_line() for _ in range(2)] == ["hello", "/"]


async def test_leaving_the_block_ends_it_politely() -> None:
    script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    async with open_process(["sh", "-c", script], grace_s=PATIENCE_S) as process:
        assert await process.receive_line() == "ready"
    assert process.exit_status == 0
    assert not is_alive(process.pid)


async def test_what_does_not_listen_is_killed_with_its_process_group() -> None:
    script = "trap '' TERM; sleep 3600 & echo $!; wait; sleep 3600"
    with trio.fail_after(PATIENCE_S):
        async with open_process(["sh", "-c", script], grace_s=0.05) as process:
            child = int(await process.receive_line())
    assert process.exit_status == -signal.SIGKILL
    await until_ended(child)


async def test_a_child_that_outlives_it_is_killed_too() -> None:
    async with open_process(["sh", "-c", "sleep 3600 & echo $!"]) as process:
        child = int(await process.receive_line())
        assert await process.wait() == 0
        assert is_alive(child)
    await until_ended(child)


async def test_cancelling_the_block_or_a_wait_ends_it() -> None:
    with trio.CancelScope() as scope:
        async with open_process(["sleep", "3600"]) as process:
            with trio.move_on_after(0):
                await process.wait()
            assert is_alive(process.pid)
            scope.cancel()
            await process.wait()
    assert scope.cancelled_caught
    assert process.exit_status == -signal.SIGTERM


async def test_input_that_is_held_open_ends_when_closed() -> None:
    with trio.fail_after(PATIENCE_S):
        async with open_process(["cat"], stdin=b"one\n", hold_stdin=True) as process:
            assert await process.receive_line() == "one"
            with trio.move_on_after(0.02):
                await process.wait()
            assert process.exit_status is None
            process.close_stdin()
            assert await process.wait() == 0


async def test_several_may_wait_at_once_and_any_may_give_up() -> None:
    found: list[int] = []
    async with open_process(["cat"], hold_stdin=True) as process, trio.open_nursery() as nursery:

        async def wait() -> None:
            found.append(await process.wait())

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as first:
                first.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(wait)
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()  # the one that waits for the descriptor
        await trio.testing.wait_all_tasks_blocked()
        process.kill()
    assert found == [-signal.SIGKILL] * 2


async def test_descriptors_are_handed_down_only_if_asked() -> None:
    read, write = os.pipe()
    try:
        async with open_process(
            ["sh", "-c", f"echo hi > /proc/self/fd/{write}"], pass_fds=(write,)
        ) as process:
            assert await process.wait() == 0
        assert os.read(read, 10) == b"hi\n"
    finally:
        for descriptor in (read, write):
            with suppress(OSError):
                os.close(descriptor)


async def test_starts_that_cannot_work_are_one_clear_line() -> None:
    with pytest.raises(ProcessStartError, match=r"^cannot start /no/such: No such file or directory$"):
        async with open_process(["/no/such"]):
            pass
    with pytest.raises(ValueError, match=f"at most {STDIN_BYTES_MAX}"):
        async with open_process(["cat"], stdin=bytes(STDIN_BYTES_MAX + 1)):
            pass


def test_elsewhere_than_on_linux_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedSystem, match=r"^gspc-trio runs on Linux, but this is darwin$"):
        require_linux()


async def test_nothing_stays_open() -> None:
    async def once() -> None:
        async with open_process(["cat"], hold_stdin=True):
            pass

    await once()
    before = os.listdir("/proc/self/fd")
    await once()
    assert os.listdir("/proc/self/fd") == before
