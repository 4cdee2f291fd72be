"""Activities: firings of transitions that are nets. They hold their tokens, and fail as one."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import Task, TaskError, TaskState
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from tests.workflow.model import activity_of, spread_net
from tests.workflow.support import compute, engine_for, next_task, reloaded

BOOM = TaskError("ValueError", "boom")


def pairs(*tokens: int, width: int = 2, depth: int = 1) -> Net:
    """Each token becomes an activity with a task for each of some numbers from it on."""
    net = Net("outer")
    source, results = net.place("source", tokens), net.output("results")
    net.transitions["spread"] = activity_of("spread", spread_net("spread", width, depth), source, results)
    return net


def pulled(engine: WorkflowEngine) -> list[Task]:
    tasks = []
    while (task_id := next_task(engine)) is not None:
        tasks.append(engine.extract(task_id))
        engine.check()
    return tasks


def finish(engine: WorkflowEngine, *tasks: Task) -> None:
    for task in tasks:
        engine.inject(task.task_id, compute(engine, task))
        engine.check()


def argument(task: Task) -> Any:
    return pickle.loads(task.arguments[0])


def test_an_activity_gives_all_its_results_at_once() -> None:
    engine = engine_for(pairs(10, 20))
    tasks = pulled(engine)
    assert [(task.name, argument(task)) for task in tasks] == [
        ("spread.double", 10),
        ("spread.double", 11),
        ("spread.double", 20),
        ("spread.double", 21),
    ]
    finish(engine, tasks[3], tasks[0])
    assert pulled(engine) == []
    assert engine.outputs() == {"results": []}
    assert engine.counts()[TaskState.SUBMITTED] == 2
    finish(engine, tasks[2])
    assert pulled(engine) == []
    assert engine.outputs() == {"results": [42, 40]}
    finish(engine, tasks[1])
    assert pulled(engine) == []
    assert engine.outputs() == {"results": [42, 40, 20, 22]}
    assert engine.is_at_rest()
    assert not engine.explain_stuck()
    assert engine.counts() == dict.fromkeys(engine.counts(), 0) | {TaskState.FINISHED: 4}


def test_a_failure_cancels_its_siblings_and_no_others() -> None:
    engine = engine_for(pairs(10, 20))
    first, second, *others = pulled(engine)
    engine.fail(first.task_id, BOOM)
    engine.check()
    assert engine.discarded == [second.task_id]
    assert engine.failures == ["activity 1 (spread) failed: task 2 (spread.double) failed: ValueError: boom"]
    finish(engine, second)  # it had ended before it could be cancelled, and is not done again
    finish(engine, *others)
    assert pulled(engine) == []
    assert engine.outputs() == {"results": [40, 42]}
    assert engine.explain_stuck() == [
        "activity 1 (spread) was failed and keeps the tokens it took: "
        "task 2 (spread.double) failed: ValueError: boom"
    ]
    with pytest.raises(IllegalEvent, match=r"is of activity 1 \(spread\), which failed as a whole"):
        engine.restore(first.task_id)
    engine.restore_all()
    again = pulled(engine)
    assert [task.task_id for task in again] == [first.task_id]
    finish(engine, *again)
    assert pulled(engine) == []
    assert sorted(engine.outputs()["results"]) == [20, 22, 40, 42]


def test_an_activity_in_an_activity_fails_with_it() -> None:
    engine = engine_for(pairs(10, depth=2))
    tasks = pulled(engine)
    assert [argument(task) for task in tasks] == [10, 11, 11, 12]
    engine.fail(tasks[2].task_id, BOOM)
    engine.check()
    assert sorted(engine.discarded) == [tasks[0].task_id, tasks[1].task_id, tasks[3].task_id]
    for task_id in engine.discarded:
        engine.cancelled(task_id)
    assert len(engine.failures) == 2
    assert pulled(engine) == []
    assert engine.counts()[TaskState.FAILED] == 1
    engine.restore_all()
    again = pulled(reloaded(engine))
    assert [(task.name, argument(task)) for task in again] == [(task.name, argument(task)) for task in tasks]


def test_a_task_that_is_cancelled_cancels_its_activity() -> None:
    engine = engine_for(pairs(10))
    first, second = pulled(engine)
    engine.cancelled(first.task_id)
    assert engine.discarded == [second.task_id]
    assert engine.failures == []
    assert engine.explain_stuck() == ["activity 1 (spread) was cancelled and keeps the tokens it took"]


def test_all_nets_are_described_before_anything_runs() -> None:
    engine = engine_for(pairs(10, depth=2))
    assert [one.name for one in engine.describe().transitions] == [
        "spread",
        "spread.split",
        "spread.spread",
        "spread.spread.split",
        "spread.spread.double",
    ]
    tasks = pulled(engine)
    states = {one.name: one.states for one in engine.describe().transitions if one.states}
    assert states == {
        "spread": {TaskState.RUNNING: 1},
        "spread.spread": {TaskState.RUNNING: 2},
        "spread.spread.double": {TaskState.SUBMITTED: 4},
    }
    finish(engine, *tasks)
    assert pulled(engine) == []
    done = {one.name: (one.fired, one.done) for one in engine.describe().transitions}
    assert done["spread.spread"] == (2, 2)
    assert done["spread.spread.double"] == (4, 4)


def leaves(value: int, width: int, depth: int) -> list[int]:
    parts = [value + number for number in range(width)]
    return parts if depth == 1 else [leaf for part in parts for leaf in leaves(part, width, depth - 1)]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sets(st.integers(0, 12), max_size=3),
    st.sampled_from([None, 1]),
    st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_each_activity_gives_everything_or_nothing(
    tokens: list[int], width: int, depth: int, bad: set[int], seed: int | None, order: int
) -> None:
    """In any order of ends, with dumps between, and when cancelled tasks end late."""
    net, dice = pairs(*tokens, width=width, depth=depth), random.Random(order)
    net.seed = seed
    engine = engine_for(net)
    engine.keep_going()
    wanted = [[2 * leaf for leaf in leaves(token, width, depth)] for token in tokens]
    good = [made for made in wanted if not bad & {value // 2 for value in made}]
    for failing, left in ((bad, good), (set[int](), wanted)):
        running: list[Task] = []
        while True:
            running += pulled(engine)
            if not running:
                break
            task = running.pop(dice.randrange(len(running)))
            if argument(task) in failing:
                engine.fail(task.task_id, BOOM)
            else:
                finish(engine, task)
            for task_id in engine.discarded if dice.random() < 0.7 else ():
                engine.cancelled(task_id)
                running = [one for one in running if one.task_id != task_id]
            engine.discarded.clear()
            engine.check()
            if dice.random() < 0.2:
                engine, running = reloaded(engine), []
                engine.check()
        assert sorted(engine.outputs()["results"]) == sorted(value for made in left for value in made)
        assert len(engine.explain_stuck()) == len(wanted) - len(left)
        engine.restore_all()
        engine.check()
