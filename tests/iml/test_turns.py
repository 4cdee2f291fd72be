"""Operations on the same data: copies to several hosts at a time, all else one after the other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import DataEntry, DataTurn, Directory
from gspc_trio.iml.events import Answered, AnswerRequest, CallServer, ClientDown, RefuseRequest, TellServer
from gspc_trio.iml.layout import replicated, striped
from tests.iml.support import CLIENT, JOB, Layer


def fetch(host: str) -> x.Replicate:
    return x.Replicate(JOB, "d1", hosts=(host,), cached=True, undivided=True)


def of(actions: list[Any], kind: type) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def test_copies_to_several_hosts_are_under_way_at_a_time() -> None:
    layer = Layer("a", "b", "c")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    [to_b], [to_c] = layer.ask(fetch("b")), layer.ask(fetch("c"))
    assert [(it.link, it.message.source.host, it.message.readers) for it in (to_b, to_c)] == [
        (1, "a", JOB),
        (2, "a", JOB),
    ]
    [answer] = layer.answer([to_c])
    assert answer.message.parts == ((0, 2),)
    [answer] = layer.answer([to_b])
    assert answer.message.parts == ((0, 1, 2),)


def test_a_host_fetches_data_once_though_it_is_asked_for_twice() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    first = layer.ask(fetch("b"))
    assert layer.ask(fetch("b")) == []
    assert [type(it) for it in layer.answer(first)] == [AnswerRequest, AnswerRequest]


def test_a_put_waits_for_all_copies_and_those_after_it_for_the_put() -> None:
    layer = Layer("a", "b", "c", "d")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    copies = [*layer.ask(fetch("b")), *layer.ask(fetch("c"))]
    layer.do(x.BeginPut(JOB, "d1", 0, 10))
    assert layer.ask(x.CommitData("d2")) == []
    assert layer.ask(fetch("d")) == [], "it would find the old bytes or the new ones"
    assert of(layer.answer(copies[:1]), CallServer) == []
    begun = of(layer.answer(copies[1:]), CallServer)
    assert [type(it.message) for it in begun] == [x.ApplyPut, x.DropPart, x.DropPart]
    [copy] = of(layer.answer(begun), CallServer)
    assert (copy.link, copy.message.source.host) == (3, "a")


def test_a_host_that_fetches_what_is_freed_drops_it_before_that_is_said_to_be_done() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    copying = layer.ask(fetch("b"))
    drops = layer.ask(x.Free(JOB, "d1"))
    assert [(it.link, type(it.message)) for it in drops] == [(0, x.DropPart), (1, x.DropPart)]
    assert layer.answer(drops[:1]) == []
    assert of(layer.answer(drops[1:]), AnswerRequest) == [AnswerRequest(0, x.ImlDone())]
    after = layer.feed(Answered(copying[0].call, "UnknownData", "it was dropped"))
    assert [it.kind for it in of(after, RefuseRequest)] == ["UnknownData"]


def test_a_copy_of_what_a_job_takes_with_it_is_dropped_where_it_arrives() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    copying = layer.ask(fetch("b"))
    assert layer.feed(ClientDown(CLIENT)) == [TellServer(it, x.DropPart("d1", 0)) for it in (0, 1)]
    assert of(layer.answer(copying), TellServer) == [TellServer(1, x.DropPart("d1", 0))]


def test_what_lies_in_stripes_is_not_copied_for_who_wants_it_undivided() -> None:
    layer = Layer("a", "b", "c")
    layer.do(x.Alloc(JOB, 10, striped(4, ("a", "b"))))
    [told] = layer.ask(fetch("c"))
    assert told.message.parts == ((0,), (1,))
    assert layer.machine.status().transfers == ()


def test_readers_are_named_only_for_all_of_the_data() -> None:
    layer = Layer("a", "b", "c")
    layer.do(x.Alloc(JOB, 10, striped(4, ("a", "b"))))
    copies = layer.ask(x.Replicate(JOB, "d1", hosts=("c",)))
    assert {it.message.readers for it in copies} == {""}
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",)), name="known"))
    [copy] = layer.ask(x.Replicate(JOB, "d2", hosts=("c",)))
    assert copy.message.readers == x.EVERY_JOB


TURNS = st.lists(st.frozensets(st.integers(0, 3), max_size=2), max_size=12)


@given(TURNS, st.data(), st.sets(st.integers(0, 11)))
def test_turns_are_fair_and_none_is_beside_what_it_must_not_be_beside(
    wanted: list[frozenset[int]], data: st.DataObject, at_once: set[int]
) -> None:
    """Those in ``at_once`` end while they are begun."""
    directory, entry = Directory(), DataEntry("d1", JOB, 1, 0, {})
    begun: list[int] = []
    running: dict[int, DataTurn] = {}

    def start(number: int, turn: DataTurn) -> None:
        begun.append(number)
        others = [wanted[other] for other in running]
        assert all(targets and wanted[number].isdisjoint(targets) for targets in others)
        assert not others or wanted[number], "alone, and beside others"
        running[number] = turn
        if number in at_once:
            end(number)

    def end(number: int) -> None:
        directory.end_turn(entry, running.pop(number))

    for number, targets in enumerate(wanted):
        directory.take_turn(entry, lambda turn, number=number: start(number, turn), targets)
        if running and data.draw(st.booleans()):
            end(data.draw(st.sampled_from(sorted(running))))
    while running:
        end(data.draw(st.sampled_from(sorted(running))))
    assert begun == list(range(len(wanted))), "not in order"
    assert not entry.turns


def test_many_that_end_at_once_need_no_deep_stack() -> None:
    directory, entry = Directory(), DataEntry("d1", JOB, 1, 0, {})
    first: list[DataTurn] = []
    ended: list[DataTurn] = []
    directory.take_turn(entry, first.append)
    for _ in range(5_000):
        directory.take_turn(entry, lambda turn: (ended.append(turn), directory.end_turn(entry, turn))[1])
    directory.end_turn(entry, first[0])
    assert len(ended) == 5_000
