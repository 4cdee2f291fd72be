# ruff: noqa: ARG001 - the clock is a fixture
"""The loop between an inbox and a machine."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles
from gspc_trio.nursery.connections.memory import memory_pair
from gspc_trio.nursery.scopes.drive import CHECK_VARIABLE, RUN_MAX, Inbox, drive


class Notebook:
    """A machine that notes what it is told; a number asks for a tick so many seconds later."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, float]] = []
        self.due_s: float | None = None
        self.checks = 0

    def handle(self, event: Any, now: float) -> list[Any]:
        if event == "illegal":
            raise IllegalEvent("not now")
        self.told.append((event, now))
        if isinstance(event, Tick):
            self.due_s = None
        if isinstance(event, float):
            self.due_s = now + event
        return [("did", event), ("and then", event)]

    def deadline(self) -> float | None:
        return self.due_s

    def check(self) -> None:
        self.checks += 1


async def test_events_are_handled_in_order_and_actions_carried_out_in_order() -> None:
    machine, inbox, done = Notebook(), Inbox[Any](), list[Any]()
    for event in ("a", "b"):
        inbox.put(event)
    inbox.close()
    await drive(machine, inbox, done.append)
    assert done == [("did", "a"), ("and then", "a"), ("did", "b"), ("and then", "b")]


async def test_an_action_may_put_events() -> None:
    machine, inbox = Notebook(), Inbox[Any]()

    def perform(action: Any) -> None:
        if action == ("did", "a"):
            inbox.put("b")
        if action == ("did", "b"):
            inbox.close()

    inbox.put("a")
    await drive(machine, inbox, perform)
    assert [event for event, _ in machine.told] == ["a", "b"]


async def test_a_tick_comes_at_the_deadline(autojump_clock: MockClock) -> None:
    machine, inbox = Notebook(), Inbox[Any]()

    def perform(action: Any) -> None:
        if action == ("and then", Tick()):
            inbox.close()

    inbox.put(7.5)
    await drive(machine, inbox, perform)
    assert machine.told == [(7.5, 0.0), (Tick(), 7.5)]


async def test_a_deadline_in_the_past_is_not_starved_by_events(mock_clock: MockClock) -> None:
    machine, inbox = Notebook(), Inbox[Any]()

    def perform(action: Any) -> None:
        mock_clock.jump(1)
        if len(machine.told) < 20:
            inbox.put("more")
        else:
            inbox.close()

    inbox.put(3.0)
    await drive(machine, inbox, perform)
    assert Tick() in [event for event, _ in machine.told][:5]


async def test_an_illegal_event_is_raised_or_reported(nursery: trio.Nursery) -> None:
    inbox = Inbox[Any]()
    inbox.put("illegal")
    with pytest.raises(IllegalEvent, match="not now"):
        await drive(Notebook(), inbox, print)

    machine, reported = Notebook(), list[Any]()
    for event in ("illegal", "a"):
        inbox.put(event)
    inbox.close()
    await drive(
        machine, inbox, lambda _: None, refused=lambda event, error: reported.append((event, str(error)))
    )
    assert reported == [("illegal", "not now")]
    assert [event for event, _ in machine.told] == ["a"]


@pytest.mark.parametrize(
    ("variable", "argument", "checks"), [("1", None, 2), ("", None, 0), ("1", False, 0), ("", True, 2)]
)
async def test_invariants_are_checked_when_asked_for(
    variable: str, argument: bool | None, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECK_VARIABLE, variable)
    machine, inbox = Notebook(), Inbox[Any]()
    for event in ("a", "b"):
        inbox.put(event)
    inbox.close()
    await drive(machine, inbox, lambda _: None, check=argument)
    assert machine.checks == checks


