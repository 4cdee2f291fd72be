"""Who enrols in a block: action lists, and a machine that looks for two live RIFs on one node."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gspc_trio.components.provision.blocks import NodeCame, NodeLost
from gspc_trio.components.provision.enrolment import (
    CLOSED_MAX,
    CancelStray,
    CloseBlock,
    ConnectedChanged,
    EndNode,
    Enrolment,
    EnrolmentAction,
    EnrolmentEvent,
    Enrols,
    ForgetBlock,
    GiveOrder,
    HandInOrder,
    JobKnown,
    JobSeen,
    LinkGone,
    OpenBlock,
    RefuseEnrolment,
    RifSeen,
    WithdrawOrder,
)
from gspc_trio.core.machine import IllegalEvent, Tick

NODES = 2


class Driver:
    """A machine that is checked after each event."""

    def __init__(self, *events: EnrolmentEvent) -> None:
        self.machine = Enrolment()
        for event in events:
            self.tell(event)

    def tell(self, event: EnrolmentEvent) -> list[EnrolmentAction]:
        actions = self.machine.handle(event, 0.0)
        self.machine.check()
        return actions


def block_with_orders() -> Driver:
    return Driver(OpenBlock("b", NODES), HandInOrder("b", 0, 1), HandInOrder("b", 1, 1))


SEEN = JobSeen("b", "17")


def test_each_node_gets_its_order_once():
    driver = block_with_orders()
    assert driver.tell(Enrols(1, "b", 1, "17", 0)) == [SEEN, GiveOrder(1, "b", 1, 1)]
    assert driver.tell(Enrols(2, "b", 0, "17", 0)) == [SEEN, GiveOrder(2, "b", 0, 1)]
    twice = RefuseEnrolment(3, "node 0 of the block b has enrolled already")
    assert driver.tell(Enrols(3, "b", 0, "17", 0)) == [twice]
    assert driver.machine.deadline() is None
    assert driver.tell(Tick()) == []


def test_who_comes_before_the_order_waits_for_it():
    driver = Driver(OpenBlock("b", NODES))
    assert driver.tell(Enrols(1, "b", 0, "17", 0)) == [SEEN]
    twice = RefuseEnrolment(2, "node 0 of the block b has enrolled already")
    assert driver.tell(Enrols(2, "b", 0, "17", 0)) == [twice]
    driver.tell(LinkGone(1))
    assert driver.tell(Enrols(3, "b", 0, "17", 0)) == [SEEN]
    assert driver.tell(HandInOrder("b", 0, 1)) == [GiveOrder(3, "b", 0, 1)]


@pytest.mark.parametrize(
    ("node", "job_id", "reason"),
    [
        (2, "17", "the block b has 2 nodes, and no node 2"),
        (0, "18", "the block b is the batch job 17, not 18"),
    ],
)
def test_who_says_what_cannot_be_is_refused(node: int, job_id: str, reason: str):
    driver = block_with_orders()
    driver.tell(JobKnown("b", "17"))
    assert driver.tell(Enrols(1, "b", node, job_id, 0)) == [RefuseEnrolment(1, reason)]


def test_a_later_start_of_the_job_ends_all_rifs_of_earlier_ones_before_it_gets_an_order():
    driver = block_with_orders()
    for node in range(NODES):
        driver.tell(Enrols(node, "b", node, "17", 0))
    assert driver.tell(RifSeen("b", 0, 1, True)) == [ConnectedChanged("b", 1), NodeCame("b", 0)]
    why = "its batch job was started again"
    assert driver.tell(Enrols(5, "b", 0, "17", 1)) == [
        SEEN,
        EndNode("b", 0, 1, why),
        ConnectedChanged("b", 0),
        NodeLost("b", 0, why),
        EndNode("b", 1, 1, why),
        NodeLost("b", 1, why),
    ]
    assert driver.machine.restarts("b") == 1
    older = RefuseEnrolment(6, "the batch job was started again: 1 times, not 0")
    assert driver.tell(Enrols(6, "b", 1, "17", 0)) == [older]
    assert driver.tell(HandInOrder("b", 0, 2)) == [GiveOrder(5, "b", 0, 2)]


def test_one_that_waits_is_sent_away_when_the_job_is_started_again():
    driver = Driver(OpenBlock("b", NODES))
    driver.tell(Enrols(1, "b", 0, "17", 0))
    gone = RefuseEnrolment(1, "its batch job was started again")
    assert driver.tell(Enrols(2, "b", 0, "17", 1)) == [SEEN, gone]


def test_a_process_in_place_of_a_lost_rif_gets_a_new_order():
    driver = block_with_orders()
    driver.tell(Enrols(1, "b", 0, "17", 0))
    driver.tell(RifSeen("b", 0, 1, True))
    assert driver.tell(RifSeen("b", 0, 1, False)) == [ConnectedChanged("b", 0)]
    assert driver.tell(RifSeen("b", 0, 1, False, "silent")) == [NodeLost("b", 0, "silent")]
    assert driver.tell(RifSeen("b", 0, 1, False, "silent")) == []
    ended = EndNode("b", 0, 1, "another process has taken its place")
    assert driver.tell(Enrols(2, "b", 0, "17", 0)) == [SEEN, ended]
    assert driver.tell(HandInOrder("b", 0, 2)) == [GiveOrder(2, "b", 0, 2)]


def test_a_node_that_was_taken_down_gets_no_order():
    driver = block_with_orders()
    driver.tell(Enrols(1, "b", 0, "17", 0))
    driver.tell(RifSeen("b", 0, 1, True))
    assert driver.tell(WithdrawOrder("b", 0, 1)) == [ConnectedChanged("b", 0)]
    refused = RefuseEnrolment(2, "node 0 of the block b was taken down")
    assert driver.tell(Enrols(2, "b", 0, "17", 1)) == [refused]


def test_a_block_that_is_not_wanted_sends_all_away_and_its_job_is_cancelled():
    driver = Driver(OpenBlock("b", NODES))
    driver.tell(Enrols(1, "b", 0, "17", 0))
    refused = "the block b is not wanted any more"
    assert driver.tell(CloseBlock("b")) == [RefuseEnrolment(1, refused)]
    late = [RefuseEnrolment(2, refused), CancelStray("b", "17")]
    assert driver.tell(Enrols(2, "b", 0, "17", 0)) == late
    assert driver.tell(Enrols(3, "c", 0, "17", 0)) == [
        RefuseEnrolment(3, "the block c is not wanted any more")
    ]
    with pytest.raises(IllegalEvent):
        driver.tell(HandInOrder("b", 0, 2))


def test_the_oldest_of_too_many_closed_blocks_is_forgotten():
    driver = Driver(OpenBlock("b", NODES), OpenBlock("c", NODES))
    assert driver.tell(CloseBlock("b")) == []
    for number in range(CLOSED_MAX - 1):
        driver.tell(OpenBlock(f"b{number}", NODES))
        assert driver.tell(CloseBlock(f"b{number}")) == []
    assert driver.tell(CloseBlock("c")) == [ForgetBlock("b")]
    assert driver.tell(Enrols(1, "b", 0, "17", 0)) == [
        RefuseEnrolment(1, "the block b is not wanted any more")
    ]


def test_a_rif_of_an_earlier_run_time_system_has_its_order_already():
    driver = Driver(OpenBlock("b", NODES, "17", 3), HandInOrder("b", 0, 4, taken=True))
    assert driver.tell(RifSeen("b", 0, 4, True)) == [ConnectedChanged("b", 1), NodeCame("b", 0)]
    twice = RefuseEnrolment(1, "node 0 of the block b has enrolled already")
    assert driver.tell(Enrols(1, "b", 0, "17", 3)) == [twice]


class EnrolmentMachine(RuleBasedStateMachine):
    """Processes that come and go as they like, and a run-time system that orders anew what has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(OpenBlock("b", NODES))
        self.is_open = True
        self.links = 0
        self.restarts_of: dict[int, int] = {}
        self.node_of: dict[int, int] = {}
        self.newest = 0
        self.incarnations = [0] * NODES
        self.there = [False] * NODES
        self.live: list[set[int]] = [set() for _ in range(NODES)]

    def tell(self, event: EnrolmentEvent) -> None:
        for action in self.driver.tell(event):
            if isinstance(action, GiveOrder):
                assert self.is_open, "an order of a block that is not wanted"
                assert self.restarts_of[action.link] >= self.newest, "an order for an older start of the job"
                assert self.node_of[action.link] == action.node
                self.newest = self.restarts_of[action.link]
                self.live[action.node].add(action.incarnation)
            elif isinstance(action, EndNode):
                self.live[action.node].discard(action.incarnation)
                self.there[action.node] = False

    @precondition(lambda self: self.is_open)
    @rule(node=st.integers(0, NODES - 1))
    def hand_in(self, node: int) -> None:
        if not self.there[node]:
            self.there[node] = True
            self.incarnations[node] += 1
            self.tell(HandInOrder("b", node, self.incarnations[node]))

    @precondition(lambda self: self.is_open)
    @rule(node=st.integers(0, NODES - 1))
    def withdraw(self, node: int) -> None:
        if self.there[node]:
            self.there[node] = False
            self.live[node].discard(self.incarnations[node])
            self.tell(WithdrawOrder("b", node, self.incarnations[node]))

    @rule(node=st.integers(0, NODES - 1), restarts=st.integers(0, 3))
    def enrol(self, node: int, restarts: int) -> None:
        self.links += 1
        self.restarts_of[self.links], self.node_of[self.links] = restarts, node
        self.tell(Enrols(self.links, "b", node, "17", restarts))

    @rule(link=st.integers(1, 20))
    def hang_up(self, link: int) -> None:
        self.tell(LinkGone(link))

    @rule(node=st.integers(0, NODES - 1), is_connected=st.booleans(), is_lost=st.booleans())
    def see(self, node: int, is_connected: bool, is_lost: bool) -> None:
        incarnation = self.incarnations[node]
        if incarnation in self.live[node]:
            if is_lost:
                self.live[node].discard(incarnation)
            self.tell(
                RifSeen("b", node, incarnation, is_connected and not is_lost, "gone" if is_lost else "")
            )

    @precondition(lambda self: self.is_open)
    @rule()
    def close(self) -> None:
        self.is_open = False
        self.live = [set() for _ in range(NODES)]
        self.tell(CloseBlock("b"))

    @invariant()
    def never_two_on_one_node(self) -> None:
        assert all(len(there) <= 1 for there in self.live)


EnrolmentMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestEnrolment = EnrolmentMachine.TestCase
