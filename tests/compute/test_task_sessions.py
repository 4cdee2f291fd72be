"""A task and its job server, as the process of the task sees it: the host is played by the test."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from gspc_trio.compute.channel import DEFINE, FRAME_HEADER, RUN, UNDEFINED, pack, unpack
from gspc_trio.compute.code import function_code
from gspc_trio.compute.loop import Loop
from gspc_trio.compute.nested import current_executor
from gspc_trio.compute.task_session import ARGUMENTS_BYTES_MAX, UNFINISHED_MAX
from gspc_trio.core.current import ComputePlace, offer_place
from gspc_trio.core.nested import (
    CALL_FILLED,
    DEPTH_MAX,
    ForgetNested,
    NestedBroken,
    NestedDepth,
    NestedEnded,
    StartNested,
    TaskHello,
    TaskWaits,
    ToTaskProcess,
    decode_said,
    encode,
)
from gspc_trio.protocol.values import dumps, loads
from tests.compute.test_compute_loop import Printed

HANG_S = 60.0


class Host(threading.Thread):
    """Answers the first task that comes: its hello, and each task that it starts; lists when it waits."""

    def __init__(self, depth: int, *answers: ToTaskProcess | list[NestedEnded]) -> None:
        super().__init__(daemon=True)
        self.place = ComputePlace(f"gspc-test/{secrets.token_hex(8)}", "j1")
        self.heard: list[object] = []
        self.waits: list[bool] = []
        self._answers = (NestedDepth(depth), *answers)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(HANG_S)
        self._listener.bind("\0" + self.place.address)
        self._listener.listen()

    def run(self) -> None:
        with self._listener, self._listener.accept()[0] as line, line.makefile("rb") as stream:
            for answer in self._answers:
                awaited = (TaskWaits,) if isinstance(answer, list) else (StartNested, TaskHello)
                word: object = None
                while not isinstance(word, awaited):
                    header = stream.read(FRAME_HEADER.size)
                    if not header:
                        return
                    word = decode_said(stream.read(FRAME_HEADER.unpack(header)[0]))
                    if isinstance(word, TaskWaits):
                        self.waits.append(word.waits)
                    else:
                        self.heard.append(word)
                for data in map(encode, answer if isinstance(answer, list) else [answer]):
                    line.sendall(FRAME_HEADER.pack(len(data)) + data)

    def compute(self, function: Callable[[], object], may_rerun: bool = True) -> list[Any]:
        """Run a function as a task; return what is reported of it."""
        tasks, their_tasks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        results, their_results = socket.socketpair()
        with their_tasks, results:
            code = function_code(function)
            tasks.send(pack([[DEFINE, 1, code], [RUN, 7, 2, 1, [], 0, may_rerun]]))
            tasks.close()
            loop = Loop(their_tasks, their_results, Printed(), place=self.place)
            loop.run()
            loop.send()
            their_results.close()
            data = b"".join(iter(lambda: results.recv(1 << 20), b""))
        (result,) = unpack(data[FRAME_HEADER.size :])
        return list(result)


@pytest.fixture(autouse=True)
def no_place() -> Iterator[None]:
    yield
    offer_place(lambda: None)


def play(host: Host) -> Host:
    offer_place(lambda: host.place)
    host.start()
    return host


def start_one() -> object:
    return current_executor().submit(abs, -3).result(HANG_S)


def pass_much() -> object:
    return current_executor().submit(len, bytes(ARGUMENTS_BYTES_MAX)).result(HANG_S)


def pass_futures_in_containers() -> object:
    executor = current_executor()
    pending = executor.submit(abs, -3)
    return executor.submit(sum, [pending, 4], start=1).result(HANG_S)


def add_here() -> object:
    executor = current_executor()
    return executor.submit(sum, [executor.submit(abs, -3), 4], start=executor.submit(abs, -1)).result(HANG_S)


def pass_a_lock_in_a_list() -> object:
    return current_executor().submit(len, [threading.Lock()]).result(HANG_S)


def start_very_many() -> object:
    executor = current_executor()
    futures = [executor.submit(abs, number) for number in range(UNFINISHED_MAX + 1)]
    return sum(future.done() and future.exception(0) is None for future in futures)


class Slow:
    """A value during whose pickling a task ends."""

    def __init__(self, ends: Future[int]) -> None:
        self.ends = ends

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        current_executor().submit(abs, -4)  # at which the host says that the task has ended
        return int, (self.ends.result(HANG_S),)


def pass_what_ends_meanwhile() -> object:
    executor = current_executor()
    first = executor.submit(abs, -3)
    executor.submit(max, first, Slow(first)).result(HANG_S)
    return executor.submit(abs, -5).result(HANG_S)


def test_a_task_hears_what_its_nested_task_returned() -> None:
    host = play(Host(0, NestedEnded(1, dumps(3))))
    assert loads(host.compute(start_one)[2][0][0]) == 3
    host.join(HANG_S)
    hello, start = host.heard
    assert hello == TaskHello("j1", 7, 2)
    assert isinstance(start, StartNested)
    assert start.arguments == (dumps(abs), dumps(-3))


def test_a_task_that_is_nested_deeply_calls_the_function_itself() -> None:
    host = play(Host(DEPTH_MAX))
    assert loads(host.compute(start_one)[2][0][0]) == 3


def test_a_task_whose_job_server_is_cut_off_is_returned_unless_it_may_not_run_again() -> None:
    *_, error, _ = play(Host(0)).compute(start_one)
    assert error == [UNDEFINED, "the connection to the job server is over", "", b""]
    *_, error, _ = play(Host(0)).compute(start_one, may_rerun=False)
    assert error[0] == "ExecutorBroken"
    assert error[1].endswith(": the connection to the job server is over")


def test_a_task_for_which_nothing_more_is_run_fails() -> None:
    *_, error, _ = play(Host(0, NestedBroken("too many wait"))).compute(start_one)
    assert error[:2] == [
        "ExecutorBroken",
        "the nested task cannot be run: too many wait",
    ]


def test_a_future_in_a_list_travels_as_the_number_of_its_task() -> None:
    host = play(Host(0, NestedDepth(0), NestedEnded(2, dumps(8))))
    assert loads(host.compute(pass_futures_in_containers)[2][0][0]) == 8
    host.join(HANG_S)
    start = host.heard[2]
    assert isinstance(start, StartNested)
    assert start.code_id == CALL_FILLED
    function, names, counts, with_hole, number, named = start.arguments
    assert (function, number) == (dumps(sum), 1)
    decoded = [loads(one) for one in (names, counts, named) if isinstance(one, bytes)]
    assert decoded == [["start"], [1, -1], 1]
    assert isinstance(with_hole, bytes)


def test_futures_in_lists_are_there_where_a_deep_task_calls_the_function_itself() -> None:
    assert loads(play(Host(DEPTH_MAX)).compute(add_here)[2][0][0]) == 8


def test_a_list_that_cannot_be_sent_says_why() -> None:
    *_, error, _ = play(Host(0, NestedEnded(1))).compute(pass_a_lock_in_a_list)
    assert error[:2] == [
        "BadValue",
        "a value of type list cannot be sent to another process: cannot pickle '_thread.lock' object",
    ]


def test_a_task_that_starts_very_many_waits_for_some_of_them_and_lends_its_core_meanwhile() -> None:
    half = UNFINISHED_MAX // 2
    ends = [NestedEnded(number, dumps(0)) for number in range(1, half + 1)]
    host = play(Host(0, *[NestedDepth(0)] * UNFINISHED_MAX, ends, NestedDepth(0)))
    assert loads(host.compute(start_very_many)[2][0][0]) == half
    host.join(HANG_S)
    assert host.waits == [True, False]


def test_arguments_that_are_too_long_are_refused_with_the_limit() -> None:
    *_, error, _ = play(Host(0, NestedEnded(1))).compute(pass_much)
    assert f"{ARGUMENTS_BYTES_MAX} can travel with a nested task" in error[1]


def test_a_task_that_ends_while_one_that_takes_its_result_is_submitted_is_forgotten_after_that() -> None:
    pending = NestedDepth(0)
    ends = (pending, NestedEnded(1, dumps(3)), NestedEnded(3, dumps(3)), NestedEnded(4, dumps(5)))
    host = play(Host(0, *ends))
    assert loads(host.compute(pass_what_ends_meanwhile)[2][0][0]) == 5
    host.join(HANG_S)
    starts = [word for word in host.heard if isinstance(word, StartNested)]
    assert starts[2].arguments[1] == 1, "the number of the task that had not ended"
    forgotten = [number for word in host.heard if isinstance(word, ForgetNested) for number in word.numbers]
    assert forgotten.count(1) == 1
    first = next(word for word in host.heard if isinstance(word, ForgetNested) and 1 in word.numbers)
    assert host.heard.index(first) > host.heard.index(starts[2])