async def test_the_driver_is_woken_once_for_all_that_gathered(nursery: trio.Nursery) -> None:
    inbox = Inbox[int]()
    batches: list[list[int]] = []

    async def take() -> None:
        while True:
            batches.append(await inbox.take())

    nursery.start_soon(take)
    await wait_all_tasks_blocked()
    for number in range(5):
        inbox.put(number)
    assert len(inbox) == 5
    await wait_all_tasks_blocked()
    inbox.put(5)
    await wait_all_tasks_blocked()
    assert batches == [[0, 1, 2, 3, 4], [5]]
    nursery.cancel_scope.cancel()


async def test_a_closed_inbox_is_drained_and_takes_nothing_more() -> None:
    inbox = Inbox[str]()
    inbox.put("a")
    inbox.close()
    inbox.put("late")
    assert await inbox.take() == ["a"]
    with pytest.raises(trio.EndOfChannel):
        await inbox.take()


async def test_closing_wakes_who_waits(nursery: trio.Nursery) -> None:
    inbox = Inbox[str]()
    ended = trio.Event()

    async def take() -> None:
        with pytest.raises(trio.EndOfChannel):
            await inbox.take()
        ended.set()

    nursery.start_soon(take)
    await wait_all_tasks_blocked()
    inbox.close()
    await ended.wait()


async def test_a_cancelled_take_loses_nothing(nursery: trio.Nursery) -> None:
    inbox = Inbox[str]()
    with trio.move_on_after(0):
        await inbox.take()
    inbox.put("a")
    with trio.CancelScope() as scope:
        scope.cancel()
        await inbox.take()
    assert await inbox.take() == ["a"]


async def test_only_one_task_takes(nursery: trio.Nursery) -> None:
    inbox = Inbox[str]()
    nursery.start_soon(inbox.take)
    await wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await inbox.take()
    inbox.put("a")


async def test_who_puts_while_the_driver_waits_feeds_the_machine(nursery: trio.Nursery) -> None:
    machine, inbox, done = Notebook(), Inbox[Any](), list[Any]()

    def perform(action: Any) -> None:
        done.append(action)
        if action == ("did", "a"):
            inbox.put("b")
            assert [event for event, _ in machine.told] == ["a"], "one after the other"

    nursery.start_soon(drive, machine, inbox, perform)
    await wait_all_tasks_blocked()
    inbox.put("a")
    assert [event for event, _ in machine.told] == ["a", "b"]
    assert done == [("did", "a"), ("and then", "a"), ("did", "b"), ("and then", "b")]
    inbox.close()
    inbox.put("c")
    assert len(machine.told) == 2


async def test_events_that_came_together_are_handled_together(nursery: trio.Nursery) -> None:
    machine, inbox, done = Notebook(), Inbox[Any](), list[Any]()
    inbox.put_all(["a"])
    nursery.start_soon(drive, machine, inbox, done.append)
    await wait_all_tasks_blocked()
    inbox.put_all(["b", "c"])
    assert [action[1] for action in done] == ["a", "a", "b", "b", "c", "c"]
    inbox.put_all([])
    inbox.close()
    inbox.put_all(["late"])
    await wait_all_tasks_blocked()
    assert [event for event, _ in machine.told] == ["a", "b", "c"]


async def test_what_goes_wrong_is_raised_by_the_driver_not_where_the_event_was_put() -> None:
    inbox = Inbox[Any]()

    def perform(action: Any) -> None:
        raise LookupError(action)

    with pytest.RaisesGroup(LookupError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive, Notebook(), inbox, perform)
            await wait_all_tasks_blocked()
            inbox.put("a")
            inbox.put("b")
            inbox.close()


