"""COA-2, COA-3, COA-7: a tree of co-allocation services, simulated from seeds: killed, suspended, cut off."""

from __future__ import annotations

from collections import Counter

import pytest

from gspc_trio.testing.coallocation import CoallocationWorld
from gspc_trio.testing.coallocation_requests import RequestsWorld, coallocation_broken


@pytest.mark.parametrize("seed", range(12))
def test_all_start_or_none_and_nothing_is_held_in_the_end(seed: int) -> None:
    assert coallocation_broken(seed) == ""


def test_all_kinds_of_faults_happen_and_most_requests_run() -> None:
    worlds = [CoallocationWorld(seed) for seed in range(12, 24)]
    for world in worlds:
        world.run()
    happened = " ".join(line for world in worlds for line in world.happened)
    for what in ("was killed", "was suspended for 18 s", "ended at PartsRequest", "ended at RegisterService"):
        assert what in happened
    told = [answer.error for world in worlds for answer in world.answers.values()]
    assert told.count("") > len(told) / 2
    for what in ("cancelled", "the credential has expired", "not ready in time", "is gone"):
        assert any(what in error for error in told), what


def test_without_faults_a_request_costs_five_messages_at_each_edge() -> None:
    world = CoallocationWorld(0, faults=False)
    world.run()
    assert not world.happened
    edges = world.messages["PartsRequest"]
    assert edges > 20
    assert world.messages["PartsDone"] == edges, "each is answered once"
    for what in ("PartsAccepted", "PartsReady", "PartsGo"):
        assert edges - world.messages["CancelParts"] <= world.messages[what] <= edges
    again = CoallocationWorld(0, faults=False)
    again.run()
    assert (again.messages, again.now, again.answers) == (world.messages, world.now, world.answers)


def test_requests_run_in_order_whatever_happens_to_clients_and_services() -> None:
    worlds = [RequestsWorld(seed) for seed in (3, *range(30, 38))]
    for world in worlds:
        world.run()
    happened = " ".join(line for world in worlds for line in world.happened)
    for name in ("client", "right"):
        for what in ("was killed", "was suspended for 18 s"):
            assert any(name in line and what in line for world in worlds for line in world.happened), what
    assert "ended at SubmitRequest" in happened
    told = [one.reports.values() for world in worlds for one in world.submitted.values()]
    states = Counter(str(report.state) for reports in told for report in reports)
    assert min(states[state] for state in ("failed", "not run", "cancelled")) > 10
    assert states["finished"] > 100


def test_a_top_with_a_journal_may_be_killed_after_each_record() -> None:
    world = RequestsWorld(0, faults=False, journal=True)
    world.run()
    assert all(one.error == "" for one in world.answers.values())
    for number in range(1, world.records, 9):
        killed = RequestsWorld(0, faults=False, journal=True, kill_at=number)
        killed.run()
        assert killed.noted is not None
        assert any("top was killed" in line for line in killed.happened)
        assert not killed.noted.requests, "all that was noted has come to its end"


def test_a_connection_that_ends_at_any_message_leaves_nothing_held() -> None:
    world = RequestsWorld(3, faults=False)
    world.run()
    assert all(one.error == "" for one in world.answers.values())
    for number in range(1, world.messages.total(), 97):
        cut = RequestsWorld(3, faults=False, cut_at=number)
        cut.run()
        assert cut.happened, "one connection was cut"
