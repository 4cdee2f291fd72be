"""Whole clusters simulated from seeds: any role may be killed at any step, the result stays what it is."""

from __future__ import annotations

from random import Random

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.testing.cluster import open_cluster
from gspc_trio.testing.faults import KINDS, LATER_KINDS, LATEST_KINDS, NEWER_KINDS, SITE_KINDS, Fault, Faults
from gspc_trio.testing.options import any_shape
from gspc_trio.testing.simulation import Options, simulate
from gspc_trio.testing.workload import Workload, behave, in_order

CLUSTER = Faults(studies=False)
"""Nothing is simulated besides the cluster."""

ROLES_OF = {**KINDS, **LATER_KINDS, **LATEST_KINDS, **NEWER_KINDS}


@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_whose_processes_are_killed_computes_what_a_plain_loop_does(seed):
    report = simulate(seed)
    assert report.broken == "", report


@pytest.mark.parametrize("seed", [*range(1000, 1003), 3005])
def test_so_does_one_of_any_shape(seed):
    """In 3005 a job that must fail was refused before it could: there was no host for a moment."""
    report = simulate(seed, any_shape(seed, Options()))
    assert report.broken == "", report


@pytest.mark.parametrize(("role", "step"), [("rts", 40), ("rif", 40), ("job", 40), ("compute", 5)])
def test_each_role_can_be_killed(role, step):
    faults = (Fault("kill", role, 1), Fault("kill", role, step))
    report = simulate(3, Options(schedule=faults, faults=CLUSTER))
    assert report.broken == ""
    assert len(report.happened) == 2, report


def test_a_seed_replays_event_by_event():
    first, second = simulate(8), simulate(8)
    assert first.happened
    assert first == second
    assert simulate(9).digest != first.digest


def test_an_undisturbed_cluster_is_open_to_users():
    workload = Workload.make(Random(5), 30, [{"attempts": 3}])

    async def main() -> None:
        async with open_cluster(5, hosts=2, cores=2, behave=behave) as cluster:
            await cluster.start_rts()
            job = cluster.start_job("job", workload.net())
            await job.process.ended.wait()
            assert job.result is not None
            assert job.result.state == "finished"
            outputs = {port: in_order(tokens) for port, tokens in job.result.outputs.items()}
            assert outputs == workload.results()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_an_empty_menu_lets_nothing_happen():
    assert all(simulate(seed, Options(faults=Faults.none())).happened == () for seed in range(2))


@pytest.mark.parametrize("kind", sorted(ROLES_OF))
def test_each_kind_of_fault_happens_and_is_survived(kind):
    schedule = tuple(Fault(kind, role, step, 7.0) for role in ROLES_OF[kind] for step in (5, 60))
    report = simulate(2, Options(schedule=schedule, faults=CLUSTER))
    assert report.broken == ""
    assert len(report.happened) >= len(ROLES_OF[kind])


SITED_SEED = 117
"""Of a run in which blocks are asked for."""


@pytest.mark.parametrize("kind", SITE_KINDS)
def test_each_kind_of_fault_of_a_batch_system_happens_and_is_survived(kind):
    schedule = tuple(Fault(kind, "batch", step, 7.0) for step in (1, 3, 10))
    report = simulate(SITED_SEED, Options(schedule=schedule, faults=CLUSTER))
    assert report.broken == ""
    assert report.happened, "there was no batch system, or nobody asked it"
