"""Run times of tasks with variants: what is learned of them, and who tries what nobody knows (SCH-7)."""

from __future__ import annotations

from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import ResourcesLost, ResourcesUp
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, TaskVariant, TaskVariants
from tests.components.job.scheduler.support import bad, ok
from tests.components.job.scheduler.test_variants import GPU, Cluster

STATED_ON_CORES = TaskVariants((TaskVariant("gpu", 1, GPU), TaskVariant("cpu", 2, CORE, 1.0)))
UNKNOWN = TaskVariants((TaskVariant("gpu", 1, GPU), TaskVariant("cpu", 2, CORE)))


def ways(cluster: Cluster) -> list[int | None]:
    return [choice.way for _, choice in sorted(cluster.world.scheduler._state.choices.items())]


def test_what_is_not_known_is_tried_by_one_task_at_a_time_and_by_a_tenth_at_most() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(*range(1, 10), variants=STATED_ON_CORES)
    assert set(ways(cluster)) == {1}, "nine tasks: a tenth of them is none"
    cluster.ready(10, 11, variants=STATED_ON_CORES)
    assert ways(cluster)[9:] == [0, 1]
    cluster.ready(*range(12, 30), variants=STATED_ON_CORES)
    assert ways(cluster)[11:] == [1] * 18, "it is being tried"
    cluster.grant("r1.gpu0")
    assert cluster.explain(10).endswith(
        "variant gpu (0 s wait, its run time is not known, and is tried), "
        "not cpu (9 s wait, 1 s run as stated)"
    )
    cluster.finished("r1.gpu0", ok(10, duration_s=0.1))
    assert cluster.world.scheduler._state.trying.values(), "the next one tries, which waited for the core"
    cluster.ready(30, variants=STATED_ON_CORES)
    assert "gpu (" in cluster.explain(30)
    assert "0.1 s run by 1 sample" in cluster.explain(30)


def test_after_three_samples_it_is_known() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(*range(1, 40), variants=STATED_ON_CORES)
    cluster.grant("r1.gpu0")
    for _ in range(3):
        (tried,) = cluster.world.scheduler._state.trying.values()
        cluster.finished("r1.gpu0", ok(tried, duration_s=0.01))
    assert cluster.world.scheduler._state.trying == {}
    cluster.ready(50, variants=STATED_ON_CORES)
    assert "variant gpu (" in cluster.explain(50)
    assert "0.01 s run by 3 samples" in cluster.explain(50)


def test_neither_failures_nor_the_first_run_of_a_process_tell_how_long_tasks_run() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(1, 2, 3, variants=UNKNOWN)
    cluster.grant("r1.gpu0")
    cluster.grant("r1.core0")
    cluster.finished("r1.gpu0", replace(ok(1, duration_s=3.0), first_run=True))
    cluster.finished("r1.core0", ok(2, attempt=7, duration_s=9.0))
    cluster.finished("r1.core0", bad(2))
    cluster.finished("r1.gpu0", ok(3, duration_s=2.0))
    cluster.ready(4, variants=UNKNOWN)
    assert cluster.explain(4).count("2 s run by 1 sample)") == 1
    assert cluster.explain(4).count("its run time is not known") == 1


def test_the_processors_of_a_class_and_the_size_of_the_input_count() -> None:
    cluster = Cluster()
    for host, processor, cores in (("r1", "old", 1), ("r2", "new", 3)):
        node = Resource(f"{host}.node", "node", processor=processor)
        below = (Resource(f"{host}.core{number}", "core") for number in range(cores))
        cluster.world.do(ResourcesUp((node, *below)))
    only = TaskVariants((TaskVariant("cpu", 2, CORE),), size=100)
    cluster.ready(*range(1, 9), variants=only)
    cluster.grant("r1.core0", CORE)
    cluster.grant("r2.core0", CORE)
    for name, seconds, times in (("r1.core0", 4.0, 3), ("r2.core0", 1.0, 1)):
        _run(cluster, name, seconds, times)
    assert "4 s run by 3 samples" in _chosen(cluster, 20, only), "one sample of the new ones is too few"
    _run(cluster, "r2.core0", 1.0, 2)
    assert "1.75 s run by 3 samples" in _chosen(cluster, 21, only), "of four cores, one is old"
    assert "its run time is not known" in _chosen(cluster, 22, replace(only, size=200))
    cluster.world.do(ResourcesLost(("r1.core0",), "it is gone"))
    assert "1 s run by 3 samples" in _chosen(cluster, 23, only)


def _run(cluster: Cluster, name: str, seconds: float, times: int) -> None:
    for _ in range(times):
        ((_, task_id, attempt),) = cluster.world.scheduler.sent_to((name,))
        cluster.finished(name, ok(task_id, attempt, duration_s=seconds))


def test_what_has_been_tried_is_tried_next_by_the_first_that_waits() -> None:
    """Both variants need a core: whoever changes keeps its place."""
    both = TaskVariants((TaskVariant("new", 1, CORE), TaskVariant("old", 2, CORE, 1.0)))
    cluster = Cluster(core=1)
    cluster.ready(*range(1, 41), variants=both)
    cluster.grant("r1.core0", CORE)
    for task_id in range(1, 41):
        way = cluster.world.scheduler._state.choices[task_id].way
        assert way == (0 if task_id >= 10 else 1)
        now = cluster.world.now + 1.0
        cluster.finished("r1.core0", ok(task_id, duration_s=0.01 if way == 0 else 1.0), now=now)
        cluster.world.do(Tick())


def _chosen(cluster: Cluster, task_id: int, variants: TaskVariants) -> str:
    cluster.ready(task_id, variants=variants)
    return cluster.explain(task_id)


def test_who_tries_in_vain_or_goes_elsewhere_leaves_it_to_others() -> None:
    cluster = Cluster(gpu=1, core=1)
    cluster.ready(*range(1, 12), variants=STATED_ON_CORES)
    assert cluster.world.scheduler._state.trying == {("solve", "gpu", 0): 10}
    cluster.world.do(ResourcesLost(("r1.gpu0",), "host lost"))
    cluster.world.do(Tick(), 1.0)
    tallies = cluster.world.scheduler._state.tallies["solve"]
    assert (cluster.world.scheduler._state.trying, tallies.trials) == ({}, 0)
