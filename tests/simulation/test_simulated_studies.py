"""Studies simulated from seeds: servers, clients and the batch system fail, the launcher does not."""

from __future__ import annotations

import pytest

from gspc_trio.testing.faults import STUDY_KINDS, Fault
from gspc_trio.testing.simulation import Options, simulate, simulate_study


@pytest.mark.parametrize("seed", range(20))
def test_a_study_has_one_server_at_a_time_and_leaves_nothing(seed):
    report = simulate_study(seed)
    assert report.broken == "", report


@pytest.mark.parametrize(
    ("kind", "role"), [(kind, role) for kind, roles in STUDY_KINDS.items() for role in dict.fromkeys(roles)]
)
def test_each_kind_of_fault_of_a_study_happens_and_is_survived(kind, role):
    schedule = tuple(Fault(kind, role, step, 20.0) for step in (1, 3, 10))
    report = simulate_study(2, Options(schedule=schedule))
    assert report.broken == ""
    assert report.happened, report


def test_a_study_replays_event_by_event():
    first, second = simulate_study(4), simulate_study(4)
    assert first.happened
    assert first == second
    assert simulate_study(3).digest != first.digest


def test_a_study_is_part_of_what_a_seed_simulates():
    schedule = (Fault("kill", "server", 3), Fault("kill", "job", 30))
    both = simulate(0, Options(schedule=schedule))
    assert both.broken == ""
    assert len(both.happened) == 2
    study = simulate_study(0, Options(schedule=schedule))
    assert both.happened[1:] == study.happened
