"""Data of a memory layer that is made again under its own id."""

from __future__ import annotations

import pytest

from gspc_trio.iml import messages as x
from gspc_trio.iml.events import AnswerRequest, ClientDown, ClientUp, RefuseRequest, ServerDown, TellServer
from gspc_trio.iml.layout import Layout
from tests.iml.support import CLIENT, JOB, OTHER, Layer


@pytest.mark.parametrize("goes", [False, True])
def test_lost_data_is_made_again_when_nobody_copies_it_any_more(goes: bool) -> None:
    """Else a server that had not given up its copy would refuse: such data was there already."""
    layer = Layer("a", "b")
    alloc = x.Alloc(JOB, 6, Layout(("b",)), data_id="t7.0")
    layer.do(alloc)
    (copy,) = layer.ask(x.Replicate(JOB, "t7.0", 0, ("a",), cached=True))
    layer.feed(ServerDown(1, "killed"))
    assert layer.ask(x.Alloc(JOB, 6, Layout(("a",)), data_id="t7.0")) == []
    if goes:
        layer.feed(ClientDown(CLIENT))
    refused, *more = layer.answer([copy], "LayerGone", "host b is gone")
    assert isinstance(refused, RefuseRequest)
    if goes:
        assert more == [RefuseRequest(0, "UnknownData", "who was to make data t7.0 is gone")], (
            "its data would never go"
        )
    else:
        assert [action.message for action in more] == [x.CreatePart("t7.0", 0, 6)]
        assert isinstance(layer.answer(more)[0], AnswerRequest)


@pytest.mark.parametrize("how", ["no room", "aborted", "maker gone"])
def test_lost_data_that_cannot_be_made_again_is_lost_still(how: str) -> None:
    """Who waits for it learns that it was lost, and not that there never was such data."""
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 6, Layout(("b",)), data_id="t7.0"))
    layer.feed(ServerDown(1, "killed"))
    lost = ("DataLost", "data t7.0 was lost: host b is gone (killed)")
    assert layer.refusal(x.Locate(JOB, "t7.0")) == lost
    again = x.Alloc(JOB, 6, Layout(("a",)), writing=True, data_id="t7.0")
    layer.feed(ClientUp(CLIENT + 5, 0, x.JoinLayer(JOB)))
    actions = layer.ask(again, CLIENT + 5)
    if how == "no room":
        assert layer.answer(actions, "NoRoom", "it is full") == [RefuseRequest(0, "NoRoom", "it is full")]
    elif how == "aborted":
        layer.answer(actions)
        layer.do(x.AbortData("t7.0"), CLIENT + 5)
    else:
        layer.feed(ClientDown(CLIENT + 5))
        layer.answer(actions)
    assert layer.refusal(x.Locate(JOB, "t7.0")) == lost
    layer.do(again)
    layer.do(x.CommitData("t7.0", ()))
    assert layer.do(x.Locate(JOB, "t7.0")).parts == ((0,),)


@pytest.mark.parametrize("given", ["t7.0", "d1"])
def test_an_id_is_not_used_again_before_the_servers_have_done_with_it(given: str) -> None:
    """What is made for who has gone is dropped: it was the new data of another client that was dropped."""
    layer = Layer("a")
    layer.feed(ClientUp(CLIENT + 5, 0, x.JoinLayer(JOB)))
    (made,) = layer.ask(x.Alloc(JOB, 6, data_id=given), CLIENT + 5)
    assert made.message == x.CreatePart(given, 0, 6)
    layer.feed(ClientDown(CLIENT + 5))
    assert layer.ask(x.Alloc("j2", 9, data_id=given), OTHER) == []
    refused, dropped, again = layer.answer([made])
    assert isinstance(dropped, RefuseRequest)
    assert refused == TellServer(0, x.DropPart(given, 0))
    assert again.message == x.CreatePart(given, 0, 9)
    assert layer.answer([again])[0].message.data_id == given
    assert layer.do(x.Locate("j2", given), OTHER).size_bytes == 9


def test_an_id_that_servers_have_not_done_with_is_given_to_nobody() -> None:
    """A client may give data the id that the layer would have given next."""
    layer = Layer("a")
    layer.feed(ClientUp(CLIENT + 5, 0, x.JoinLayer(JOB)))
    layer.ask(x.Alloc(JOB, 6, data_id="d1"), CLIENT + 5)
    layer.feed(ClientDown(CLIENT + 5))
    (made,) = layer.ask(x.Alloc("j2", 9), OTHER)
    assert made.message == x.CreatePart("d2", 0, 9)


def test_of_two_that_wait_for_an_id_one_gets_it() -> None:
    layer = Layer("a")
    layer.feed(ClientUp(CLIENT + 5, 0, x.JoinLayer(JOB)))
    (made,) = layer.ask(x.Alloc(JOB, 6, data_id="t7.0"), CLIENT + 5)
    layer.feed(ClientDown(CLIENT + 5))
    for _ in range(2):
        assert layer.ask(x.Alloc("j2", 9, data_id="t7.0"), OTHER) == []
    again = layer.answer([made])[-1]
    found, second = layer.answer([again])
    assert isinstance(found, AnswerRequest)
    assert second == RefuseRequest(0, "DuplicateData", "there is data t7.0 already")
