from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.workflow.arcs import Copies, Forward, WorkflowError, each, forward, take
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.states import States, explore

Plain = tuple[tuple[int, ...], list[tuple[dict[int, int], dict[int, int]]]]
"""Tokens of each place; for each transition what it takes and what it makes."""


def net_of(plain: Plain, *, coloured: bool = False) -> Net:
    """A net of tokens that are alike; ``coloured`` has it explored the slow way."""
    tokens, transitions = plain
    net = Net("n")
    for number, count in enumerate(tokens):
        net.place(f"p{number}", [None] * count, may_keep=True)
    for number, (taken, made) in enumerate(transitions):
        inputs = {f"_{place}": take(f"p{place}", count) for place, count in taken.items()}
        first = next(iter(inputs))
        outputs = [Copies(Forward(first, f"p{place}", 0), count) for place, count in made.items()]
        condition = (lambda **_: True) if coloured else None
        net.transition(f"t{number}", None, inputs, outputs, condition=condition)
    return net


def naive(plain: Plain, markings_max: int) -> Mapping[str, object]:
    """What a reader of the definition would do: lists of tokens, one firing after the other."""
    first, transitions = plain
    order, fired, edges, complete, dead = [first], set(), 0, True, []
    for marking in order:
        enabled = False
        for number, (taken, made) in enumerate(transitions):
            if all(marking[place] >= count for place, count in taken.items()):
                enabled = True
                edges += 1
                fired.add(number)
                changed = [
                    count - taken.get(place, 0) + made.get(place, 0) for place, count in enumerate(marking)
                ]
                if tuple(changed) not in order:
                    if len(order) < markings_max:
                        order.append(tuple(changed))
                    else:
                        complete = False
        if not enabled:
            dead.append(marking)
    return {
        "markings": len(order),
        "edges": edges,
        "complete": complete,
        "most_on_place": {f"p{place}": max(m[place] for m in order) for place in range(len(first))},
        "most_tokens": max(sum(marking) for marking in order),
        "deadlocks": len(dead),
        "never": tuple(f"t{number}" for number in range(len(transitions)) if number not in fired),
    }


@st.composite
def plain_nets(draw: st.DrawFn) -> Plain:
    tokens = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    place, most = st.integers(0, len(tokens) - 1), min(3, len(tokens))
    made = st.dictionaries(place, st.integers(1, 3), max_size=most)
    taken = st.dictionaries(place, st.integers(1, 3), min_size=1, max_size=most)
    transitions = draw(st.lists(st.tuples(taken, made), max_size=4))
    while True:  # a net is refused that has a place to take from where no token can come
        filled = {place for _, made in transitions for place in made}
        filled |= {place for place, count in enumerate(tokens) if count}
        left = [one for one in transitions if one[0].keys() <= filled]
        if left == transitions:
            return tuple(tokens), transitions
        transitions = left


@settings(max_examples=100)
@given(plain_nets(), st.integers(1, 60))
def test_both_ways_find_what_a_naive_model_finds(plain: Plain, markings_max: int) -> None:
    expected = naive(plain, markings_max)
    for coloured in (False, True):
        found = explore(net_of(plain, coloured=coloured), markings_max)
        assert {name: getattr(found, name) for name in expected} == expected


def test_places_with_very_many_tokens_are_explored() -> None:
    found = explore(net_of(((1,), [({0: 1}, {0: 1000})])), 50)
    assert (found.markings, found.complete, found.most_tokens) == (50, False, 1 + 49 * 999)


def test_deadlocks_have_examples() -> None:
    found = explore(net_of(((2, 0), [({0: 1}, {1: 1})])), 10)
    assert found == States(3, 2, True, {"p0": 2, "p1": 2}, 2, 1, ({"p1": 2},), ())


