"""Hosts whose run-time system and jobs are played, beside the smallest of clusters."""

from __future__ import annotations

from gspc_trio.testing.faults import Faults
from gspc_trio.testing.options import Options
from gspc_trio.testing.simulation import simulate

SEEDS = range(12)


def test_a_rif_withstands_what_its_run_time_system_and_jobs_may_say():
    options = Options(hosts=1, cores=1, jobs=1, tasks=1, faults=Faults.parse("none,drills=1"))
    quiet = Options(hosts=1, cores=1, jobs=1, tasks=1, faults=Faults.none())
    drilled = 0
    for seed in SEEDS:
        report = simulate(seed, options)
        assert report.broken == "", report
        drilled += report.events > 3 * simulate(seed, quiet).events
    assert drilled >= 2
