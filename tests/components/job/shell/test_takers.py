"""Which tasks would take the result of a task of a net."""

from __future__ import annotations

from typing import Any

from gspc_trio import Net
from gspc_trio.components.job.engine_wrapper import FlowEngine
from gspc_trio.components.job.shell.planning import Takers, plan_job, takers_in
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.core.task import TaskOptions
from gspc_trio.executor.call_table import CallTable
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.engine import WorkflowEngine


def work(*_: Any, **__: Any) -> None:
    """Do nothing; the engine alone is looked at."""


def net_of(**settings: Any) -> Net:
    net = Net("takers")
    net.transition("make", work, inputs=[net.input("seeds", [1, 2])], outputs=[net.place("made")])
    tables, limits = (
        net.place("tables", ["table"], may_keep=True),
        net.place("limits", ["limit"], may_keep=True),
    )
    done = net.output("done")
    net.transition("use", work, inputs=["made", tables], reads=[limits], outputs=[done], **settings)
    return net


def test_those_are_told_alone_of_which_nothing_else_is_possible() -> None:
    assert takers_in(net_of()) == {"make": ("use",)}
    assert takers_in(net_of(inline=True)) == {}
    choice = net_of()
    choice.transition("other", work, inputs=["made"], outputs=["done"])
    assert takers_in(choice) == {}


def test_what_would_take_a_result_has_the_data_that_is_there_meanwhile() -> None:
    engine = WorkflowEngine(net_of(output_bytes=7, requires="gpu"), dumps=dumps, loads=loads)
    data = {dumps("table"), dumps("1")}
    for place in engine.running.places.values():
        for token in place:
            token.data = engine.codec.encode(token)
    takers = Takers(engine, data.__contains__)
    task_id = engine.next()
    assert task_id is not None
    (task,) = takers.of(task_id)
    assert (task.task_id, task.name, task.arguments) == (-task_id, "use", (dumps("table"),))
    assert (task.code_id, task.options) == (engine.plan.code_ids["use"], TaskOptions(output_bytes=7))
    assert task.shape.requirements[0].resource_class == "gpu"
    assert takers.of(99) == []
    engine.extract(task_id)
    engine.inject(task_id, ((dumps(3),),))
    used = engine.next()
    assert used is not None
    assert takers.of(used) == []


def test_a_recorded_job_is_planned_as_any_other() -> None:
    calls: CallTable[Any] = CallTable("executor", lambda _: True)
    calls.graph.add("first", 0)
    calls.graph.add("second", 0)
    for engine in (calls.graph, FlowEngine(calls.graph, calls)):
        _, ahead = plan_job(JobSettings(plan="move"), engine, {}, None)
        assert ahead is not None
        known = ahead.news()
        assert known is not None
        assert [it.task.name for it in known.tasks] == ["first", "second"]
    net = WorkflowEngine(net_of(), dumps=dumps, loads=loads)
    plans, _ = plan_job(JobSettings(plan="move"), FlowEngine(net, net), {}, None)
    assert plans.takers is not None
