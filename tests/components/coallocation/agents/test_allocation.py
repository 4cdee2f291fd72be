"""COA-2, COA-6: the request and the barrier of one co-allocation, event by event."""

from __future__ import annotations

from gspc_trio.components.coallocation.agents.allocation import (
    AnswerAsker,
    DoorGone,
    DoorSaid,
    PartsAllocation,
    RequestBegun,
    RequestPhase,
    TellDoor,
)
from gspc_trio.components.coallocation.agents.delegation import ID_BYTES, CredentialLimit, mint
from gspc_trio.components.coallocation.agents.words import (
    CancelParts,
    OptionLadder,
    PartNeed,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    PlacedPart,
    SiteOffer,
    SubmitParts,
)
from gspc_trio.core.machine import Tick

OFFERS = [SiteOffer(("a",), {"core": 4}, {"core": 4}), SiteOffer(("b",), {"core": 2}, {"core": 2})]
TWO = (PartNeed(count=2, contact="b"), PartNeed(count=3, contact="a"))


def begun(wanted: SubmitParts | PartsRequest) -> tuple[PartsAllocation, list[object]]:
    one = PartsAllocation("s.1", wanted, lambda: OFFERS)
    return one, list(one.handle(RequestBegun(), 0.0))


def ask(door: str, part: int, need: PartNeed, number: int = 1) -> TellDoor:
    return TellDoor(door, PartsRequest(f"s.1/{number}", (PlacedPart(part, need, ()),)))


def test_sites_are_asked_in_the_order_of_their_names_and_all_start_together():
    one, actions = begun(SubmitParts("r", TWO))
    assert actions == [ask("a", 1, TWO[1])]
    assert one.handle(DoorSaid("a", PartsAccepted("s.1/1")), 1.0) == [ask("b", 0, TWO[0])]
    assert one.handle(DoorSaid("a", PartsReady("s.1/1")), 2.0) == []
    assert one.handle(DoorSaid("b", PartsAccepted("s.1/1")), 3.0) == []
    assert one.deadline() == 61.0, "the barrier is over 60 s after something was held"
    go = PartsGo("s.1/1")
    assert one.handle(DoorSaid("b", PartsReady("s.1/1")), 4.0) == [
        TellDoor("a", go),
        TellDoor("b", go),
        AnswerAsker(PartsGo("r")),
    ]
    assert one.handle(DoorSaid("a", PartsDone("s.1/1", ran=True)), 5.0) == []
    one.check()
    assert one.handle(DoorSaid("b", PartsDone("s.1/1", "it failed", True)), 6.0) == [
        AnswerAsker(PartsDone("r", "it failed", True))
    ]
    one.check()


def test_when_the_barrier_is_over_all_is_given_back_and_the_answer_waits_for_that():
    one, _ = begun(SubmitParts("r", TWO, barrier_timeout_s=5.0))
    one.handle(DoorSaid("a", PartsAccepted("s.1/1")), 1.0)
    one.handle(DoorSaid("b", PartsAccepted("s.1/1")), 2.0)
    one.handle(DoorSaid("a", PartsReady("s.1/1")), 3.0)
    # The word that it is ready comes in the same moment: too late.
    assert one.handle(DoorSaid("b", PartsReady("s.1/1")), 6.0) == [
        TellDoor("a", CancelParts("s.1/1")),
        TellDoor("b", CancelParts("s.1/1")),
    ]
    assert one.handle(DoorSaid("b", PartsDone("s.1/1", "cancelled")), 6.5) == []
    one.check()
    told = PartsDone("r", "not ready in time: b")
    assert one.handle(DoorGone("a", "it was killed"), 7.0) == [AnswerAsker(told)]


