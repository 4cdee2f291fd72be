"""Who goes on for an earlier job server waits for the RIFs that may have its tasks."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, cast

import trio
import trio.lowlevel
from trio.testing import MockClock

from gspc_trio.components.job.journal import JournaledEngine
from gspc_trio.components.job.machine import Close, TakenOver
from gspc_trio.components.job.shell.journal import WAIT_S, Takeover
from gspc_trio.components.rif.messages import Orphans
from gspc_trio.core.task import Outcome, Reason

FINISHED = Outcome(1, 1, Reason.FINISHED)


class Engine:
    """Holds back three tasks, and says which it would hand out."""

    def __init__(self) -> None:
        self.held_back = {1, 2, 3}

    def hold_back(self) -> None:
        assert self.held_back

    def release(self, still_out: Container[int]) -> None:
        self.held_back = {task_id for task_id in self.held_back if task_id in still_out}


class Successor:
    """A job server that takes over from j1."""

    def __init__(self, *rifs: str) -> None:
        self.engine = Engine()
        self.said: list[Any] = []
        self.left: list[str] = []
        self.takeover = Takeover(cast(JournaledEngine, self.engine), "j1", rifs, self.said.append)

    async def leave(self, job: str) -> None:
        self.left.append(job)

    def hear(
        self, rif_id: str, *task_ids: int, over: bool = False, outcomes: tuple[Outcome, ...] = ()
    ) -> None:
        self.takeover.report(rif_id, Orphans("j2", task_ids, outcomes, over=over))


async def test_no_task_runs_again_before_all_rifs_have_spoken(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A RIF that comes back to a run-time system that was started again may take its time."""
    del autojump_clock
    successor = Successor("r1", "r2", "r3")
    nursery.start_soon(successor.takeover.run, successor.leave)
    successor.hear("r1", 1)
    successor.takeover.report("r3", None)
    await trio.sleep(WAIT_S / 2)
    assert successor.engine.held_back == {1, 2, 3}, "nobody knows what r2 has"
    successor.hear("r2", 2)
    assert successor.engine.held_back == {1, 2}
    successor.hear("r1", outcomes=(FINISHED,))
    successor.hear("r1", over=True)
    assert TakenOver((FINISHED,)) in successor.said
    await trio.sleep(10 * WAIT_S)
    assert successor.left == [], "r2 may take as long as it likes"
    successor.hear("r2", over=True)
    await trio.sleep(1)
    assert (successor.said[-1], successor.left, successor.engine.held_back) == (Close(), ["j1"], {1})


async def test_where_no_rif_is_there_is_nothing_to_wait_for(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    del autojump_clock
    successor = Successor()
    nursery.start_soon(successor.takeover.run, successor.leave)
    await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    assert (successor.left, successor.engine.held_back) == (["j1"], set())


async def test_a_rif_of_which_nobody_speaks_is_not_awaited_for_ever(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The run-time system may have gone, and the next one know nothing of it."""
    del autojump_clock
    successor = Successor("r1", "r2")
    nursery.start_soon(successor.takeover.run, successor.leave)
    successor.hear("r1", 1)
    await trio.sleep(WAIT_S + 1)
    assert successor.engine.held_back == {1}
