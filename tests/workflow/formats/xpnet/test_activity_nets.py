"""Nets of xpnet that are activities, and what becomes of firings that fail."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from gspc_trio.workflow.activities import engine_of, loaded_engine
from gspc_trio.workflow.calls import TransitionFailed
from gspc_trio.workflow.tokens import Asker
from tests.workflow.formats.xpnet.nets import OUT, net, outputs, place, problems, read, step, subnet

NUMBERED = """
<place name="next" type="int" generator="true"/><place name="numbered" type="int"/>
<transition name="number">
  <defun>
    <in name="n" type="int"/><in name="y" type="int"/><out name="z" type="int"/>
    <expression>${z} := ${y} * 10 + ${n}</expression>
  </defun>
  <connect-in port="n" place="next"/><connect-in port="y" place="y"/>
  <connect-out port="z" place="numbered"/>
</transition>"""


@pytest.mark.parametrize(
    ("attributes", "made"),
    [("", ["20", "30"]), ('inline="true"', ["20", "31"]), ('inline="true" priority="1"', ["20", "30"])],
)
def test_an_activity_has_places_of_its_own(attributes: str, made: list[str]) -> None:
    sub = subnet(attributes, inside=NUMBERED)
    sub = sub.replace('name="y" type="int" place="y"', 'name="y" type="int" place="numbered"')
    body = place("a", tokens=("1", "2")) + place("b") + sub
    assert not read(net(body, OUT)).notes
    assert outputs(net(body, OUT)) == {"b": made}


def test_the_outer_priority_says_which_activity_begins_first() -> None:
    sub = subnet('priority="2"', "<condition>${x} :gt: 1</condition>")
    body = place("a", tokens=("1", "2", "3")) + place("b") + step("${x} * 100") + sub
    assert outputs(net(body, OUT)) == {"b": ["3", "4", "100"]}


def test_a_list_that_an_activity_gives_falls_apart() -> None:
    sub = (
        subnet("")
        .replace("<connect-out ", "<connect-out-many ")
        .replace('<out name="y" type="int" place="y"/>', '<out name="y" type="list" place="y"/>')
    )
    sub = sub.replace('<place name="y" type="int"/>', '<place name="y" type="list"/>')
    sub = sub.replace('<out name="y" type="int"/>', '<out name="y" type="list"/>').replace(
        "${x} + 1", "List (${x}, ${x})"
    )
    sub = sub.replace(
        '<connect-in port="x" place="x"/><connect-out-many port="y" place="y"/>',
        '<connect-in port="x" place="x"/><connect-out port="y" place="y"/>',
    )
    body = place("a", tokens=("1", "2")) + place("b") + sub
    assert outputs(net(body, OUT)) == {"b": ["1", "1", "2", "2"]}


def test_an_activity_answers_who_has_asked() -> None:
    foreign = read(
        net(
            place("a", attributes='put_token="true"')
            + place("b")
            + subnet("", '<connect-response port="y" to="x"/>'),
            OUT,
        )
    )
    engine = engine_of(foreign.net, foreign.workflow().values, dumps=pickle.dumps, loads=pickle.loads)
    answers: list[Any] = []
    engine.put("a", [6], Asker(lambda token: answers.append(token and engine.value_of(token))))
    while engine.next() is not None or engine.has_more:
        pass
    assert answers == [7]
    refused = problems(net(place("a") + place("b") + subnet(more='<connect-response port="y" to="x"/>'), OUT))
    assert [line.partition(": ")[2] for line in refused] == [
        "the net of this transition is unfolded, and nobody answers for all of it: connect the response of a "
        "transition in it"
    ]


def test_the_number_of_tokens_counts_what_activities_hold() -> None:
    more = '<connect-number-of-tokens port="held" place="a"/>'
    sub = subnet("").replace(
        '<in name="x" type="int" place="x"/>',
        '<in name="x" type="int" place="x"/><in name="held" type="unsigned long" place="held"/>',
        1,
    )
    sub = sub.replace('<connect-in port="x" place="a"/>', f'<connect-in port="x" place="a"/>{more}')
    sub = sub.replace('<place name="y" type="int"/>', '<place name="y" type="int"/>' + HELD)
    sub = sub.replace('<out name="y" type="int" place="y"/>', '<out name="y" type="int" place="z"/>')
    body = place("a", tokens=("1", "2", "3")) + place("b") + sub
    assert outputs(net(body, OUT)) == {"b": ["23", "32", "41"]}


HELD = """
<place name="held" type="unsigned long"/><place name="z" type="int"/>
<transition name="tell">
  <defun>
    <in name="y" type="int"/><in name="held" type="unsigned long"/><out name="z" type="int"/>
    <expression>${z} := ${y} * 10 + int(${held})</expression>
  </defun>
  <connect-in port="y" place="y"/><connect-in port="held" place="held"/>
  <connect-out port="z" place="z"/>