def test_the_last_option_goes_down_first_and_then_the_next_try_begins_from_the_top():
    needs = (PartNeed(count=4, contact="a"), PartNeed(count=2, contact="b"))
    ladders = (OptionLadder(0, "count", (4, 3)), OptionLadder(1, "count", (2, 1)))
    one, actions = begun(SubmitParts("r", needs, ladders, on_error=1))
    seen = []
    for number in range(1, 4):
        seen.append(one.steps)
        assert actions[0].door == "a"
        actions = one.handle(DoorSaid("a", PartsDone(f"s.1/{number}", "no")), float(number))
    assert seen == [(0, 0), (0, 1), (1, 1)]
    assert (actions, one.deadline(), one.phase) == ([], 4.0, RequestPhase.PAUSED)
    assert one.handle(Tick(), 4.0) == [ask("a", 0, needs[0], 4)]
    for number in range(4, 7):
        actions = one.handle(DoorSaid("a", PartsDone(f"s.1/{number}", "still no")), 5.0)
    assert actions == [AnswerAsker(PartsDone("r", "still no"))]


def test_pauses_double_up_to_a_minute_without_a_bound():
    one, _ = begun(SubmitParts("r", (PartNeed(count=9),), on_error=None))
    pauses = []
    now = 0.0
    for _ in range(8):
        due_s = one.deadline()
        assert due_s is not None
        pauses.append(due_s - now)
        now = due_s
        assert one.handle(Tick(), now) == []
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert one.handle(CancelParts("r"), now) == [AnswerAsker(PartsDone("r", "cancelled"))]


def test_more_than_there_is_is_refused_at_once():
    _, actions = begun(SubmitParts("r", (PartNeed(count=9),), on_error=5))
    assert actions == [
        AnswerAsker(PartsDone("r", "no site has 9 of class core; the largest has 4 of this class"))
    ]
    _, actions = begun(SubmitParts("r", (PartNeed(contact="x"),)))
    assert actions == [AnswerAsker(PartsDone("r", "there is no site or host x; there are a, b"))]


def test_below_another_service_that_one_says_when_to_start():
    parts = (PlacedPart(0, PartNeed(), ("a",)), PlacedPart(1, PartNeed(), ("b",)))
    one, _ = begun(PartsRequest("up/1", parts))
    one.handle(DoorSaid("a", PartsAccepted("s.1/1")), 1.0)
    assert one.handle(DoorSaid("b", PartsAccepted("s.1/1")), 2.0) == [AnswerAsker(PartsAccepted("up/1"))]
    one.handle(DoorSaid("a", PartsReady("s.1/1")), 3.0)
    assert one.handle(DoorSaid("b", PartsReady("s.1/1")), 4.0) == [AnswerAsker(PartsReady("up/1"))]
    one.check()
    assert one.deadline() is None, "who waits for a word does not decide by itself"
    assert one.handle(PartsGo("up/1"), 500.0) == [
        TellDoor("a", PartsGo("s.1/1")),
        TellDoor("b", PartsGo("s.1/1")),
    ]


def test_what_is_cancelled_while_it_runs_is_answered_when_nothing_runs():
    one, _ = begun(SubmitParts("r", (PartNeed(),)))
    one.handle(DoorSaid("b", PartsAccepted("s.1/1")), 0.1)
    one.handle(DoorSaid("b", PartsReady("s.1/1")), 0.2)
    assert one.handle(CancelParts("r"), 1.0) == [TellDoor("b", CancelParts("s.1/1"))]
    one.check()
    assert one.handle(CancelParts("r"), 1.1) == []
    assert one.handle(DoorSaid("b", PartsDone("s.1/1", "cancelled", True)), 1.2) == [
        AnswerAsker(PartsDone("r", "cancelled", True))
    ]


def test_a_site_that_asks_for_credentials_is_for_who_brings_one_or_has_no_other():
    offers = [SiteOffer((name,), {"core": 4}, {"core": 4}, lends=name == "z") for name in ("a", "z")]
    credential = mint(b"secret", b"i" * ID_BYTES, CredentialLimit("a", expires_s=60.0), 0.0)
    for brought, contact, expected in (({}, "", "z"), ({"a": credential}, "", "a"), ({}, "a", "a")):
        wanted = SubmitParts("r", (PartNeed(contact=contact),), credentials=brought)
        one = PartsAllocation("s.1", wanted, lambda: offers)
        (action,) = one.handle(RequestBegun(), 0.0)
        assert isinstance(action, TellDoor)
        assert action.door == expected
