"""Queues of resources (SCH-4, GSPC19 3.3): how long a task is taken to run, and whether it is stolen."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.core.similar import did_you_mean

QUEUES = "queues"
"""The name of what this module does, as people give it."""


def bad_assignment(assign: str) -> str:
    """Return what is wrong with the name of a way to assign tasks to resources, "" if nothing is."""
    if assign in ("", QUEUES):
        return ""
    return f"there is no such way to assign tasks{did_you_mean(assign, [QUEUES])}; there is: {QUEUES}"


class Queues(Struct, frozen=True):
    """Each resource has a queue; a ready task joins the one where it ends first, and idle resources steal.

    Attributes:
        unknown_s: a task is taken to run so long as long as nothing was measured in the job.
        margin_s: a task is stolen only if it begins so much sooner by that: to move it takes messages.
    """

    unknown_s: float = 0.5
    margin_s: float = 0.0005

    def task_s(self, stated_s: float | None, measured_s: float | None, mean_s: float | None) -> float:
        """Return how long a task is taken to run: what is known best.

        Args:
            stated_s: what it states, or None.
            measured_s: what tasks of its code have taken on resources of its class, or None.
            mean_s: what all tasks of the job have taken, or None.
        """
        if stated_s is not None:
            return stated_s
        if measured_s is not None:
            return measured_s
        return self.unknown_s if mean_s is None else mean_s

    def left_s(self, work_s: float, since_s: float) -> float:
        """Return how long what is at a worker still takes.

        What has taken longer than expected is taken to take as long again: the longer it runs, the less is
        known of its end.

        Args:
            work_s: what it was taken for.
            since_s: how long it has run.
        """
        return work_s - since_s if since_s <= work_s else since_s

    def steals(self, own_s: float, transfer_s: float, run_s: float, victim_s: float) -> bool:
        """Return whether an idle resource takes a task from the queue of another: it ends sooner by that.

        Args:
            own_s: work that it has taken so far.
            transfer_s: time to bring the task's data there.
            run_s: time that the task runs.
            victim_s: work of the other resource, this task included.
        """
        return own_s + transfer_s + run_s < victim_s - self.margin_s
