"""Seeds that once found a fault of ours, with the schedule that was needed."""

from __future__ import annotations

import pytest

from gspc_trio.testing.hunt import parse_schedule
from gspc_trio.testing.simulation import Options, simulate

SMALL = {"hosts": 2, "cores": 1, "jobs": 3, "tasks": 8}

FOUND = [
    # A job kept the idle core of a node with one core while others waited for the node.
    (20000, SMALL, "partition:rif:1:20"),
]


@pytest.mark.parametrize(("seed", "size", "schedule"), FOUND)
def test_what_was_broken_once_holds(seed, size, schedule):
    report = simulate(seed, Options(**size, schedule=parse_schedule(schedule)))
    assert report.broken == "", report.story
