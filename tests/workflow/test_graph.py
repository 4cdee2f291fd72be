from __future__ import annotations

import pickle
from typing import Any

import pytest

from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    FailedThrough,
    Requirement,
    Shape,
    Task,
    TaskError,
    TaskOptions,
    TaskState,
)
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.graph import Ref, TaskGraph

BOOM = TaskError("ValueError", "boom", "File user.py", b"pickled")


def through(task_id: int, name: str, why: str, error: TaskError = BOOM) -> FailedThrough:
    message = f"it depends on {why}"
    return FailedThrough(task_id, name, TaskError(error.kind, message, error.traceback, error.pickled))


def extracted(graph: TaskGraph) -> list[Task]:
    tasks = []
    while (task_id := graph.next()) is not None:
        tasks.append(graph.extract(task_id))
    graph.check()
    return tasks


def test_a_task_without_references_is_ready_at_once() -> None:
    graph = TaskGraph()
    assert graph.add("f", 7, [b"x"]) == 1
    assert graph.next() == 1
    assert graph.next() is None
    assert graph.extract(1) == Task(1, "f", 7, (b"x",), CORE, DEFAULT_OPTIONS)
    graph.inject(1, ((b"r",),))
    assert graph.counts() == {"ready": 0, "submitted": 0, "finished": 1, "failed": 0, "cancelled": 0}


def test_a_task_waits_for_those_it_refers_to_and_gets_their_results() -> None:
    graph = TaskGraph()
    a, b = graph.add("a", 0), graph.add("b", 0)
    graph.add("c", 1, [Ref(a), b"x", Ref(b), Ref(a)])
    assert [task.task_id for task in extracted(graph)] == [1, 2]
    graph.inject(b, ((b"B",),))
    assert extracted(graph) == []
    graph.inject(a, ((b"A",),))
    assert extracted(graph) == [Task(3, "c", 1, (b"A", b"x", b"B", b"A"), distance=-1)]


def test_a_task_may_refer_to_one_that_is_kept_and_has_finished() -> None:
    graph = TaskGraph()
    a = graph.add("a", 0, keep=True)
    extracted(graph)
    graph.inject(a, ((b"A",),))
    graph.add("b", 0, [Ref(a)])
    assert extracted(graph) == [Task(2, "b", 0, (b"A",), distance=-1)]


def test_results_are_kept_only_while_they_are_needed() -> None:
    graph = TaskGraph()
    a, b = graph.add("a", 0), graph.add("b", 0)
    c = graph.add("c", 0, [Ref(a), Ref(b)])
    extracted(graph)
    graph.inject(a, ((b"A",),))
    graph.inject(b, ((b"B",),))
    assert [graph.result(task_id) for task_id in (a, b)] == [b"A", b"B"]
    extracted(graph)
    assert len(graph) == 3
    graph.inject(c, ((b"C",),))
    assert len(graph) == 0


def test_a_kept_task_stays_until_it_is_forgotten() -> None:
    graph = TaskGraph()
    a = graph.add("a", 0, keep=True)
    b = graph.add("b", 0, keep=True)
    extracted(graph)
    graph.inject(a, ((b"A",),))
    graph.fail(b, BOOM)
    assert (graph.state(a), graph.result(a), graph.error(a)) == (TaskState.FINISHED, b"A", None)
    assert (graph.state(b), graph.result(b), graph.error(b)) == (TaskState.FAILED, None, BOOM)
    graph.forget(a)
    graph.forget(b)
    graph.forget(99)
    assert len(graph) == 0
    graph.check()


def test_a_kept_task_that_has_used_others_can_be_forgotten() -> None:
    graph = TaskGraph()
    a = graph.add("a", 0)
    b = graph.add("b", 0, [Ref(a)], keep=True)
    for task_id in (a, b):
        graph.extract(graph.next() or 0)
        graph.inject(task_id, ((b"r",),))
    assert [a in graph, b in graph] == [False, True]
    graph.forget(b)
    assert len(graph) == 0


def test_a_task_that_is_forgotten_before_it_ends_still_runs() -> None:
    graph = TaskGraph()
    a = graph.add("a", 0, keep=True)
    graph.forget(a)
    extracted(graph)
    graph.inject(a, ((b"A",),))
    assert len(graph) == 0


def test_a_failure_fails_all_that_depend_on_it_and_names_the_origin() -> None:
    graph = TaskGraph()
    a, other = graph.add("a", 0), graph.add("other", 0)
    b = graph.add("b", 0, [Ref(a)])
    graph.add("c", 0, [Ref(b), Ref(other)])
    graph.add("d", 0, [Ref(other)])
    extracted(graph)
    why = "task 1 (a), which failed: boom"
    assert graph.fail(a, BOOM) == (through(3, "b", why), through(4, "c", why))
    graph.check()
    assert graph.counts() == {"ready": 1, "submitted": 1, "finished": 0, "failed": 3, "cancelled": 0}
    graph.inject(other, ((b"O",),))
    assert [task.name for task in extracted(graph)] == ["d"]


def test_a_cancellation_fails_what_depends_on_it() -> None:
    graph = TaskGraph()
    a = graph.add("a", 0)
    b = graph.add("b", 0, [Ref(a)])
    graph.add("c", 0, [Ref(b)])
    cancelled = TaskError("cancelled", "")
    assert graph.cancelled(b) == (through(3, "c", "task 2 (b), which was cancelled", cancelled),)
    graph.check()
    assert [task.name for task in extracted(graph)] == ["a"]
    graph.inject(a, ((b"A",),))
    assert len(graph) == 0


