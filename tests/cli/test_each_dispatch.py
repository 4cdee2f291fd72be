"""Which process runs which command next: whole lists of actions, and any order of events."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.cli.each.dispatch import (
    AHEAD,
    TRIES,
    Action,
    Added,
    Dispatch,
    Ended,
    Event,
    GiveUp,
    Hand,
    Lost,
    Open,
    Opened,
    Returned,
    TakeBack,
    TakenBack,
)

AHEAD_S, STUCK_S = AHEAD.ahead_s, AHEAD.patrol_s


def after(dispatch: Dispatch, *events: Event, now: float = 0.0) -> list[object]:
    """Return the actions of the last of these events."""
    actions: list[object] = []
    for event in events:
        actions = list(dispatch.handle(event, now))
        dispatch.check()
    return actions


def test_processes_are_opened_as_they_are_needed_and_get_one_command_each() -> None:
    dispatch = Dispatch(2, ahead=False)
    assert after(dispatch, Added(1)) == [Open(0)]
    assert after(dispatch, Opened(0)) == [Hand(0, (1,))]
    assert after(dispatch, Ended(0, 1)) == []
    assert after(dispatch, Added(2)) == [Hand(0, (2,))]
    assert after(dispatch, Added(3)) == [Open(1)]
    assert after(dispatch, Added(4)) == []
    assert after(dispatch, Ended(0, 2)) == [Hand(0, (3,))]
    assert after(dispatch, Opened(1)) == [Hand(1, (4,))]


def quick(processes: int) -> Dispatch:
    """Return a dispatch that has seen quick commands, with one command in each process."""
    dispatch = Dispatch(processes, ahead=True)
    for process in range(processes):
        after(dispatch, Added(process), Opened(process))
    after(dispatch, Ended(0, 0), Added(-1), now=AHEAD_S / 4)
    dispatch._measured = 16  # of the same length
    return dispatch


def test_short_commands_wait_in_processes() -> None:
    dispatch = quick(1)
    assert after(dispatch, Added(1), now=AHEAD_S / 4) == [Hand(0, (1,))]
    assert after(dispatch, Added(2), now=AHEAD_S / 4) == [Hand(0, (2,))]
    assert after(dispatch, Added(3), Added(4), now=AHEAD_S / 4) == []
    assert after(dispatch, Ended(0, -1), now=AHEAD_S / 2) == [Hand(0, (3, 4))]


def test_what_waits_behind_others_goes_to_a_process_that_is_idle() -> None:
    dispatch = quick(2)
    after(dispatch, Added(2), Added(3), Added(4), now=AHEAD_S / 4)
    assert after(dispatch, Ended(1, 1), now=AHEAD_S / 2) == []
    actions: list[object] = []
    while not actions:
        first = dispatch._processes[1].handed[0]
        actions = after(dispatch, Ended(1, first), now=AHEAD_S)
    assert actions == [TakeBack(0)]
    behind = list(dispatch._processes[0].handed)[1:]
    assert after(dispatch, TakenBack(0, tuple(behind)), now=AHEAD_S)[0] == Hand(1, (behind[0],))
    assert after(dispatch, TakenBack(0, ()), now=AHEAD_S) == []


def test_what_waits_behind_a_long_command_is_taken_back_while_others_work() -> None:
    dispatch = quick(2)
    after(dispatch, *(Added(number) for number in range(2, 12)), now=AHEAD_S / 4)
    late = AHEAD_S + STUCK_S
    assert TakeBack(0) in after(dispatch, Ended(1, 1), now=late)


def test_a_command_is_given_up_when_processes_are_lost_while_they_run_it() -> None:
    dispatch = Dispatch(1, ahead=False)
    after(dispatch, Added(1), Added(2), Opened(0))
    for _ in range(TRIES - 1):
        assert after(dispatch, Lost(0, True, "SIGKILL")) == [Open(0)]
        assert after(dispatch, Opened(0)) == [Hand(0, (1,))]
    told = GiveUp(1, f"lost {TRIES} times, the last time: SIGKILL")
    assert after(dispatch, Lost(0, True, "SIGKILL")) == [told, Open(0)]
    assert after(dispatch, Opened(0)) == [Hand(0, (2,))]


def test_all_is_given_up_when_processes_end_before_they_run_anything() -> None:
    dispatch = Dispatch(1, ahead=False)
    after(dispatch, Added(1), Opened(0))
    for _ in range(TRIES - 1):
        assert after(dispatch, Lost(0, False, "no memory")) == [Open(0)]
        after(dispatch, Opened(0))
    assert after(dispatch, Lost(0, False, "no memory")) == [GiveUp(None, "no memory")]
    assert after(dispatch, Added(2)) == []


def test_what_could_not_begin_is_the_next_one() -> None:
    dispatch = Dispatch(1, ahead=False)
    after(dispatch, Added(1), Added(2), Opened(0))
    assert after(dispatch, Returned(0, 1)) == [Hand(0, (1,))]


def test_a_process_whose_commands_were_all_taken_back_gets_others() -> None:
    dispatch = Dispatch(1, ahead=True)
    assert after(dispatch, Added(1), Opened(0)) == [Hand(0, (1,))]
    assert after(dispatch, TakenBack(0, (1,)), now=STUCK_S) == [Hand(0, (1,))]


def test_a_process_that_was_lost_while_it_was_idle_is_started_when_there_is_something_to_run() -> None:
    dispatch = Dispatch(1, ahead=False)
    after(dispatch, Added(1), Opened(0), Ended(0, 1))
    assert after(dispatch, Lost(0, False, "SIGKILL")) == []
    assert after(dispatch, Added(2)) == [Open(0)]
    assert after(dispatch, Opened(0)) == [Hand(0, (2,))]


@pytest.mark.parametrize("between", [Ended(0, 1), Lost(0, True, "SIGKILL")])
def test_losses_in_a_row_are_counted_anew_when_something_has_run(between: Event) -> None:
    dispatch = Dispatch(1, ahead=False)
    after(dispatch, Added(1), Added(2), Opened(0))
    for _ in range(TRIES - 1):
        after(dispatch, Lost(0, False, "no memory"), Opened(0))
    after(dispatch, between)
    if isinstance(between, Lost):
        after(dispatch, Opened(0))
    assert after(dispatch, Lost(0, False, "no memory")) == [Open(0)]


def test_nothing_is_handed_out_when_all_is_given_up() -> None:
    dispatch = Dispatch(2, ahead=True)
    after(dispatch, Added(1), Added(2), Opened(0))
    for _ in range(TRIES - 1):
        after(dispatch, Lost(0, False, "no memory"), Opened(0))
    assert after(dispatch, Lost(0, False, "no memory")) == [GiveUp(None, "no memory")]
    assert after(dispatch, Opened(1)) == []


def test_only_so_many_commands_wait_in_a_process_however_short_they_are() -> None:
    dispatch = Dispatch(1, ahead=True)
    after(dispatch, *map(Added, range(200)), Opened(0))
    handed = [1]
    for number in range(60):
        for hand in after(dispatch, Ended(0, number)):
            assert isinstance(hand, Hand)
            handed.append(len(hand.numbers))
            assert sum(handed) - number - 1 <= AHEAD.tasks_max + 1
    assert max(handed) > AHEAD.tasks_max // 2


def test_nothing_is_handed_out_behind_a_long_command() -> None:
    assert after(quick(1), Added(1), now=AHEAD_S + STUCK_S) == []


def test_a_command_takes_the_time_since_the_one_before_it_has_ended() -> None:
    dispatch = quick(1)
    after(dispatch, *map(Added, range(1, 13)), now=AHEAD_S / 4)
    assert after(dispatch, Ended(0, -1), now=AHEAD_S / 2) == [Hand(0, (3, 4, 5))]
    assert after(dispatch, Ended(0, 1), now=AHEAD_S * 3 / 4) == []
    assert after(dispatch, Ended(0, 2), now=AHEAD_S) == []
    assert after(dispatch, Ended(0, 3), now=AHEAD_S * 5 / 4) == [Hand(0, (6, 7, 8))]


def test_fewer_commands_wait_in_processes_when_they_take_longer_than_those_before() -> None:
    dispatch = quick(1)
    after(dispatch, *map(Added, range(1, 13)), now=AHEAD_S / 4)
    assert after(dispatch, Ended(0, -1), now=AHEAD_S * 9 / 4) == []


class Host:
    """What the processes of a host do, and what is known of the commands: a naive model.

    Args:
        processes: how many.
        ahead: whether they may have several commands.
    """

    def __init__(self, processes: int, ahead: bool) -> None:
        self.dispatch = Dispatch(processes, ahead=ahead)
        self.events = deque[Event]()
        self.opening: list[int] = []
        self.held: dict[int, deque[int]] = {}
        self.ended: list[int] = []
        self.given_up: list[int | None] = []
        self.losses: dict[int, int] = {}
        self.now = 0.0

    def tell(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) == 1:
            while self.events:
                self.perform(self.dispatch.handle(self.events[0], self.now))
                self.dispatch.check()
                self.events.popleft()

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Open(process):
                    self.opening.append(process)
                case Hand(process, numbers):
                    assert numbers
                    self.held[process].extend(numbers)
                case TakeBack(process):
                    behind = tuple(self.held[process])[1:]
                    self.held[process] = deque(list(self.held[process])[:1])
                    self.tell(TakenBack(process, behind))
                case GiveUp(number, _):
                    self.given_up.append(number)

    def step(self, choice: int, seconds: float, loses: bool) -> None:
        """Have something happen that can."""
        self.now += seconds
        busy = [process for process, held in self.held.items() if held]
        can = len(self.opening) + len(busy)
        if not can:
            return
        if choice % can < len(self.opening):
            process = self.opening.pop(choice % can)
            self.held[process] = deque()
            self.tell(Opened(process))
            return
        process = busy[choice % can - len(self.opening)]
        if loses:
            first = self.held.pop(process)[0]
            self.losses[first] = self.losses.get(first, 0) + 1
            self.tell(Lost(process, True, "killed"))
        else:
            number = self.held[process].popleft()
            self.ended.append(number)
            self.tell(Ended(process, number))


@given(
    st.integers(1, 3),
    st.booleans(),
    st.integers(1, 25),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, 0.001, 0.2]), st.booleans()), max_size=60),
)
def test_each_command_ends_once(
    processes: int, ahead: bool, commands: int, steps: list[tuple[int, float, bool]]
) -> None:
    host = Host(processes, ahead)
    for number in range(commands):
        host.tell(Added(number))
        if steps:
            host.step(*steps.pop())
    for step in steps:
        host.step(*step)
    while host.opening or any(host.held.values()):
        host.step(0, 0.001, False)
    assert sorted([*host.ended, *(number for number in host.given_up if number is not None)]) == [
        *range(commands)
    ]
    assert host.given_up == [number for number in host.given_up if number is not None]
    assert all(host.losses[number] == TRIES for number in host.given_up if number is not None)
