"""What is done about anomalies (ASP-9)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gspc_trio.components.monitor.detector import Finding
from gspc_trio.components.monitor.reaction import (
    HoldHost,
    HostGone,
    HostUp,
    Reaction,
    ReactionAction,
    ReactionEvent,
    UseHost,
    holds_max,
)
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import DataUse


def found(host: str, kind: str = "dial", *, is_on: bool = True, subject: str = "host") -> Finding:
    return Finding(0.0, host, kind, is_on, subject)


def reaction(*hosts: str) -> Reaction:
    machine = Reaction()
    for host in hosts:
        machine.handle(HostUp(host), 0.0)
    return machine


def test_a_host_is_held_and_used_again_when_its_anomaly_is_over() -> None:
    machine = reaction("a", "b")
    assert machine.handle(found("a"), 10.0) == [HoldHost("a", ("dial",), 60.0)]
    assert machine.handle(found("a", "leak"), 20.0) == []
    assert machine.handle(found("a", is_on=False), 30.0) == []
    assert machine.handle(found("a", "leak", is_on=False), 30.0) == []
    assert machine.deadline() == 70.0
    assert machine.handle(Tick(), 69.0) == []
    assert machine.handle(Tick(), 70.0) == [UseHost("a")]
    assert machine.deadline() is None


def test_it_is_held_twice_as_long_each_time_up_to_an_hour() -> None:
    machine = reaction("a", "b")
    held, now = (
        [action.held_s for action in machine.handle(found("a"), 0.0) if isinstance(action, HoldHost)],
        0.0,
    )
    for _ in range(8):
        now += held[-1]
        held += [action.held_s for action in machine.handle(Tick(), now) if isinstance(action, HoldHost)]
    assert held == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
    machine.handle(found("a", is_on=False), now)
    now += 3600.0
    assert machine.handle(Tick(), now) == [UseHost("a")]
    assert machine.handle(found("a"), now + 3599.0) == [HoldHost("a", ("dial",), 3600.0)]
    machine.handle(found("a", is_on=False), now + 3600.0)
    assert machine.handle(Tick(), now + 7199.0) == [UseHost("a")]
    assert machine.handle(found("a"), now + 10799.0) == [HoldHost("a", ("dial",), 60.0)]


def test_what_tasks_have_caused_holds_nothing() -> None:
    assert reaction("a", "b").handle(found("a", subject="tasks"), 0.0) == []


def test_what_slows_some_tasks_down_holds_the_host_for_these_alone_until_there_is_more() -> None:
    machine = reaction("a", "b")
    files, both = (DataUse.FILES,), (DataUse.FILES, DataUse.REMOTE)
    assert machine.handle(found("a", "copy"), 0.0) == [HoldHost("a", ("copy",), 60.0, uses=files)]
    assert machine.handle(found("a", "linklog"), 5.0) == [HoldHost("a", ("copy", "linklog"), 55.0, uses=both)]
    machine.handle(found("a", "copy", is_on=False), 6.0)
    assert machine.handle(found("a", "copy"), 7.0) == [], "it is held for that already"
    assert machine.handle(found("a"), 10.0) == [HoldHost("a", ("linklog", "copy", "dial"), 50.0)]
    assert machine.handle(found("a", "ioerr"), 20.0) == [
        HoldHost("a", ("linklog", "copy", "dial", "ioerr"), 40.0, evacuate=True)
    ]
    for kind in ("dial", "ioerr", "copy"):
        machine.handle(found("a", kind, is_on=False), 30.0)
    assert machine.handle(Tick(), 60.0) == [HoldHost("a", ("linklog",), 120.0)], "it becomes no better"
    machine.handle(found("a", "linklog", is_on=False), 70.0)
    assert machine.handle(Tick(), 180.0) == [UseHost("a")]
    remote = (DataUse.REMOTE,)
    assert machine.handle(found("a", "linklog"), 181.0) == [HoldHost("a", ("linklog",), 240.0, uses=remote)]


def test_a_host_that_may_fail_is_evacuated_also_if_it_is_held_already() -> None:
    machine = reaction("a", "b")
    assert machine.handle(found("a", "ioerr"), 0.0) == [HoldHost("a", ("ioerr",), 60.0, evacuate=True)]
    machine = reaction("a", "b")
    machine.handle(found("a"), 0.0)
    assert machine.handle(found("a", "pagefail"), 20.0) == [
        HoldHost("a", ("dial", "pagefail"), 40.0, evacuate=True)
    ]
    assert machine.handle(found("a", "ioerr"), 21.0) == []
    machine = reaction("a", "b")
    machine.handle(found("a", "leak"), 0.0)
    urgent = replace(found("a", "leak"), is_urgent=True)
    assert machine.handle(urgent, 10.0) == [HoldHost("a", ("leak",), 50.0, evacuate=True)]


def test_a_host_that_may_fail_comes_before_one_that_is_slow() -> None:
    machine = reaction("a", "b", "c")
    machine.handle(found("a"), 0.0)
    assert machine.handle(found("b"), 1.0) == []
    assert machine.handle(found("c", "ioerr"), 2.0) == [
        UseHost("a"),
        HoldHost("c", ("ioerr",), 60.0, evacuate=True),
    ]
    assert machine.handle(found("b", "ioerr"), 3.0) == [], "as many are held as may be"


def test_the_last_host_is_used() -> None:
    machine = reaction("a")
    assert machine.handle(found("a"), 0.0) == []
    machine.handle(HostUp("b"), 1.0)
    assert machine.handle(Tick(), 2.0) == [HoldHost("a", ("dial",), 60.0)]
    assert machine.handle(found("b"), 3.0) == []
    assert machine.handle(HostGone("b"), 4.0) == [UseHost("a")]
    machine.handle(HostUp("c"), 5.0)
    machine.handle(Tick(), 6.0)
    assert machine.held == ["a"]


def test_a_host_that_is_away_for_a_moment_stays_held() -> None:
    machine = reaction("a", "b")
    machine.handle(found("a"), 0.0)
    assert machine.handle(HostGone("a"), 7.0) == []
    assert machine.held == []
    assert machine.handle(found("b"), 8.0) == [], "it is the last"
    assert machine.handle(found("b", is_on=False), 8.0) == []
    assert machine.handle(HostUp("a"), 9.0) == []
    assert machine.held == ["a"]
    assert machine.handle(Tick(), 60.0) == [UseHost("a")]
    machine.handle(found("b"), 61.0)
    machine.handle(HostGone("b"), 62.0)
    assert machine.handle(Tick(), 121.0) == [UseHost("b")]
    assert machine.deadline() is None


def test_no_more_than_a_share_of_the_hosts_is_held() -> None:
    assert [holds_max(hosts, Reaction().limits) for hosts in (0, 1, 2, 3, 4, 6, 7, 10, 100)] == [
        *(0, 0, 1, 1, 1, 1, 2, 3, 30)
    ]
    machine = reaction("a", "b", "c", "d")
    machine.handle(found("a"), 0.0)
    assert machine.handle(found("b"), 0.0) == []
    machine.handle(found("a", is_on=False), 50.0)
    assert machine.handle(Tick(), 60.0) == [UseHost("a"), HoldHost("b", ("dial",), 60.0)]


HOSTS = st.sampled_from("abcdefgh")
EVENTS = st.one_of(
    st.builds(HostUp, HOSTS),
    st.builds(HostGone, HOSTS),
    st.builds(Tick),
    st.builds(Finding, st.just(0.0), HOSTS, st.sampled_from(("dial", "leak")), st.booleans()),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 100), EVENTS), max_size=60))
def test_whatever_happens_enough_hosts_are_used(events: list[tuple[int, ReactionEvent]]) -> None:
    machine, now = Reaction(), 0.0
    there: set[str] = set()
    away: dict[str, float] = {}
    held: dict[str, float] = {}
    for later_s, event in events:
        now += later_s
        actions: list[ReactionAction] = machine.handle(event, now)
        machine.check()
        if isinstance(event, HostUp):
            there.add(event.host)
            if event.host in away:
                held[event.host] = away.pop(event.host)
        elif isinstance(event, HostGone):
            there.discard(event.host)
            if event.host in held:
                away[event.host] = held.pop(event.host)
        for action in actions:
            if isinstance(action, HoldHost):
                assert action.host not in held or held[action.host] <= now
                held[action.host] = now + action.held_s
            elif action.host in away:
                assert away.pop(action.host) <= now
            else:
                assert held.pop(action.host) <= now or isinstance(event, HostGone | HostUp)
        assert set(machine.held) == set(held) <= there
        assert not there or len(held) < len(there)
        assert len(held) <= max(1, 0.3 * len(there))
