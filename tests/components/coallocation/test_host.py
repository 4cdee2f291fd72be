"""COA-3: a service that was suspended obeys nobody whom it has not heard of for too long."""

from __future__ import annotations

from gspc_trio.components.coallocation.agents.service import (
    PARENT,
    DropPeer,
    ParentLinked,
    PeerSaid,
    SiteOffered,
    ToPeer,
)
from gspc_trio.components.coallocation.agents.words import (
    LEASE_S,
    CancelParts,
    PartsAccepted,
    PartsRequest,
    ServiceRegistered,
    SiteOffer,
    SubmitRequest,
)
from gspc_trio.components.coallocation.host import CoallocationHost, HostAction
from gspc_trio.components.coallocation.shell.service import read_request

TOLD = SubmitRequest("top-1.1", "*(&(executable=a))(&(executable=b))")


def linked() -> CoallocationHost:
    host = CoallocationHost("low", "1")
    host.handle(SiteOffered(SiteOffer(("s",), {"core": 1}, {"core": 1})), 0.0)
    host.handle(ParentLinked(), 0.0)
    host.handle(PeerSaid(PARENT, ServiceRegistered(("top",))), 0.0)
    return host


def asked(actions: list[HostAction]) -> list[object]:
    return [one.message for one in actions if isinstance(one, ToPeer) and one.who == "s"]


def test_what_was_said_while_a_service_was_suspended_starts_nothing():
    host = linked()
    late = host.handle(read_request(PARENT, TOLD), LEASE_S)
    assert DropPeer(PARENT, f"it was silent for {LEASE_S:g} s") in late
    assert (asked(late), host.requests) == ([], {})
    host.check()
    in_time = linked().handle(read_request(PARENT, TOLD), LEASE_S - 0.1)
    assert [type(one) for one in asked(in_time)] == [PartsRequest, PartsRequest]


def test_what_it_had_been_asked_for_before_is_stopped_first():
    host = linked()
    (first, _) = asked(host.handle(read_request(PARENT, TOLD), 1.0))
    assert isinstance(first, PartsRequest)
    late = host.handle(PeerSaid("s", PartsAccepted(first.request)), 1.0 + LEASE_S)
    assert CancelParts(first.request) in asked(late)
    host.check()
