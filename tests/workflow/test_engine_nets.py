from __future__ import annotations

import pickle
from typing import Any

import pytest

from gspc_trio.core.code import Program, SourceFile
from gspc_trio.core.task import Requirement, Shape, TaskError, TaskOptions
from gspc_trio.workflow.arcs import each, forward, take
from gspc_trio.workflow.calls import TransitionFailed
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.tokens import Batch
from tests.workflow.support import engine_for, next_task, run

BOOM = TaskError("ValueError", "boom")


def double(number: int) -> int:
    return 2 * number


def test_inputs_are_passed_by_name_or_by_position_and_control_tokens_not_at_all() -> None:
    def subtract(left: int, right: int, *, scale: int) -> int:
        return (left - right) * scale

    net = Net("arguments")
    left, right, scale = net.input("left"), net.input("right"), net.place("scale", [10])
    permits = net.place("permits", ["permit"])
    ends = [net.output("by_position"), net.output("by_name")]
    net.transition("position", subtract, [left, right], ends[0], reads={"scale": scale})
    net.transition(
        "name",
        subtract,
        {"right": right, "left": left, "_permit": permits},
        [ends[1], forward("_permit", permits)],
        reads={"scale": scale},
    )
    driver = run(net, {"left": [5, 7], "right": [1, 2]})
    assert driver.engine.outputs() == {"by_position": [40], "by_name": [50]}
    assert [entry.parameters for entry in driver.engine.code_table] == [
        ("scale",),
        ("right", "left", "scale"),
    ]
    assert driver.engine.explain_stuck() == []


def test_outputs_take_the_whole_value_a_port_or_each_element() -> None:
    def split(number: int) -> dict[str, Any]:
        return {"one": number, "many": range(number)}

    net = Net("outputs")
    places = {name: net.output(name) for name in ("one", "copy", "elements", "range", "forwarded")}
    net.transition(
        "split",
        split,
        {"number": net.input("numbers")},
        {
            "one": [places["one"], places["copy"]],
            "many": [each(places["elements"]), places["range"]],
            "-": forward("number", places["forwarded"]),
        },
    )
    assert run(net, {"numbers": [2, 0]}).engine.outputs() == {
        "one": [2, 0],
        "copy": [2, 0],
        "elements": [0, 1],
        "range": [range(2), range(0)],
        "forwarded": [2, 0],
    }


def test_take_gives_a_task_a_list_of_as_many_tokens_as_it_says() -> None:
    net = Net("batches")
    net.transition("sum", sum, [take(net.input("numbers"), 3)], net.output("sums"))
    engine = run(net, {"numbers": range(7)}).engine
    assert engine.outputs() == {"sums": [3, 12]}
    assert engine.explain_stuck() == ["transition 'sum' lacks tokens on 'numbers' (1 of 3)"]


def test_take_within_bounds_takes_what_is_there() -> None:
    net = Net("batches")
    lists = net.output("lists")
    net.transition("list", list, [take(net.input("numbers"), least=2, most=4)], lists, inline=True)
    assert run(net, {"numbers": range(7)}).engine.outputs() == {"lists": [[0, 1, 2, 3], [4, 5, 6]]}


def test_join_spares_decoding_the_tokens_of_a_batch() -> None:
    decoded = []

    def loads(encoded: bytes) -> Any:
        decoded.append(encoded)
        return pickle.loads(encoded)

    net = Net("joined")
    first, second = net.place("first"), net.output("second")
    net.transition("start", double, [net.input("numbers")], first)
    net.transition("sum", sum, [take(first, 2)], second)
    engine = WorkflowEngine(net, {"numbers": [1, 2]}, dumps=pickle.dumps, loads=loads, join=b"+".join)
    for task_id, result in ((1, b"a"), (2, b"b")):
        assert engine.next() == task_id
        engine.extract(task_id)
        engine.inject(task_id, ((result,),))
    assert engine.next() == 3
    assert engine.extract(3).arguments == (b"a+b",)
    assert decoded == []