</transition>"""


def test_a_transition_that_takes_nothing_fires_until_its_condition_does_not_hold() -> None:
    fill = """
    <transition name="fill">
      <defun>
        <in name="there" type="unsigned long"/><out name="y" type="int"/>
        <condition>${there} :lt: 3UL</condition><expression>${y} := int(${there})</expression>
      </defun>
      <connect-number-of-tokens port="there" place="b"/><connect-out port="y" place="b"/>
    </transition>"""
    assert outputs(net(place("b") + fill, OUT)) == {"b": ["0", "1", "2"]}


def test_a_failure_of_an_expression_is_one_line_and_with_keep_going_the_others_go_on() -> None:
    foreign = read(net(place("a", tokens=("1", "0", "2")) + place("b") + step("12 div ${x}"), OUT))
    engine = engine_of(foreign.net, dumps=pickle.dumps, loads=pickle.loads)
    with pytest.raises(TransitionFailed) as caught:
        engine.next()
    message = "transition 'step': net.xpnet:5:25: 12 div ${x}: division by zero (${x} = 0)"
    assert str(caught.value) == message
    engine.keep_going()
    while engine.next() is not None or engine.has_more:
        pass
    engine.check()
    assert engine.failures == [message]
    assert engine.outputs() == {"b": [12, 6]}
    again = loaded_engine(engine.net, engine.dump(), dumps=pickle.dumps, loads=pickle.loads)
    again.restore_all()
    assert [len(again.running.places[name]) for name in ("a", "b")] == [1, 2]


def test_a_failure_of_an_expression_in_an_activity_ends_that_alone() -> None:
    sub = subnet("").replace("${x} + 1", "12 div ${x}")
    foreign = read(net(place("a", tokens=("0", "2")) + place("b") + sub, OUT))
    engine = engine_of(foreign.net, dumps=pickle.dumps, loads=pickle.loads)
    engine.keep_going()
    while engine.next() is not None or engine.has_more:
        pass
    engine.check()
    (failure,) = engine.failures
    assert failure.startswith("activity 1 (sub) failed: transition 'sub.inc': net.xpnet:")
    assert failure.endswith("12 div ${x}: division by zero (${x} = 0)")
    assert engine.outputs() == {"b": [6]}


def test_a_condition_that_fails_does_not_hold_with_keep_going() -> None:
    more = "<condition>4 div ${x} :eq: 2</condition>"
    foreign = read(net(place("a", tokens=("0", "2")) + place("b") + step(more=more), OUT))
    engine = engine_of(foreign.net, dumps=pickle.dumps, loads=pickle.loads)
    engine.keep_going()
    while engine.next() is not None or engine.has_more:
        pass
    assert engine.outputs() == {"b": [3]}
    assert [failure.partition(": ")[2].partition(" ")[2] for failure in engine.failures] == [
        "4 div ${x}: division by zero (${x} = 0)"
    ]
