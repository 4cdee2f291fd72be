from __future__ import annotations

from gspc_trio.workflow.definition import terminate
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm
from tests.workflow.support import engine_for, run


def search_net() -> Net:
    """Tries numbers for ever; the first square found is the answer."""
    net = Net("search")
    candidates, tries = net.place("candidates", [40]), net.place("tries")
    net.transition(
        "more",
        lambda n: {"try": n, "next": n + 1},
        [candidates],
        {"try": tries, "next": candidates},
        inline=True,
    )
    net.transition("check", lambda n: n, [tries], net.output("tried"), priority=1)
    found = net.output("found", final=True)
    net.transition(
        "is square",
        None,
        {"n": net.places["tried"]},
        found,
        condition=lambda n: n in (49, 64),
        priority=2,
        inline=True,
    )
    return net


def test_a_net_without_final_ports_is_left_as_it_is() -> None:
    net = farm(abs)
    assert terminate(net) is net


def test_the_given_net_is_not_changed_and_a_second_termination_adds_nothing() -> None:
    net = search_net()
    before = (list(net.places), list(net.transitions))
    ending = terminate(net)
    assert (list(net.places), list(net.transitions)) == before
    assert list(ending.transitions) == [*net.transitions, "(terminate at found)"]
    assert terminate(ending) is ending


def test_the_first_token_at_a_final_port_ends_the_workflow() -> None:
    engine = engine_for(terminate(search_net()))
    while (task_id := engine.next()) is not None:
        task = engine.extract(task_id)
        engine.inject(task_id, ((task.arguments[0],),))
    assert engine.is_stopped
    assert engine.outputs()["found"] == [49]
    assert engine.explain_stuck() == []
    assert engine.is_at_rest()


def test_what_runs_when_the_workflow_ends_is_still_taken_in() -> None:
    net = Net("race")
    net.transition("go", lambda n: n, [net.input("numbers")], net.output("first", final=True))
    engine = engine_for(terminate(net), numbers=[1, 2, 3])
    tasks = [engine.extract(engine.next() or 0) for _ in range(2)]
    for task in reversed(tasks):
        engine.inject(task.task_id, ((task.arguments[0],),))
        assert engine.next() is None
    assert engine.outputs() == {"first": [2, 1]}


def test_a_workflow_that_never_reaches_its_final_port_just_ends() -> None:
    net = Net("nothing")
    net.transition(
        "go", None, {"n": net.input("numbers")}, net.output("end", final=True), condition=lambda n: n > 9
    )
    engine = run(terminate(net), {"numbers": []}).engine
    assert not engine.is_stopped
    assert engine.explain_stuck() == []
