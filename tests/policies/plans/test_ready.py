"""Where tasks go that can run: where they end first, or where least is brought and all end in time."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gspc_trio.components.job.plan import Following, HostsNow, Links, PlanData, PlanHost, PlanTask, ReadyTask
from gspc_trio.policies.plans.ready import Board, place_by_bytes, place_by_end

GB = 10**9


def ready(task_id: int, run_s: float, *inputs: PlanData, after_s: float = 0.0) -> ReadyTask:
    return ReadyTask(PlanTask(task_id, inputs=inputs, run_s=run_s), after_s)


def hosts(*speeds: float, racks: str = "") -> dict[str, PlanHost]:
    return {
        f"h{number}": PlanHost(f"h{number}", racks[number : number + 1], speed=speed)
        for number, speed in enumerate(speeds)
    }


def board(there: dict[str, PlanHost], free_s: Sequence[Sequence[float]]) -> Board:
    return Board(HostsNow(there, dict(zip(there, free_s, strict=True)), Links(), {}))


def ahead(**changes: float) -> Following:
    return Following(changes.get("late_s", 0.0), changes.get("work_s", 0.0), {}, {}, {})


def places(found: Sequence[object]) -> list[str]:
    return [getattr(place, "host", "") for place in found]


def test_a_task_goes_where_it_ends_first_by_wait_transfer_and_run() -> None:
    there, data = hosts(1, 1, 4), PlanData(2 * GB, ("h0",), "d")
    task = ready(1, 8.0, data)
    assert places(place_by_end([task], board(there, ([0.0], [0.0], [0.0])))) == ["h2"]  # 2 + 8 / 4
    assert places(place_by_end([task], board(there, ([0.0], [0.0], [5.0])))) == ["h0"]
    assert places(place_by_end([task], board(there, ([3.0], [0.0], [9.0])))) == ["h1"]  # 2 + 8 before 3 + 8


def test_what_is_brought_for_one_task_is_there_for_the_next_when_it_has_come() -> None:
    there, data = hosts(1, 1), PlanData(2 * GB, ("h0",), "d")
    tasks = [ready(number, 8.0, data) for number in range(3)]
    found = place_by_end(tasks, board(there, ([9.0], [0.0, 0.0])))
    assert places(found) == ["h1", "h1", "h0"]
    assert [place and place.moved_bytes for place in found] == [2 * GB, 0, 0]
    assert [place and place.end_s for place in found] == [10.0, 10.0, 17.0]


def test_those_go_first_after_which_most_follows() -> None:
    there = hosts(1, 2)
    tasks = [ready(1, 4.0), ready(2, 4.0, after_s=9.0)]
    assert places(place_by_end(tasks, board(there, ([0.0], [0.0])))) == ["h0", "h1"]


def test_a_task_waits_for_its_data_if_all_end_as_soon_as_without_a_plan_nevertheless() -> None:
    there, data = hosts(1, 1), PlanData(2 * GB, ("h0",), "d")
    tasks = [ready(1, 3.0, data), ready(2, 3.0, data), ready(3, 9.0, PlanData(GB, ("h1",), "e"))]
    free_s = ([0.0], [0.0])
    assert places(place_by_bytes(tasks, lambda: board(there, free_s), ahead())) == ["h0", "h0", "h1"]
    alone = tasks[:2]
    assert places(place_by_bytes(alone, lambda: board(there, free_s), ahead())) == ["h0", "h1"]
    assert places(place_by_bytes(alone, lambda: board(there, free_s), ahead(late_s=6.0))) == ["h0", "h0"]
    busy = ahead(late_s=6.0, work_s=7.0)  # all cores are needed
    assert places(place_by_bytes(alone, lambda: board(there, free_s), busy)) == ["h0", "h1"]


def test_tasks_stay_in_the_rack_of_their_data_if_what_follows_ends_no_later_by_that() -> None:
    there, data = hosts(1, 1, 1, 1, racks="aabb"), PlanData(GB, ("h0",), "d")
    there = {name: replace(host, uplink_bytes_per_s=GB / 20) for name, host in there.items()}
    tasks = [ready(number, 20.0, data, after_s=60.0) for number in range(1, 5)]
    free_s = ([0.0], [0.0], [0.0], [0.0])
    following = Following(0.0, 0.0, {}, {number: [9] for number in range(1, 5)}, {9: 60.0})
    found = place_by_bytes(tasks, lambda: board(there, free_s), following)
    assert set(places(found)) == {"h0", "h1"}
    assert sum(place.moved_bytes for place in found if place is not None) == GB


def test_no_host_will_do() -> None:
    task = ReadyTask(PlanTask(1, features=frozenset({"gpu"}), run_s=1.0))
    assert place_by_bytes([task], lambda: board(hosts(1), ([0.0],)), None) == [None]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12),
    st.lists(st.sampled_from([1.0, 2.0]), min_size=3, max_size=40),
)
def test_no_plan_by_bytes_ends_later_than_one_by_end_and_none_at_all(
    kinds: list[tuple[int, int, int]], speeds: list[float]
) -> None:
    there = hosts(*speeds)
    tasks = [
        ready(number, float(run_s), PlanData(size * GB, (f"h{home}",), f"d{home}, {size}"))
        for number, (run_s, size, home) in enumerate(kinds)
    ]
    free_s = [[0.0]] * len(there)
    by_end = place_by_end(tasks, board(there, free_s))
    by_bytes = place_by_bytes(tasks, lambda: board(there, free_s), None)
    naive: list[float] = [0.0] * len(speeds)
    for task in tasks:  # the core that is free first
        number = naive.index(min(naive))
        data = task.task.inputs[0]
        fetch_s = 0.0 if f"h{number}" in data.hosts else data.size_bytes / 1e9
        naive[number] += fetch_s + task.task.run_s / speeds[number]
    ends = [max(it.end_s for it in found if it is not None) for found in (by_end, by_bytes)]
    assert all(places(by_bytes))
    assert ends[1] <= max(ends[0], max(naive)) + 1e-6
