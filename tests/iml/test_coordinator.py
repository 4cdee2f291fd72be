"""The directory of a memory layer, action by action."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import partition
from gspc_trio.iml.events import (
    Answered,
    AnswerRequest,
    Asked,
    CallServer,
    ClientDown,
    ClientUp,
    RefuseRequest,
    ServerDown,
    ServerSays,
    ServerUp,
    TellClient,
    TellServer,
)
from gspc_trio.iml.layout import Layout, Range, replicated, striped
from tests.iml.support import CLIENT, JOB, OTHER, Layer


def test_data_is_made_where_its_layout_says() -> None:
    layer = Layer("a", "b", "c")
    actions = layer.ask(x.Alloc(JOB, 10, striped(4, ("c", "a"))))
    assert actions == [
        CallServer(2, 1, x.CreatePart("d1", 0, 6)),
        CallServer(0, 2, x.CreatePart("d1", 1, 4)),
    ]
    assert layer.feed(Answered(1)) == []
    [reply] = layer.feed(Answered(2))
    assert reply.message.parts == ((2,), (0,))
    assert [entry.host for entry in reply.message.servers] == ["a", "c"]
    assert partition(reply.message) == {"c": [Range("d1", 0, 4), Range("d1", 8, 2)], "a": [Range("d1", 4, 4)]}
    assert layer.do(x.Locate(JOB, "d1")) == reply.message


def test_copies_are_on_every_host_of_the_partition() -> None:
    layer = Layer("a", "b", "c")
    located = layer.do(x.Alloc(JOB, 10, replicated(2, ("a", "c"))))
    assert partition(located) == {"a": [Range("d1", 0, 10)], "c": [Range("d1", 0, 10)]}


def test_data_that_one_host_has_no_room_for_is_made_nowhere() -> None:
    layer = Layer("a", "b")
    layer.ask(x.Alloc(JOB, 10, replicated(2)))
    assert layer.feed(Answered(1)) == []
    assert layer.feed(Answered(2, "NoRoom", "host b has no room")) == [
        TellServer(0, x.DropPart("d1", 0)),
        RefuseRequest(0, "NoRoom", "host b has no room"),
    ]
    assert layer.refusal(x.Locate(JOB, "d1"))[0] == "UnknownData"


def test_what_is_being_written_is_seen_by_nobody_and_goes_with_its_writer() -> None:
    layer = Layer("a")
    layer.do(x.Alloc(JOB, 10, writing=True))
    assert layer.refusal(x.Locate(JOB, "d1"))[0] == "UnknownData"
    assert layer.feed(ClientDown(CLIENT)) == [TellServer(0, x.DropPart("d1", 0))]
    layer.feed(ClientUp(CLIENT, 0, x.JoinLayer(JOB)))
    layer.do(x.Alloc(JOB, 10, writing=True))
    assert layer.ask(x.CommitData("d2")) == [
        TellServer(0, x.SealPart("d2", 0)),
        AnswerRequest(0, x.ImlDone()),
    ]
    assert layer.do(x.Locate(JOB, "d2")).size_bytes == 10
    assert layer.refusal(x.CommitData("d2")) == ("UnknownData", "nothing is being written under d2")


def test_a_writer_who_gives_up_leaves_nothing() -> None:
    layer = Layer("a")
    layer.do(x.Alloc(JOB, 10, writing=True))
    assert layer.ask(x.AbortData("d1")) == [TellServer(0, x.DropPart("d1", 0)), AnswerRequest(0, x.ImlDone())]
    assert layer.do(x.AbortData("d1")) == x.ImlDone()


def test_a_put_is_written_aside_and_applied_on_every_holder() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(2)))
    begun = layer.do(x.BeginPut(JOB, "d1", 3, 4))
    assert begun.staging_id == "d2"
    actions = layer.ask(x.CommitData("d2"))
    assert [action.message for action in actions] == [x.ApplyPut("d1", 0, "d2", 3)] * 2
    assert layer.answer(actions[:1]) == []
    assert layer.answer(actions[1:]) == [
        TellServer(0, x.DropPart("d2", 0)),
        TellServer(1, x.DropPart("d2", 0)),
        AnswerRequest(0, x.ImlDone()),
    ]


def test_a_holder_that_cannot_apply_a_put_is_none_any_more() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(2)))
    layer.do(x.BeginPut(JOB, "d1", 3, 4))
    actions = layer.ask(x.CommitData("d2"))
    layer.answer(actions[:1])
    after = layer.answer(actions[1:], "NoRoom", "disk full")
    assert after[0] == TellServer(1, x.DropPart("d1", 0))
    assert after[-1] == AnswerRequest(0, x.ImlDone())
    assert layer.do(x.Locate(JOB, "d1")).parts == ((0,),)


def test_a_holder_that_the_writer_did_not_reach_is_left_out() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(2), writing=True))
    assert layer.ask(x.CommitData("d1", (1,))) == [
        TellServer(1, x.DropPart("d1", 0)),
        TellServer(0, x.SealPart("d1", 0)),
        AnswerRequest(0, x.ImlDone()),
    ]
    assert layer.do(x.Locate(JOB, "d1")).parts == ((0,),)
    layer.do(x.Alloc(JOB, 10, replicated(2), writing=True))
    assert layer.refusal(x.CommitData("d2", (0, 1))) == (
        "DataLost",
        "what was written was lost: its hosts could not be reached to write it",
    )


def test_a_copy_that_came_during_a_put_goes_for_it_has_the_old_bytes() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    layer.do(x.BeginPut(JOB, "d1", 0, 10))
    layer.do(x.Replicate(JOB, "d1", 2))
    actions = layer.ask(x.CommitData("d2"))
    assert [(action.link, action.message) for action in actions] == [
        (0, x.ApplyPut("d1", 0, "d2", 0)),
        (1, x.DropPart("d1", 0)),
    ]
    layer.answer(actions)
    assert layer.do(x.Locate(JOB, "d1")).parts == ((0,),)


def test_puts_take_turns() -> None:
    layer = Layer("a")
    layer.do(x.Alloc(JOB, 10))
    layer.do(x.BeginPut(JOB, "d1", 0, 10))
    layer.do(x.BeginPut(JOB, "d1", 5, 5))
    first = layer.ask(x.CommitData("d2"))
    assert layer.ask(x.CommitData("d3")) == []
    after = layer.answer(first)
    assert [action.message for action in after if isinstance(action, CallServer)] == [
        x.ApplyPut("d1", 0, "d3", 5)
    ]


def test_a_put_whose_bytes_were_lost_changes_nothing() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    layer.do(x.BeginPut(JOB, "d1", 0, 10))
    layer.do(x.Replicate(JOB, "d1", 2))
    layer.feed(ServerDown(0, "killed"))
    assert layer.refusal(x.CommitData("d2")) == (
        "DataLost",
        "the new bytes for d1 were lost, and nothing was changed: put again",
    )
    assert layer.do(x.Locate(JOB, "d1")).parts == ((1,),)


def test_free_hides_at_once_and_answers_when_all_have_dropped() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(2)))
    actions = layer.ask(x.Free(JOB, "d1"))
    assert [action.message for action in actions] == [x.DropPart("d1", 0)] * 2
    assert layer.refusal(x.Locate(JOB, "d1"))[0] == "UnknownData"
    assert layer.answer(actions) == [AnswerRequest(0, x.ImlDone())]
    assert layer.refusal(x.Free(JOB, "d1"))[0] == "UnknownData"


def test_data_freed_during_a_put_or_a_copy_is_unknown_to_both() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    layer.do(x.BeginPut(JOB, "d1", 0, 10))
    put = layer.ask(x.CommitData("d2"))
    assert layer.ask(x.Replicate(JOB, "d1", 2)) == []
    layer.do(x.Free(JOB, "d1"))
    after = layer.answer(put)
    assert [action.kind for action in after if isinstance(action, RefuseRequest)] == [
        "UnknownData",
        "UnknownData",
    ]


def test_a_job_takes_its_data_with_it_but_not_what_is_published() -> None:
    layer = Layer("a")
    layer.feed(ClientUp(30, 0, x.JoinLayer(JOB)))
    layer.do(x.Alloc(JOB, 10))
    layer.do(x.Alloc(JOB, 10))
    assert layer.do(x.Publish(JOB, "d2", "corpus")) == x.ImlDone()
    assert layer.feed(ClientDown(30)) == []
    assert layer.feed(ClientDown(CLIENT)) == [TellServer(0, x.DropPart("d1", 0))]
    assert layer.do(x.LookUp("corpus"), OTHER).data_id == "d2"
    assert layer.do(x.Locate("j2", "d2"), OTHER).job == ""


def test_publishing_in_place_of_other_data_frees_that() -> None:
    layer = Layer("a")
    layer.do(x.Alloc(JOB, 10))
    layer.do(x.Alloc(JOB, 10))
    layer.do(x.Publish(JOB, "d1", "model"))
    assert layer.refusal(x.Publish(JOB, "d2", "model"))[0] == "DuplicateData"
    assert TellServer(0, x.DropPart("d1", 0)) in layer.ask(x.Publish(JOB, "d2", "model", True))
    assert layer.do(x.LookUp("model")).data_id == "d2"
    assert layer.refusal(x.Locate(JOB, "d1"))[0] == "UnknownData"
    gone = "data d1 was published as 'model', and is gone: other data was published under this name"
    assert layer.refusal(x.Locate(JOB, "d1")) == ("UnknownData", gone)
    assert layer.do(x.Publish(JOB, "d2", "model", True)) == x.ImlDone()  # once more changes nothing
    assert layer.do(x.LookUp("model")).data_id == "d2"


def test_another_job_sees_only_what_is_published() -> None:
    layer = Layer("a")
    layer.do(x.Alloc(JOB, 10))
    for request in (x.Locate("j2", "d1"), x.Free("j2", "d1"), x.BeginPut("j2", "d1", 0, 1)):
        assert layer.refusal(request, OTHER) == (
            "WrongJob",
            "data d1 belongs to job j1, not to j2, and is not published",
        )
    for request in (x.Locate(JOB, "d1"), x.Free("", "d1"), x.Alloc(JOB, 10)):
        kind, message = layer.refusal(request, OTHER)
        assert (kind, message) == ("WrongJob", f"a client of job j2 asks for job {request.job or '(none)'}")
    layer.feed(ClientUp(CLIENT + 9, 0, x.JoinLayer("")))
    assert layer.do(x.Locate("", "d1"), CLIENT + 9).data_id == "d1"  # a tool that speaks for no job


def test_nobody_ends_what_another_client_is_writing_and_no_server_answers_for_another() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, writing=True))
    layer.feed(ClientUp(CLIENT + 5, 0, x.JoinLayer(JOB)))
    wrong = ("WrongJob", "d1 is being written by another client")
    assert layer.refusal(x.CommitData("d1"), CLIENT + 5) == wrong
    assert layer.ask(x.AbortData("d1"), CLIENT + 5) == [AnswerRequest(0, x.ImlDone())]
    assert layer.do(x.CommitData("d1")) == x.ImlDone()
    (call,) = layer.ask(x.Alloc(JOB, 10, Layout(("a",))))
    with pytest.raises(IllegalEvent, match="was not made to the server at link 1"):
        layer.feed(Answered(call.call, "", "", 1))
    assert layer.feed(Answered(call.call + 1, "", "", 1)) == []  # of nobody: it came too late
    assert isinstance(layer.feed(Answered(call.call, "", "", 0))[0], AnswerRequest)


def test_a_name_may_be_any_text() -> None:
    layer = Layer("a", "b")
    assert layer.do(x.GetRank("\udcff")).rank in (0, 1)


def test_data_has_not_more_blocks_than_can_be_looked_at() -> None:
    layer = Layer("a", "b")
    kind, message = layer.refusal(x.Alloc(JOB, 1 << 40, Layout(("a", "b"), 1)))
    assert (kind, message) == ("BadLayout", "1099511627776 bytes in blocks of 1: more than 1048576 blocks")


def test_a_name_is_given_once() -> None:
    layer = Layer("a")
    layer.do(x.Alloc(JOB, 10, name="n"))
    layer.do(x.Alloc(JOB, 10))
    assert layer.refusal(x.Publish(JOB, "d2", "n"))[0] == "DuplicateData"
    assert layer.refusal(x.Alloc(JOB, 10, name="n"))[0] == "DuplicateData"
    assert layer.refusal(x.LookUp("m")) == ("UnknownName", "no data is published under the name 'm'")
    layer.do(x.Free(JOB, "d1"))
    assert layer.do(x.Publish(JOB, "d2", "n")) == x.ImlDone()


def test_a_name_lies_where_it_was_set_or_hashed_to() -> None:
    layer = Layer("a", "b", "c")
    by_hash = layer.do(x.GetRank("f")).rank
    assert layer.do(x.Alloc(JOB, 10, name="f")).parts == ((by_hash,),)
    other = (by_hash + 1) % 3
    assert layer.do(x.SetRank("g", other)) == x.ImlDone()
    assert layer.do(x.GetRank("g")) == x.RankOf(other, "abc"[other])
    assert layer.do(x.Alloc(JOB, 10, name="g")).parts == ((other,),)
    assert layer.refusal(x.SetRank("g", 7)) == (
        "UnknownHost",
        "no memory server has the rank 7; there are: 0, 1, 2",
    )


def test_a_host_that_goes_takes_what_had_no_copy_and_its_job_is_told() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(2)))
    layer.do(x.Alloc(JOB, 10, striped(5)))
    assert layer.feed(ServerDown(1, "connection cut")) == [
        TellServer(0, x.DropPart("d2", 0)),
        TellClient(CLIENT, x.LostData(JOB, ("d2",), "host b is gone (connection cut)")),
    ]
    assert layer.do(x.Locate(JOB, "d1")).parts == ((0,),)
    assert layer.refusal(x.Locate(JOB, "d2")) == (
        "DataLost",
        "data d2 was lost: host b is gone (connection cut)",
    )
    assert layer.do(x.Free(JOB, "d2")) == x.ImlDone()


def test_lost_data_comes_back_under_its_own_id() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("b",)), data_id="t7.0"))
    assert layer.refusal(x.Alloc(JOB, 10, data_id="t7.0"))[0] == "DuplicateData"
    layer.feed(ServerDown(1, "killed"))
    assert layer.refusal(x.Alloc("j2", 10, data_id="t7.0"), OTHER)[0] == "DuplicateData"
    layer.do(x.Alloc(JOB, 10, writing=True, data_id="t7.0"))
    assert layer.refusal(x.Locate(JOB, "t7.0")) == ("DataLost", "data t7.0 was lost: host b is gone (killed)")
    assert layer.do(x.CommitData("t7.0")) == x.ImlDone()
    assert layer.do(x.Locate(JOB, "t7.0")).parts == ((0,),)


def test_a_call_to_a_host_that_goes_has_failed() -> None:
    layer = Layer("a", "b")
    layer.ask(x.Alloc(JOB, 10, replicated(2)))
    assert layer.feed(ServerDown(1, "killed")) == []
    assert layer.feed(Answered(1)) == [
        TellServer(0, x.DropPart("d1", 0)),
        RefuseRequest(0, "DataLost", "host b is gone (killed)"),
    ]
    assert layer.feed(Answered(2)) == []  # too late


def test_a_copy_is_fetched_from_a_holder() -> None:
    layer = Layer("a", "b", "c")
    located = layer.do(x.Alloc(JOB, 10, replicated(1, ("b",))))
    actions = layer.ask(x.Replicate(JOB, "d1", hosts=("c",), cached=True))
    copy = x.CopyPart("d1", 0, 10, located.servers[0], True, readers=JOB)
    assert actions == [CallServer(2, 2, copy)]
    [reply] = layer.answer(actions)
    assert reply.message.parts == ((1, 2),)
    assert layer.ask(x.Replicate(JOB, "d1", 2, ("c",))) == [
        TellServer(2, x.KeepPart("d1", 0)),
        AnswerRequest(0, reply.message),
    ]
    assert layer.refusal(x.Replicate(JOB, "d1", 4))[0] == "BadLayout"
    assert layer.refusal(x.Replicate(JOB, "d1", hosts=("z",)))[0] == "UnknownHost"


def test_a_copy_of_what_was_lost_meanwhile_is_dropped() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    copying = layer.ask(x.Replicate(JOB, "d1", 2))
    assert [action.link for action in copying if isinstance(action, CallServer)] == [1]
    layer.feed(ServerDown(0, "killed"))
    after = layer.answer(copying)
    assert TellServer(1, x.DropPart("d1", 0)) in after
    assert [action.kind for action in after if isinstance(action, RefuseRequest)] == ["DataLost"]


def test_there_are_as_many_copies_as_were_asked_for_though_a_host_goes_meanwhile() -> None:
    layer = Layer("a", "b", "c", "d")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    first, second = layer.ask(x.Replicate(JOB, "d1", 3))
    assert (first.link, second.link) == (1, 2)
    assert layer.answer([first]) == []
    layer.feed(ServerDown(1, "killed"))
    [again] = layer.answer([second])
    assert (again.link, type(again.message)) == (3, x.CopyPart)
    [reply] = layer.answer([again])
    assert reply.message.parts == ((0, 2, 3),)


def test_who_wants_more_copies_than_there_are_hosts_any_more_is_told() -> None:
    layer = Layer("a", "b", "c")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    layer.do(x.BeginPut(JOB, "d1", 0, 10))
    put = layer.ask(x.CommitData("d2"))
    assert layer.ask(x.Replicate(JOB, "d1", 3)) == [], "its turn has not come"
    layer.feed(ServerDown(2, "killed"))
    [copy] = [action for action in layer.answer(put) if isinstance(action, CallServer)]
    [refused] = layer.answer([copy])
    assert (refused.kind, refused.message) == (
        "BadLayout",
        "3 copies were asked for, but the layer has 2 hosts",
    )


def test_the_last_copy_is_kept_and_an_evicted_one_forgotten() -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10, replicated(1, ("a",))))
    layer.do(x.Replicate(JOB, "d1", hosts=("b",), cached=True))
    assert layer.feed(ServerDown(0, "killed")) == [TellServer(1, x.KeepPart("d1", 0))]
    [told] = layer.feed(ServerSays(1, x.Evicted("d1", 0)))
    assert told == TellClient(CLIENT, x.LostData(JOB, ("d1",), "host b had to make room"))


def test_a_host_has_one_server_and_keeps_its_rank() -> None:
    layer = Layer("a", "b")
    hello = x.ServerHello("a", "ws://a:2", "", 1000)
    [refused] = layer.feed(ServerUp(9, 5, hello))
    assert (refused.ask, refused.kind) == (5, "DuplicateData")
    assert layer.feed(ServerDown(9, "was never in")) == []
    layer.feed(ServerDown(0, "killed"))
    assert layer.feed(ServerUp(9, 6, hello)) == [AnswerRequest(6, x.ServerJoined(0, "s3"))]
    assert [entry.address for entry in layer.do(x.GetServers()).servers] == ["ws://a:2", "ws://b:1"]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (x.Alloc(JOB, 0), "BadSize"),
        (x.Alloc(JOB, 10, replicated(1, ("z",))), "UnknownHost"),
        (x.Alloc(JOB, 10, replicated(3)), "BadLayout"),
        (x.BeginPut(JOB, "d1", 9, 2), "BadRange"),
        (x.BeginPut(JOB, "d9", 0, 1), "UnknownData"),
        (x.CommitData("d9"), "UnknownData"),
        (x.Publish(JOB, "d1", ""), "UnknownName"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(request_: Any, kind: str) -> None:
    layer = Layer("a", "b")
    layer.do(x.Alloc(JOB, 10))
    before = layer.machine.status()
    assert layer.refusal(request_)[0] == kind
    assert layer.machine.status() == before


def test_the_state_tells_where_each_part_lies_and_what_is_being_copied() -> None:
    layer = Layer("a", "b", "c")
    data_id = layer.do(x.Alloc(JOB, 10, striped(4, ("a", "b")))).data_id

    def told() -> x.DataStatus:
        (entry,) = layer.machine.status().data
        return entry

    assert [(part.size_bytes, part.hosts) for part in told().parts] == [(6, ("a",)), (4, ("b",))]
    calls = layer.ask(x.Replicate(JOB, data_id, hosts=("c",), cached=True))
    assert layer.machine.status().transfers == (
        x.TransferStatus(data_id, 0, 6, source="a", host="c"),
        x.TransferStatus(data_id, 1, 4, source="b", host="c"),
    )
    layer.answer(calls)
    assert layer.machine.status().transfers == ()
    assert (told().hosts, told().block_bytes) == (("a", "b", "c"), 4)
    assert [(part.hosts, part.cached) for part in told().parts] == [(("a",), ("c",)), (("b",), ("c",))]


def test_what_is_no_event_is_illegal() -> None:
    layer = Layer("a")
    for event in (object(), Asked(CLIENT, 0, object()), ClientUp(CLIENT, 0, x.JoinLayer(JOB))):
        with pytest.raises(IllegalEvent):
            layer.machine.handle(event, 0.0)
    assert layer.feed(Tick()) == []
    assert layer.machine.deadline() is None
