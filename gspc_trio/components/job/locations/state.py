"""Events, actions and state of the locations of a job, and what they ask their policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.job.locations.names import Location
from gspc_trio.components.job.messages import LocationStatus
from gspc_trio.components.job.scheduler.interface import Claims, GivenUp, OutsideEvent
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Interrupt, Release
from gspc_trio.components.worker.messages import Cancel, Submit, TakeBack
from gspc_trio.core.demand import TaskDemand
from gspc_trio.core.ids import NO_GRANT, GrantId, ResourceId
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import Outcome, Shape

LOOK_S = 0.5
"""Seconds between two looks whether credit that has brought no grant had better be elsewhere."""

WEIGHT = 0.125
"""Least weight of the newest measurement in an average."""


class LocationLoad(Struct, frozen=True):
    """What is known of a run-time system, for one kind of tasks.

    Attributes:
        slots: tasks of the kind that its resources could run at a time.
        held: grants that the job holds there of the same class.
        asked_s: seconds for which grants have been asked for and have not come.
        transfer_s: seconds that data of such a task takes there and back.
        run_s: seconds that such a task runs there, None if nobody knows.
    """

    slots: int
    held: int = 0
    asked_s: float = 0.0
    transfer_s: float = 0.0
    run_s: float | None = None


class LocationPolicy(Protocol):
    """How a job divides what it asks for among its run-time systems."""

    def divide(self, credit: int, loads: Sequence[LocationLoad], estimate_s: float | None) -> list[int]:
        """Return how many of ``credit`` grants to ask each for; tasks state ``estimate_s``, or None."""
        ...

    def leaves(self, at: int, waiting: int, loads: Sequence[LocationLoad], estimate_s: float | None) -> bool:
        """Return whether tasks of which ``waiting`` wait had better not run at place ``at`` any more."""
        ...


# Events and actions -----------------------------------------------------------------------------------------


class Said(Struct, frozen=True):
    """A run-time system, or one of its hosts, says this, in its own words."""

    location: str
    event: OutsideEvent


class Away(Struct, frozen=True):
    """A run-time system cannot be reached; it is awaited."""

    location: str


class Gone(Struct, frozen=True):
    """A run-time system has gone for good, and all its hosts with it: what they had is lost."""

    location: str
    reason: str


class To(Struct, frozen=True):
    """Say this to a run-time system, or to the host that it is about; it is in the words of that."""

    location: str
    message: object


class Tell(Struct, frozen=True):
    """The scheduler is to be told this."""

    event: OutsideEvent


SchedulerSays: TypeAlias = (
    Demand | Release | Interrupt | Submit | Cancel | TakeBack | Hold | Claims | GivenUp | TaskDemand
)
LocationsEvent: TypeAlias = Said | Away | Gone | Tick | SchedulerSays
LocationsAction: TypeAlias = To | Tell


# State ------------------------------------------------------------------------------------------------------


class Measured(Struct, eq=False):
    """Averages of tasks of a shape that have finished at a location: seconds of compute, and of staging."""

    samples: int = 0
    run_s: float = 0.0
    transfer_s: float = 0.0

    def learn(self, outcome: Outcome) -> None:
        """Take a task into account."""
        self.samples += 1
        weight = max(1.0 / self.samples, WEIGHT)
        staged = outcome.staged_s
        staging_s = sum(end - begin for begin, end in zip(staged[::2], staged[1::2], strict=False))
        self.run_s += (outcome.duration_s - self.run_s) * weight
        self.transfer_s += (max(0.0, staging_s) - self.transfer_s) * weight


class AskedShape(Struct, eq=False):
    """What one location was asked for of one shape.

    Attributes:
        there: the shape, as it is asked for there.
        credit: further grants that it may give; ``priority`` as it was told.
        since_s: since when none has come, though some were asked for; None: none are.
        waited_s: how long that was the last time, when they were asked for elsewhere instead; that counts
            until ``until_s``.
        refused: why no grant of the shape will come from there, "" if one may.
        measured: of its tasks.
    """

    there: Shape
    credit: int = 0
    priority: int = 0
    since_s: float | None = None
    waited_s: float = 0.0
    until_s: float = 0.0
    refused: str = ""
    measured: Measured = field(default_factory=Measured)

    def wait_s(self, now: float) -> float:
        """Return how long grants have been asked for in vain, or were not long ago."""
        waiting_s = 0.0 if self.since_s is None else now - self.since_s
        return max(waiting_s, self.waited_s if now < self.until_s else 0.0)


class LocationState(Struct, eq=False):
    """What is known of one location.

    Attributes:
        at: its names.
        away: it cannot be reached now.
        gone: why it never will be again, "" as long as it may.
        seen: newest grant that it has given, as it calls it.
        sizes: resource class -> number of its resources that are up.
        classes: of these resources.
        asked: shape -> what it was asked for.
        here_of: shape as it is asked for there -> shape.
        held: grants held -> (shape, resources).
        by_resource: first resource of a grant -> shape.
        held_of: resource class -> number of grants held whose first resource is of it.
        wants_demand: it wants to hear what tasks that wait would need.
    """

    at: Location
    away: bool = False
    gone: str = ""
    seen: GrantId = NO_GRANT
    sizes: dict[str, int] = field(default_factory=dict)
    classes: dict[ResourceId, str] = field(default_factory=dict)
    asked: dict[Shape, AskedShape] = field(default_factory=dict)
    here_of: dict[Shape, Shape] = field(default_factory=dict)
    held: dict[GrantId, tuple[Shape, tuple[ResourceId, ...]]] = field(default_factory=dict)
    by_resource: dict[ResourceId, Shape] = field(default_factory=dict)
    held_of: dict[str, int] = field(default_factory=dict)
    wants_demand: bool = False

    def asked_of(self, shape: Shape) -> AskedShape:
        """Return what it was asked for of a shape, which is nothing if it never was."""
        asked = self.asked.get(shape)
        if asked is None:
            there, count = self.at.shape_there(shape), 1
            while there in self.here_of:  # shapes that differ in what they prefer elsewhere
                count += 1
                there = replace(there, at=f"{shape.at or self.at.name} {count}")
            asked = self.asked[shape] = AskedShape(there)
            self.here_of[there] = shape
        return asked

    def load(self, shape: Shape, now: float) -> LocationLoad:
        """Return how it stands for tasks of a shape."""
        needed: dict[str, int] = {}
        for one in shape.requirements:
            needed[one.resource_class] = needed.get(one.resource_class, 0) + 1
        slots = min(self.sizes.get(name, 0) // number for name, number in needed.items())
        asked, held = self.asked_of(shape), self.held_of.get(first_class(shape), 0)
        known = asked.measured
        run_s = known.run_s if known.samples else None
        return LocationLoad(slots, held, asked.wait_s(now), known.transfer_s, run_s)

    def status(self, now: float) -> LocationStatus:
        """Return how it is, and what the job has there."""
        kinds = self.asked.values()
        most = max((asked.measured for asked in kinds), key=lambda it: it.samples, default=Measured())
        return LocationStatus(
            self.at.name,
            self.at.job_there,
            "gone" if self.gone else "away" if self.away else "up",
            self.gone or "; ".join(dict.fromkeys(asked.refused for asked in kinds if asked.refused)),
            {name: number for name, number in self.sizes.items() if number},
            {name: number for name, number in self.held_of.items() if number},
            sum(asked.credit for asked in kinds),
            max((asked.wait_s(now) for asked in kinds if asked.credit), default=0.0),
            most.transfer_s,
            most.run_s,
        )


class Wanted(Struct, eq=False):
    """What the scheduler wants of one shape: further grants, and with which priority."""

    credit: int = 0
    priority: int = 0


def first_class(shape: Shape) -> str:
    """Return the class of the resource on whose worker tasks of a shape run."""
    return shape.requirements[0].resource_class
