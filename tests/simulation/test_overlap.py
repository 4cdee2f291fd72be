"""Tasks that fetch and store data, through scheduler, RIF and worker, on simulated time (WRK-2)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from gspc_trio import Net
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.rm.messages import Recall
from gspc_trio.components.worker.messages import TakeBack
from gspc_trio.core.task import Outcome
from gspc_trio.protocol.values import dumps
from gspc_trio.testing.cluster import open_cluster
from gspc_trio.testing.determinism import seeded_trio, simulated_clock
from gspc_trio.testing.simulated.backend import Behaviour

COMPUTE_S = 0.5
TASKS = 10


class Eyes:
    """Keeps how tasks ended, and what was asked or given back."""

    def __init__(self) -> None:
        self.ended: list[Outcome] = []
        self.called_back: list[Any] = []

    def saw(self, *seen: Any) -> None:
        """A machine took an event."""
        for action in seen[-1]:
            if type(action) is TaskDone:
                self.ended.append(action.outcome)
            elif isinstance(action, TakeBack | Recall):
                self.called_back.append(action)

    def holds(self, _queue: Any) -> None:
        """Know of a queue."""


def behave(_submission: Any, _code: bytes) -> Behaviour:
    return Behaviour(COMPUTE_S, values=((dumps("done"),),))


def work(_item: int) -> None:
    """Do nothing; how long it takes is made up."""


async def run(staging_s: float, requires: str, eyes: Eyes) -> None:
    net = Net("overlap")
    net.input("items", range(TASKS))
    settings: dict[str, Any] = {"stage_in": True, "stage_out": True, "requires": requires}
    net.transition("work", work, inputs=["items"], outputs=[net.output("done")], **settings)
    async with open_cluster(1, hosts=1, cores=1, behave=behave, observer=eyes) as cluster:
        cluster.staging_s = staging_s
        await cluster.start_rts()
        job = cluster.start_job("job", net)
        await job.process.ended.wait()
        assert job.result is not None
        assert job.result.state == "finished"


@pytest.mark.parametrize(
    ("staging_s", "requires"), [(0.05, "core"), (0.3, "core"), (0.5, "node"), (2.0, "core"), (5.0, "core")]
)
def test_the_longest_phase_is_never_interrupted(staging_s: float, requires: str) -> None:
    eyes = Eyes()
    with seeded_trio(1):
        trio.run(run, staging_s, requires, eyes, clock=simulated_clock())
    assert eyes.called_back == []
    assert [outcome.attempt for outcome in eyes.ended] == [1] * TASKS
    times = [(*one.staged_s[:2], one.started_s, *one.staged_s[2:]) for one in eyes.ended]
    for before, after in pairwise(times):
        assert all(begin <= later for begin, later in zip(before, after, strict=True)), "out of order"
        assert after[0] >= before[1], "two are fetched at a time"
        assert after[2] >= before[2] + COMPUTE_S, "two compute at a time"
        assert after[3] >= before[4], "two are stored at a time"
        assert after[0] <= before[2] + COMPUTE_S, "fetched only after the one before has computed"
    ideal_s = 2 * staging_s + COMPUTE_S + (TASKS - 1) * max(staging_s, COMPUTE_S)
    taken_s = times[-1][4] - times[0][0]
    assert ideal_s / taken_s > 0.98
