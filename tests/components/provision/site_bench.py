"""The machine of sites with a clock, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    NodeServes,
    SiteAdded,
    SitesAction,
    SitesEvent,
)
from gspc_trio.components.provision.site_settings import site_settings
from gspc_trio.components.provision.sites import Sites
from gspc_trio.core.demand import RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import BlockChanged

FOUR_CORES = {"provider": "slurm", "max_time": "2h", "max_nodes": 2, "cores_per_node": 4}
ONE_SLOT = FOUR_CORES | {"slots": 1}


class Bench:
    """The machine with a clock."""

    def __init__(self, is_attended: bool = True, **sites: dict[str, object]) -> None:
        self.sites = Sites(is_attended=is_attended)
        self.now = 0.0
        self.asks = 0
        for name, given in sites.items():
            self.do(SiteAdded(0, name, site_settings(name, given)))
        self.until(0.0)

    def do(self, event: SitesEvent) -> list[SitesAction]:
        actions = self.sites.handle(event, self.now)
        self.sites.check()
        return actions

    def until(self, now: float) -> list[SitesAction]:
        """Let time pass; return what was done meanwhile."""
        actions: list[SitesAction] = []
        while (due := self.sites.deadline()) is not None and due <= now:
            self.now = max(self.now, due)
            actions += self.do(Tick())
        self.now = now
        return actions

    def demand(self, *groups: TaskGroup, running: Sequence[RunningGroup] = ()) -> list[SitesAction]:
        """A job says what it needs; return what follows within a second."""
        return self.do(TaskDemand("j1", groups, tuple(running))) + self.until(self.now + 1)

    def state(self, block_id: str) -> str:
        return self.sites.blocks[block_id].shown[0]


def of(kind: type, actions: Sequence[SitesAction]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def words(actions: Sequence[SitesAction]) -> list[str]:
    """Return block and state of each record of a block, and the names of other actions."""
    return [
        f"{action.block_id} {action.state}" if isinstance(action, BlockChanged) else type(action).__name__
        for action in actions
    ]


def started(bench: Bench, block_id: str = "a/b1") -> None:
    """A block is submitted, and its only node is up."""
    bench.do(BatchAnswered(block_id, "17"))
    bench.do(BatchMoved(block_id, BatchState.RUNNING))
    bench.do(NodeServes(block_id, 0, "r5", bench.now + 7200))
    bench.until(bench.now)