def test_only_the_inputs_that_a_condition_names_are_decoded() -> None:
    def loads(_encoded: bytes) -> Any:
        raise AssertionError("nobody asked for this token")

    net = Net("lazy")
    big, permits, end = net.place("big"), net.place("permits", [1]), net.output("end")
    net.transition("make", double, [net.input("start")], big)
    net.transition("move", None, {"big": big, "n": permits}, forward("big", end), condition=lambda n: n == 1)
    engine = WorkflowEngine(net, {"start": [1]}, dumps=pickle.dumps, loads=loads)
    assert engine.next() == 1
    engine.extract(1)
    engine.inject(1, ((b"opaque",),))
    assert engine.next() is None
    assert engine.dump()["tokens"]["places"]["end"] == [[], [b"opaque"]]


def test_the_highest_priority_fires_first_and_equals_take_turns() -> None:
    net = Net("priorities")
    names = ["low", "first", "second"]
    for name in names:
        place = net.place(name, range(2))
        net.transition(name, double, [place], net.output(f"from {name}"), priority=-1 if name == "low" else 0)
    engine = engine_for(net)
    handed_out = []
    while (task_id := engine.next()) is not None:
        handed_out.append(engine.extract(task_id).name)
    assert handed_out == ["first", "second", "first", "second", "low", "low"]


def test_a_condition_is_asked_once_for_each_combination() -> None:
    asked = []

    def fits(left: int, right: int) -> bool:
        asked.append((left, right))
        return left == right

    net = Net("pairs")
    left, right, pairs = net.input("left"), net.input("right"), net.output("pairs")
    both = {"left": left, "right": right}
    net.transition("pair", lambda left, right: (left, right), both, pairs, condition=fits, inline=True)
    engine = engine_for(net, left=[1, 2, 3], right=[3])
    assert engine.next() is None
    engine.put("right", [4, 1])
    assert engine.next() is None
    assert engine.next() is None
    assert engine.outputs() == {"pairs": [(3, 3), (1, 1)]}
    assert asked == [(1, 3), (2, 3), (3, 3), (1, 4), (2, 4), (1, 1)]
    assert engine.explain_stuck() == [
        "transition 'pair' has tokens on 'left' (1 of 1), 'right' (1 of 1), "
        "but its condition holds for none of them"
    ]


def test_a_condition_on_one_of_two_places_is_asked_once_for_each_of_its_tokens() -> None:
    asked = []

    def is_last(left: int) -> bool:
        asked.append(left)
        return left == 99

    net = Net("pairs")
    left, right, pairs = net.input("left"), net.input("right", default=[]), net.output("pairs")
    both = {"right": right, "left": left}
    net.transition("pair", lambda left, right: (left, right), both, pairs, condition=is_last, inline=True)
    engine = engine_for(net, left=range(100))
    assert engine.next() is None
    assert asked == [], "there is nothing yet to be paired"
    engine.put("right", range(100))
    assert engine.next() is None
    assert asked == list(range(100))
    assert engine.outputs() == {"pairs": [(99, 0)]}


def test_matching_by_key_asks_the_condition_only_where_keys_agree() -> None:
    asked = []

    def is_first(left: dict[str, Any], right: dict[str, Any], config: int) -> bool:
        asked.append((left["id"], right["id"], config))
        return True

    def merge(left: dict[str, Any], right: dict[str, Any], config: int) -> Any:
        return left["id"], left["value"], right["value"], config

    net = Net("match")
    sources = {"left": net.input("left"), "right": net.input("right")}
    net.transition(
        "merge",
        merge,
        sources,
        net.output("merged"),
        reads={"config": net.place("config", [9])},
        match={"left": "id", "right": lambda token: token["id"]},
        condition=is_first,
        inline=True,
    )
    left = [{"id": number, "value": "l"} for number in range(4)]
    right = [{"id": number, "value": "r"} for number in (3, 1, 7)]
    engine = run(net, {"left": left, "right": right}).engine
    assert engine.outputs() == {"merged": [(1, "l", "r", 9), (3, "l", "r", 9)]}
    assert asked == [(1, 1, 9), (3, 3, 9)]


