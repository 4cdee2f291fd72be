"""Hosts that end at a known time, and strategies that state their own time to come up."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from gspc_trio.components.provision.strategy import RifOrder, come_up_times, ends_in_s, parse_time
from gspc_trio.components.rif.messages import RifHello, StopRif
from gspc_trio.components.rm.events import Added, Removed
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RifGone, RifUp
from gspc_trio.components.rts.state import Limits
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import RifChanged
from tests.components.rts.support import BOOT, CORES, HELLO, JOB, REPORT, make, run

ENDING = replace(HELLO, hello=replace(HELLO.hello, ends_in_s=60.0))
UP = [BOOT[0], (1.0, ENDING), *BOOT[2:]]


def test_jobs_are_told_when_a_host_ends() -> None:
    machine = make()
    told = run(machine, *UP, (4.0, JOB))
    assert actions.TellJobs(("j1",), RifUp("r1", 1, "anna", "memory:r1", CORES, 55.0)) in told
    assert machine.deadline() == 59.0


def test_people_are_told_when_a_host_ends_as_long_as_it_is_there() -> None:
    machine = make()
    told = [one for step in UP for one in run(machine, step) if isinstance(one, RifChanged)]
    assert told[-1] == RifChanged(2.0, "r1", "anna", "up", "", 57.0)
    assert RifChanged(30.0, "r1", "anna", "lost", "cut") in run(machine, (30.0, events.RifLost(1, "cut")))


def test_a_rif_is_taken_down_before_its_host_ends_and_not_started_again() -> None:
    machine = make()
    run(machine, *UP, (4.0, JOB))
    assert run(machine, (59.0, Tick())) == [
        actions.TellJobs(("j1",), RifGone("r1", 1, "its host ends")),
        actions.TellRm(Removed(("r1.node", "r1.core0"), "lose")),
        actions.TellRif(1, StopRif()),
    ]
    assert run(machine, (59.1, events.RifEnded("r1", 1, "bye"))) == [
        actions.DropLink(1, "its host ends"),
        RifChanged(59.1, "r1", "anna", "down", "its host ends"),
    ]
    assert list(machine.rifs) == []


def test_one_that_is_lost_before_is_started_again() -> None:
    machine = make()
    run(machine, *UP, (30.0, events.RifLost(1, "cut")))
    again = run(machine, (30.1, events.RifEnded("r1", 1, "cut")), (31.0, Tick()))
    assert actions.StartRif("r1", 2, "anna", "local", 0, {}) in again


def test_a_strategy_may_take_its_own_time() -> None:
    limits = Limits(come_up_s={"batch": 7200.0, "ever": math.inf})
    machine = Rts(frozenset({"local", "batch", "ever"}), limits)
    run(machine, (0.0, events.BootstrapAsked(1, ("anna",), "batch")))
    assert machine.deadline() == 7200.0
    lost = run(machine, (7200.0, Tick()))
    assert RifChanged(7200.0, "r1", "anna", "lost", "it did not come up within 7200 s") in lost
    ever = Rts(frozenset({"ever"}), limits)
    run(ever, (0.0, events.BootstrapAsked(1, ("anna",), "ever")))
    assert ever.deadline() == math.inf
    run(ever, (1e6, HELLO))  # once it is there it is as quick as any other
    assert ever.deadline() == 1e6 + limits.bootstrap_timeout_s
    run(ever, (1e6, events.RifAnswered(1, 1, REPORT)), (1e6, events.RmAnswered(Added(CORES, "anna"))))
    assert ever.deadline() is None


class Slow:
    come_up_s = 7200

    async def run(self, order: RifOrder) -> str:
        return order.host


def test_the_time_is_an_attribute_of_the_strategy() -> None:
    assert come_up_times({"slow": Slow()}) == {"slow": 7200.0}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("2 d", 172800.0)]
)
def test_times_are_written_with_units(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds
    assert ends_in_s({"time": text}) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1s", "1w", "inf", "1:30"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time; write for example 90s, 10m, 2h or 1d"):
        parse_time(text)


def test_a_hello_says_nothing_of_an_end_where_there_is_none() -> None:
    assert RifHello("r1", 1, 7, "anna", "memory:r1", CORES).ends_in_s is None
