"""Which of the tasks that wait is the next: by priority, then the nearer to the end, then the first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.scheduler.interface import CancelTasks, TasksReady
from gspc_trio.components.job.scheduler.state import ShapeQueue, TaskEntry
from gspc_trio.components.job.scheduler.waiting import Waiting, rank_of
from gspc_trio.components.rm.messages import Demand
from gspc_trio.components.worker.messages import Submit
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import Shape, Task, TaskOptions
from tests.components.job.scheduler.support import (
    CORE,
    DEFAULT_OPTIONS,
    JOB,
    World,
    bad,
    core,
    finished,
    grant,
    ok,
    ready,
    task,
)

URGENT = TaskOptions(priority=10)
LATER = TaskOptions(priority=-1)
LARGE = Shape(memory_bytes=100)


def sent(actions: list[object]) -> list[int]:
    """The ids of the tasks that were submitted."""
    return [one.task_id for action in actions if isinstance(action, Submit) for one in action.submissions]


def far(task_id: int, distance: int, options: TaskOptions = DEFAULT_OPTIONS) -> Task:
    return Task(task_id, "work", 1, (), CORE, options, distance)


def order(world: World, first: int, number: int) -> list[int]:
    """In which order tasks run one by one on core 1, where ``first`` runs."""
    ran = [first]
    for _ in range(number - 1):
        ran += sent(world.do(finished(1, ok(ran[-1], duration_s=1.0))))
    return ran


def test_the_highest_priority_gets_the_next_grant() -> None:
    world = World()
    world(ready(*range(1, 101)))
    world(ready(101, options=LATER))
    world(ready(102, options=URGENT))
    world(ready(103))
    assert sent(world.do(grant(1))) == [102]
    assert order(world, 102, 103) == [102, *range(1, 101), 103, 101]


def test_of_equal_priority_what_is_nearer_to_the_end_goes_first() -> None:
    world = World()
    world(TasksReady((far(1, 2), far(2, 0), far(3, 1), far(4, 0), far(5, 7, URGENT))))
    assert sent(world.do(grant(1))) == [5]
    assert order(world, 5, 5) == [5, 2, 4, 3, 1]


def test_a_task_that_failed_elsewhere_waits_for_its_turn_too() -> None:
    world = World(2)
    world(ready(1, options=TaskOptions(attempts=2)))
    world(grant(1))
    world(ready(8, 9, 10))
    world(grant(2))
    assert sent(world.do(finished(1, bad(1)))) == [9]
    world(Tick(), 0.5)
    assert world.scheduler.explain(1) == "task 1 (work) waits for another core than r1.core1"
    world(ready(5, options=URGENT))
    assert sent(world.do(finished(2, ok(8, duration_s=1.0)))) == [5], "not the one that may only run here"
    assert sent(world.do(finished(2, ok(5, duration_s=1.0)))) == [1]


def test_a_task_that_comes_back_is_the_first_of_its_rank() -> None:
    world = World()
    world(ready(1, 2, 3, options=LATER))
    world(grant(1))
    world(ready(4))
    world(CancelTasks((2,)))
    assert world.scheduler.explain(3) == (
        "task 3 (work) waits for core: 1 are before it; 1 grants are held, 2 more are asked for"
    )
    assert order(world, 1, 3) == [1, 4, 3]


def test_the_resource_manager_is_told_of_priorities_when_there_are_several_shapes() -> None:
    world = World()
    assert world.do(ready(1, options=URGENT)) == [Demand(JOB, CORE, 1, (0, 0))]
    assert world.do(ready(2, shape=LARGE)) == [
        Demand(JOB, CORE, 1, (0, 0), 10),
        Demand(JOB, LARGE, 1, (0, 0)),
    ]
    assert world.do(ready(3, shape=LARGE, options=LATER)) == [Demand(JOB, LARGE, 2, (0, 0))]
    assert world.do(ready(4, shape=LARGE, options=URGENT)) == [Demand(JOB, LARGE, 3, (0, 0), 10)]
    assert world.do(CancelTasks((4,)))[-1] == Demand(JOB, LARGE, 2, (0, 0))


def test_results_held_stay_few_when_each_is_used_up_by_a_task_nearer_to_the_end() -> None:
    """150 tasks whose results 150 others use up: on two cores no more than a few results wait."""
    world = World(2)
    world(TasksReady(tuple(far(n, 1) for n in range(1, 151))))
    running = sent(world.do(grant(1))) + sent(world.do(grant(2)))
    waiting = most = 0
    while running:
        task_id = running.pop(0)
        place = next(held for held in world.scheduler._state.grants.values() if task_id in held.sent)
        done = world.do(finished(int(place.resource_id.removeprefix("r1.core")), ok(task_id)))
        if task_id <= 150:
            waiting += 1
            done += world.do(TasksReady((far(1_000 + task_id, 0),)))
        else:
            waiting -= 1
        most = max(most, waiting)
        running += sent(done)
    assert world.scheduler.live == 0
    assert most <= 6


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(0, 2)), max_size=60))
def test_what_waits_is_in_the_order_of_a_sorted_list(steps: list[tuple[int, int, int]]) -> None:
    """Against a list that is sorted anew each time: add, put first, take the first, remove one."""
    waiting, model, queue = Waiting(), [], ShapeQueue(CORE, "core", True)
    for number, (what, priority, distance) in enumerate(steps):
        entry = TaskEntry(far(number, distance, TaskOptions(priority=priority)), queue, False)
        model.sort(key=lambda it: rank_of(it.task))
        if what == 0:
            waiting.row(rank_of(entry.task))[number] = entry
            waiting.size += 1
            model.append(entry)
        elif what == 1:
            waiting.put_first(entry)
            model.insert(0, entry)
        elif what == 2 and model:
            assert waiting.first() is model[0]
            waiting.remove(model.pop(0))
        elif model:
            waiting.remove(model.pop(priority % len(model)))
        model.sort(key=lambda it: rank_of(it.task))
        waiting.check()
        assert list(waiting) == model
        assert all(it in waiting for it in model)
        assert (waiting.first() is None) == (not model)


def test_what_was_sent_ahead_is_not_sent_again_for_a_higher_priority() -> None:
    """At most about 2 ms of work, or one task, is before it on each worker: no message is worth that."""
    world = World()
    world.measured(seconds=3e-6)
    world(ready(1, 2, 3, 4))
    assert sent(world.do(ready(5, options=URGENT))) == [5]
    assert [action for action in world.do(Tick()) if not isinstance(action, Submit)] == []
    assert f"in the queue of {core(1)}; " in world.scheduler.explain(5)
    assert task(1).distance == 0


def test_a_queue_that_is_left_alone_keeps_the_priority_that_was_told() -> None:
    """With no other one beside it that matters to nobody."""
    world = World()
    world(ready(1, shape=LARGE))
    assert world.do(ready(2, options=URGENT))[-1] == Demand(JOB, CORE, 1, (0, 0), 10)
    assert [one for one in world.do(CancelTasks((1,))) if isinstance(one, Demand)] == [
        Demand(JOB, LARGE, 0, (0, 0))
    ]
