"""The pattern ``accumulate``: windows of items, each folded to one result by a task of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from attrs import frozen

from gspc_trio.core.pattern_code import FoldWindow
from gspc_trio.workflow.arcs import (
    Copies,
    Place,
    Source,
    Target,
    Unpassed,
    WorkflowError,
    each,
    forward,
    take,
)
from gspc_trio.workflow.calls import function_name
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import IN_FLIGHT_OF_STREAM
from gspc_trio.workflow.patterns.pipeline import check_function, pipeline
from gspc_trio.workflow.patterns.stream import LAST, Builder, Stream, StreamStage
from gspc_trio.workflow.settings import TaskSettings, task_settings, whole_number


def accumulate(
    window: int,
    offset: int = 0,
    init: object = None,
    combine: Callable[..., object] | None = None,
    *,
    step: int | None = None,
    partial: bool = False,
    name: str | None = None,
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "results",
    in_flight: int = IN_FLIGHT_OF_STREAM,
    **settings: Unpack[TaskSettings],
) -> Net:
    """Return a net that folds windows of its items, each to one result; it is a stage of a pipeline, too.

    Each window is folded by one task, many at once: ``combine(combine(init, first), second)`` and so on.
    Results come in the order of the windows.

    Args:
        window: items in a window.
        offset: so many items of a window are in the next one, too; less than ``window``.
        init: what ``combine`` gets with the first item of each window.
        combine: function of what the items before have become, and the next item.
        step: from the first item of a window to that of the next one, in place of ``offset``; it may be more
            than ``window``: the items between are in no window.
        partial: when no more items come, and some of the last ones are in no window, fold those too, with
            what a whole window would overlap. Otherwise they are dropped.
        name: of the net and its tasks; by default that of ``combine``.
        default: items to use if none are given when the net is started.
        input_port, output_port: names of the ports.
        in_flight: how many windows may be under way.
        settings: what the tasks need and state.

    Raises:
        WorkflowError: the numbers or a setting make no sense, or ``combine`` cannot be called with two
            arguments.
    """
    size = whole_number("window", window, 1)
    overlap = whole_number("offset", offset, 0)
    if overlap >= size:
        raise WorkflowError(
            f"accumulate: offset is how many items of a window are in the next one, too: less than "
            f"{size}, not {overlap}; for a distance use step="
        )
    if step is not None and overlap:
        raise WorkflowError("accumulate: offset and step both say where the next window begins: give one")
    if combine is None:
        raise WorkflowError("accumulate needs combine: a function of what it has so far and the next item")
    distance = size - overlap if step is None else whole_number("step", step, 1)
    stage = WindowStage(size, distance, FoldWindow(combine, init), partial, name, in_flight, settings)
    return pipeline(stage, name=name, default=default, input_port=input_port, output_port=output_port)


class WindowStage(StreamStage):
    """Windows of a stream, each folded by a task.

    Items that the next window shares wait on a place of their own. A window is what was kept there, and what
    has come since: both go to its task as they are, unopened.

    Args:
        window: items in one.
        step: from the first item of a window to that of the next one.
        fold: what tasks run.
        partial: whether the last items are folded that fill no window.
        name: of its tasks; None: that of the function.
        in_flight: how many windows may be under way.
        settings: of its tasks.

    Raises:
        WorkflowError: its function is none that a task can call, or a setting makes no sense.
    """

    may_leave = True

    def __init__(
        self,
        window: int,
        step: int,
        fold: FoldWindow,
        partial: bool,
        name: str | None,
        in_flight: int,
        settings: TaskSettings,
    ) -> None:
        check_function(fold.__wrapped__, 2, "what it has so far and an item")
        task_settings(settings)
        self.name: str = name or function_name(fold.__wrapped__)
        self.wants_end = partial
        self.ahead: int = whole_number("in_flight", in_flight, 1)
        self._window, self._step = window, step
        self._overlap, self._gap = max(0, window - step), max(0, step - window)
        self._fold = fold
        self._settings = settings

    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``."""
        net = build.net
        slots, granted = build.place(f"({name} slots)", [None] * self.ahead), net.place(f"({name} granted)")
        new, old = net.place(f"({name} new)"), net.place(f"({name} shared)")
        first, kept = build.place(f"({name} first)", [[]]), build.place(f"({name} kept)")
        places = _Places(source, target, slots, granted, new)
        if self._overlap:
            again: list[Target] = [forward("new", each(kept), first=self._step)]
            shared: Source = take(kept, self._overlap)
            more: list[Target] = [forward("new", each(kept), first=max(0, self._step - self._overlap))]
            if self._step < self._overlap:
                more.insert(0, forward("old", each(kept), first=self._step))
        else:
            again = more = [forward("old", kept)]  # an empty list: there was a window before
            shared = kept
        window, step, gap = self._window, self._step, self._gap
        begun, going = [forward("old", old), *again], [forward("old", old), *more]
        places.add(build, f"({name} begins)", first, begun, (window, window))
        places.add(build, f"({name} goes on)", shared, going, (step, step), gap)
        net.transition(
            name,
            self._fold,
            [old, new, Unpassed(granted)],
            [target.items, forward(2, slots)],
            ordered=build.options.ordered,
            **self._settings,
        )
        if self.wants_end and window > 1:
            places.add(build, f"({name} ends first)", first, begun[:1], (1, window - 1), at_end=True)
        if self.wants_end and step > gap + 1:
            places.add(build, f"({name} ends with)", shared, going[:1], (gap + 1, step - 1), gap, at_end=True)
        if source.end is not None and target.end is not None:
            room = target.room or ""
            net.transition(
                f"({name} ends)",
                None,
                {"_end": source.end, "_slots": take(slots, self.ahead), "_room": room},
                [forward("_end", target.end), forward("_slots", each(slots)), forward("_room", room)],
                priority=LAST - 1,
            )


@frozen
class _Places:
    """Where windows come from, and go to.

    Attributes:
        source, target: the streams.
        slots: a token for each window that may be under way.
        granted: those that are.
        new: the items of each window that the one before has not.
    """

    source: Stream
    target: Stream
    slots: Place
    granted: Place
    new: Place

    def add(
        self,
        build: Builder,
        name: str,
        shared: Source,
        outputs: Sequence[Target],
        items: tuple[int, int],
        gap: int = 0,
        *,
        at_end: bool = False,
    ) -> None:
        """Add a transition that makes a window.

        Args:
            build: adds it.
            name: of it.
            shared: has the items that the window before has, too.
            outputs: what becomes of them, and is kept for the next window.
            items: how many others it takes at least, and at most.
            gap: how many of those are in no window.
            at_end: whether it may fire only when no more items come.
        """
        room = self.target.room or ""
        inputs: dict[str, Source] = {
            "new": take(self.source.items, least=items[0], most=items[1]),
            "old": shared,
            "_slot": self.slots,
            "_room": room,
        }
        made = [forward("new", self.new, first=gap), *outputs, forward("_slot", self.granted)]
        if at_end:
            assert self.source.end is not None
            inputs["_end"] = self.source.end
            made.append(forward("_end", self.source.end))
        elif self.source.room is not None:
            made.append(Copies(forward("_slot", self.source.room), items[0]))
        build.net.transition(name, None, inputs, made, priority=LAST if at_end else 0)
