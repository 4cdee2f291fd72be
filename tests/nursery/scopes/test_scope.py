# ruff: noqa: ARG001 - the clock is a fixture
"""Services live as long as their block, and errors come out as they are."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.nursery.scopes.scope import only_error, open_scope, open_service


async def test_a_single_error_is_not_wrapped() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_scope():
            raise KeyError("mine")


async def test_an_error_of_a_task_is_not_wrapped_and_keeps_its_cause() -> None:
    async def fail() -> None:
        raise KeyError("outer") from ValueError("inner")

    async def run() -> None:
        async with open_scope() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()

    with pytest.raises(KeyError, match="outer") as caught:
        await run()
    assert isinstance(caught.value.__cause__, ValueError)


async def test_several_errors_stay_a_group() -> None:
    async def fail() -> None:
        raise KeyError("one")

    async def run() -> None:
        async with open_scope() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(fail)

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert len(caught.value.exceptions) == 2


def test_cancellation_beside_an_error_is_left_out() -> None:
    async def make() -> BaseException:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                kept = error
                raise
        return kept

    cancelled = trio.run(make)
    error = KeyError("x")
    assert only_error(BaseExceptionGroup("", [cancelled, BaseExceptionGroup("", [error])])) is error
    assert only_error(BaseExceptionGroup("", [cancelled])) is cancelled
    assert only_error(error) is error


class Service:
    """Runs until it is told to stop, then takes some time; notes what happens."""

    def __init__(self, stops_in_s: float = 0.0) -> None:
        self.stops_in_s = stops_in_s
        self.stopping = trio.Event()
        self.notes: list[str] = []

    async def run(self, name: str, task_status: trio.TaskStatus[str]) -> None:
        task_status.started(f"hello {name}")
        try:
            await self.stopping.wait()
            self.notes.append("stopping")
            await trio.sleep(self.stops_in_s)
            self.notes.append("stopped")
        except trio.Cancelled:
            self.notes.append("cancelled")
            raise


async def test_a_service_gives_its_value_and_ends_with_its_block() -> None:
    service = Service()
    async with open_service(service.run, "you") as value:
        assert value == "hello you"
    assert service.notes == ["cancelled"]


async def test_a_service_may_end_by_itself(autojump_clock: MockClock) -> None:
    service = Service(stops_in_s=0.5)
    async with open_service(service.run, "you", stop=service.stopping.set):
        pass
    assert service.notes == ["stopping", "stopped"]


async def test_a_service_that_takes_too_long_is_cancelled(autojump_clock: MockClock) -> None:
    service = Service(stops_in_s=50)
    async with open_service(service.run, "you", stop=service.stopping.set, grace_s=2):
        pass
    assert service.notes == ["stopping", "cancelled"]
    assert trio.current_time() == 2


async def test_a_block_that_is_cancelled_does_not_wait(autojump_clock: MockClock) -> None:
    service = Service(stops_in_s=50)
    with trio.move_on_after(1):
        async with open_service(service.run, "you", stop=service.stopping.set, grace_s=20):
            await trio.sleep_forever()
    assert service.notes == ["cancelled"] or service.notes == ["stopping", "cancelled"]
    assert trio.current_time() == 1


async def test_an_error_of_the_service_ends_the_block() -> None:
    async def fail(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise KeyError("service")

    with pytest.raises(KeyError, match="service"):
        async with open_service(fail):
            await trio.sleep_forever()


async def test_an_error_before_it_is_ready_comes_out() -> None:
    async def fail(task_status: trio.TaskStatus[None]) -> None:
        raise KeyError("early")

    with pytest.raises(KeyError, match="early"):
        async with open_service(fail):
            raise AssertionError


async def test_an_error_of_the_block_comes_out_after_the_service_has_ended(autojump_clock: MockClock) -> None:
    service = Service(stops_in_s=0.5)
    with pytest.raises(KeyError, match="block"):
        async with open_service(service.run, "you", stop=service.stopping.set):
            raise KeyError("block")
    assert service.notes == ["stopping", "stopped"]
