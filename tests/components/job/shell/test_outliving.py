"""A job with a journal outlives its run-time system, also one that goes as the job joins it."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.job.result import JobFailed, JobResult, RtsLost
from gspc_trio.components.job.shell.journal import Journal
from gspc_trio.components.job.shell.outliving import outlive_rts
from gspc_trio.components.job.shell.server import RESUME_GRACE_S
from gspc_trio.nursery.connections.errors import AuthenticationFailed, ConnectFailed
from gspc_trio.nursery.connections.rpc import PeerGone

FINISHED = JobResult("finished", {}, {}, 1.0)
FAILED = JobResult("failed", {}, {}, 1.0)


class Book:
    """A journal that has begun, and counts how often it is read again."""

    is_begun = True

    def __init__(self) -> None:
        self.read = 0

    def read_again(self) -> None:
        self.read += 1


class Attempts:
    """A job whose first attempts end with errors."""

    def __init__(self, *errors: Exception) -> None:
        self.left = list(errors)

    async def __call__(self) -> JobResult:
        await trio.sleep(1)
        if self.left:
            raise self.left.pop(0)
        return FINISHED


async def always() -> bool:
    return True


async def never() -> bool:
    return False


async def test_whatever_is_wrong_with_a_run_time_system_that_comes_and_goes_is_outlived(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    gone: list[Exception] = [
        RtsLost(FAILED, "the run-time system has gone"),
        ConnectFailed("ws://127.0.0.1:1", "nobody answers"),
        PeerGone("the connection was cut"),  # as the job joined
        AuthenticationFailed("ws://127.0.0.1:1", "another one has its port"),
    ]
    book = Book()
    assert await outlive_rts(Attempts(*gone), cast(Journal, book), always) is FINISHED
    assert book.read == len(gone)


@pytest.mark.parametrize("error", [PeerGone("cut"), RtsLost(FAILED, "it has gone")])
async def test_one_that_does_not_come_back_is_not_awaited_for_ever(
    error: Exception, autojump_clock: MockClock
) -> None:
    del autojump_clock
    began_s = trio.current_time()
    with pytest.raises(type(error)):
        await outlive_rts(Attempts(error), cast(Journal, Book()), never)
    assert trio.current_time() - began_s == pytest.approx(1 + RESUME_GRACE_S)


async def test_who_cannot_go_on_does_not_wait(autojump_clock: MockClock) -> None:
    del autojump_clock
    cases: list[tuple[Exception, Any, Any]] = [
        (JobFailed(FAILED, "a task failed"), Book(), always),
        (PeerGone("cut"), None, always),
        (PeerGone("cut"), Book(), None),
    ]
    for error, book, is_back in cases:
        with pytest.raises(type(error)):
            await outlive_rts(Attempts(error), book, is_back)
