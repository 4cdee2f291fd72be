"""Calls of which each is waited for before the next: they are sent directly, and behave as any other."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Executor
from gspc_trio.compute.code import CALL_BYTES_MAX, REPLY_HEAD
from gspc_trio.compute.direct import serve_calls, serve_line
from gspc_trio.core.task import DEFAULT_OPTIONS, TaskState
from gspc_trio.executor.direct import DirectCalls
from gspc_trio.executor.futures import NOTHING, Call, TaskFuture
from gspc_trio.executor.singles import SINGLES, SINGLES_MAX, Pace
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.failures import ExecutorBroken, RemoteTraceback, TaskFailed

LONG_S = 100.0


def act(kind: str, value: int = 0, path: str = "") -> Any:
    """Return something, or do what ends direct calls."""
    if path and kind != "wait":
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{kind} {value}\n")
    if kind == "print":
        print("printed", value)
    elif kind == "raise":
        raise LookupError(value)
    elif kind == "exit":
        raise SystemExit(value)
    elif kind == "change":
        os.environ["ACT"] = "changed"
    elif kind == "changed":
        return os.environ.get("ACT", "")
    elif kind == "large":
        return [b"\0" * CALL_BYTES_MAX, {"of": (value,)}]
    elif kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "wait":
        while os.path.exists(path):
            time.sleep(0.001)
    return value


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine calls come slowly, and are single all the same."""
    monkeypatch.setattr("gspc_trio.executor.singles.SINGLE_S", LONG_S)
    monkeypatch.setattr("gspc_trio.executor.direct.IDLE_S", LONG_S)
    monkeypatch.setattr("gspc_trio.executor.direct.LIMIT_S", LONG_S)


@pytest.fixture
def alone(executor: Executor) -> Iterator[Executor]:
    """An executor that takes calls directly."""
    take_directly(executor)
    yield executor
    executor._loop.singles.close()


def take_directly(executor: Executor) -> None:
    """Make so many calls that the next one is sent directly."""
    if executor._loop.singles.direct is None:
        executor._loop.singles._pace = Pace()  # whatever was in vain before
    for number in range(10 * SINGLES):
        assert executor.submit(act, "", number).result() == number
        direct = executor._loop.singles.direct
        if direct is not None and direct.sent > 1:
            return
    raise AssertionError("no call was sent directly")


def directly(executor: Executor, kind: str, value: int = 0, path: Path | str = "") -> TaskFuture[Any]:
    """Submit a call, and see that it is sent directly."""
    take_directly(executor)
    future = executor.submit(act, kind, value, str(path))
    assert isinstance(future._direct, DirectCalls)
    return future


def counted(executor: Executor) -> dict[TaskState, int]:
    """How many tasks there are in each state once all have ended."""
    executor._loop.singles.close()
    for _ in range(10_000):
        counts = dict(executor._loop.counts() or {})
        if not (counts.get(TaskState.RUNNING) or counts.get(TaskState.SUBMITTED)):
            return counts
        time.sleep(0.001)
    raise AssertionError(f"a task has not ended: {counts}")


def test_many_single_calls_are_one_task_and_counted_as_calls(alone: Executor) -> None:
    before, tasks = counted(alone), alone._loop._table.graph.last_task_id
    alone._loop.singles._pace = Pace()
    for number in range(10 * SINGLES):
        assert alone.submit(act, "", number).result() == number
    assert alone._loop._table.graph.last_task_id - tasks < 2 * SINGLES
    assert counted(alone)[TaskState.FINISHED] - before[TaskState.FINISHED] == 10 * SINGLES


@pytest.mark.parametrize("kind", ["print", "raise", "exit", "change", "large"])
def test_what_is_more_than_a_result_is_as_of_any_call(alone: Executor, kind: str, tmp_path: Path) -> None:
    path, before = tmp_path / "calls", counted(alone)
    future = directly(alone, kind, 7, path)
    if kind == "raise":
        with pytest.raises(LookupError) as caught:
            future.result()
        assert "in act" in str(caught.value.__cause__)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
    elif kind == "exit":
        with pytest.raises(SystemExit):
            future.result()
    else:
        assert future.result() == act(kind, 7)
    os.environ.pop("ACT", None)
    assert alone.submit(act, "changed").result() == ""
    assert path.read_text() == f"{kind} 7\n"
    after = counted(alone)
    calls = sum(after.values()) - sum(before.values())
    assert calls == after[TaskState.FINISHED] - before[TaskState.FINISHED] + (kind in ("raise", "exit"))


def test_a_call_whose_process_dies_is_run_as_often_as_any_other(alone: Executor, tmp_path: Path) -> None:
    path = tmp_path / "calls"
    with pytest.raises(TaskFailed) as caught:
        directly(alone, "die", 1, path).result()
    assert caught.value.kind == "lost"
    assert path.read_text() == "die 1\n" * 3


