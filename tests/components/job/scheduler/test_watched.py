"""Records of single tasks are made only while somebody reads them."""

import pytest
from msgspec.structs import replace

from gspc_trio.components.job.scheduler import finished as finished_module
from gspc_trio.components.job.scheduler import serve, tasks
from gspc_trio.components.job.scheduler.interface import Watched
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import FactColumns, TaskChanged, TaskCounts
from tests.components.job.scheduler.support import (
    FAILED,
    FINISHED,
    JOB,
    RUNNING,
    World,
    bad,
    changed,
    finished,
    grant,
    ok,
    ready,
    singly,
)


def test_who_watches_late_is_told_what_there_is_and_nobody_is_told_of_each_task_otherwise() -> None:
    world = World(1)
    assert world(Watched(False)) == [TaskCounts(0.0, JOB, dict.fromkeys(TaskState, 0))]
    actions = [*world(ready(1, 2, 3)), *world(grant(1), 1.0), *world(finished(1, ok(1, 1, 0.5)), 2.0)]
    actions += world(finished(1, bad(2)), 3.0)
    assert not [action for action in actions if isinstance(action, TaskChanged | TaskCounts)]
    counts, *named = world(Watched(True), 4.0)
    finished_only = {state: int(state is FINISHED) for state in TaskState}
    lately = (changed(2.0, 1, FINISHED, 1, 1, duration_s=0.5),)
    assert counts == TaskCounts(4.0, JOB, finished_only, 0.5, 0.0, ((2, 1),), lately)
    assert [(record.task_id, record.state) for record in named] == [(2, FAILED), (3, RUNNING)]
    assert named[0].detail == "ValueError: boom"
    assert world(Watched(True)) == []


def test_records_in_columns_say_what_single_ones_would(monkeypatch: pytest.MonkeyPatch) -> None:
    staged = replace(ok(25, 1, 0.5), started_s=7.0, staged_s=(1.0, 2.0, 3.0, 4.0), moved=(("h2", 5, 0.1),))
    ended = (*(ok(number, 1, number / 8) for number in range(1, 25)), bad(26), staged)

    def story(columns_min: int) -> tuple[list[list[str]], int]:
        for module in (tasks, serve, finished_module):
            monkeypatch.setattr(module, "COLUMNS_MIN", columns_min)
        world, told, columns = World(1), [], 0
        world.measured()
        for now, event in enumerate([ready(*range(1, 41)), grant(9), finished(1, *ended)], 1):
            actions = world.scheduler.handle(event, float(now))
            records = [one for one in actions if isinstance(one, FactColumns | TaskChanged)]
            columns += sum(isinstance(one, FactColumns) for one in records)
            told.append(sorted(repr(one) for one in singly(records)))
        return told, columns

    single, none = story(1_000)
    packed, some = story(8)
    assert packed == single
    assert (none, some) == (0, 3)
    assert [len(step) for step in single] == [40 + 40, 0, 25 + 2]
