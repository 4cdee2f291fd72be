"""Data that a server has made before the coordinator hears of it."""

from __future__ import annotations

import pytest

from gspc_trio.iml import messages as x
from gspc_trio.iml.events import AnswerRequest, ClientDown, ServerDown, ServerUp, TellServer
from gspc_trio.iml.layout import Layout, replicated, striped
from tests.iml.support import CLIENT, JOB, OTHER, Layer

A, B = 1, 2
MADE = x.Alloc(JOB, 10, Layout(("a",)), writing=True, data_id="s2.1", is_there=True)


def made_by_a() -> Layer:
    layer = Layer("z", "a", "b")
    [told] = layer.ask(MADE, A)
    assert (told.message.data_id, told.message.parts) == ("s2.1", ((A,),))
    return layer


def test_no_server_is_told_to_make_it_and_it_is_seen_when_it_was_written() -> None:
    layer = made_by_a()
    assert [server.held_bytes for server in layer.machine.status().servers] == [0, 10, 0]
    assert layer.refusal(x.Locate(JOB, "s2.1"))[0] == "UnknownData"
    assert layer.ask(x.CommitData("s2.1"), A) == [
        TellServer(A, x.SealPart("s2.1", 0)),
        AnswerRequest(0, x.ImlDone()),
    ]
    assert layer.do(x.Locate(JOB, "s2.1")).parts == ((A,),)


def test_another_server_cannot_end_it() -> None:
    layer = made_by_a()
    assert layer.refusal(x.CommitData("s2.1"), B)[0] == "WrongJob"
    layer.do(x.AbortData("s2.1"), B)
    assert layer.do(x.CommitData("s2.1"), A) == x.ImlDone()


def test_what_is_given_up_goes() -> None:
    layer = made_by_a()
    assert layer.ask(x.AbortData("s2.1"), A)[0] == TellServer(A, x.DropPart("s2.1", 0))
    assert layer.refusal(x.CommitData("s2.1"), A)[0] == "UnknownData"


def test_it_goes_with_its_job_and_comes_not_after_it() -> None:
    layer = made_by_a()
    layer.do(x.CommitData("s2.1"), A)
    assert layer.feed(ClientDown(CLIENT)) == [TellServer(A, x.DropPart("s2.1", 0))]
    assert layer.refusal(MADE, A)[0] == "WrongJob"
    assert layer.machine.status().data == ()


def test_it_goes_with_its_server() -> None:
    layer = made_by_a()
    layer.feed(ServerDown(A, "killed"))
    assert layer.refusal(x.CommitData("s2.1"), B)[0] in ("WrongJob", "DataLost")
    assert [server.host for server in layer.machine.status().servers] == ["z", "b"]


@pytest.mark.parametrize(
    ("request_", "client", "kind"),
    [
        (MADE, CLIENT, "UnknownHost"),  # who is no server
        (MADE, B, "BadLayout"),  # another server
        (x.Alloc("j2", 10, Layout(("a",)), "", True, "s2.1", True), A, "DuplicateData"),
        (x.Alloc(JOB, 10, Layout(("a",)), "", False, "s2.2", True), A, "BadLayout"),
        (x.Alloc(JOB, 10, Layout(("a",)), "", True, "", True), A, "BadLayout"),
        (x.Alloc(JOB, 10, replicated(2, ("a", "b")), "", True, "s2.2", True), A, "BadLayout"),
        (x.Alloc(JOB, 10, striped(4, ("a",)), "", True, "s2.2", True), A, "BadLayout"),
        (x.Alloc(JOB, 0, Layout(("a",)), "", True, "s2.2", True), A, "BadSize"),
        (x.Alloc("j9", 10, Layout(("a",)), "", True, "s2.2", True), A, "WrongJob"),
    ],
)
def test_nobody_says_so_of_anything_else(request_: x.Alloc, client: int, kind: str) -> None:
    layer = Layer("z", "a", "b")
    if request_.data_id == "s2.1" and kind == "DuplicateData":
        layer.do(MADE, A)
    before = layer.machine.status()
    assert layer.refusal(request_, client)[0] == kind
    assert layer.machine.status() == before


def test_a_server_that_comes_again_gives_other_ids() -> None:
    layer = Layer("z", "a")
    layer.feed(ServerDown(A, "killed"))
    hello = x.ServerHello("a", "ws://a:2", "", 1000)
    [joined] = layer.feed(ServerUp(9, 1, hello))
    assert joined.message == x.ServerJoined(1, "s3")
    assert layer.do(x.Alloc("j2", 1, Layout(("a",)), "", True, "s3.1", True), 9).data_id == "s3.1"
    assert layer.feed(ClientDown(OTHER)) == [TellServer(9, x.DropPart("s3.1", 0))]
