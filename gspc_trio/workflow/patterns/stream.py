"""Streams: what the stages of a pipeline share. Items wait on a place, in order, and have only so much room.

Each place between two stages has another one, for the tokens that stand for room: a stage uses one up for
each item that it is going to put there, and whoever takes an item puts one back. So a stage waits when the
next one does not keep up, and the source waits for the first stage.

When no more items come, one token comes to a third place. It follows behind the last item: a transition of
lower priority than those that take items passes it on, and needs what the stage has only between items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

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

    def give_back_one(self, name: str | int, slots: Place | None = None) -> list[Target]:
        """Return the arcs that put back room for one item, or a slot: the token of the input ``name``."""
        places = [place for place in (self.room, slots) if place is not None]
        return [Forward(name, place) for place in places]


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


class StreamStage(ABC):
    """Part of a pipeline.

    Attributes:
        name: what to call it before people.
        wants_end: whether it has something to do when no more items come.
        may_leave: whether it may leave items where they wait, when no more come.
        ahead: items that it may have under way at a time, beside those that wait.
    """

    name: str
    wants_end = False
    may_leave = False
    ahead = 0

    @abstractmethod
    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``, under a name of its own."""


class Builder:
    """Adds places and transitions to the net of a pipeline.

    Args:
        net: the net.
        options: of the pipeline.
        taken: names that no stage may have.
    """

    def __init__(self, net: Net, options: StreamOptions, taken: Iterable[str] = ()) -> None:
        self.net = net
        self.options = options
        self._taken = set(taken)

    def different(self, name: str) -> str:
        """Return the name, with a number behind it if another stage has it."""
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name} {number}"
        self._taken.add(found)
        return found

    def place(self, name: str, initial: Iterable[object] = ()) -> Place:
        """Add a place on which tokens may be left at the end."""
        return self.net.place(name, initial, may_keep=True)

    def stream(self, name: str, ahead: int, *, ends: bool, may_leave: bool = False) -> Stream:
        """Add what is between two stages.

        Args:
            name: of the stage behind it.
            ahead: items under way in both stages, for which there is room beside those that wait.
            ends: whether anybody behind it wants to know of the end.
            may_leave: whether items may be left there.
        """
        size = self.options.buffer + ahead
        return Stream(
            self.net.place(f"({name} items)", may_keep=may_leave),
            self.place(f"({name} room)", [None] * size),
            size,
            self.place(f"({name} no more)") if ends else None,
        )

    def chain(self, stages: Sequence[StreamStage], source: Stream, target: Stream) -> None:
        """Add stages one behind the other."""
        names = [self.different(one.name) for one in stages]
        for number, (one, name) in enumerate(zip(stages, names, strict=True)):
            following = stages[number + 1 :]
            if not following:
                one.add(self, name, source, target)
                return
            ahead = one.ahead + following[0].ahead
            ends = target.end is not None or wants_end(following)
            leave = following[0].may_leave
            between = self.stream(names[number + 1], ahead, ends=ends, may_leave=leave)
            one.add(self, name, source, between)
            source = between


def wants_end(stages: Iterable[StreamStage]) -> bool:
    """Return whether any of these stages has something to do when no more items come."""
    return any(stage.wants_end for stage in stages)


class PatternNet(Net):
    """The net of a pattern, which can also be a stage of a pipeline.

    Attributes:
        stages: what it is in a pipeline.
    """

    def __init__(self, name: str, stages: Iterable[StreamStage]) -> None:
        super().__init__(name)
        self.stages: tuple[StreamStage, ...] = tuple(stages)
