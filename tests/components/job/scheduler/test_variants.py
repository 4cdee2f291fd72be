"""Tasks with variants: which one runs, and when a task that waits changes to another (SCH-7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    ResourcesLost,
    ResourcesUp,
    RetryTask,
    Stop,
    TaskDone,
    TasksReady,
)
from gspc_trio.components.rm.messages import Demand, Grant, Recall, Refuse
from gspc_trio.components.worker.messages import Finished, Submit
from gspc_trio.core.demand import DemandWanted, GroupRefused, TaskDemand
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    Outcome,
    Reason,
    Requirement,
    Shape,
    Task,
    TaskError,
    TaskOptions,
    TaskState,
    TaskVariant,
    TaskVariants,
)
from gspc_trio.policies.queues import Queues
from gspc_trio.policies.scheduling import SchedulingPolicy
from tests.components.job.scheduler.support import BOOM, JOB, World, bad, ended, ok

GPU, FPGA = (Shape((Requirement(name),)) for name in ("gpu", "fpga"))
FASTER_ON_GPU = TaskVariants((TaskVariant("gpu", 1, GPU, 1.0, (b"lead",)), TaskVariant("cpu", 2, CORE, 4.0)))
IN_ORDER = TaskVariants((TaskVariant("gpu", 1, GPU), TaskVariant("cpu", 2, CORE)), in_order=True)
CLASSES = {1: "gpu", 2: "core", 3: "fpga"}


class Cluster:
    """A scheduler that has been told of resources, with the grants that it was given."""

    POLICY = SchedulingPolicy()

    def __init__(self, **numbers: int) -> None:
        self.world = World(cores=0, policy=self.POLICY)
        self.last = 0
        if numbers:
            self.up(**numbers)

    def up(self, **numbers: int) -> list[Any]:
        """Say that there are so many resources of these classes."""
        resources = [
            Resource(f"r1.{name}{index}", name) for name, number in numbers.items() for index in range(number)
        ]
        return self.world.do(ResourcesUp(tuple(resources)))

    def ready(
        self,
        *task_ids: int,
        variants: TaskVariants = FASTER_ON_GPU,
        options: TaskOptions = DEFAULT_OPTIONS,
    ) -> list[Any]:
        """Make tasks ready; return what is asked for then, by class."""
        first = variants.ways[0]
        tasks = tuple(
            Task(task_id, "solve", first.code_id, (b"x",), first.shape, options, 0, variants)
            for task_id in task_ids
        )
        return asked(self.world.do(TasksReady(tasks)))

    def grant(self, name: str, shape: Shape | None = None, now: float | None = None) -> list[Any]:
        """Grant a resource; return what is submitted to it: task, class for which its code is, arguments."""
        self.last += 1
        shape = shape or Shape((Requirement(name[3:].rstrip("0123456789")),))
        return sent(self.world.do(Grant(JOB, shape, (1, self.last), (name,)), now))

    def finished(self, name: str, *outcomes: Outcome, now: float | None = None) -> list[Any]:
        """End attempts at a resource; return all that is done then."""
        return self.world.do(Finished(JOB, name, outcomes), now)

    def explain(self, task_id: int) -> str:
        return self.world.scheduler.explain(task_id)


def asked(actions: list[Any]) -> list[tuple[str, int]]:
    return [
        (action.shape.requirements[0].resource_class, action.credit)
        for action in actions
        if isinstance(action, Demand)
    ]


def sent(actions: list[Any]) -> list[tuple[str, list[tuple[int, str]]]]:
    return [
        (action.resources[0], [(one.task_id, CLASSES[one.code_id]) for one in action.submissions])
        for action in actions
        if isinstance(action, Submit)
    ]


def failed(actions: list[Any]) -> list[str]:
    return [
        action.outcome.error.message
        for action in actions
        if isinstance(action, TaskDone) and action.outcome.error is not None
    ]


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each resource has a queue."""
    monkeypatch.setattr(Cluster, "POLICY", SchedulingPolicy(assign=Queues()))