def test_a_result_comes_also_if_nobody_waits_for_it(alone: Executor, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.touch()
    future = directly(alone, "wait", 3, path)
    with pytest.raises(TimeoutError):
        future.result(0.001)
    assert future.running()
    assert not future.done()
    told: list[Any] = []
    future.add_done_callback(lambda it: told.append(it.result()))
    path.unlink()
    assert wait([future], LONG_S).done == {future}
    assert future.result() == 3
    counted(alone)
    assert told == [3]


def test_other_calls_end_it_and_run_beside_it(alone: Executor, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.touch()
    future = directly(alone, "wait", 3, path)
    direct = future._direct
    others = [alone.submit(act, "", number) for number in range(10)]
    assert [other.result() for other in others] == list(range(10))
    assert alone._loop.singles.direct is not direct
    assert not future.done()
    taking = alone.submit(act, "", future)  # its result is the argument
    path.unlink()
    assert taking.result() == 3
    assert future.result() == 3


def test_a_chain_behind_a_single_call_is_known_as_a_whole(
    alone: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspc_trio.executor.singles.SOON_S", LONG_S)
    future = directly(alone, "", 3)
    for _ in range(10):
        future = alone.submit(act, "", future)
        assert not alone._loop._parked
    assert future.result() == 3


def test_a_call_that_was_parked_ends_it(alone: Executor) -> None:
    argument: Future[int] = Future()
    parked = alone.submit(act, "", argument)
    take_directly(alone)
    argument.set_result(5)
    assert alone._loop.singles.direct is None
    assert parked.result() == 5


def test_a_call_ends_also_those_that_begin_while_it_is_submitted(alone: Executor) -> None:
    loop, found = alone._loop, []
    lock, submitting = loop._lock, threading.get_ident()  # the loop's thread takes the lock, too

    class Crossed:
        """A lock that another thread has had just before."""

        def __enter__(self) -> None:
            if not found and threading.get_ident() == submitting:
                found.append(None)
                take_directly(alone)
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    loop._lock = Crossed()  # type: ignore[assignment]
    other = alone.submit(act, "", [4])
    loop._lock = lock
    assert loop.singles.direct is None
    assert other.result() == [4]


def test_a_call_that_has_not_begun_is_cancelled_by_shutdown(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.touch()
    executor = Executor(cores=1)
    running, loop = directly(executor, "wait", 3, path), executor._loop
    loop.singles.close()
    loop.singles._pace._count, loop.was_awaited = SINGLES_MAX, True
    waiting = executor.submit(act, "", 4)
    assert isinstance(waiting._direct, DirectCalls)
    while not waiting._task_id:
        time.sleep(0.001)
    executor.shutdown(wait=False, cancel_futures=True)
    assert loop.singles.direct is None  # at once: no further call is taken
    with pytest.raises(CancelledError):
        waiting.result()
    path.unlink()
    assert running.result() == 3
    executor.shutdown()


def test_a_time_out_may_be_as_long_as_for_any_call(alone: Executor, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.touch()
    future = directly(alone, "wait", 3, path)
    thread = threading.Thread(target=path.unlink)
    thread.start()
    assert future.result(threading.TIMEOUT_MAX) == 3
    thread.join()


def test_who_waits_for_what_is_no_task_after_all_goes_on(alone: Executor) -> None:
    loop = alone._loop
    code_id, _ = loop._codes.entry(act, ())
    future: TaskFuture[Any] = TaskFuture(loop)
    direct = DirectCalls(
        loop.singles, Call(future, code_id, "act", NOTHING, alone._shape, DEFAULT_OPTIONS, ("",))
    )
    direct.close()
    assert not direct.begin()
    direct.wait(future, None)
    direct.wait(future, 0.0)
    assert not future.done()


def test_a_broken_connection_is_no_signal(alone: Executor) -> None:
    take_directly(alone)
    told: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: told.append(number))
    try:
        direct = alone._loop.singles.direct
        assert direct is not None
        assert direct._line is not None
        direct._line.shutdown(socket.SHUT_WR)
        assert alone.submit(act, "", 4).result() == 4
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.close()
        with there:
            serve_line(act, there, LONG_S, ("", 5))
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert told == []


def test_cancelled_from_another_thread_it_is_killed(alone: Executor, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.touch()
    future = directly(alone, "wait", 3, path)
    thread = threading.Thread(target=lambda: (alone._loop.is_running(future), future.cancel()))
    thread.start()
    with pytest.raises(CancelledError):
        future.result()
    thread.join()
    assert alone.submit(act, "", 4).result() == 4
    assert counted(alone)[TaskState.CANCELLED]


def test_several_threads_wait_for_one_call(alone: Executor, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.touch()
    future = directly(alone, "wait", 3, path)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(future.result())) for _ in range(3)]
    for thread in threads:
        thread.start()
    path.unlink()
    for thread in threads:
        thread.join()
    assert found == [3, 3, 3]


def test_an_interrupt_leaves_a_call_to_be_waited_for_again(
    alone: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "there"
    path.touch()
    future = directly(alone, "wait", 3, path)
    receive = DirectCalls._receive

    def interrupted(self: DirectCalls, line: socket.socket, flags: int = 0) -> bool:
        monkeypatch.setattr(DirectCalls, "_receive", receive)
        receive(self, line, flags)
        raise KeyboardInterrupt  # it has come, and nobody knows yet

    monkeypatch.setattr(DirectCalls, "_receive", interrupted)
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        future.result()
    assert future.result() == 3
    assert alone.submit(act, "", 4).result() == 4


@pytest.mark.parametrize("how", ["shutdown", "stop", "kill"])
def test_the_end_of_the_executor_is_that_of_the_call(tmp_path: Path, how: str) -> None:
    path = tmp_path / "there"
    path.touch()
    with Executor(cores=1) as executor:
        future = directly(executor, "wait", 3, path)
        if how == "shutdown":
            executor.shutdown(wait=False)
            with pytest.raises(RuntimeError, match="after shutdown"):
                executor.submit(act, "", 1)
            path.unlink()
            assert future.result() == 3
        elif how == "stop":
            executor._loop.stop()
            with pytest.raises(CancelledError):
                future.result()
        else:
            executor.kill_workers()
            with pytest.raises(ExecutorBroken):
                future.result()


def test_one_core_is_enough_and_lost_calls_run_before_the_end() -> None:
    with Executor(cores=1) as executor:
        future = directly(executor, "", 3)
        other = executor.submit(act, "", 4)
        assert (other.result(), future.result()) == (4, 3)
        future = directly(executor, "die")
    with pytest.raises(TaskFailed):
        future.result()


def test_calls_are_sent_directly_when_enough_came_alone() -> None:
    pace = Pace()
    due = [pace.is_due(number > 0, 100.0 + number * LONG_S / 2) for number in range(SINGLES + 2)]
    assert due == [False] * SINGLES + [True] * 2
    now = 100.0 + 0.5 * (SINGLES + 1) * LONG_S
    assert not pace.is_due(True, now + 2 * LONG_S)
    assert not any(pace.is_due(number != SINGLES - 2, now) for number in range(SINGLES))


def test_what_was_in_vain_takes_longer_the_next_time() -> None:
    pace, now = Pace(), 0.0

    def needed() -> int:
        pace.is_due(False, now)
        return next(number for number in range(1, 2 * SINGLES_MAX) if pace.is_due(True, now))

    assert needed() == SINGLES
    for factor in (4, 16, 64):
        pace.ended(1)
        assert needed() == factor * SINGLES
    for _ in range(10):
        pace.ended(1)
    assert needed() == SINGLES_MAX
    pace.ended(SINGLES)
    assert needed() == SINGLES


def test_who_cannot_be_reached_gets_the_first_call_as_a_result() -> None:
    answer = serve_calls(act, "nobody-listens-here", LONG_S, LONG_S, ("", 5))
    reached, begun, data, error = answer
    assert (reached, begun, error) == (False, 1, None)
    assert data is not None


def test_a_call_that_crosses_the_end_is_still_computed() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        here.send(pickle.dumps(("", 6)))
        assert serve_line(act, there, 0.0, ("", 5)) == (True, 2, dumps(6), None)
        replies = [here.recv(CALL_BYTES_MAX) for _ in range(2)]
        with pytest.raises(OSError):
            here.send(pickle.dumps(("", 7)))
    numbers = [REPLY_HEAD.unpack_from(reply)[0] for reply in replies]
    assert numbers == [1, 2]
    assert [loads(reply[REPLY_HEAD.size :]) for reply in replies] == [5, 6]


def test_who_has_gone_is_told_by_the_result() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.close()
    with there:
        assert serve_line(act, there, LONG_S, ("", 5)) == (True, 1, dumps(5), None)


def test_who_goes_without_reading_is_told_by_the_result() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def go() -> None:
        here.recv(1, socket.MSG_PEEK)
        here.close()

    thread = threading.Thread(target=go)
    thread.start()
    with there:
        assert serve_line(act, there, LONG_S, ("", 5)) == (True, 1, dumps(5), None)
    thread.join()


@pytest.mark.parametrize("is_foreign", [True, False])
def test_nobody_is_taken_for_the_caller(is_foreign: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does another user's socket of the same name call anything, nor can one hold up the task."""
    name = f"gspc-test-{os.urandom(8).hex()}"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other,
    ):
        listener.bind("\0" + name)
        listener.listen(0)
        if is_foreign:
            monkeypatch.setattr(os, "geteuid", lambda: -1)
        else:
            other.connect("\0" + name)  # there is no room for a second one
        assert serve_calls(act, name, LONG_S, LONG_S, ("", 5)) == (False, 1, dumps(5), None)
