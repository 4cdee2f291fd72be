"""Inline transitions that fire for long: others have their turn, and who fires for ever is named."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio import Net, Workflow, each, farm, map_reduce, take
from gspc_trio.components.job.machine import TURN_S, TURNS_MAX, Begin, JobEnded, JobMachine
from gspc_trio.components.job.scheduler.interface import Stop, Stopped
from gspc_trio.core.machine import Tick
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.records.facts import JobChanged
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.engine import FIRINGS_MAX, WorkflowEngine
from gspc_trio.workflow.structure import EndlessLoop, could_fire_for_ever, distances
from tests.workflow.support import engine_for, next_task


def same(number: Any) -> Any:
    return number


def spinning(**options: int) -> Net:
    """A transition from a place to itself."""
    net = Net("spinning", **options)
    numbers = net.place("numbers", [1])
    net.transition("spin", same, numbers, numbers, inline=True)
    return net


def counting(first: int, **options: int) -> Net:
    """Counts up to 10, which it misses if it begins behind that."""
    net = Net("counting", **options)
    numbers = net.place("numbers", [first])
    net.transition(
        "count", lambda n: n + 1, {"n": numbers}, numbers, inline=True, condition=lambda n: n != 10
    )
    net.transition("end", None, {"n": numbers}, net.output("out"), condition=lambda n: n == 10)
    return net


def generating(number: int, **options: int) -> Net:
    """A loop that makes tokens, one after the other, without a task."""
    net = Net("generating", **options)
    left, made = net.place("left", [number]), net.output("made")
    net.transition("make", lambda n: {"left": n - 1, "made": n}, {"n": left}, {"left": left, "made": made},
        inline=True, condition=lambda n: n > 0,
    )  # fmt: skip
    net.transition("end", None, {"n": left}, net.output("rest"), condition=lambda n: n == 0)
    return net


def sifting() -> Net:
    """Several inline transitions in a row: long, if there are many tokens, but never endless."""
    net = Net("sifting", inline_firings_max=2)
    items, kept, pairs = net.input("items"), net.place("kept"), net.place("pairs")
    net.transition("keep", same, items, each(kept), inline=True)
    net.transition("pair", list, [take(kept, 2)], pairs, inline=True)
    net.transition("end", None, [pairs], net.output("out"))
    return net


@pytest.mark.parametrize(
    ("net", "names"),
    [
        (spinning(), {"spin"}),
        (counting(1), {"count", "end"}),
        (generating(1), {"make", "end"}),
        (sifting(), set()),
        (farm(same), set()),
        (map_reduce(same, sum), set()),
    ],
    ids=lambda it: it.name if isinstance(it, Net) else "",
)
def test_only_what_lives_on_its_own_tokens_could_fire_for_ever(net: Net, names: set[str]) -> None:
    assert could_fire_for_ever(net) == names


def test_the_engine_lets_others_have_their_turn() -> None:
    engine = engine_for(spinning())
    for turn in range(1, 5):
        assert engine.next() is None
        assert engine.has_more
        assert engine.inline_fired == turn * FIRINGS_MAX
        assert not engine.is_at_rest()
        engine.check()


def test_what_ends_has_no_more_in_the_end() -> None:
    engine = engine_for(counting(0))
    assert engine.next() is None
    assert not engine.has_more
    assert engine.outputs() == {"out": [10]}


@pytest.mark.parametrize(
    ("net", "name"),
    [(spinning(inline_firings_max=100), "spin"), (counting(11, inline_firings_max=100), "count")],
    ids=["spinning", "counting"],
)
def test_an_endless_loop_is_named(net: Net, name: str) -> None:
    engine = engine_for(net)
    with pytest.raises(EndlessLoop, match=f"transition '{name}' has fired inline 100 times without a task"):
        next_task(engine)
    assert engine.inline_fired == 100
    engine.check()


def test_all_that_take_part_in_an_endless_loop_are_named() -> None:
    net = Net("ring", inline_firings_max=100)
    here, there, left = net.place("here", [1]), net.place("there"), net.place("left", [3])
    net.transition("go", same, here, there, inline=True)
    net.transition("come", same, there, here, inline=True)
    net.transition("stop soon", lambda n: n - 1, {"n": left}, left, inline=True, condition=lambda n: n > 0)
    with pytest.raises(EndlessLoop) as caught:
        next_task(engine_for(net))
    assert str(caught.value) == (
        "transition 'go' (with 'come') has fired inline 100 times without a task in between, and would never "
        "stop: make its condition become false, or let a task do the work; to allow more firings, "
        "use Net('ring', inline_firings_max=...)"
    )


def test_what_is_long_is_not_endless() -> None:
    engine = engine_for(generating(1_000, inline_firings_max=1_001))
    assert next_task(engine) is None
    assert len(engine.outputs()["made"]) == 1_000
    engine = engine_for(sifting(), items=[[1, 2]] * 100)
    assert next_task(engine) is None
    assert len(engine.outputs()["out"]) == 100


def test_a_task_or_a_result_in_between_begins_the_count_anew() -> None:
    net = Net("steps", inline_firings_max=4)
    numbers, out = net.place("numbers", [0]), net.place("seen", may_keep=True)
    net.transition("count", lambda n: n + 1, {"n": numbers}, numbers, inline=True, condition=lambda n: n % 3)
    net.transition("work", lambda n: n + 1, {"n": numbers}, [numbers, out], condition=lambda n: n % 3 == 0)
    engine = engine_for(net)
    for result in range(1, 30, 3):
        task_id = next_task(engine)
        assert task_id is not None
        engine.extract(task_id)
        engine.inject(task_id, ((engine.codec.dumps(result),),))
    assert engine.inline_fired == 18


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(WorkflowError, match="inline_firings_max must be at least 2, not 1"):
        Net("n", inline_firings_max=1)
    assert Net("n", inline_firings_max=7).copy().inline_firings_max == 7


def job(net: Net, clock: Any = None) -> JobMachine:
    engine: WorkflowEngine = engine_for(net)
    return JobMachine("j1", "job", engine, USUAL.scheduler("j1"), clock=clock)


def test_a_job_hands_the_turn_over_and_goes_on_at_its_deadline() -> None:
    machine = job(spinning())
    running = JobChanged(5.0, "j1", "running", "job")
    assert machine.handle(Begin(), 5.0) == [running]
    fired = (TURNS_MAX + 1) * FIRINGS_MAX
    assert machine.engine.inline_fired == fired  # type: ignore[attr-defined]
    for turn in range(2, 5):
        assert machine.deadline() == 5.0
        assert machine.handle(Tick(), 5.0) == []
        assert machine.engine.inline_fired == turn * fired  # type: ignore[attr-defined]
    stopped = JobEnded("stopped", "enough")
    ended = JobChanged(6.0, "j1", "stopped", "job", "enough")
    assert machine.handle(Stop("enough"), 6.0) == [Stopped(), ended, stopped]
    assert machine.deadline() is None
    machine.check()


def test_a_job_hands_the_turn_over_when_its_time_is_up() -> None:
    times = iter([0.0, TURN_S / 2, TURN_S, TURN_S])
    machine = job(spinning(), lambda: next(times))
    machine.handle(Begin(), 0.0)
    assert machine.engine.inline_fired == 3 * FIRINGS_MAX  # type: ignore[attr-defined]


def test_a_job_that_fires_for_long_finishes_and_one_that_does_for_ever_fails() -> None:
    for net, state in ((generating(10_000), "finished"), (spinning(inline_firings_max=10_000), "failed")):
        machine = job(net)
        machine.handle(Begin(), 0.0)
        ticks = 0
        while machine.deadline() is not None:
            machine.handle(Tick(), 0.0)
            ticks += 1
        assert ticks > 3
        assert machine.ended is not None
        assert machine.ended.state == state
        assert ("'spin' has fired inline 10,000 times" in machine.ended.detail) is (state == "failed")
        machine.check()


# How far it is to the end -----------------------------------------------------------------------------------


def test_who_uses_results_up_is_nearer_to_the_end_than_who_makes_them() -> None:
    net = Net("two")
    items, log, parts, sums = net.input("items"), net.output("log"), net.place("parts"), net.place("sums")
    net.transition("work", same, items, [log, parts])
    net.transition("add", same, parts, sums)
    net.transition("total", same, sums, net.output("totals"))
    assert distances(net) == {"total": 0, "add": 1, "work": 2}


def test_in_a_cycle_what_is_farther_from_the_beginning_counts_as_nearer_to_the_end() -> None:
    found = distances(map_reduce(same, sum, name="m"))
    assert sorted(found, key=lambda name: found[name]) == [
        "finish", "finish without items", "reduce", "gather", "map", "count",
    ]  # fmt: skip
    assert distances(spinning()) == {"spin": 0}


# Places that nobody looks at --------------------------------------------------------------------------------


def misspelt(name: str, port: str = "results", **options: Any) -> Net:
    net = Net("squares")
    net.output(port)
    net.transition("square", same, net.input("items"), net.place(name, **options))
    return net


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (
            misspelt("resluts"),
            "transition 'square' puts tokens on place 'resluts', but no transition takes or reads tokens "
            r"there, and it is no output port \(did you mean the output port 'results', which gets no tokens"
            r"\?\); if tokens may be left there, use net.place\('resluts', may_keep=True\)",
        ),
        (misspelt("a", "b"), r"did you mean the output port 'b', which gets no tokens\?"),
    ],
    ids=["like it", "the only one"],
)
def test_a_result_that_goes_where_nobody_looks_is_refused_at_once(net: Net, message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        Workflow(net, {"items": [1]})


def test_tokens_at_the_beginning_and_inputs_must_be_wanted_too() -> None:
    net = misspelt("kept", may_keep=True)
    assert Workflow(net, {"items": [1]}).net is net
    net.place("more", [1])
    with pytest.raises(WorkflowError, match="there are tokens on place 'more' at the beginning, but no"):
        Workflow(net, {"items": [1]})
    net = misspelt("kept", may_keep=True)
    net.input("others")
    with pytest.raises(WorkflowError, match="takes or reads the tokens of the input port 'others'"):
        Workflow(net, {"items": [1], "others": []})


def test_a_name_that_does_not_exist_may_have_been_meant_otherwise() -> None:
    with pytest.raises(WorkflowError, match=r"are: items \(did you mean 'items'\?\)"):
        Workflow(farm(same), {"itmes": [1]})
    with pytest.raises(WorkflowError, match=r"\(did you mean 'attempts'\?\)"):
        farm(same, atempts=2)  # type: ignore[call-arg]
