"""Items of a range that are called in a row: each ends as if it had been called alone."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from gspc_trio.components.job.item_values import Results, open_answer, open_results
from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.compute.io.area import Reading
from gspc_trio.compute.io.loop import Meter
from gspc_trio.compute.ranges import TOGETHER_MAX, TOGETHER_S, call_items
from gspc_trio.core.current import ComputePlace, current_traceparent, offer_place
from gspc_trio.core.nested import ItemsEnded, TaskHello, decode_said
from gspc_trio.core.trace_context import TraceContext
from gspc_trio.protocol.values import dumps, loads

MANY = 10 * TOGETHER_MAX


def opened(answer: bytes) -> tuple[int, int, Results]:
    """Return how many items were computed, how many have failed, and what became of them."""
    done, failed, found = open_answer(dumps(answer))
    return done, failed, open_results(found)


def computed(function: Callable[..., object], are_encoded: bool, *columns: Sequence[object]) -> Results:
    """Return what becomes of all items, in as many ranges as a busy machine makes of them."""
    results: Results = [], {}, {}
    while (begin := len(results[0])) < len(columns[0]):
        done, failed, found = opened(
            call_items(function, are_encoded, *(column[begin:] for column in columns))
        )
        assert (done, failed) == (len(found[0]), len(found[2]))
        assert done, "no item was computed"
        results[0].extend(found[0])
        results[1].update((begin + number, data) for number, data in found[1].items())
        results[2].update((begin + number, error) for number, error in found[2].items())
    return results


def said_by_programs() -> set[str]:
    """Return what programs find that are started in one way or another."""
    ask = ["sh", "-c", "echo $TRACEPARENT"]
    with os.popen(ask[-1]) as printed:
        said = {printed.read().strip()}
    if not os.fork():
        os.execvp("sh", [*ask[:2], f'[ "$TRACEPARENT" = "{said.copy().pop()}" ]'])
    said.add("" if os.wait()[1] else said.copy().pop())
    return said | {subprocess.run(ask, capture_output=True, text=True).stdout.strip()}


def test_each_item_has_a_trace_context_of_its_own(place: ComputePlace) -> None:
    above = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", 99)
    place.trace, place.task_id, place.attempt = above, 7, 2

    def ask(item: int) -> str:
        said = {os.environ["TRACEPARENT"], os.environb[b"TRACEPARENT"].decode(), current_traceparent()}
        if item == 5:
            said |= said_by_programs()
        return " ".join(said)

    before = dict(os.environ)
    try:
        done, _, (results, _, errors) = opened(call_items(ask, False, range(MANY)))
        assert os.environ["TRACEPARENT"] == above.text_of(7, 2)
    finally:
        place.trace = None
        os.environ.clear()
        os.environ.update(before)
    assert not errors
    assert done > 5, "a program was not asked"
    assert results == [above.text_of(8 + item, 2) for item in range(done)]


def spend() -> None:
    """Take longer than all items that may be called in a row."""
    begun_s = time.perf_counter()
    while time.perf_counter() < begun_s + TOGETHER_S:
        pass


@pytest.fixture
def place() -> Iterator[ComputePlace]:
    """Where the items run."""
    here = ComputePlace("", "")
    offer_place(lambda: here)
    yield here
    offer_place(lambda: None)


def test_results_that_others_may_change_are_kept_as_they_were() -> None:
    shared: list[int] = []

    def count(item: int) -> object:
        shared.append(item)
        return shared if item % 7 == 0 else item

    results, encoded, errors = computed(count, False, range(MANY))
    assert not errors
    assert results == [None if item % 7 == 0 else item for item in range(MANY)]
    assert {number: len(loads(data)) for number, data in encoded.items()} == {
        item: item + 1 for item in range(0, MANY, 7)
    }


def test_what_some_items_raise_is_their_own_error_and_no_item_runs_twice() -> None:
    ran: list[int] = []

    def fail(item: int, more: int) -> int:
        ran.append(item)
        if item % 50 == 3:
            raise ValueError(f"item {item}")
        if item % 50 == 4:
            raise StopIteration(item)
        return item + more

    results, _, errors = computed(fail, False, range(MANY), [1] * MANY)
    assert ran == list(range(MANY))
    bad = [item for item in range(MANY) if item % 50 in {3, 4}]
    assert sorted(errors) == bad
    assert results == [None if item in errors else item + 1 for item in range(MANY)]
    assert "item 3" in str(errors[3])
    assert "StopIteration" in str(errors[4])


def test_a_look_that_takes_long_is_not_taken_for_an_item_that_does(place: ComputePlace) -> None:
    looks = 0

    def is_silent() -> bool:
        nonlocal looks
        looks += 1
        spend()
        return True

    def first_is_slow(item: int) -> int:
        if not item:
            spend()
        return item

    place.is_silent = is_silent
    results, _, _ = computed(first_is_slow, False, range(MANY))
    assert results == list(range(MANY))
    assert looks < MANY / 2


def test_items_behind_one_that_ends_its_task_are_called_after_that(place: ComputePlace) -> None:
    opened_by: list[int] = []

    def open_something(item: int) -> int:
        if item % 100 == 40:
            opened_by.append(item)
            place.on_end = opened_by.clear
            place.behind.clear()
        return len(opened_by)

    results, _, _ = computed(open_something, False, range(MANY))
    assert results == [int(item % 100 == 40) for item in range(MANY)]


def test_a_range_whose_items_suddenly_take_long_ends_soon() -> None:
    def wait(item: int) -> int:
        if item >= TOGETHER_MAX:
            time.sleep(0.03)
        return item

    done, _, (results, _, _) = opened(call_items(wait, False, range(MANY)))
    assert done < TOGETHER_MAX + TOGETHER_MAX // 2, "a row of them would have gone on"
    assert results == list(range(done))


def test_encoded_arguments_are_opened_for_each_item() -> None:
    arguments = [dumps([item]) for item in range(MANY)]
    _, encoded, _ = computed(lambda value: value, True, arguments)
    assert [loads(encoded[item]) for item in range(MANY)] == [[item] for item in range(MANY)]


def test_an_item_that_waits_for_the_result_of_one_before_is_told_of(place: ComputePlace) -> None:
    place.address = f"gspc-trio-test-{os.getpid()}-rows"
    place.job, place.task_id, place.attempt = "j1", 7, 1
    words: list[object] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + place.address)
        listener.listen()
        listener.settimeout(60)

        def wait_at_5(item: int) -> int:
            if item == 5:
                line, _ = listener.accept()
                with line, line.makefile("rb") as said:
                    while head := said.read(FRAME_HEADER.size):
                        words.append(decode_said(said.read(*FRAME_HEADER.unpack(head))))
            return item

        while not words:  # a busy machine may end the range before that item
            done, failed, (results, _, _) = opened(call_items(wait_at_5, None, range(10)))
    assert (done, failed, results) == (6, 0, [*range(6)]), "those behind it go back"
    hello, ended = words
    assert hello == TaskHello("j1", 7, 1)
    assert isinstance(ended, ItemsEnded)
    done, failed, found = open_answer(ended.answer)
    assert (done, failed, open_results(found)) == (5, 0, ([*range(5)], {}, {}))


def reads_of_two_ranges() -> tuple[Reading | None, Reading | None, int]:
    """Return what is told of a range that reads nothing, of one that reads a file, and that file's size."""
    comm = Path("/proc/self/comm")
    meter = Meter(calls=False)
    call_items(abs, False, list(range(MANY)))
    nothing = meter.read(((1, 1),))
    call_items(Path.read_bytes, False, [comm] * MANY)
    return nothing, meter.read(((2, 1),)), len(comm.read_bytes())


def test_a_range_that_reads_nothing_is_not_said_to_have_read() -> None:
    # In a process of its own: threads of what runs the tests read, too, whenever something comes for them.
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        nothing, reading, size_bytes = pool.submit(reads_of_two_ranges).result()
    assert nothing is None
    assert reading is not None
    assert reading.grown[0] >= 2
    assert reading.grown[2] % size_bytes == 0
