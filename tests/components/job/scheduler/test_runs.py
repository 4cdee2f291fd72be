"""Reports and grants that have come at one time: what follows from them is done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from gspc_trio.components.job.scheduler.interface import TaskDone, TasksReady, Watched
from gspc_trio.components.worker.messages import Finished, Submit
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import Reason
from tests.components.job.scheduler.support import (
    BOOM,
    FAILED,
    World,
    bad,
    core,
    demand,
    ended,
    finished,
    grant,
    ok,
    ready,
    submit,
    task,
)


def together(world: World, *events: Any) -> tuple[list[TaskDone], list[Submit], list[int]]:
    """Let events come at one time; return which tasks have ended, what is sent, and which were illegal."""
    illegal: list[int] = []

    def refuse(place: int, _error: IllegalEvent) -> None:
        illegal.append(place)

    actions: Sequence[Any] = world.scheduler.handle_run(events, world.now, refuse)
    world.scheduler.check()
    ended = [action for action in actions if isinstance(action, TaskDone)]
    return ended, [action for action in actions if isinstance(action, Submit)], illegal


def test_grants_that_came_together_get_their_tasks_and_what_came_twice_changes_nothing() -> None:
    world = World(cores=3)
    assert world.do(ready(1, 2, 3)) == [demand(3)]
    _, sent, illegal = together(world, grant(1), grant(2), grant(2), grant(3))
    assert sent == [submit(1, (1, 1)), submit(2, (2, 1)), submit(3, (3, 1))]
    assert illegal == [2]


def test_reports_that_came_together_bring_their_results_in_order_and_each_worker_one_task_more() -> None:
    world = World(cores=3)
    world.do(ready(*range(1, 7)))
    for number in (1, 2, 3):
        world.do(grant(number))
    long = {"duration_s": 9.0}
    ended, sent, illegal = together(
        world, finished(2, ok(2, **long)), finished(1, ok(1, **long)), finished(3, bad(3))
    )
    assert [(one.task_id, one.outcome.error) for one in ended] == [(2, None), (1, None), (3, BOOM)]
    assert ended[2].state is FAILED
    assert not illegal
    assert sorted(one.grant_id[1] for one in sent) == [1, 2, 3]
    assert sorted(it.task_id for one in sent for it in one.submissions) == [4, 5, 6]
    assert all(len(one.submissions) == 1 for one in sent)  # nothing goes behind what takes long


def busy_world() -> World:
    """Return one whose four cores run one task each, and have run others; long ones of two codes wait."""
    world = World(cores=4)
    world(Watched(False))
    world(TasksReady(tuple(task(number, code_id=1 + number % 3 // 2) for number in range(1, 31))))
    for number in range(1, 5):
        world(grant(number))
    for number, task_id in sorted(at_work(world).items()):
        world(finished(number, ok(task_id, duration_s=9.0)))
    return world


def at_work(world: World) -> dict[int, int]:
    """Return which task each core runs."""
    grants = world.scheduler._state.grants.values()
    return {held.grant_id[1]: next(iter(held.sent)) for held in grants if held.sent}


def report(kind: str, number: int, task_id: int) -> Finished:
    """Return a report of a core that runs a task."""
    good = ok(task_id, duration_s=9.0)
    return {
        "good": finished(number, good),
        "staged": finished(number, ok(task_id, duration_s=9.0, staged_s=(1.0, 2.0, 0.0, 0.0))),
        "bad": finished(number, bad(task_id)),
        "lost": finished(number, ended(task_id, Reason.LOST)),
        "old": finished(number, ok(task_id, attempt=7)),
        "unknown": finished(number, ok(999)),
        "elsewhere": finished(number % 4 + 1, good),
        "none": finished(number),
        "twice": finished(number, good, good),
        "foreign": Finished("j2", core(number), (good,)),
    }[kind]


def known_of(world: World) -> list[Any]:
    """Return what a scheduler knows of what has ended."""
    state = world.scheduler._state
    times = {key: (it.samples, pytest.approx(it.average_s)) for key, it in state.times.items()}
    return [state.stale, state.finished, state.attempts, asdict(state.sums), times]


KINDS = ("good", "staged", "bad", "lost", "old", "unknown", "elsewhere", "none", "twice", "foreign")


@given(st.lists(st.tuples(st.sampled_from(("good", *KINDS)), st.integers(1, 4)), min_size=1, max_size=8))
def test_reports_that_come_together_end_tasks_as_those_that_come_one_by_one(kinds: list[Any]) -> None:
    apart, world = busy_world(), busy_world()
    runs = at_work(world)
    reports = [report(kind, number, runs[number]) for kind, number in kinds]
    ends: list[TaskDone] = []
    illegal = []
    for place, event in enumerate(reports):
        try:
            ends += [action for action in apart.do(event) if isinstance(action, TaskDone)]
        except IllegalEvent:
            illegal.append(place)
    found, sent, refused = together(world, *reports)
    assert (found, refused) == (ends, illegal)
    assert known_of(apart) == known_of(world)
    assert sorted(at_work(apart)) == sorted(at_work(world))
    assert all(len(one.submissions) == 1 for one in sent)