def test_the_variant_that_ends_first_is_asked_for_and_runs_with_its_own_arguments() -> None:
    cluster = Cluster(gpu=1, core=2)
    assert cluster.ready(1) == [("gpu", 1)]
    (submit,) = [
        one for one in cluster.world.do(Grant(JOB, GPU, (1, 1), ("r1.gpu0",))) if isinstance(one, Submit)
    ]
    assert [(one.task_id, one.code_id, one.arguments) for one in submit.submissions] == [
        (1, 1, (b"lead", b"x"))
    ]
    assert cluster.explain(1) == (
        "task 1 (solve[gpu]) runs on r1.gpu0; variant gpu (0 s wait, 1 s run as stated), "
        "not cpu (0 s wait, 4 s run as stated)"
    )


def test_work_is_shared_by_what_waits_for_each_class() -> None:
    """The GPU takes four times as many: each task goes where it ends first, the earlier ones counted."""
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(*range(1, 11))
    ways = [cluster.world.scheduler._state.choices[n].way for n in range(1, 11)]
    assert ways == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


def test_a_class_that_is_not_there_drops_out_and_one_that_comes_is_taken() -> None:
    cluster = Cluster(core=1)
    assert cluster.ready(1, 2, 3) == [("core", 3)]
    assert cluster.grant("r1.core0") == [("r1.core0", [(1, "core")])]
    assert cluster.explain(2).endswith("; variant cpu (4 s wait, 4 s run as stated), not gpu (no gpu)")
    cluster.up(gpu=1)
    assert asked(cluster.world.do(Tick())) == [("core", 0), ("gpu", 2)]
    assert cluster.grant("r1.gpu0") == [("r1.gpu0", [(2, "gpu")])]


def test_a_class_that_vanishes_gives_its_tasks_to_another() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(1, 2)
    cluster.grant("r1.gpu0")
    cluster.world.do(ResourcesLost(("r1.gpu0",), "host lost"))
    assert asked(cluster.world.do(Tick())) == [("gpu", 0), ("core", 2)]
    assert cluster.world.scheduler.explain(2).startswith("task 2 (solve[cpu]) waits for core")


def test_an_idle_resource_takes_what_waits_for_another_class_if_that_ends_sooner() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(*range(1, 7))  # the fifth goes to the core
    cluster.grant("r1.gpu0")
    assert cluster.grant("r1.core0", Shape((Requirement("core"),))) == [("r1.core0", [(5, "core")])]
    done = cluster.finished("r1.core0", ok(5, duration_s=1.4))  # four tasks wait for the GPU
    assert sent(done) == [("r1.core0", [(2, "core")])]
    done = cluster.finished("r1.core0", ok(2, duration_s=1.4))
    assert sent(done) == [("r1.core0", [(3, "core")])]


def test_an_idle_resource_leaves_what_ends_sooner_elsewhere() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(1, 2)
    cluster.grant("r1.gpu0")
    assert cluster.grant("r1.core0") == []
    assert sent(cluster.finished("r1.gpu0", ok(1, duration_s=1.0))) == [("r1.gpu0", [(2, "gpu")])]


def test_a_resource_that_does_not_come_is_waited_for_no_longer_than_the_other_variant_takes() -> None:
    cluster = Cluster(gpu=1, core=1)
    assert cluster.ready(1) == [("gpu", 1)]  # another job holds it
    told: list[tuple[str, int]] = []
    for step in range(1, 100):
        told += asked(cluster.world.do(Tick(), step / 10))
        if told:
            break
    assert told == [("gpu", 0), ("core", 1)]
    assert 3.0 <= cluster.world.now <= 4.2


def test_in_order_the_first_free_one_is_taken_and_else_the_first_that_gets_free() -> None:
    cluster = Cluster(gpu=1, core=2)
    cluster.ready(1, 2, 3, variants=IN_ORDER)
    assert cluster.grant("r1.core1") == [("r1.core1", [(2, "core")])]
    assert cluster.grant("r1.gpu0") == [("r1.gpu0", [(1, "gpu")])]
    assert cluster.grant("r1.core0") == [("r1.core0", [(3, "core")])]
    cluster.ready(4, 5, variants=IN_ORDER)
    cluster.world.do(CancelTasks((4,)))  # which would be the next of the GPU
    assert sent(cluster.finished("r1.gpu0", ok(1, duration_s=99.0))) == [("r1.gpu0", [(5, "gpu")])]


