"""Data is copied away from hosts that may fail (ASP-9)."""

from __future__ import annotations

from gspc_trio.iml import messages as x
from gspc_trio.iml.events import AnswerRequest, CallServer, ClientDown, ServerDown, TellServer
from gspc_trio.iml.layout import replicated, striped
from tests.iml.support import CLIENT, JOB, OTHER, Layer

THERE = replicated(1, ("a",))


def hosts_of(layer: Layer, data_id: str) -> list[set[str]]:
    (status,) = [data for data in layer.machine.status().data if data.data_id == data_id]
    return [set(part.hosts) for part in status.parts]


def test_what_lies_there_alone_is_copied_to_others() -> None:
    layer = Layer("a", "b", "c")
    layer.do(x.Alloc(JOB, 10, THERE))
    layer.do(x.Alloc(JOB, 10, replicated(2, ("a", "b"))))
    layer.do(x.Alloc(JOB, 8, striped(4, ("a", "b"))))
    actions = layer.ask(x.Vacate("a"))
    assert [type(action) for action in actions] == [CallServer, CallServer], "the second has a copy"
    assert layer.answer(actions)[-1] == AnswerRequest(0, x.Vacated(copied=2))
    assert layer.feed(ServerDown(0, "it was killed")) == [], "nothing is lost"
    assert all(hosts and "a" not in hosts for one in "123" for hosts in hosts_of(layer, f"d{one}"))


def test_a_cached_copy_is_kept() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, THERE))
    layer.do(x.Replicate(JOB, "d1", hosts=("b",), cached=True))
    assert layer.ask(x.Vacate("a")) == [
        TellServer(1, x.KeepPart("d1", 0)),
        AnswerRequest(0, x.Vacated(copied=1)),
    ]


def test_another_host_is_tried_if_one_has_no_room_and_what_is_left_is_told() -> None:
    layer = Layer("a", "b", "c")
    layer.do(x.Alloc(JOB, 10, THERE))
    first = layer.ask(x.Vacate("a"))
    second = layer.answer(first, "NoRoom", "host b has no room")
    assert [action.link for action in (*first, *second) if isinstance(action, CallServer)] == [1, 2]
    assert layer.answer(second, "NoRoom", "host c has no room") == [AnswerRequest(0, x.Vacated(left=1))]
    assert layer.do(x.Free(JOB, "d1")) == x.ImlDone(), "nothing waits for it"


def test_what_comes_later_goes_elsewhere_or_is_copied_when_it_is_complete() -> None:
    layer = Layer("a", "b")
    layer.do(x.Vacate("a"))
    assert layer.do(x.Alloc(JOB, 10)).parts == ((1,),), "nobody has named a place"
    layer.do(x.Alloc(JOB, 10, THERE, writing=True))
    assert hosts_of(layer, "d2") == [{"a"}]
    layer.answer(layer.ask(x.CommitData("d2")))
    assert hosts_of(layer, "d2") == [{"a", "b"}]


def test_a_copy_that_goes_is_made_again() -> None:
    layer = Layer("a", "b", "c")
    layer.do(x.Alloc(JOB, 10, THERE))
    layer.do(x.Vacate("a"))
    assert hosts_of(layer, "d1") == [{"a", "b"}]
    layer.answer(layer.feed(ServerDown(1, "it was killed")))
    assert hosts_of(layer, "d1") == [{"a", "c"}]


def test_a_host_is_as_any_other_when_all_who_have_said_so_say_that_or_are_gone() -> None:
    layer = Layer("a", "b")
    layer.do(x.Vacate("a"))
    layer.do(x.Vacate("a"), OTHER)
    layer.do(x.Vacate("a", is_over=True))
    assert layer.do(x.Alloc(JOB, 10)).parts == ((1,),)
    layer.feed(ClientDown(OTHER))
    layer.do(x.Alloc(JOB, 500, replicated(1, ("b",))))
    assert layer.do(x.Alloc(JOB, 10)).parts == ((0,),)
    layer.feed(ClientDown(CLIENT))


def test_with_no_other_host_all_is_left() -> None:
    layer = Layer("a")
    layer.do(x.Alloc(JOB, 10, THERE))
    assert layer.do(x.Vacate("a")) == x.Vacated(left=1)
    assert layer.do(x.Vacate("nobody")) == x.Vacated(left=1), "it waits for no server"
