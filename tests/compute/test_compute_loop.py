"""The loop of a compute process, in this process: what it sends, and when."""

from __future__ import annotations

import gc
import os
import select
import socket
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import pytest

from gspc_trio.compute.channel import (
    DEFINE,
    FRAME_HEADER,
    RUN,
    UNDEFINED,
    UNMADE,
    open_nameless_file,
    pack,
    unpack,
)
from gspc_trio.compute.code import function_code
from gspc_trio.compute.loop import QUICK_S, Loop
from gspc_trio.compute.output import last_words
from gspc_trio.compute.results.unsent import GATHER_S, UNSENT_BYTES_MAX
from gspc_trio.core.current import ComputePlace, current_place
from gspc_trio.protocol.values import dumps, loads

HANG_S = 60.0

MARK = b"only one result has this"


class Printed:
    """Output with something new each time it is asked for."""

    def __init__(self, *texts: bytes) -> None:
        self.texts = list(texts)

    def take(self) -> tuple[bytes, bytes]:
        return (self.texts.pop(0), b"") if self.texts else (b"", b"")

    def keep(self) -> None:
        """Take no notice."""


class World:
    """The RIF's ends of both channels."""

    def __init__(self) -> None:
        self.tasks, self._their_tasks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.results, self._their_results = socket.socketpair()

    def hand(self, *items: list[Any]) -> None:
        self.tasks.send(pack(items))

    def loop(self, output: Printed | None = None, place: ComputePlace | None = None) -> Loop:
        """Return a loop between both channels."""
        return Loop(self._their_tasks, self._their_results, output or Printed(), place=place)

    def run(self, output: Printed | None = None, place: ComputePlace | None = None) -> list[list[Any]]:
        """Run the loop to its end; return the frames that it sent."""
        self.tasks.close()
        loop = self.loop(output, place)
        loop.run()
        loop.send()
        self._their_results.close()
        data = b"".join(iter(lambda: self.results.recv(1 << 20), b""))
        return list(_frames(data))

    def waiting(self) -> int:
        """How many results have been sent by now (only for what runs in the loop)."""
        try:
            data = self.results.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        return sum(map(len, _frames(data)))

    def close(self) -> None:
        for each in (self.tasks, self._their_tasks, self.results, self._their_results):
            each.close()


def _frames(data: bytes) -> Iterator[list[Any]]:
    while data:
        (size,) = FRAME_HEADER.unpack_from(data)
        yield unpack(data[FRAME_HEADER.size : FRAME_HEADER.size + size])
        data = data[FRAME_HEADER.size + size :]


current: World


@pytest.fixture
def world() -> Iterator[World]:
    global current
    current = World()
    yield current
    current.close()


def define(code_id: int, function: Callable[..., Any]) -> list[Any]:
    return [DEFINE, code_id, function_code(function)]


def task(
    task_id: int, code_id: int, *arguments: Any, memory_bytes: int = 0, may_rerun: bool = True
) -> list[Any]:
    return [RUN, task_id, 1, code_id, list(map(dumps, arguments)), memory_bytes, may_rerun]


def sent_before() -> int:
    return current.waiting()


def identity(value: Any) -> Any:
    return value


def values(frames: list[list[Any]]) -> list[Any]:
    return [loads(result[2][0][0]) for frame in frames for result in frame]


def step_clocks(patch: pytest.MonkeyPatch) -> None:
    """Let not quite ``QUICK_S`` pass from one look at a clock to the next, and none for other threads."""
    clock, own = iter(range(1000)), get_ident()
    for module in ("loop", "results.unsent"):
        patch.setattr(
            f"gspc_trio.compute.{module}.perf_counter",
            lambda: next(clock) * QUICK_S * 0.9 if get_ident() == own else 0.0,
        )


def test_results_of_quick_tasks_gather_in_frames(world: World) -> None:
    world.hand(define(1, identity), *(task(number, 1, number) for number in range(1, 101)))
    frames = world.run()
    assert values(frames) == list(range(1, 101))
    assert len(frames) < 100