async def test_a_deadline_that_comes_with_an_event_is_kept(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    machine, inbox = Notebook(), Inbox[Any]()
    nursery.start_soon(drive, machine, inbox, lambda _: None)
    await wait_all_tasks_blocked()
    inbox.put(9.0)
    inbox.put(4.0)
    await trio.sleep(5)
    assert machine.told == [(9.0, 0.0), (4.0, 0.0), (Tick(), 4.0)]
    nursery.cancel_scope.cancel()


async def test_a_machine_that_feeds_itself_does_not_keep_the_one_who_puts(nursery: trio.Nursery) -> None:
    machine, inbox = Notebook(), Inbox[Any]()

    def perform(action: Any) -> None:
        if action[0] == "did" and len(machine.told) < 1000:
            inbox.put("more")

    nursery.start_soon(drive, machine, inbox, perform)
    await wait_all_tasks_blocked()
    inbox.put("first")
    assert len(machine.told) < 1000
    with trio.fail_after(60):
        while len(machine.told) < 1000:
            await trio.lowlevel.checkpoint()
    nursery.cancel_scope.cancel()


async def test_who_says_what_is_illegal_loses_its_connection_and_the_machine_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine, inbox, done = Notebook(), Inbox[Any](), list[Any]()
    liar, other_end = memory_pair("job", "j1", "rts", "main")
    honest, _ = memory_pair("job", "j2", "rts", "main")
    inbox.put("before", by=honest)
    inbox.put_all(["illegal", "said before it was known"], by=liar)
    inbox.put("after", by=honest)
    inbox.close()
    await drive(machine, inbox, done.append)
    assert [event for what, event in done if what == "did"] == ["before", "said before it was known", "after"]
    assert liar.reason == other_end.reason == "str: not now"
    assert honest.reason == ""
    assert [record.getMessage() for record in caplog.records] == [
        "connection of rts main at memory ended: str: not now"
    ]


async def test_what_is_illegal_and_was_said_by_nobody_is_an_error_of_this_program() -> None:
    machine, inbox = Notebook(), Inbox[Any]()
    inbox.put("illegal")
    with pytest.raises(IllegalEvent, match="not now"):
        await drive(machine, inbox, lambda _: None)


class Sums(MachineBase[int | str, Any]):
    """A machine that adds up numbers, also those of a run, and says after each turn what they are."""

    gathered = frozenset({int})

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @handles(int)
    def _add(self, number: int) -> None:
        if number < 0:
            raise IllegalEvent("less than nothing")
        self.total += number

    @handles(str)
    def _note(self, text: str) -> None:
        self.actions.append(text)

    def settle(self) -> None:
        self.actions.append(self.total)

    def deadline(self) -> float | None:
        return None

    def check(self) -> None:
        assert self.total >= 0


async def told(events: list[Any]) -> list[Any]:
    """Return what a machine answers to events that have come at one time."""
    inbox, done = Inbox[Any](), list[Any]()
    inbox.put_all(events)
    inbox.close()
    await drive(Sums(), inbox, done.append)
    return done


async def test_events_of_one_kind_that_came_together_are_taken_in_one_run() -> None:
    assert await told([1, 2, 3]) == [6]
    assert await told([1, 2, "a", 3, 4, "b", 5]) == [3, "a", 3, 10, "b", 10, 15]


async def test_a_run_has_an_end() -> None:
    assert await told([1] * (2 * RUN_MAX + 1)) == [RUN_MAX, 2 * RUN_MAX, 2 * RUN_MAX + 1]


async def test_who_says_what_is_illegal_in_a_run_loses_its_connection_and_the_others_are_heard() -> None:
    inbox, done = Inbox[Any](), list[Any]()
    liar, _ = memory_pair("job", "j1", "rts", "main")
    honest, _ = memory_pair("job", "j2", "rts", "main")
    inbox.put(1, by=honest)
    inbox.put_all([-1, 2], by=liar)
    inbox.put(4, by=honest)
    inbox.close()
    await drive(Sums(), inbox, done.append)
    assert done == [7]
    assert liar.reason == "int: less than nothing"
    assert honest.reason == ""


async def test_what_is_illegal_in_a_run_and_was_said_by_nobody_is_an_error_of_this_program() -> None:
    with pytest.raises(IllegalEvent, match="less than nothing"):
        await told([1, -1, 2])
