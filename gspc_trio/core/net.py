"""How far a workflow is: its net as those see it who watch a job."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.ids import Count
from gspc_trio.core.task import TaskState


class PlaceKind(StrEnum):
    """What a place of a net is for."""

    INPUT = "input"
    OUTPUT = "output"
    STOP = "stop"
    PLACE = "place"


class PlaceStatus(Struct, frozen=True):
    """A place, and the number of tokens on it."""

    name: str
    kind: PlaceKind
    tokens: Count


class TransitionStatus(Struct, frozen=True):
    """A transition.

    Attributes:
        inputs, outputs: names of places.
        states: of the tasks that have not finished -> their number.
        done: number of those that have.
        fired: how often it has.
        inline: whether it makes no tasks.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: dict[TaskState, Count]
    done: Count
    fired: Count = 0
    inline: bool = False

    def with_counts_of(self, other: TransitionStatus | None) -> TransitionStatus:
        """Return this transition with what the same one of another net has, too."""
        if other is None:
            return self
        states = Counter(other.states)
        states.update(self.states)
        return replace(self, states=dict(states), done=self.done + other.done, fired=self.fired + other.fired)


class NetStatus(Struct, frozen=True):
    """A net, and how far it is; empty where a workflow is none."""

    places: tuple[PlaceStatus, ...] = ()
    transitions: tuple[TransitionStatus, ...] = ()
