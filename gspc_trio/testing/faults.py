"""What may happen to a simulated cluster, and when."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import frozen

ROLES = ("rts", "rif", "job", "compute")
"""What can be killed."""


@frozen
class Fault:
    """One thing that happens.

    Attributes:
        kind: ``kill``.
        role: to whom: the process of this role that makes its ``step``-th step.
        step: of all steps of that role: sends, receives, events of machines; tasks begun, for compute.
    """

    kind: str
    role: str
    step: int

    def __str__(self) -> str:
        return f"{self.kind} {self.role} at its step {self.step}"


@frozen
class Faults:
    """The fault menu: how many of each kind a run may meet, at most.

    Attributes:
        kills: processes killed like by SIGKILL, each at any of its steps.
        roles: whose.
    """

    kills: int = 3
    roles: tuple[str, ...] = ROLES

    def draw(self, random: Random, steps: dict[str, int]) -> tuple[Fault, ...]:
        """Make a schedule.

        Args:
            random: to draw from.
            steps: about how many steps each role makes.
        """
        faults: list[Fault] = []
        for _ in range(random.randint(0, self.kills)):
            role = random.choice(self.roles)
            faults.append(Fault("kill", role, random_step(random, steps[role])))
        return tuple(sorted(faults, key=lambda fault: (fault.role, fault.step)))


def random_step(random: Random, most: int) -> int:
    """Draw a step; as likely among the first ten as among the first hundred."""
    return max(1, int(most ** random.random()))


class Trigger:
    """Counts the steps of each role and says what is due.

    Args:
        schedule: of faults.
    """

    def __init__(self, schedule: Sequence[Fault]) -> None:
        self.steps = dict.fromkeys(ROLES, 0)
        self._waiting: dict[str, list[Fault]] = {role: [] for role in ROLES}
        for fault in sorted(schedule, key=lambda fault: -fault.step):
            self._waiting[fault.role].append(fault)

    def step(self, role: str) -> list[Fault]:
        """Count one step of a role; return the faults that are due with it."""
        number = self.steps[role] = self.steps[role] + 1
        waiting, due = self._waiting[role], []
        while waiting and waiting[-1].step <= number:
            due.append(waiting.pop())
        return due