def test_a_long_chain_fails_without_recursion() -> None:
    graph = TaskGraph()
    last = graph.add("f", 0)
    for _ in range(5000):
        last = graph.add("f", 0, [Ref(last)])
    extracted(graph)
    assert [failed.task_id for failed in graph.fail(1, BOOM)] == list(range(2, 5002))
    assert len(graph) == 0


@pytest.mark.parametrize("end", ["fail", "cancelled", "gone", "never"])
def test_a_reference_to_what_has_no_result_to_come_is_refused(end: str) -> None:
    graph = TaskGraph()
    a = graph.add("a", 0, keep=end != "gone")
    extracted(graph)
    if end == "fail":
        graph.fail(a, BOOM)
    elif end == "cancelled":
        graph.cancelled(a)
    elif end == "gone":
        graph.inject(a, ((b"A",),))
    reference = Ref(99 if end == "never" else a)
    state = {"fail": "was failed", "cancelled": "was cancelled"}.get(end, "is not there or has gone")
    with pytest.raises(WorkflowError, match=f"task 'b' refers to task {reference.task_id}, which {state}"):
        graph.add("b", 0, [reference])
    graph.check()
    assert graph.add("c", 0) == 2


def calls(graph: TaskGraph) -> dict[str, Any]:
    return {
        "extract": lambda: graph.extract(1),
        "inject": lambda: graph.inject(1, ((b"A",),)),
        "fail": lambda: graph.fail(1, BOOM),
        "cancelled": lambda: graph.cancelled(1),
        "restore": lambda: graph.restore(1),
    }


@pytest.mark.parametrize(
    ("prepare", "legal"),
    [
        ("", "extract cancelled"),
        ("extract", "inject fail cancelled restore"),
        ("extract inject", ""),
        ("extract fail", "restore"),
        ("cancelled", "restore"),
        ("extract fail restore", "extract cancelled"),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_an_illegal_call_raises_and_changes_nothing(prepare: str, legal: str, keep: bool) -> None:
    def prepared() -> TaskGraph:
        graph = TaskGraph()
        graph.add("a", 0, keep=keep)
        for call in prepare.split():
            calls(graph)[call]()
        return graph

    if not keep and legal == "restore":
        legal = ""  # it has gone
    if not keep and prepare.endswith("restore"):
        return
    for name in calls(prepared()):
        graph = prepared()
        before = graph.dump()
        if name in legal.split():
            calls(graph)[name]()
        else:
            with pytest.raises(IllegalEvent, match="task 1 cannot be"):
                calls(graph)[name]()
            assert graph.dump() == before
        graph.check()


@pytest.mark.parametrize("values", [(), ((),), ((b"a", b"b"),), ((b"a",), (b"b",))])
def test_a_result_is_one_value(values: Any) -> None:
    graph = TaskGraph()
    graph.add("a", 0)
    extracted(graph)
    with pytest.raises(IllegalEvent, match="one value"):
        graph.inject(1, values)


def test_a_restored_task_is_handed_out_once_more_and_those_it_failed_stay_failed() -> None:
    graph = TaskGraph()
    a = graph.add("a", 0, [b"x"], keep=True)
    b = graph.add("b", 0, [Ref(a)], keep=True)
    extracted(graph)
    graph.fail(a, BOOM)
    with pytest.raises(IllegalEvent, match="one that it refers to has not finished"):
        graph.restore(b)
    graph.restore(a)
    assert extracted(graph) == [Task(1, "a", 0, (b"x",))]
    graph.inject(a, ((b"A",),))
    assert extracted(graph) == []
    assert graph.state(b) is TaskState.FAILED
    graph.restore(b)
    assert extracted(graph) == [Task(2, "b", 0, (b"A",), distance=-1)]


def test_a_loaded_graph_goes_on_where_it_was_dumped() -> None:
    graph = TaskGraph()
    shape = Shape((Requirement("gpu", ("r1",), True), Requirement()), 5, 2.0, True, True)
    options = TaskOptions(attempts=3, timeout_s=1.5)
    for name in "abc":
        graph.add(name, 0, [name.encode()], keep=name == "a")
    d = graph.add("d", 4, [Ref(1), Ref(2), b"x"], shape, options)
    graph.add("e", 0, [Ref(3)], keep=True)
    assert [graph.next() for _ in range(3)] == [1, 2, 3]
    for task_id in (1, 2):
        graph.extract(task_id)
    graph.inject(1, ((b"A",),))
    graph.cancelled(3)
    loaded = TaskGraph.load(pickle.loads(pickle.dumps(graph.dump())))
    loaded.check()
    assert loaded.counts() == {"ready": 2, "submitted": 0, "finished": 1, "failed": 1, "cancelled": 1}
    assert extracted(loaded) == [Task(2, "b", 0, (b"b",))]
    loaded.inject(2, ((b"B",),))
    assert extracted(loaded) == [Task(d, "d", 4, (b"A", b"B", b"x"), shape, options, -1)]
    assert loaded.error(5) == TaskError("cancelled", "it depends on task 3 (c), which was cancelled")
    assert loaded.add("f", 0) == 6


def test_what_is_no_dump_is_refused() -> None:
    with pytest.raises(WorkflowError, match="no dump of a task graph"):
        TaskGraph.load({"format": 1})
