"""Data of a memory layer that is made again under its own id."""

from __future__ import annotations

import pytest

from gspc_trio.iml import messages as x
from gspc_trio.iml.events import AnswerRequest, ClientDown, ClientUp, RefuseRequest, ServerDown
from gspc_trio.iml.layout import Layout
from tests.iml.support import CLIENT, JOB, Layer


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
        assert more == [RefuseRequest(0, "UnknownData", "who was to make data t7.0 again is gone")], (
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