def test_an_attempt_after_a_failure_takes_another_variant() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(1, options=TaskOptions(attempts=3))
    cluster.grant("r1.gpu0")
    cluster.finished("r1.gpu0", bad(1))
    assert asked(cluster.world.do(Tick(), 10.0)) == [("core", 1)]
    assert cluster.grant("r1.core0") == [("r1.core0", [(1, "core")])]
    assert "not gpu (its attempt failed)" in cluster.explain(1)
    cluster.finished("r1.core0", bad(1, 2))
    assert sent(cluster.world.do(Tick(), 30.0)) == [("r1.gpu0", [(1, "gpu")])], "all have failed: anew"
    done = cluster.finished("r1.gpu0", bad(1, 3))
    assert failed(done) == ["boom"]
    assert cluster.world.do(RetryTask(1)) != []
    cluster.finished("r1.gpu0", ok(1, 4))
    assert cluster.world.scheduler.status()[TaskState.FINISHED] == 1
    assert cluster.world.scheduler._state.choices == {}


def test_a_lost_process_counts_against_the_variant_and_a_lost_host_does_not() -> None:
    cluster = Cluster(gpu=2, core=1)
    cluster.ready(1, 2)
    cluster.grant("r1.gpu0")
    cluster.grant("r1.gpu1")
    cluster.finished("r1.gpu0", ended(1, Reason.LOST))
    assert cluster.world.scheduler._state.choices[1].way == 1
    cluster.world.do(ResourcesLost(("r1.gpu1",), "host lost"))
    assert cluster.world.scheduler._state.choices[2].way == 0


def test_what_is_refused_drops_out_and_with_none_left_the_task_has_failed() -> None:
    cluster = Cluster()
    assert cluster.ready(1) == [("gpu", 1)]
    actions = cluster.world.do(Refuse(JOB, GPU, "there is no gpu"))
    assert asked(actions) == [("gpu", 0), ("core", 1)]
    assert cluster.explain(1).endswith("not gpu (refused: there is no gpu)")
    actions = cluster.world.do(Refuse(JOB, CORE, "there is no core"))
    assert failed(actions) == ["none of its variants can run: gpu: there is no gpu; cpu: there is no core"]
    cluster.world.do(RetryTask(1))
    cluster.world.do(CancelTasks((1,)))
    assert cluster.world.scheduler._state.choices == {}


def test_a_grant_that_was_recalled_lets_tasks_go_elsewhere_one_after_the_other() -> None:
    """The wait for the GPU grows until the core, with all that waits there, would be sooner."""
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(1, 2, 3, 4, 5, 6, 7, 8)
    cluster.grant("r1.gpu0")
    cluster.world.do(Recall(JOB, ((1, 1),)))
    cluster.finished("r1.gpu0", ok(1, duration_s=1.0))
    cluster.grant("r1.core0")
    gone = []
    for second in range(1, 29):
        cluster.world.do(Tick(), float(second))
        ways = [choice.way for choice in cluster.world.scheduler._state.choices.values()]
        gone.append(ways.count(1))
    assert gone == sorted(gone), "nobody goes back meanwhile"
    assert (gone[0], gone[-1]) == (1, 7)


@pytest.mark.parametrize("options", [DEFAULT_OPTIONS, TaskOptions(may_rerun=False)])
def test_measured_times_take_the_place_of_what_is_not_stated(options: TaskOptions) -> None:
    unknown = TaskVariants((TaskVariant("gpu", 1, GPU), TaskVariant("cpu", 2, CORE)))
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(1, 2, variants=unknown, options=options)
    cluster.grant("r1.gpu0")
    cluster.grant("r1.core0")
    cluster.finished("r1.gpu0", ok(1, duration_s=2.0))
    cluster.finished("r1.core0", ok(2, duration_s=0.5))
    cluster.ready(3, variants=unknown, options=options)
    assert cluster.explain(3).startswith("task 3 (solve[cpu]) runs on r1.core0; variant cpu (0 s wait, 0.5 s")


def test_a_task_that_would_begin_now_begins_elsewhere_if_it_ends_sooner_there_by_what_is_known_now() -> None:
    cluster = Cluster(gpu=1, core=1)
    unknown = TaskVariants((TaskVariant("gpu", 1, GPU), TaskVariant("cpu", 2, CORE)))
    cluster.ready(*range(1, 7), variants=unknown)
    assert cluster.grant("r1.gpu0") == [("r1.gpu0", [(1, "gpu")])]
    assert cluster.grant("r1.core0") == [("r1.core0", [(2, "core")])]
    for task_id, then in ((1, 3), (3, 5), (5, 4)):
        actions = cluster.finished("r1.gpu0", ok(task_id, duration_s=1.0), now=float(task_id))
        assert sent(actions) == [("r1.gpu0", [(then, "gpu")])]
    assert "6 (solve[cpu]) waits for core" in cluster.explain(6)
    assert sent(cluster.finished("r1.core0", ok(2, duration_s=9.0), now=5.5)) == []
    assert "6 (solve[gpu]) waits for gpu" in cluster.explain(6)


