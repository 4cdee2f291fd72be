"""A changed workflow takes the results of before that suit, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio import Net, farm
from gspc_trio.components.job.journal import JournaledEngine, Outcomes, Reusable
from gspc_trio.components.job.journal_bytes import decode_record, encode_record
from gspc_trio.components.job.reuse import (
    Results,
    Reuse,
    TransitionReuse,
    rest_in,
    result_of,
    results_in,
    reuse,
)
from gspc_trio.components.job.task_key import NO_KEY, Key, Noted, TaskKeys, files_read, files_stored, key_of
from gspc_trio.core.staging import FilePlan
from gspc_trio.core.task import Task
from gspc_trio.protocol.values import Reference, encode_reference
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.structure import followers
from tests.workflow.model import nets
from tests.workflow.support import compute, engine_for, next_task

NOTHING: Any = lambda _path: None  # noqa: E731
SAME: Any = lambda _path, _mark: True  # noqa: E731


def double(item: int) -> int:
    return 2 * item


def two_steps(prepare: Any = double, last: str = "last") -> Net:
    net = Net("two")
    middle = net.place("middle")
    net.transition("first", prepare, {"item": net.input("items", default=[1, 2, 3])}, middle)
    net.transition(last, double, {"item": middle}, net.output("results"))
    return net


def named(net: Net, **others: bytes) -> dict[str, bytes]:
    """Identities: those of before, and others."""
    return {one.name: others.get(one.name, b"v1") for one in net.transitions.values() if not one.is_inline}


def run(engine: WorkflowEngine, choices: list[int], identities: Mapping[str, bytes]) -> Outcomes:
    """Let one ready task after the other end, chosen so; return what a journal has of it."""
    keys, tasks, rows, found = TaskKeys(identities), list[Task](), [], list[Key]()
    for choice in choices:
        while (task_id := next_task(engine)) is not None:
            tasks.append(engine.extract(task_id))
        if not tasks:
            break
        task = tasks.pop(choice % len(tasks))
        rows.append((task.task_id, compute(engine, task)))
        found.append(key_of(keys.of(task), SAME, NOTHING))
        engine.inject(*rows[-1])
    while (task_id := next_task(engine)) is not None:
        engine.extract(task_id)
    return Outcomes(tuple(rows), tuple(found))


def state(engine: WorkflowEngine) -> Any:
    """Tokens and tasks under way, whatever their numbers."""
    dump = engine.dump()
    return repr(
        (dump["tokens"]["places"], sorted((name, taken) for _, name, _, taken, _ in dump["activities"]))
    )


def changed(old: Net, new: Net, choices: list[int], identities: Mapping[str, bytes]) -> Reuse:
    """Run the old net for a while, then take what suits the new one."""
    records = run(engine_for(old), choices, named(old))
    return reuse(engine_for(new), identities, named(old), results_in([[records]]), NOTHING)


@given(nets(), st.lists(st.integers(0, 50), max_size=25))
def test_a_workflow_that_has_not_changed_is_where_it_was(net: Net, choices: list[int]) -> None:
    engine = engine_for(net)
    engine.lift_limits(True)  # as long as results are looked for, so that none is missed
    records = run(engine, choices, named(net))
    found = reuse(engine_for(net), named(net), named(net), results_in([[records]]), NOTHING)
    assert state(found.engine) == state(engine)
    assert len(found.taken.rows) == len(records.rows)
    assert not found.rest
    found.engine.check()


@given(nets(), st.lists(st.integers(0, 50), max_size=25), st.sets(st.integers(0, 5)))
def test_of_code_that_has_changed_nothing_is_taken(net: Net, choices: list[int], which: set[int]) -> None:
    other = {name: b"v2" for number, name in enumerate(named(net)) if number in which}
    found = changed(net, net, choices, named(net, **other))
    found.engine.check()
    assert other.keys().isdisjoint(key[0] for key in found.taken.keys), "it has run with other code"
    assert other.keys().isdisjoint(found.rest.counts())
    assert all(not one.kept or one.name not in other for one in found.transitions)


@settings(max_examples=30)
@given(nets(), st.lists(st.integers(0, 50), max_size=10), st.sets(st.integers(0, 5)))
def test_no_task_comes_later_whose_results_were_dropped(
    net: Net, choices: list[int], which: set[int]
) -> None:
    other = {name: b"v2" for number, name in enumerate(named(net)) if number in which}
    found = changed(net, net, choices, named(net, **other))
    engine, to_run = found.engine, {one.name for one in found.transitions if one.ready}
    engine.lift_limits(True)
    tasks, come = list[Task](), set[str]()
    for number in range(30):
        while (task_id := next_task(engine)) is not None:
            tasks.append(engine.extract(task_id))
            if number:
                come.add(tasks[-1].name)
        if not tasks:
            break
        task = tasks.pop()
        engine.inject(task.task_id, compute(engine, task))
    assert come <= followers(net, to_run)


def test_the_result_of_a_file_that_was_another_one_is_dropped() -> None:
    net = two_steps()
    records = run(engine_for(net), [0] * 6, named(net))
    earlier = results_in([[records]])
    earlier.add(("first", b"of a file as it was", ()), records.rows[0][1])
    found = reuse(engine_for(net), named(net, last=b"v2"), named(net), earlier, NOTHING)
    assert found.transitions == (
        TransitionReuse("first", 3, 0, 1, 0, "nothing asks for them any more"),
        TransitionReuse("last", 0, 0, 3, 3, "its code has changed"),
    )


def test_what_fails_no_more_is_run_and_what_does_not_depend_on_it_stays() -> None:
    net = two_steps()
    found = changed(net, net, [0, 0, 0, 0], named(net, last=b"v2"))
    assert found.transitions == (
        TransitionReuse("first", 3, 0, 0, 0),
        TransitionReuse("last", 0, 0, 1, 3, "its code has changed"),
    )
    assert (
        sorted(activity.transition.description.name for activity in found.engine.activities.values())
        == ["last"] * 3
    )


def test_results_wait_for_tasks_that_may_come_out_the_same() -> None:
    net = two_steps()
    found = changed(net, net, [0] * 6, named(net, first=b"v2"))
    assert [(one.kept, one.waiting, one.dropped, one.ready) for one in found.transitions] == [
        (0, 0, 3, 3),
        (0, 3, 0, 0),
    ]
    engine = found.engine
    keys = TaskKeys(named(net))
    task = engine.extract(engine.next() or 0)
    engine.inject(task.task_id, compute(engine, task))
    while True:
        task = engine.extract(next_task(engine) or 0)
        if task.name == "last":
            break
    result = result_of(keys.of(task), found.rest, NOTHING)
    assert result is not None
    assert result.values == compute(engine, task)
    assert result_of(keys.of(task), found.rest, NOTHING) is None, "it is taken once"


def test_a_transition_of_another_name_and_a_place_more_are_another_workflow() -> None:
    new = two_steps(last="final")
    new.place("spare")
    found = changed(two_steps(), new, [0] * 6, named(new))
    assert [
        (one.name, one.kept, one.waiting, one.dropped, one.ready, one.why) for one in found.transitions
    ] == [
        ("first", 3, 0, 0, 0, ""),
        ("final", 0, 0, 0, 3, "it is new"),
        ("last", 0, 0, 3, 0, "it is no longer in the workflow"),
    ]


def test_as_many_results_are_taken_as_there_are_of_the_same_task() -> None:
    found = changed(
        farm(double, name="d", default=[7, 7, 7]),
        farm(double, name="d", default=[7] * 5),
        [0, 0],
        {"d": b"v1"},
    )
    assert found.transitions == (TransitionReuse("d", 2, 0, 0, 3, "not finished"),)


def test_a_result_that_two_files_have_is_one() -> None:
    net = farm(double, name="d", default=[7, 7, 7])
    records = run(engine_for(net), [0, 0], named(net))
    assert results_in([[records], [records]]).counts() == {"d": 2}


def test_what_the_workflow_took_while_it_ran_waits_no_more() -> None:
    key: Key = ("d", b"digest", ())
    rest = Reusable((((b"x",),), ((b"y",),)), (key, key), taken=False)
    one_taken = Outcomes(((1, ((b"x",),)),), (key,))
    assert rest_in([rest]).counts() == {"d": 2}
    assert rest_in([rest, one_taken]).counts() == {"d": 1}
    assert results_in([[rest, one_taken]]).counts() == {"d": 2}
    assert decode_record(encode_record(rest)) == rest
    assert decode_record(encode_record(one_taken)) == one_taken


def test_results_without_keys_are_counted_and_dropped() -> None:
    results = results_in([[Outcomes(((1, ((b"x",),)),))], [Outcomes(((2, ()),), (NO_KEY,))]])
    assert (results.unknown, bool(results)) == (2, False)


def staged() -> Task:
    engine = engine_for(_staged_net())
    return engine.extract(engine.next() or 0)


def _staged_net() -> Net:
    net = Net("files")
    net.transition(
        "sort",
        double,
        {"item": net.input("items", default=[1])},
        net.output("results"),
        stage_in={"in": "in{item}.txt"},
        stage_out={"out": "out{item}.txt"},
    )
    return net


def test_a_task_with_files_is_the_same_while_they_are() -> None:
    files = {"in1.txt": b"a", "out1.txt": b"b"}
    mark: Any = lambda path: (len(files[path]),)  # noqa: E731
    keys = TaskKeys({"sort": b"v1"}, mark)
    task = staged()
    noted = keys.of(task)
    assert noted is not None
    assert isinstance(noted.plan, FilePlan)
    assert files_read(noted.plan) == ["in1.txt"]
    is_same: Any = lambda path, before: mark(path) == before  # noqa: E731
    key = key_of(noted, is_same, files.get)
    assert key[2] == (("out1.txt", b"b"),)

    def is_kept() -> bool:
        results = Results()
        results.add(key, ((b"x",),))
        return result_of(keys.of(task), results, files.get) is not None

    assert is_kept()
    files["out1.txt"] = b"c"
    assert not is_kept(), "what it has stored was changed"
    files["out1.txt"], files["in1.txt"] = b"b", b"b"
    assert not is_kept(), "what it has read was changed"
    del files["out1.txt"]
    files["in1.txt"] = b"a"
    assert not is_kept(), "what it has stored is gone"
    files["in1.txt"], files["out1.txt"] = b"longer", b"b"
    assert key_of(noted, is_same, files.get) == NO_KEY, "what it has read was changed while it ran"


def test_a_key_is_that_of_the_task_that_was_handed_out() -> None:
    identities = {"first": b"v1"}
    engine = JournaledEngine(engine_for(two_steps()), keys=TaskKeys(identities))
    task = engine.extract(engine.next() or 0)
    noted = TaskKeys(identities).of(task)
    assert noted is not None
    assert engine.keys_of([(task.task_id, ())]) == [("first", noted.digest, ())]
    engine.keys = TaskKeys({"first": b""})  # its code cannot be told from others
    assert engine.keys_of([(task.task_id, ())]) == [NO_KEY]


def test_a_task_whose_argument_lies_in_a_memory_layer_is_like_no_other() -> None:
    keys = TaskKeys({"first": b"v1"})
    reference = encode_reference(Reference("data.1", 3, (("h1", 3),), 0))
    assert keys.digest("first", [b"plain"]) is not None
    assert keys.digest("first", [b"plain", reference]) is None


def test_of_a_task_with_files_is_noted_what_they_were() -> None:
    engine = JournaledEngine(engine_for(_staged_net()), keys=TaskKeys({"sort": b"v1"}, lambda _: (7,)))
    task = engine.extract(engine.next() or 0)
    (noted,) = engine.keys_of([(task.task_id, ())])
    assert isinstance(noted, Noted)
    assert noted.marks == ((7,),)


def test_sets_of_files_are_read_and_stored_too() -> None:
    net = Net("sets")
    net.transition(
        "sum",
        double,
        {"item": net.input("items", default=[1])},
        net.output("results"),
        stage_in={"parts/": "in{item}/*.txt", "all": "list.txt"},
        stage_out={"*.png": "pictures{item}/", "log": "log.txt"},
    )
    engine = engine_for(net)
    noted = TaskKeys({"sum": b"v1"}).of(engine.extract(engine.next() or 0))
    assert noted is not None
    assert noted.plan is not None
    assert sorted(files_read(noted.plan)) == ["in1/*.txt", "list.txt"]
    assert sorted(files_stored(noted.plan)) == ["log.txt", "pictures1/"]
