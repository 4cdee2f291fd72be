"""Tasks of a group end together when a firing names the group: in the engine, in a job, in a journal."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gspc_trio.components.job.journal import JournaledEngine, Outcomes, replay
from gspc_trio.components.job.machine import Begin, JobMachine, JobState
from gspc_trio.components.job.scheduler.interface import ResourcesUp
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.worker.messages import Cancel, Finished, Submit
from gspc_trio.core.code import WHOLE
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, TaskError, TaskState
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.calls import FunctionCall
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net

CORES = tuple(Resource(f"r1.core{number}", "core") for number in range(2))
FOUND = ((dumps(7),),)


def searching(seekers: int = 3) -> Net:
    """Seekers of group "a" or "b"; the first one that finds something ends its group."""
    net = Net("searching")
    net.place("seekers", [("ab"[number % 2], number) for number in range(seekers)])
    net.output("found")
    found = net.place("(found)", may_keep=True)
    net.transition("seek", lambda seeker: seeker, ["seekers"], [found])
    seek = net.transitions["seek"]
    net.transitions["seek"] = replace(seek, group=FunctionCall(lambda seeker: seeker[0], (0,)))
    net.transition("end", lambda _: ({"a"}, 1), [found], ["found"], inline=True)
    end = net.transitions["end"]
    net.transitions["end"] = replace(
        end,
        is_direct=True,
        outputs=(("groups", False), *WHOLE),
        output_arcs=tuple(replace(arc, output=1) for arc in end.output_arcs),
        ends_groups=0,
    )
    return net


def engine_of(net: Net) -> WorkflowEngine:
    return WorkflowEngine(net, dumps=dumps, loads=loads)


def extracted(engine: Any, count: int) -> list[int]:
    tasks = []
    while len(tasks) < count:
        task_id = engine.next()
        assert task_id is not None
        engine.extract(task_id)
        tasks.append(task_id)
    return tasks


def test_tasks_of_a_group_are_dropped_with_their_tokens() -> None:
    engine = engine_of(searching(4))
    assert extracted(engine, 3) == [1, 2, 3]  # of a, b, a
    engine.inject(1, FOUND)
    assert engine.next() == 4  # of b: tokens that wait are not of a group yet
    assert engine.next() is None
    assert engine.discarded == [3]
    assert engine.state(2) is TaskState.SUBMITTED
    engine.check()
    engine.inject(3, FOUND)  # it had ended already: nothing comes of it
    assert engine.outputs() == {"found": [1]}
    with pytest.raises(IllegalEvent):
        engine.inject(3, FOUND)
    assert engine.explain_stuck() == []


def test_results_that_keep_their_order_do_not_wait_for_a_task_that_was_dropped() -> None:
    net = searching(4)  # of groups a, b, a, b
    net.output("sought")
    seek = net.transitions["seek"]
    to_both = (*seek.output_arcs, replace(seek.output_arcs[0], place="sought"))
    net.transitions["seek"] = replace(seek, ordered=True, output_arcs=to_both)
    net.transitions["end"] = replace(net.transitions["end"], condition=FunctionCall(lambda it: it == 7, (0,)))
    engine = engine_of(net)
    assert extracted(engine, 4) == [1, 2, 3, 4]
    engine.inject(4, ((dumps("late"),),))  # it waits for those of 1, 2, 3
    engine.inject(2, ((dumps("later"),),))
    assert engine.outputs()["sought"] == []
    engine.inject(1, FOUND)  # which drops 3
    assert engine.next() is None
    assert engine.discarded == [3]
    assert engine.outputs()["sought"] == [7, "later", "late"]
    engine.check()


def test_later_tasks_of_the_group_are_not_touched() -> None:
    net = searching(3)
    engine = engine_of(net)
    extracted(engine, 1)
    engine.inject(1, FOUND)
    while engine.next() is not None:
        pass
    assert engine.discarded == []
    assert [engine.state(task_id) for task_id in (2, 3)] == ["ready", "ready"]


def test_a_dump_knows_groups_and_dropped_tasks() -> None:
    engine = engine_of(searching(3))
    extracted(engine, 3)
    again = WorkflowEngine.load(engine.net, engine.dump(), dumps=dumps, loads=loads)
    extracted(again, 3)
    again.inject(1, FOUND)
    assert again.next() is None
    assert again.discarded == [3]
    once_more = WorkflowEngine.load(engine.net, again.dump(), dumps=dumps, loads=loads)
    once_more.inject(3, FOUND)
    assert once_more.outputs() == {"found": [1]}
    assert "dropped" not in once_more.dump()


def test_a_journal_drops_the_same_tasks() -> None:
    net = searching(3)
    engine = JournaledEngine(engine_of(net))
    records: list[Any] = [engine.snapshot()]
    extracted(engine, 3)
    assert engine.next() is None
    for task_id in (1, 3):  # 3 has ended before it could be cancelled
        rows = ((task_id, FOUND),)
        records.append(Outcomes(rows, tuple(engine.keys_of(rows))))
        engine.inject(task_id, FOUND)
        assert engine.next() is None
        records += engine.take_steps()
    again = replay(records, lambda state: WorkflowEngine.load(net, state, dumps=dumps, loads=loads))
    assert again.outputs() == engine.engine.outputs() == {"found": [1]}
    assert list(again.activities) == [2]


def test_a_job_cancels_what_runs_and_drops_what_waits() -> None:
    engine = engine_of(searching(6))
    machine = JobMachine("j1", "job", engine, USUAL.scheduler("j1"))

    def handle(event: Any) -> list[Any]:
        actions = machine.handle(event, 0.0)
        machine.check()
        return actions

    at: dict[int, str] = {}

    def note(actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Submit):
                at.update(dict.fromkeys([one.task_id for one in action.submissions], action.resources[0]))

    def ended(task_id: int, reason: Reason, values: Any = (), error: TaskError | None = None) -> list[Any]:
        return handle(Finished("j1", at[task_id], (Outcome(task_id, 1, reason, values, error),)))

    actions = handle(Begin()) + handle(ResourcesUp(CORES))
    for number, core in enumerate(CORES, 1):
        actions += handle(Grant("j1", CORE, (1, number), (core.resource_id,)))
    note(actions)
    assert 1 in at
    actions = ended(1, Reason.FINISHED, FOUND)
    note(actions)
    running = {task_id for action in actions if isinstance(action, Cancel) for task_id, _ in action.attempts}
    assert running == {3, 5} & at.keys()
    assert machine.counts()[TaskState.CANCELLED] == len({3, 5} - running)
    error = TaskError("ValueError", "it was interrupted")
    for task_id, reason in zip(sorted(running), (Reason.CANCELLED, Reason.FAILED), strict=False):
        ended(task_id, reason, error=error)  # the other one has failed before it could be cancelled
    assert machine.failures == []
    assert machine.state is JobState.RUNNING
    assert engine.explain_stuck() == []
