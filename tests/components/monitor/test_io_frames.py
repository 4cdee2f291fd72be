import math

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.monitor.frames import add_up
from gspc_trio.components.monitor.io_frames import HostIo, IoFrame, coverage, shares
from gspc_trio.compute.io.area import CALLS, COUNTS, OTHERS, Reading

NONE = (0,) * len(COUNTS)
SUMS = len(OTHERS) + 2 * len(CALLS)


def counts(*, reads: int = 0, read_bytes: int = 0) -> tuple[int, ...]:
    return (reads, 0, read_bytes, 0, 0, 0)


def sums(even: int = 0, odd: int = 0) -> tuple[int, ...]:
    """Of an area in which so many bytes were read in even and odd frames."""
    found = [0] * SUMS
    found[len(OTHERS)], found[len(OTHERS) + len(CALLS)] = even, odd
    return tuple(found)


def reading(*tasks: int, grown: tuple[int, ...] = NONE, at: tuple[int, ...] = NONE, pid: int = 7) -> Reading:
    return Reading(tuple((task, 1) for task in tasks), grown, at, (), pid, -1)


def test_tasks_of_a_batch_share_equally_and_nothing_is_lost() -> None:
    host = HostIo()
    host.told("j", "r1.core0", reading(1, 2, 3, grown=counts(reads=3, read_bytes=100)), 1001.0)
    assert host.close(1003.0) == ()
    assert host.close(math.inf) == (
        IoFrame(1000, "j", "r1.core0", 1, 1, 0.0, {"read_calls": 1, "read_bytes": 34}),
        IoFrame(1000, "j", "r1.core0", 2, 1, 0.0, {"read_calls": 1, "read_bytes": 33}),
        IoFrame(1000, "j", "r1.core0", 3, 1, 0.0, {"read_calls": 1, "read_bytes": 33}),
    )


def test_what_was_seen_while_a_task_runs_is_not_told_again_when_it_ends() -> None:
    host = HostIo()
    host.told("j", "r1.core0", reading(at=counts(read_bytes=50)), 1001.0)
    host.looked(("j", "r1.core0", 4, 1), 7, counts(read_bytes=80), (), 1005.1)
    host.looked(("j", "r1.core0", 4, 1), 7, counts(read_bytes=95), (), 1010.1)
    host.told("j", "r1.core0", reading(4, grown=counts(read_bytes=60), at=counts(read_bytes=110)), 1012.0)
    host.looked(("j", "r1.core0", 5, 1), 7, counts(read_bytes=111), (), 1015.5)
    assert [(one.begin_s, one.task_id, one.amounts) for one in host.close(math.inf)] == [
        (1005, 4, {"read_bytes": 30}),
        (1010, 4, {"read_bytes": 30}),
        (1015, 5, {"read_bytes": 1}),
    ]


def test_an_operation_is_of_the_frame_in_which_it_has_ended_though_it_is_seen_in_the_next() -> None:
    host = HostIo()
    key = ("j", "r1.core0", 4, 1)
    host.looked(key, 7, (), sums(even=10), 1004.9)
    host.looked(key, 7, (), sums(even=15, odd=3), 1005.2)
    host.looked(key, 7, (), sums(even=15, odd=9), 1010.3)
    assert [(one.begin_s, round(one.covered_s, 6), one.amounts) for one in host.close(math.inf)] == [
        (1000, 0.1, {"file_read_bytes": 15}),
        (1005, 5.0, {"file_read_bytes": 9}),
    ]


def test_what_the_kernel_has_counted_is_of_the_frames_in_which_the_library_has_seen_calls_end() -> None:
    places = {name: 2 + number for number, name in enumerate(CALLS)}
    told = [0] * (2 + 2 * len(CALLS))
    told[places["file_read_to_100"]] = 3  # in the frame of even number
    told[len(CALLS) + places["file_write_to_1KiB"]] = 1  # in that of odd number
    grown = counts(reads=7, read_bytes=100)
    host = HostIo()
    host.told("j", "r1.core0", Reading(((4, 1),), grown, grown, tuple(told), 7, 9), 1005.2)
    assert [(one.begin_s, one.amounts) for one in host.close(math.inf)] == [
        (1000, {"file_read_to_100": 3, "read_calls": 5, "read_bytes": 75}),
        (1005, {"file_write_to_1KiB": 1, "read_calls": 2, "read_bytes": 25}),
    ]


def test_of_a_killed_process_what_was_seen_stays_and_the_next_one_begins_anew() -> None:
    host = HostIo()
    host.told("j", "r1.core0", reading(at=counts(read_bytes=50)), 1001.0)
    host.looked(("j", "r1.core0", 4, 1), 7, counts(read_bytes=80), (), 1005.1)
    host.gone("j", "r1.core0")
    host.told("j", "r1.core0", reading(at=counts(read_bytes=20), pid=8), 1006.0)
    host.told(
        "j", "r1.core0", reading(4, grown=counts(read_bytes=70), at=counts(read_bytes=90), pid=8), 1007.0
    )
    assert add_up(one.amounts for one in host.close(math.inf)) == {"read_bytes": 100}


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 500), st.booleans(), st.integers(1, 4), st.floats(0, 9)),
        max_size=30,
    )
)
def test_sums_are_exact_whoever_looks_when(steps: list[tuple[int, int, bool, int, float]]) -> None:
    """A process whose counts grow is read by itself and looked at by its host, in any order."""
    host, total, told, area = HostIo(), 0, 0, [0, 0]
    at_s = 1000.0
    host.told("j", "r1.core0", reading(), at_s)
    frames: list[IoFrame] = []
    for number, (task, more, by_itself, tasks, later_s) in enumerate(steps):
        total += more
        at_s += later_s
        area[int(at_s // 5) % 2] += more
        if by_itself:
            ids = tuple((task + n, 1) for n in range(tasks))
            grown, told = counts(read_bytes=total - told), total
            host.told(
                "j", "r1.core0", Reading(ids, grown, counts(read_bytes=total), sums(*area), 7, -1), at_s
            )
        else:
            host.looked(("j", "r1.core0", task, 1), 7, counts(read_bytes=total), sums(*area), at_s)
        if number % 3 == 0:
            frames += host.close(at_s)
    frames += host.close(math.inf)
    amounts = add_up(one.amounts for one in frames)
    assert amounts.get("read_bytes", 0) == total == amounts.get("file_read_bytes", 0)
    assert all(one.begin_s % 5 == 0 and 0 <= one.covered_s <= 5 for one in frames)
    places = [(one.begin_s, one.task_id) for one in frames]
    assert len(places) == len(set(places))


@given(st.dictionaries(st.sampled_from(COUNTS), st.integers(1, 1000)), st.integers(1, 20))
def test_shares_are_as_equal_as_whole_numbers_can_be(amounts: dict[str, int], count: int) -> None:
    parts = list(shares(amounts, count))
    assert add_up(parts) == amounts
    for name in amounts:
        found = [part.get(name, 0) for part in parts]
        assert max(found) - min(found) <= 1


def test_coverage() -> None:
    assert coverage({}) is None
    assert coverage({"read_bytes": 60, "write_bytes": 40}) == 0.0
    assert (
        coverage({"read_bytes": 60, "write_bytes": 40, "file_read_bytes": 50, "other_write_bytes": 25})
        == 0.75
    )
