"""COA-3: services register with one another, and make a tree."""

from __future__ import annotations

from gspc_trio.components.coallocation.agents.delegation import Credential, CredentialLimit, mint
from gspc_trio.components.coallocation.agents.service import (
    PARENT,
    CoallocationService,
    DropPeer,
    ParentLinked,
    PeerGone,
    PeerSaid,
    SiteOffered,
    ToPeer,
)
from gspc_trio.components.coallocation.agents.words import (
    CredentialLent,
    CredentialWanted,
    PartNeed,
    PartsDone,
    PartsRequest,
    PlacedPart,
    RegisterService,
    ServiceRefused,
    ServiceRegistered,
    SiteOffer,
    SubmitParts,
)
from gspc_trio.core.machine import Tick

SITE = SiteOffer(("a",), {"core": 2}, {"core": 2})


def register(name: str, *more: str, instance: str = "i1", offers: tuple[SiteOffer, ...] = ()) -> PeerSaid:
    return PeerSaid(name, RegisterService(name, instance, frozenset({name, *more}), offers))


def make_top() -> CoallocationService:
    one = CoallocationService("top", "i1")
    one.handle(SiteOffered(SiteOffer(("z",), {"core": 1})), 0.0)
    return one


def test_a_service_tells_its_parent_what_its_subtree_has_every_two_seconds():
    low = CoallocationService("low", "i1")
    low.handle(SiteOffered(SITE), 0.0)
    told = ToPeer(PARENT, RegisterService("low", "i1", frozenset({"low", "a"}), (SITE,)))
    assert low.handle(ParentLinked(), 0.0) == [told]
    assert low.deadline() == 2.0
    assert low.handle(Tick(), 2.0) == [told]
    assert low.handle(PeerSaid(PARENT, ServiceRegistered(("top",))), 2.1) == []
    below = SiteOffer(("x", "b"), {"core": 1})
    assert low.handle(register("x", "b", offers=(SiteOffer(("b",), {"core": 1}),)), 2.2) == [
        ToPeer("x", ServiceRegistered(("low", "top")))
    ]
    assert low.handle(Tick(), 4.0) == [
        ToPeer(PARENT, RegisterService("low", "i1", frozenset({"low", "a", "x", "b"}), (SITE, below)))
    ]
    low.check()


def test_who_is_silent_for_six_seconds_is_gone():
    top = make_top()
    assert top.handle(register("low"), 0.0) == [ToPeer("low", ServiceRegistered(("top",)))]
    assert top.handle(Tick(), 5.9) == []
    assert top.handle(Tick(), 6.0) == [DropPeer("low", "it was silent for 6 s")]
    low = CoallocationService("low", "i1")
    low.handle(ParentLinked(), 0.0)
    low.handle(SiteOffered(SITE), 0.1)
    # What has waited while it was suspended is not obeyed.
    late = PeerSaid(PARENT, PartsRequest("top.1/1", (PlacedPart(0, PartNeed(), ("a",)),)))
    assert low.handle(late, 18.0) == [DropPeer(PARENT, "it was silent for 6 s")]
    low.check()


def test_cycles_and_double_names_are_refused():
    top = make_top()
    assert top.handle(register("top", "q"), 0.0) == [
        ToPeer("top", ServiceRefused("no service is below one of its own name, top: services make a tree"))
    ]
    assert top.handle(register("low", "top"), 0.0) == [
        ToPeer("low", ServiceRefused("top is below low already: services make a tree"))
    ]
    top.handle(register("low", "a"), 0.0)
    again = register("low", instance="i2")
    assert top.handle(again, 0.1) == [ToPeer("low", ServiceRefused("there is another low already"))]
    assert top.handle(PeerSaid("low#2", again.message), 0.1) == [
        ToPeer("low#2", ServiceRefused("there is another low already"))
    ]
    assert top.handle(register("z"), 0.2) == [ToPeer("z", ServiceRefused("there is another z already"))]
    top.handle(register("low", "a"), 0.3)
    # A name below that another one had first is told to the one who has let it in.
    offers = (SiteOffer(("a",), {"core": 7}), SiteOffer(("c",), {"core": 1}))
    assert top.handle(register("right", "a", "c", offers=offers), 0.4) == [
        ToPeer("right", ServiceRegistered(("top",), frozenset({"a"})))
    ]
    assert [offer.path for offer in top.offers()] == [("right", "c"), ("z",)]
    assert top.handle(register("low", "a"), 0.5) == [ToPeer("low", ServiceRegistered(("top",)))]
    top.check()


def test_a_name_that_is_there_already_is_refused_where_it_has_registered():
    right = CoallocationService("right", "i1")
    right.handle(ParentLinked(), 0.0)
    right.handle(register("a"), 0.1)
    refused = "there is another a already"
    assert right.handle(PeerSaid(PARENT, ServiceRegistered(("top",), frozenset({"a"}))), 0.2) == [
        ToPeer("a", ServiceRefused(refused)),
        DropPeer("a", refused),
    ]
    assert right.handle(PeerSaid(PARENT, ServiceRegistered(("right",))), 0.3) == [
        DropPeer(PARENT, "right would be below itself: services make a tree")
    ]
    right.check()