def test_a_task_that_may_not_run_again_starts_after_all_results_are_sent(world: World) -> None:
    items = [
        define(1, identity),
        define(2, sent_before),
        task(1, 2),
        *(task(number, 1, 0) for number in (2, 3)),
    ]
    world.hand(*items, task(4, 2, may_rerun=False))
    assert values(world.run())[-1] == 3


def test_a_code_that_is_not_known_to_be_quick_starts_after_all_results_are_sent(world: World) -> None:
    world.hand(define(1, identity), define(2, sent_before), task(1, 1, 0), task(2, 1, 0), task(3, 2))
    assert values(world.run())[-1] == 2


def test_results_do_not_wait_for_longer_than_a_quick_task(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_clocks(monkeypatch)
    world.hand(define(1, sent_before), *(task(number, 1) for number in range(5)))
    assert values(world.run()) == [0, 0, 2, 2, 4]


def wait_and_send(late: bool) -> tuple[int, float | None]:
    """Do as what only waits for a program."""
    place = current_place()
    assert place is not None
    results = place.take_results()
    assert results is not None
    due_s = results.due_s()
    if late:
        results.send()
    return current.waiting(), due_s


def test_results_wait_longer_for_a_task_that_sends_them_while_it_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ComputePlace("", "")
    monkeypatch.setattr("gspc_trio.core.current._find", lambda: place)
    step_clocks(monkeypatch)
    world.hand(define(1, wait_and_send), *(task(number, 1, number == 3) for number in range(5)))
    sent, due_s = zip(*values(world.run(place=place)), strict=True)
    assert sent == (0, 0, 0, 3, 3)
    assert due_s[0] is None
    assert all(0 < due < GATHER_S for due in due_s[1:])


def wait_for_results(wanted: int) -> int:
    """Do as what waits for somebody to whom results are sent, until there are so many."""
    for _ in range(wanted):
        select.select([current.results], [], [], HANG_S)
    return current.waiting()


def test_a_task_that_was_expected_to_be_quick_keeps_no_results_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two were quick. What the third waits for comes of their results."""
    monkeypatch.setattr("gspc_trio.compute.loop.QUICK_S", HANG_S)
    loop = world.loop()
    for item in (define(1, wait_for_results), task(1, 1, 0), task(2, 1, 0)):
        loop.handle(item)
    assert world.waiting() == 0
    loop.handle(task(3, 1, 1))
    assert world.waiting() == 2
    loop.send()
    world.tasks.close()
    assert [frame[-1][0] for frame in _frames(world.results.recv(1 << 20))] == [2, 3]


def test_results_do_not_wait_for_the_last_task_that_there_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ComputePlace("", "")
    monkeypatch.setattr("gspc_trio.core.current._find", lambda: place)
    loop = world.loop(place=place)
    for item in (define(1, wait_and_send), task(1, 1, False), task(2, 1, False)):
        assert world.waiting() == 0
        loop.handle(item)
    assert world.waiting() == 1


def test_results_do_not_wait_for_files_of_a_task_that_are_fetched_here(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspc_trio.compute.loop.perf_counter", lambda: 1.0)
    loop = world.loop()
    for item in (define(1, identity), task(1, 1, 0), task(2, 1, 0)):
        loop.handle(item)
    assert world.waiting() == 0
    loop.handle([*task(3, 1, 0), (), b"\0no order"])
    assert world.waiting() == 2


def test_many_bytes_of_results_do_not_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gspc_trio.compute.loop.UNSENT_BYTES_MAX", 1000)
    world.hand(define(1, identity), define(2, sent_before), task(1, 1, 0), task(2, 2), task(3, 1, "x" * 1001))
    world.hand(task(4, 2))
    assert UNSENT_BYTES_MAX > 1001
    assert values(world.run())[-1] == 3


def test_before_it_waits_for_more_it_sends_everything(world: World) -> None:
    world.hand(define(1, identity), task(1, 1, "a"))
    world.hand(task(2, 1, "b"))
    assert values(world.run()) == ["a", "b"]


def test_output_comes_with_the_result_it_belongs_to(world: World) -> None:
    world.hand(define(1, identity), task(1, 1, 0), task(2, 1, 0), task(3, 1))
    results = [result for frame in world.run(Printed(b"", b"hello", b"ouch")) for result in frame]
    assert [len(result) for result in results] == [9, 7, 8]
    assert results[0][5:] == [b"", b"", None, True], "its code was run for the first time"
    assert results[1][5:] == [b"hello", b""]
    assert results[2][2] == []
    assert results[2][5:7] == [b"ouch", b""]
    assert results[2][7][0] == "TypeError"


def test_the_last_line_of_a_file_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in ("/tmp", "/no/such"):
        monkeypatch.setenv("TMPDIR", directory)
        descriptor = open_nameless_file()
        try:
            assert last_words(descriptor) == ""
            os.write(descriptor, b"x" * 5000 + b"\nfirst\nlast \n\n")
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, b"appended\n")
            assert last_words(descriptor) == "last line on its standard error: appended"
        finally:
            os.close(descriptor)


def test_a_task_whose_code_was_taken_back_before_it_is_not_run_but_named(world: World) -> None:
    world.hand(task(1, 7, 0), define(8, identity), task(2, 8, 5))
    refused, done = (result for frame in world.run() for result in frame)
    assert (refused[:3], refused[-1][0]) == ([1, 1, []], UNDEFINED)
    assert values([[done]]) == [5]


def behind(task_id: int, after: int, *arguments: bytes) -> list[Any]:
    return [RUN, task_id, 1, 2, list(arguments), 0, True, (), b"", (after, 1)]


def difference(one: int, other: int) -> int:
    return one - other


def test_a_result_becomes_an_argument_of_what_runs_next(world: World) -> None:
    world.hand(define(1, identity), define(2, difference), task(1, 1, 10), behind(2, 1, dumps(1), b""))
    world.hand(behind(3, 2, b"", b""))
    frames = world.run()
    assert values(frames) == [10, -9, 0]


def sent_before_it(_result: int) -> int:
    return current.waiting()


def test_what_takes_a_result_starts_after_that_is_sent(world: World) -> None:
    """Though it was always quick: it may wait for what is done with that result elsewhere."""
    world.hand(define(1, identity), define(2, sent_before_it), task(1, 1, 10))
    world.hand(behind(2, 1, b""), behind(3, 2, b""), behind(4, 3, b""))
    assert values(world.run()) == [10, 1, 2, 3]


def test_what_takes_another_result_than_the_last_goes_back_and_has_not_begun(world: World) -> None:
    world.hand(define(1, identity), define(2, difference), task(1, 1, 10), task(2, 1, 20))
    world.hand(behind(3, 1, dumps(1), b""), behind(4, 3, dumps(1), b""), behind(5, 2, dumps(1), b""))
    world.hand(define(3, boom), task(6, 3), behind(7, 6, b"", b""))
    results = [result for frame in world.run() for result in frame]
    kinds = {result[0]: result[7][0] for result in results if len(result) > 7 and result[7]}
    assert kinds == {3: UNMADE, 4: UNMADE, 5: UNMADE, 6: "ValueError", 7: UNMADE}
    assert {result[4] for result in results if result[0] in (3, 4, 5, 7)} == {0.0}


def marked() -> bytes:
    return MARK + bytes(100_000)


def marked_held() -> int:
    """Return how many results of the function above are held in this process."""
    lists = (each for each in gc.get_objects() if type(each) is list)
    return sum(type(it) is bytes and len(it) > 100_000 and MARK in it for each in lists for it in each)


def test_a_result_takes_up_no_memory_while_another_task_runs(world: World) -> None:
    world.hand(define(1, marked), define(2, marked_held), task(1, 1), task(2, 2))
    assert values(world.run())[1] == 0


def boom() -> None:
    raise ValueError("boom")
