"""Clusters of any shape, and each kind of fault by itself. ``make simulate`` runs them after its seeds."""

from __future__ import annotations

import pytest

from gspc_trio.testing.faults import (
    ANOMALY_KINDS,
    KINDS,
    LATER_KINDS,
    LATEST_KINDS,
    NEWER_KINDS,
    SITE_KINDS,
    Fault,
    Faults,
)
from gspc_trio.testing.options import any_shape
from gspc_trio.testing.simulation import Options, simulate

CLUSTER = Faults(studies=False)
"""Nothing is simulated besides the cluster."""

ROLES_OF = {**KINDS, **LATER_KINDS, **LATEST_KINDS, **NEWER_KINDS, **ANOMALY_KINDS}


@pytest.mark.parametrize("seed", [*range(1000, 1003), 3005])
def test_a_cluster_of_any_shape_computes_what_a_plain_loop_does(seed):
    """In 3005 a job that must fail was refused before it could: there was no host for a moment."""
    report = simulate(seed, any_shape(seed, Options()))
    assert report.broken == "", report


@pytest.mark.parametrize(("role", "step"), [("rts", 40), ("rif", 40), ("job", 40), ("compute", 5)])
def test_each_role_can_be_killed(role, step):
    faults = (Fault("kill", role, 1), Fault("kill", role, step))
    report = simulate(3, Options(schedule=faults, faults=CLUSTER))
    assert report.broken == ""
    assert len(report.happened) == 2, report


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
