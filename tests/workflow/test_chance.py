"""Choices by a seed: each with the same chance, and made again by a dump and a journal."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

from gspc_trio.components.job.journal import JournaledEngine, Outcomes, replay
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net

CODEC: dict[str, Any] = {"dumps": pickle.dumps, "loads": pickle.loads}


def racing(seed: int | None, tokens: int = 6) -> Net:
    """Three transitions race for tokens; one of them takes only even ones, one pairs of equal parity."""
    net = Net("racing")
    net.seed = seed
    net.place("tokens", range(tokens))
    net.output("taken")
    net.transition("any", lambda x: ("any", x), {"x": "tokens"}, ["taken"], inline=True)
    net.transition(
        "even", lambda x: ("even", x), {"x": "tokens"}, ["taken"], condition=lambda x: x % 2 == 0, inline=True
    )
    net.transition(
        "pair",
        lambda x, y: ("pair", x, y),
        {"x": "tokens", "y": "tokens"},
        ["taken"],
        condition=lambda x, y: (x - y) % 2 == 0,
        inline=True,
    )
    return net


def outputs(net: Net, pauses: int = 16) -> list[Any]:
    engine = WorkflowEngine(net, **CODEC)
    engine.firings_max = pauses
    while engine.next() is not None or engine.has_more:
        engine = WorkflowEngine.load(net, engine.dump(), **CODEC) if pauses == 1 else engine
        engine.firings_max = pauses
        engine.check()
    return engine.outputs()["taken"]


def test_all_choices_have_the_same_chance() -> None:
    first = Counter(outputs(racing(seed, 2))[0] for seed in range(600))
    # of 0 and 1, "any" and "even" can fire: one half each, and "any" takes either token
    assert set(first) == {("any", 0), ("any", 1), ("even", 0)}
    assert abs(first["even", 0] - 300) < 75
    assert abs(first["any", 0] - 150) < 60
    assert abs(first["any", 1] - 150) < 60


def test_a_seed_makes_the_same_choices_again_also_after_a_dump() -> None:
    found = [outputs(racing(seed)) for seed in range(20)]
    assert len(set(map(str, found))) > 10
    assert found == [outputs(racing(seed)) for seed in range(20)]
    assert found == [outputs(racing(seed), pauses=1) for seed in range(20)]


def test_first_come_is_the_default() -> None:
    assert outputs(racing(None, 3)) == [("any", 0), ("even", 2), ("any", 1)]


def test_a_journal_makes_the_same_choices_again() -> None:
    net = racing(3)
    net.place("work", range(8))
    net.transition("work", lambda x: x, ["work"], ["tokens"])
    engine = JournaledEngine(WorkflowEngine(net, **CODEC))
    records: list[Any] = [engine.snapshot()]
    waiting: list[int] = []
    while True:
        task_id = engine.next()
        if task_id is not None:
            engine.extract(task_id)
            waiting.append(task_id)
        elif not engine.engine.has_more:
            if not waiting:
                break
            done = waiting.pop(len(waiting) // 2)
            values = ((pickle.dumps(done),),)
            records.append(Outcomes(((done, values),)))
            engine.inject(done, values)
    records += engine.take_steps()
    again = replay(records, lambda state: WorkflowEngine.load(net, state, **CODEC))
    assert again.outputs() == engine.engine.outputs()
    assert again.dump() == engine.engine.dump()
