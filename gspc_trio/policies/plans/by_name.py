"""Plans by the name that people give: ``move`` and ``heft``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from msgspec import Struct

from gspc_trio.components.job.plan import (
    Following,
    HostsNow,
    Links,
    PlanError,
    PlanHost,
    Planner,
    PlanPolicy,
    ReadyPlace,
    ReadyTask,
)
from gspc_trio.core.similar import did_you_mean
from gspc_trio.policies.plans.heft import HeftPlanner
from gspc_trio.policies.plans.move import MovePlanner
from gspc_trio.policies.plans.ready import Board, place_by_bytes, place_by_end

PLANS = ("move", "heft")
"""Names of plans."""


class MovePlan(Struct, frozen=True):
    """Move as little data as possible: ASPIDE's Algorithm 1.

    Attributes:
        tightness: weight of the mean distance to the other planned tasks.
    """

    tightness: float = 0.0
    name: str = "move"

    def planner(self, hosts: Sequence[PlanHost], links: Links) -> Planner:
        """Return what plans for these hosts."""
        return MovePlanner(hosts, links, self.tightness)

    def place_ready(
        self, tasks: Sequence[ReadyTask], there: HostsNow, ahead: Following | None
    ) -> Sequence[ReadyPlace | None]:
        """Return where tasks that can run go by now: where least is brought, if all end in time."""
        return place_by_bytes(tasks, Board(there).copy, ahead)


class HeftPlan(Struct, frozen=True):
    """End as soon as possible: HEFT with insertion."""

    name: str = "heft"

    def planner(self, hosts: Sequence[PlanHost], links: Links) -> Planner:
        """Return what plans for these hosts."""
        return HeftPlanner(hosts, links)

    def place_ready(
        self, tasks: Sequence[ReadyTask], there: HostsNow, ahead: Following | None
    ) -> Sequence[ReadyPlace | None]:
        """Return where tasks that can run go by now: where they end first."""
        del ahead
        return place_by_end(tasks, Board(there))


def find_plan(name: str, tightness: float = 0.0) -> PlanPolicy:
    """Return a plan by its name.

    Args:
        name: ``move`` or ``heft``.
        tightness: of ``move``: weight of the mean distance to the other planned tasks.

    Raises:
        PlanError: there is no such plan, or it has no such tightness.
    """
    if not isinstance(name, str) or name not in PLANS:
        meant = did_you_mean(str(name), PLANS)
        raise PlanError(f"there is no plan {name!r:.60}{meant}; there are: {', '.join(PLANS)}")
    if isinstance(tightness, bool) or not isinstance(tightness, int | float):
        raise PlanError(f"tightness is a number, 0 or more, not {tightness!r:.60}")
    if not (isfinite(tightness) and tightness >= 0):
        raise PlanError(f"tightness is a finite number, 0 or more, not {tightness:g}")
    if tightness and name != "move":
        raise PlanError(f"tightness is for the plan 'move', not for {name!r}")
    return MovePlan(float(tightness)) if name == "move" else HeftPlan()
