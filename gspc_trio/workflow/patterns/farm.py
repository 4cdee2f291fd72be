"""The pattern ``farm``: one task for each item."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from gspc_trio.core.code import Program, WithItem
from gspc_trio.workflow.arcs import Place, Sources, Unpassed, WorkflowError, each, forward, take
from gspc_trio.workflow.calls import Run, function_name, runs_of
from gspc_trio.workflow.in_flight import IN_FLIGHT
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.stream import LAST, Builder, PatternNet, Stream, StreamStage
from gspc_trio.workflow.settings import TaskSettings, task_settings, whole_number

IN_FLIGHT_OF_STREAM = 1024
"""How many tasks of a stage of a pipeline are in flight at most, unless told otherwise."""


def farm(
    run: Run,
    *,
    name: str | None = None,
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "results",
    pairs: bool = False,
    ordered: bool = False,
    in_flight: int | None = None,
    **settings: Unpack[TaskSettings],
) -> Net:
    """Return a net that runs one task for each item at its input port; the results come to its output port.

    Args:
        run: a function of one argument, a Program that uses ``{item}``, a SourceFile, or Variants of them.
        name: of the net and its tasks; by default the function's.
        default: items to use if none are given when the net is started.
        input_port, output_port: names of the ports.
        pairs: each result comes with its item, as (item, result): results come as tasks end, in any order.
        ordered: results come in the order of the items: each as soon as those before it are there. Tasks run
            in any order all the same. Behind an item whose task fails there are no results.
        in_flight: how many iterations may be in flight. An iteration is in flight from when its task is made
            until it has ended, and with it all nested tasks that it has started. By default 16,384, and
            1,024 as a stage of a pipeline.
        settings: what the tasks need and state.

    Raises:
        WorkflowError: ``run`` cannot be called with one argument, or a setting makes no sense.
    """
    name = name or function_name(run)
    task_settings(settings)
    code = _paired(run) if pairs else run
    of_stream = IN_FLIGHT_OF_STREAM if in_flight is None else whole_number("in_flight", in_flight, 1)
    net = PatternNet(name, [FarmStage(code, name, of_stream, ordered, settings)])
    items, results = net.input(input_port, default), net.output(output_port)
    most = IN_FLIGHT if in_flight is None else in_flight
    inputs = one_input(run, items)
    net.transition(name, code, inputs, results, in_flight=most, ordered=ordered, **settings)
    return net


class FarmStage(StreamStage):
    """Runs one task for each item of a stream.

    Args:
        run: of one item.
        name: of its tasks.
        in_flight: how many of its tasks may have begun and not ended.
        ordered: whether results keep the order of the items in any case.
        settings: of its tasks.
    """

    def __init__(self, run: Run, name: str, in_flight: int, ordered: bool, settings: TaskSettings) -> None:
        self.name = name
        self.ahead = in_flight
        self._run = run
        self._ordered = ordered
        self._settings = settings

    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``."""
        assert target.room is not None
        slots = slots_of(build, name, source, self.ahead)
        taken = {"_room": target.room} | ({} if slots is None else {"_slot": slots})
        inputs: Sources = [source.items, *map(Unpassed, taken.values())]
        if isinstance(self._run, Program):
            inputs = {"item": source.items, **taken}
        room = "_room" if isinstance(self._run, Program) else 1
        build.net.transition(
            name,
            self._run,
            inputs,
            [target.items, *source.give_back_one(room, slots)],
            in_flight=self.ahead,
            ordered=self._ordered or build.options.ordered,
            **self._settings,
        )
        add_end(build, name, source, target, slots, self.ahead)


def slots_of(build: Builder, name: str, source: Stream, number: int) -> Place | None:
    """Return a place with a token for each task that may be under way, if they are not counted otherwise.

    An item keeps its room in ``source`` until its task has ended; but at the input of a workflow it has none.
    """
    wanted = source.end is not None and source.room is None
    return build.place(f"({name} slots)", [None] * number) if wanted else None


def add_end(
    build: Builder, name: str, source: Stream, target: Stream, slots: Place | None, number: int
) -> None:
    """Tell the next stage that no more items come, when none waits and no task is under way."""
    if source.end is None or target.end is None:
        return
    counted = take(slots, number) if slots is not None else take(source.room or "", source.size)
    back = slots if slots is not None else source.room or ""
    assert target.room is not None
    build.net.transition(
        f"({name} ends)",
        None,
        {"_end": source.end, "_counted": counted, "_room": target.room},
        [forward("_end", target.end), forward("_counted", each(back)), forward("_room", target.room)],
        priority=LAST,
    )


def _paired(run: Run) -> WithItem:
    if not callable(run):
        raise WorkflowError("pairs=True is for a function: what is none returns its item itself")
    return WithItem(run)


def one_input(run: Run, place: Place) -> Sources:
    """Return the input of what gets one item: by name for programs, which know arguments only so."""
    return {"item": place} if any(isinstance(one, Program) for one in runs_of(run)) else [place]