def test_a_child_that_was_started_again_registers_when_the_old_one_is_gone():
    top = make_top()
    top.handle(register("low"), 0.0)
    assert top.handle(PeerGone("low"), 1.0) == []
    assert top.handle(register("low", instance="i2"), 1.1) == [ToPeer("low", ServiceRegistered(("top",)))]


def test_what_the_parent_asks_for_without_a_credential_is_refused():
    low = CoallocationService("low", "i1")
    low.handle(SiteOffered(SITE), 0.0)
    low.handle(ParentLinked(), 0.0)
    asked = PeerSaid(PARENT, PartsRequest("top.1/1", (PlacedPart(0, PartNeed(), ("a",)),)))
    reason = "site a gives resources only to requests with a credential for it"
    assert low.handle(asked, 0.1) == [ToPeer(PARENT, PartsDone("top.1/1", reason))]
    low.check()


def test_a_request_for_a_site_that_has_just_gone_is_answered():
    low = CoallocationService("low", "i1")
    low.handle(ParentLinked(), 0.0)
    part = PlacedPart(0, PartNeed(), ("a",), Credential(b"i" * 16, (), b""))
    asked = PeerSaid(PARENT, PartsRequest("top.1/1", (part,)))
    assert low.handle(asked, 0.1) == [
        ToPeer(PARENT, PartsDone("top.1/1", "a is gone: it is not there any more"))
    ]
    low.check()


def test_two_requests_of_one_name_are_one_too_many():
    top = make_top()
    top.handle(PeerSaid("client", SubmitParts("r", (PartNeed(),))), 0.0)
    assert top.handle(PeerSaid("client", SubmitParts("r", (PartNeed(),))), 0.1) == [
        ToPeer("client", PartsDone("r", "there is a request r"))
    ]
    top.check()


def test_one_credential_is_asked_for_all_jobs_of_a_request_and_each_try_is_limited():
    top = CoallocationService("top", "i1")
    top.handle(register("low", "a", offers=(SiteOffer(("a",), {"core": 9}, {"core": 9}, lends=True),)), 0.0)

    def submit(who: str, job: str) -> list[object]:
        return list(top.handle(PeerSaid(who, SubmitParts(job, (PartNeed(),))), 0.0))

    assert submit("=top-1", "1.1") == [ToPeer("low", CredentialWanted("top.i1.top-1", ("a",)))]
    assert submit("=top-1", "2.1") == []
    credential = mint(b"secret", bytes(16), CredentialLimit("a", expires_s=9.0, request="top.i1.top-1"), 0.0)
    told = top.handle(PeerSaid("low", CredentialLent("top.i1.top-1", ("a",), credential)), 0.0)
    tries = []
    for action in told:
        assert isinstance(action, ToPeer)
        assert isinstance(action.message, PartsRequest)
        (part,) = action.message.parts
        assert part.credential is not None
        assert part.credential.limits[-1].count == 1
        tries.append((action.message.request, part.credential.limits[-1].request))
    assert tries == [("top.i1.top-1/1/1",) * 2, ("top.i1.top-1/2/1",) * 2]
    assert [type(one.message) for one in submit("=top-1", "3.1") if isinstance(one, ToPeer)] == [PartsRequest]
    assert submit("=top-2", "1.1") == [ToPeer("low", CredentialWanted("top.i1.top-2", ("a",)))]
    top.check()
    none = CredentialLent("top.i1.top-2", ("a",), error="no")
    assert top.handle(PeerSaid("low", none), 0.0) == [ToPeer("=top-2", PartsDone("1.1", "no"))]
    top.forget("=top-1")
    assert submit("=top-1", "4.1") == [ToPeer("low", CredentialWanted("top.i1.top-1", ("a",)))]
    top.check()


def test_a_service_asks_its_site_for_a_credential_and_answers_also_if_that_is_lost():
    low = CoallocationService("low", "i1")
    low.handle(SiteOffered(SITE), 0.0)
    low.handle(ParentLinked(), 0.0)
    wanted, answer = CredentialWanted("r", ("a",)), CredentialLent("r", ())
    assert low.handle(PeerSaid(PARENT, wanted), 0.1) == [ToPeer("a", CredentialWanted("r", ()))]
    assert low.handle(PeerSaid("a", answer), 0.2) == [ToPeer(PARENT, CredentialLent("r", ("a",)))]
    assert low.handle(PeerSaid("a", answer), 0.2) == []
    low.handle(PeerSaid(PARENT, wanted), 0.3)
    lost = CredentialLent("r", ("a",), error="a is gone: cut")
    assert low.handle(PeerGone("a", "cut"), 0.4) == [ToPeer(PARENT, lost)]
    late = CredentialLent("r", ("a",), error="a is not there any more")
    assert low.handle(PeerSaid(PARENT, wanted), 0.5) == [ToPeer(PARENT, late)]