def test_two_arcs_from_one_place_get_different_tokens() -> None:
    net = Net("pairs")
    numbers = net.input("numbers")
    net.transition(
        "pair",
        lambda a, b: (a, b),
        {"a": numbers, "b": numbers},
        net.output("plain"),
        inline=True,
        priority=-1,
    )
    net.transition(
        "equal",
        lambda a, b: (a, b),
        {"a": numbers, "b": numbers},
        net.output("equal"),
        condition=lambda a, b: a == b,
        inline=True,
    )
    engine = run(net, {"numbers": [1, 2, 1, 3, 4]}).engine
    assert engine.outputs() == {"plain": [(2, 3)], "equal": [(1, 1)]}


def test_a_condition_on_a_batch_sees_it_grow_without_decoding() -> None:
    lengths = []

    def full(numbers: Batch) -> bool:
        lengths.append(len(numbers))
        return len(numbers) == 3

    net = Net("growing")
    numbers = net.input("numbers")
    lists = net.output("lists")
    net.transition("list", None, {"numbers": take(numbers, most=5)}, lists, condition=full)
    engine = engine_for(net, numbers=[])
    for number in range(4):
        engine.put("numbers", [number])
        assert engine.next() is None
    assert [list(batch) for batch in engine.outputs()["lists"]] == [[0, 1, 2]]
    assert lengths == [1, 2, 3, 1]


def test_a_token_that_goes_can_enable_a_condition_on_the_tokens_behind_it() -> None:
    net = Net("front")
    numbers, sums = net.input("numbers"), net.output("sums")
    net.transition("one", double, [numbers], net.output("taken"))
    net.transition(
        "even",
        sum,
        [take(numbers, 2)],
        sums,
        condition=lambda pair: sum(pair) % 2 == 0,
        priority=1,
        inline=True,
    )
    engine = engine_for(net, numbers=[1, 2, 4])
    assert engine.next() == 1
    assert engine.next() is None
    assert engine.outputs() == {"taken": [], "sums": [6]}


def test_a_condition_that_raises_is_named_and_loses_nothing() -> None:
    broken = [True]

    def check(number: int) -> bool:
        if broken[0]:
            raise KeyError("no such thing")
        return number == 1

    net = Net("broken")
    net.transition("check", double, {"number": net.input("numbers")}, net.output("out"), condition=check)
    engine = engine_for(net, numbers=[1])
    for _ in range(2):
        with pytest.raises(
            TransitionFailed, match="transition 'check': its condition failed: KeyError"
        ) as caught:
            engine.next()
        assert isinstance(caught.value.__cause__, KeyError)
    broken[0] = False
    assert engine.next() == 1


def test_a_condition_over_two_places_that_raises_loses_nothing() -> None:
    broken = [True]

    def fits(a: int, b: int) -> bool:
        if broken[0] and a == 2:
            raise ValueError("two")
        return a == b

    net = Net("broken")
    sources = {"a": net.input("a"), "b": net.input("b")}
    net.transition("fit", lambda a, b: a + b, sources, net.output("out"), condition=fits, inline=True)
    engine = engine_for(net, a=[1, 2, 3], b=[3, 2])
    with pytest.raises(TransitionFailed, match="ValueError: two"):
        engine.next()
    broken[0] = False
    assert engine.next() is None
    assert engine.outputs() == {"out": [6, 4]}


@pytest.mark.parametrize("result", [None, {"other": 1}])
def test_an_inline_transition_that_fails_is_named_and_keeps_its_tokens(result: Any) -> None:
    net = Net("broken")
    run_it = (lambda number: 1 / number) if result is None else (lambda **_: result)
    net.transition(
        "divide", run_it, {"number": net.input("numbers")}, {"port": net.output("out")}, inline=True
    )
    engine = engine_for(net, numbers=[0])
    before = engine.dump()
    with pytest.raises(TransitionFailed, match="transition 'divide': it") as caught:
        engine.next()
    assert (f'File "{__file__}", line ' in str(caught.value)) == (result is None)
    assert engine.dump() == before


