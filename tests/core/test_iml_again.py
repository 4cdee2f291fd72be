"""Data of a memory layer that is made again under its own id."""

from __future__ import annotations

import pytest
from iml_directory import CLIENT, JOB, Layer

from gspc_trio.core.iml import exchange as x
from gspc_trio.core.iml.events import ClientDown, Refuse, Reply, ServerDown
from gspc_trio.core.iml.layout import Layout


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
    assert isinstance(refused, Refuse)
    if goes:
        assert more == [Refuse(0, "UnknownData", "who was to make data t7.0 again is gone")], (
            "its data would never go"
        )
    else:
        assert [action.message for action in more] == [x.CreatePart("t7.0", 0, 6)]
        assert isinstance(layer.answer(more)[0], Reply)
