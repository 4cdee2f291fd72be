"""Which of several run-time systems a job asks for resources (SCH-6): where its tasks end first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from msgspec import Struct

from gspc_trio.components.job.locations.state import LocationLoad

UNKNOWN_S = 0.5
"""A task runs so long of which nothing is known."""


class LeastEnd(Struct, frozen=True):
    """Each task is asked for where waiting, transfer and run take least; of equal ones the first.

    The wait is that for the tasks that go there before it, and at least as long as grants have been asked for
    in vain. Where there are no resources nothing is asked for, unless there are none anywhere.

    Attributes:
        unknown_s: seconds that a task runs of which nothing is known.
        margin: what is held is given back if its tasks end so many times later than elsewhere.
    """

    unknown_s: float = UNKNOWN_S
    margin: float = 1.5

    def divide(self, credit: int, loads: Sequence[LocationLoad], estimate_s: float | None) -> list[int]:
        """Return how many grants to ask each location for.

        Args:
            credit: how many in all.
            loads: what is known of each location.
            estimate_s: seconds that tasks state, or None.
        """
        return self._divided(credit, loads, estimate_s)[0]

    def leaves(self, at: int, waiting: int, loads: Sequence[LocationLoad], estimate_s: float | None) -> bool:
        """Return whether tasks end so much later at a location that those which wait had better wait.

        Args:
            at: the location.
            waiting: number of tasks that wait.
            loads: what is known of each.
            estimate_s: seconds that tasks state, or None.
        """
        others = [load for number, load in enumerate(loads) if number != at]
        if not waiting or not any(load.slots for load in others):
            return False
        run_s = self._run_s(loads, estimate_s)
        elsewhere_s = self._divided(waiting, others, estimate_s)[1]
        return loads[at].transfer_s + run_s[at] > self.margin * elsewhere_s

    def _divided(
        self, credit: int, loads: Sequence[LocationLoad], estimate_s: float | None
    ) -> tuple[list[int], float]:
        """Return how many go where, and when the last one ends."""
        parts, run_s = [0] * len(loads), self._run_s(loads, estimate_s)
        last_s = 0.0
        if not any(load.slots for load in loads):
            for number in range(len(loads)):
                parts[number] = credit // len(loads) + (number < credit % len(loads))
            return parts, last_s
        heap = [
            (_end_s(load, load.held // load.slots, run_s[number]), number)
            for number, load in enumerate(loads)
            if load.slots
        ]
        heapq.heapify(heap)
        while credit:
            last_s, number = heap[0]
            load = loads[number]
            there = load.held + parts[number]
            take = min(credit, load.slots - there % load.slots)
            parts[number] += take
            credit -= take
            end_s = _end_s(load, (there + take) // load.slots, run_s[number])
            heapq.heapreplace(heap, (end_s, number))
        return parts, last_s

    def _run_s(self, loads: Sequence[LocationLoad], estimate_s: float | None) -> list[float]:
        """Return how long a task runs at each location; where none has, as on average elsewhere."""
        known = [load.run_s for load in loads if load.run_s is not None]
        usual_s = sum(known) / len(known) if known else estimate_s or self.unknown_s
        return [usual_s if load.run_s is None else load.run_s for load in loads]


def _end_s(load: LocationLoad, rounds: int, run_s: float) -> float:
    """Return when a task ends that comes after so many others on each resource."""
    return max(rounds * run_s, load.asked_s) + load.transfer_s + run_s
