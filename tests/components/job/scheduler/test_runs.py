"""Reports and grants that have come at one time: what follows from them is done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.worker.messages import Submit
from gspc_trio.core.machine import IllegalEvent
from tests.components.job.scheduler.support import (
    BOOM,
    FAILED,
    World,
    bad,
    demand,
    finished,
    grant,
    ok,
    ready,
    submit,
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