def test_an_error_of_a_task_is_told_as_ever() -> None:
    cluster = Cluster(gpu=1)
    cluster.ready(1)
    cluster.grant("r1.gpu0")
    (end,) = [one for one in cluster.finished("r1.gpu0", bad(1)) if isinstance(one, TaskDone)]
    assert (end.name, end.state, end.outcome.error) == ("solve[gpu]", TaskState.FAILED, BOOM)
    assert end.outcome.error != TaskError("refused", "")


def test_while_a_job_drains_nobody_is_woken_to_look_again() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(1, 2)
    cluster.grant("r1.gpu0")
    cluster.world.do(Stop("enough", drain=True), 1.0)
    cluster.world.do(ResourcesLost(("r1.core0",), "host lost"))
    cluster.world.do(Tick(), 5.0)
    assert cluster.world.scheduler.deadline() is None


def test_a_group_of_tasks_that_no_host_can_run_is_refused_whichever_variants_need_the_same() -> None:
    cluster = Cluster()
    cluster.world.do(DemandWanted(True))
    cluster.ready(1)
    (told,) = [one for one in cluster.world.do(Tick(), 1.0) if isinstance(one, TaskDemand)]
    actions = cluster.world.do(GroupRefused(told.groups[0], "no host"))
    assert failed(actions) == ["none of its variants can run: gpu: no host; cpu: no host"]


class Counted(dict[Any, Any]):
    """Counts how often all of it is looked at."""

    looks = 0

    def values(self) -> Any:
        """Return them, and count that."""
        self.looks += 1
        return super().values()


def on_hosts(number: int) -> TasksReady:
    """Tasks that would each rather be on a host of their own, every third one without variants."""
    tasks = []
    for task_id in range(1, number + 1):
        shapes = [Shape((Requirement(name, (f"h{task_id}",)),)) for name in ("gpu", "core")]
        ways = TaskVariants((TaskVariant("gpu", 1, shapes[0], 1.0), TaskVariant("cpu", 2, shapes[1], 4.0)))
        variants = ways if task_id % 3 else None
        tasks.append(Task(task_id, "solve", 1, (b"x",), shapes[0], DEFAULT_OPTIONS, 0, variants))
    return TasksReady(tuple(tasks))


def test_tasks_that_come_together_choose_as_they_do_one_after_the_other() -> None:
    together, apart = Cluster(gpu=2, core=1), Cluster(gpu=2, core=1)
    for cluster in (together, apart):
        cluster.ready(1001)
        cluster.grant("r1.gpu0")
    event = on_hosts(30)
    together.world.do(event)
    for one in event.tasks:
        apart.world.do(TasksReady((one,)))
    costs = [
        [choice.costs for choice in one.world.scheduler._state.choices.values()] for one in (together, apart)
    ]
    assert costs[0] == costs[1]


def test_what_it_costs_to_choose_does_not_grow_with_what_others_wait_for() -> None:
    cluster = Cluster(gpu=2, core=2)
    state = cluster.world.scheduler._state
    state.queues = queues = Counted()
    few = TasksReady(tuple(one for one in on_hosts(100).tasks if one.variants is not None))
    cluster.world.scheduler.handle(few, 0.0)
    assert queues.looks < 10
    cluster.world.do(Tick(), 1.0)
    queues.looks = 0
    cluster.world.scheduler.handle(Tick(), 10.0)
    assert queues.looks < 10


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize(
    "test",
    [
        test_a_class_that_is_not_there_drops_out_and_one_that_comes_is_taken,
        test_an_idle_resource_takes_what_waits_for_another_class_if_that_ends_sooner,
        test_in_order_the_first_free_one_is_taken_and_else_the_first_that_gets_free,
    ],
)
def test_what_waits_in_the_queue_of_a_resource_changes_as_well(test: Callable[[], None]) -> None:
    test()
