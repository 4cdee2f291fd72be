"""Tokens that somebody has asked with, and the answers to them."""

from __future__ import annotations

import gc

import pytest

from gspc_trio.workflow.arcs import WorkflowError, each, forward, respond, take
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.tokens import Asker, Token
from tests.workflow.support import Driver, engine_for, reloaded


class Person:
    """Asks, and remembers what it was told."""

    def __init__(self, engine: WorkflowEngine, value: object) -> None:
        self.told: list[object] = []
        self._engine = engine
        engine.put("questions", [value], Asker(self._tell))

    def _tell(self, token: Token | None) -> None:
        self.told.append(None if token is None else self._engine.value_of(token))


def double(number: int) -> int:
    return 2 * number


def open_net() -> Net:
    net = Net("answers")
    net.input("questions", is_open=True)
    return net


@pytest.mark.parametrize("inline", [True, False])
def test_an_answer_goes_to_who_has_asked_with_that_token(inline: bool) -> None:
    net = open_net()
    results = net.output("results")
    net.transition("answer", double, ["questions"], [results, respond(0)], inline=inline)
    engine = engine_for(net)
    first, second = Person(engine, 1), Person(engine, 2)
    engine.put("questions", [3])
    Driver(engine, lambda number: number - 1).run()
    assert (first.told, second.told) == ([2], [4])
    assert sorted(engine.outputs()["results"]) == [2, 4, 6]
    engine.ports.close("questions")
    assert engine.explain_stuck() == []


def test_a_token_that_is_passed_on_is_answered_further_on() -> None:
    net = open_net()
    between = net.place("between")
    net.transition("pass", None, {"all": take("questions", most=2)}, forward("all", each(between)))
    net.transition("echo", None, {"question": between}, respond("question"))
    engine = engine_for(net)
    person = Person(engine, "hello")
    Driver(engine).run()
    assert person.told == ["hello"]


def test_who_asks_in_vain_is_told_when_the_token_is_gone() -> None:
    net = open_net()
    net.transition("forget", double, ["questions"], net.output("results"))
    engine = engine_for(net)
    person = Person(engine, 1)
    assert person.told == []
    Driver(engine).run()
    gc.collect()
    assert person.told == [None]


def test_a_dump_knows_of_nobody_who_waits() -> None:
    net = open_net()
    net.transition("answer", double, ["questions"], respond(0))
    engine = engine_for(net)
    person = Person(engine, 1)
    other = reloaded(engine)
    Driver(other).run()
    assert person.told == []
    assert other.explain_stuck() == []


def test_an_answer_is_to_an_input() -> None:
    net = open_net()
    with pytest.raises(WorkflowError, match="it forwards 'question', which is none of its inputs: 0"):
        net.transition("answer", double, ["questions"], respond("question"))
