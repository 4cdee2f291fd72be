"""An RTS machine with one RIF and one job, as the tests of its life and of its jobs begin."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gspc_trio.components.rif.messages import DagReport, RifHello, WorkerEndpoint
from gspc_trio.components.rm.events import Added
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.rts import events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.core.resources import Resource

CORES = (Resource("r1.node", "node"), Resource("r1.core0", "core", ("r1.node",)))
IDS = ("r1.node", "r1.core0")
REPORT = DagReport((WorkerEndpoint("r1.core0", "core", "r1", "anna", "memory:r1"),))


def make() -> Rts:
    """Return a machine that knows the strategy ``local``."""
    return Rts(frozenset({"local"}))


def run(machine: Rts, *steps: tuple[float, events.RtsEvent]) -> Sequence[object]:
    """Give the events to the machine and return the actions of the last."""
    out: Sequence[object] = []
    for now, event in steps:
        out = machine.handle(event, now)
        machine.check()
    return out


HELLO = events.RifConnected(1, RifHello("r1", 1, 7, "anna", "memory:r1", CORES))
BOOT = [
    (0.0, events.BootstrapAsked(1, ("anna",))),
    (1.0, HELLO),
    (2.0, events.RifAnswered(1, 1, REPORT)),
    (2.0, events.RmAnswered(Added(CORES, "anna"))),
]


def back_as(before: events.JobConnected, job: str, grants: tuple[Grant, ...] = ()) -> events.JobConnected:
    """Return that a job server has connected again, as this job."""
    return events.JobConnected(before.link, replace(before.wish, job=job, grants=grants))


JOB = events.JobConnected(9, RegisterJob("count", 70, "anna", "memory:j", 2.0))
