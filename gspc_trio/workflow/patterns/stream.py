"""Streams: what the stages of a pipeline share. Items wait on a place, in order, and have only so much room.

Each place between two stages has another one, for the tokens that stand for room: a stage uses one up for
each item that it is going to put there, and whoever takes an item puts one back. So a stage waits when the
next one does not keep up, and the source waits for the first stage.

When no more items come, one token comes to a third place. It follows behind the last item: a transition of
lower priority than those that take items passes it on, and needs what the stage has only between items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from attrs import frozen

from gspc_trio.workflow.arcs import Forward, Place, Target, each, forward
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.settings import TaskSettings

LAST = -1
"""Priority of what may only happen when no item can be taken."""


@frozen
class Stream:
    """The items between two stages.

    Attributes:
        items: where they wait.
        room: tokens that stand for room, taken by who puts items there; None at the input of a workflow.
        size: how many of those there are when no item waits.
        end: gets a token when no more items come; None: nobody wants to know.
    """

    items: Place
    room: Place | None
    size: int
    end: Place | None

    def give_back(self, name: str) -> list[Target]:
        """Return the arcs that put room back, for each token of the input ``name``, a ``take``."""
        return [] if self.room is None else [forward(name, each(self.room))]

    def give_back_one(self, name: str | int) -> list[Target]:
        """Return the arcs that put back room for one item: the token of the input ``name``."""
        return [] if self.room is None else [Forward(name, self.room)]


@frozen
class StreamOptions:
    """How a pipeline goes about its items.

    Attributes:
        batch: waiting items that one task of a stage takes at most.
        buffer: items that wait between two stages at most.
        ordered: whether results come in the order of the items.
        settings: what the tasks of functions that are stages need and state.
    """

    batch: int
    buffer: int
    ordered: bool
    settings: TaskSettings


class Builder:
    """Adds places and transitions to the net of a pipeline.

    Args:
        net: the net.
        options: of the pipeline.
    """

    def __init__(self, net: Net, options: StreamOptions) -> None:
        self.net = net
        self.options = options

    def place(self, name: str, initial: Iterable[object] = ()) -> Place:
        """Add a place on which tokens may be left at the end."""
        return self.net.place(name, initial, may_keep=True)

    def stream(self, name: str, size: int, *, ends: bool) -> Stream:
        """Add what is between two stages.

        Args:
            name: of the stage behind it.
            size: how much room there is.
            ends: whether anybody behind it wants to know of the end.
        """
        return Stream(
            self.net.place(f"({name} items)"),
            self.place(f"({name} room)", [None] * size),
            size,
            self.place(f"({name} no more)") if ends else None,
        )


class StreamStage(ABC):
    """Part of a pipeline.

    Attributes:
        name: what to call it before people.
        wants_end: whether it has something to do when no more items come.
        ahead: items that it may have under way at a time, beside those that wait.
    """

    name: str
    wants_end = False
    ahead = 0

    @abstractmethod
    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``, under a name of its own."""


def different(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the names, with a number behind those that others before them have."""
    seen, found = set(taken), list[str]()
    for name in names:
        one, number = name, 1
        while one in seen:
            number += 1
            one = f"{name} {number}"
        seen.add(one)
        found.append(one)
    return found


class PatternNet(Net):
    """The net of a pattern, which can also be a stage of a pipeline.

    Attributes:
        stages: what it is in a pipeline.
    """

    def __init__(self, name: str, stages: Iterable[StreamStage]) -> None:
        super().__init__(name)
        self.stages = tuple(stages)