def test_explain_stuck_says_what_is_missing_and_is_silent_about_permits_and_what_is_read() -> None:
    net = Net("stuck")
    left, right, third = net.input("left"), net.input("right"), net.input("third", default=[])
    permits, kept = net.place("permits", [1]), net.place("kept", [1], may_keep=True)
    sink = net.place("sink", [1])
    net.transition("use", double, {"number": third, "_permit": permits}, forward("_permit", permits))
    net.transition("keep", None, {"a": third, "b": kept}, [])
    net.transition("join", None, {"left": left, "right": take(right, 2), "third": third}, [])
    net.transition("look", None, {"a": third}, [], reads={"b": sink})
    engine = engine_for(net, left=[1, 2], right=[5])
    assert engine.next() is None
    assert engine.explain_stuck() == [
        "transition 'join' lacks tokens on 'right' (1 of 2), 'third' (0 of 1); "
        "it has tokens on 'left' (2 of 1)"
    ]


def test_a_stop_place_ends_the_workflow() -> None:
    net = Net("stop")
    numbers = net.place("numbers", [1])
    stop = net.place("stop", stops=True)
    net.transition("count", lambda number: number + 1, {"number": numbers}, numbers, inline=True)
    net.transition(
        "enough", None, {"number": numbers}, stop, condition=lambda number: number == 50, priority=1
    )
    engine = engine_for(net)
    assert next_task(engine) is None
    assert engine.is_stopped
    assert engine.explain_stuck() == []


def test_a_transition_states_what_its_tasks_need() -> None:
    net = Net("shapes")
    numbers, out = net.input("numbers"), net.output("out")
    program = Program(["echo", "{number}"])
    net.transition("p", program, {"number": numbers}, out, requires="node", estimate_s=3.0, timeout_s=9.0)
    gpu = Requirement("gpu", ("r1.gpu0",), hard=True)
    net.transition(
        "s", SourceFile("a.py"), [numbers], out, requires=["core", gpu], memory_bytes=5, wait=True, attempts=2
    )
    engine = engine_for(net, numbers=[1, 2])
    tasks = [engine.extract(engine.next() or 0) for _ in range(2)]
    assert [task.shape for task in tasks] == [
        Shape((Requirement("node"),), estimate_s=4.0),
        Shape((Requirement("core"), gpu), memory_bytes=5, wait=True),
    ]
    assert [task.options for task in tasks] == [
        TaskOptions(timeout_s=9.0, estimate_s=3.0),
        TaskOptions(attempts=2, memory_bytes=5),
    ]
    assert [(entry.run, entry.parameters) for entry in engine.code_table] == [
        (program, ("number",)),
        (SourceFile("a.py"), ()),
    ]


@pytest.mark.parametrize("bystanders", [0, 50])
def test_a_firing_touches_nothing_but_its_neighbours(bystanders: int) -> None:
    asked = []

    def never(number: int) -> bool:
        asked.append(number)
        return False

    net = Net("bystanders")
    numbers, out = net.input("numbers"), net.output("out")
    for index in range(bystanders):
        place = net.place(f"place {index}", range(10))
        net.transition(f"bystander {index}", None, {"number": place}, [], condition=never)
    net.transition("move", None, {"number": numbers}, out, condition=lambda number: number >= 0)
    engine = engine_for(net, numbers=[])
    assert next_task(engine) is None
    asked.clear()
    engine.put("numbers", range(100))
    assert next_task(engine) is None
    assert asked == []
    assert engine.outputs() == {"out": list(range(100))}


def pairs(*, batch: bool = False) -> Net:
    """A net whose condition holds for none of very many pairs."""
    net = Net("pairs")
    left, right = net.place("left", range(100)), net.place("right", range(100, 1100 if batch else 200))

    def agree(a: Any, b: int) -> bool:
        return bool(a == b)

    net.transition("pair", agree, {"a": take(left, 2) if batch else left, "b": right}, condition=agree)
    return net


def sifting() -> Net:
    net = Net("sifting")
    net.transition("sift", str, {"item": net.place("items", range(1000))}, condition=lambda item: item < 0)
    return net


@pytest.mark.parametrize(("net", "least"), [(pairs(), 39), (pairs(batch=True), 3), (sifting(), 3)])
def test_others_have_their_turn_while_a_condition_looks_at_many_tokens(net: Net, least: int) -> None:
    engine = engine_for(net)
    turns = 0
    while engine.next() is None and engine.has_more:
        turns += 1
    assert turns >= least
    assert not engine.has_more
    engine.check()