def test_values_decide_what_can_fire() -> None:
    net = Net("n")
    numbers = net.place("numbers", [1, 2, 3, 4])
    even, odd = net.output("even"), net.output("odd")
    net.transition("halve", lambda n: n // 2, [numbers], even, condition=lambda n: n % 2 == 0, inline=True)
    net.transition("keep", None, {"n": numbers}, forward("n", odd), condition=lambda n: n % 2 == 1)
    found = explore(net, 1000)
    assert (found.markings, found.edges, found.deadlocks) == (16, 32, 1)
    assert found.most_on_place == {"numbers": 4, "even": 2, "odd": 2}


def test_equal_values_are_one_marking_whichever_token_was_taken() -> None:
    net = Net("n")
    items, out = net.place("items", [[1], [1], {"a": 2}]), net.output("out")
    net.transition("pass", None, [items], [out])
    found = explore(net, 1000)
    assert (found.markings, found.edges) == (6, 7)


def test_1_is_not_true_nor_1_0() -> None:
    net = Net("n")
    items, out = net.place("items", [1, True, 1.0, (1,), (True,)]), net.output("out")
    net.transition("pass", None, [items], [out])
    assert explore(net, 1000).markings == 32


def test_reads_batches_and_priorities() -> None:
    net = Net("n")
    items, permit = net.place("items", [1, 1, 2]), net.place("permit", ["x"], may_keep=True)
    out, low = net.output("out"), net.output("low")
    net.transition(
        "two", None, {"b": take(items, 2)}, forward("b", each(out)), reads={"p": permit}, priority=1
    )
    net.transition("one", None, {"x": items}, forward("x", low))
    found = explore(net, 1000)
    # {1,1} or {1,2} first, then what is left by the other one
    assert (found.markings, found.edges, found.deadlocks, found.never) == (5, 4, 2, ())
    assert found.most_on_place == {"items": 3, "permit": 1, "out": 2, "low": 1}


def test_a_match_pairs_tokens() -> None:
    net = Net("n")
    left, right = net.place("left", [{"k": 1}, {"k": 2}]), net.place("right", [{"k": 2}, {"k": 3}])
    net.transition("join", lambda _a, _b: 0, [left, right], net.output("out"), match="k", inline=True)
    found = explore(net, 1000)
    assert (found.markings, found.edges) == (2, 1)


def test_what_fails_is_told() -> None:
    net = Net("n")
    net.transition("divide", lambda n: 1 // n, [net.place("p", [0, 1])], net.output("out"), inline=True)
    found = explore(net, 1000)
    assert [failure.splitlines()[0] for failure in found.failures] == [
        "transition 'divide': ZeroDivisionError: integer division or modulo by zero"
    ]
    assert found.failures[0].splitlines()[1].startswith("  in the marking '")
    assert (found.markings, found.deadlocks, found.complete) == (2, 0, False)


def test_tasks_cannot_be_explored() -> None:
    net = Net("n")
    net.transition("work", abs, [net.place("p", [0])], net.output("out"))
    with pytest.raises(WorkflowError, match="transition 'work' runs tasks, and nobody knows"):
        explore(net, 10)


def test_hidden_places_do_not_count() -> None:
    net = net_of(((2, 0), [({0: 1}, {1: 1})]))
    found = explore(net, 10, hidden={"p0"})
    assert (found.markings, found.most_tokens, found.most_on_place) == (3, 2, {"p1": 2})
    assert found.deadlock_examples == ({"p1": 2},)


def test_places_that_count_and_places_that_make_values() -> None:
    net = Net("n")
    items, out = net.place("items", [None] * 3), net.output("out")
    net.place("number", may_keep=True)
    net.replace_place("number", counts="items")
    net.place("next", [0], may_keep=True)
    net.replace_place("next", successor=lambda value: value + 1)
    inputs, reads = {"_item": items, "value": "next"}, {"number": "number"}
    names: list[tuple[int, int]] = []

    def note(value: int, number: int) -> int:
        names.append((value, number))
        return value

    net.transition("take", note, inputs, out, reads=reads, inline=True)
    found = explore(net, 1000)
    assert names == [(0, 3), (1, 2), (2, 1)]
    assert (found.markings, found.edges, found.most_on_place["number"]) == (4, 3, 1)


def test_as_many_as_another_input_takes() -> None:
    net = Net("n")
    left, right = net.place("left", [1] * 4, may_keep=True), net.place("right", [2] * 2)
    out = net.output("out")
    inputs = {"left": take(left, least=1, most=3), "right": take(right, as_many_as="left")}
    net.transition("pair", lambda left, right: [*left, *right], inputs, each(out), inline=True)
    found = explore(net, 1000)
    assert (found.markings, found.most_on_place) == (2, {"left": 4, "right": 2, "out": 4})
