"""The pattern ``pipeline``: items go from stage to stage, and several stages work at a time (ASP-2)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, Unpack

from gspc_trio.core.code import Program, SourceFile
from gspc_trio.core.pattern_code import EachItem, EachWithState
from gspc_trio.workflow.arcs import Sources, Target, Unpassed, WorkflowError, each, forward, take
from gspc_trio.workflow.calls import function_name
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.stream import (
    LAST,
    Builder,
    PatternNet,
    Stream,
    StreamOptions,
    StreamStage,
    wants_end,
)
from gspc_trio.workflow.settings import TaskSettings, task_settings, whole_number

BATCH = 64
"""Waiting items that one task of a stage takes at most, unless told otherwise."""

BUFFER = 64
"""Items that wait between two stages at most, unless told otherwise."""

READ_AHEAD = 1024
"""Values of an iterator that wait at the input port at most, unless told otherwise."""

StageLike: TypeAlias = "Callable[..., object] | StreamStage | Net"
"""What a pipeline takes for a stage: a function, ``stage(...)``, or a pattern."""

_NO_STATE = object()


def pipeline(
    *stages: StageLike,
    name: str | None = None,
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "results",
    batch: int = BATCH,
    buffer: int = BUFFER,
    ordered: bool = True,
    is_open: bool = False,
    read_ahead: int = READ_AHEAD,
    **settings: Unpack[TaskSettings],
) -> Net:
    """Return a net that sends each item at its input port through all stages, to its output port.

    A function is a stage that takes the items in order, one worker at a time. All stages work at the same
    time, on different items. A pattern is a stage, too: ``farm(f)`` runs many items at once. As a stage it
    has no data and no ports of its own.

    Args:
        stages: functions of one item, ``stage(...)``, patterns; the first gets the items.
        name: of the net; by default after its stages.
        default: items to use if none are given when the net is started.
        input_port, output_port: names of the ports.
        batch: so many items that wait go into one task of a stage at most.
        buffer: so many items wait between two stages at most. A stage whose results have no room waits.
        ordered: results come in the order of the items; otherwise as they come.
        is_open: more items may be put while the workflow runs, which ends when its port is closed.
        read_ahead: so many items of an iterator wait at most: it is read while the workflow runs.
        settings: what the tasks of functions that are stages need and state.

    Raises:
        WorkflowError: there is no stage, something is no stage, or a setting makes no sense.
    """
    if not stages:
        raise WorkflowError("a pipeline needs a stage: a function, stage(...) or a pattern")
    options = StreamOptions(
        whole_number("batch", batch, 1), whole_number("buffer", buffer, 1), ordered, settings
    )
    task_settings(settings)  # it raises here, where they are written
    found = [made for one in stages for made in stages_of(one)]
    net = PatternNet(name or " | ".join(stage.name for stage in found), found)
    build = Builder(net, options, taken=(input_port, output_port))
    begin = build.place(f"({input_port} no more)", [None]) if wants_end(found) else None
    ahead = whole_number("read_ahead", read_ahead, 1)
    items = net.input(input_port, default, is_open=is_open, read_ahead=ahead, end=begin or "")
    if found[0].may_leave:
        items = net.replace_place(items, may_keep=True)
    size = buffer + found[-1].ahead
    room = build.place(f"({output_port} room)", [None] * size)
    target = Stream(net.output(output_port, room=room), room, size, None)
    build.chain(found, Stream(items, None, 0, begin), target)
    return net


def stage(
    function: Callable[..., object],
    *,
    state: object = _NO_STATE,
    name: str | None = None,
    batch: int | None = None,
    **settings: Unpack[TaskSettings],
) -> StreamStage:
    """Return a stage of a pipeline that takes the items in order, one worker at a time.

    Args:
        function: of one item; with a state, of an item and the state, and it returns a result and the new
            state.
        state: what the function gets with the first item. With each other one it gets what it has returned
            with the one before. It travels with the tasks, and stays when a process dies.
        name: of its tasks; by default the function's.
        batch: so many items that wait go into one task at most; by default as the pipeline says.
        settings: what its tasks need and state, beside what the pipeline says.

    Raises:
        WorkflowError: it is no function, or a setting makes no sense.
    """
    task_settings(settings)
    size = None if batch is None else whole_number("batch", batch, 1)
    return FunctionStage(function, [] if state is _NO_STATE else [state], name, size, settings)


def stages_of(written: StageLike) -> Sequence[StreamStage]:
    """Return the stages that something written as a stage stands for.

    Raises:
        WorkflowError: it is none.
    """
    if isinstance(written, StreamStage):
        return [written]
    if isinstance(written, PatternNet):
        for port in written.inputs:
            if written.places[port].is_optional:
                raise WorkflowError(
                    f"{written.name!r} is a stage of a pipeline and gets its items there: leave out default"
                )
        return written.stages
    if isinstance(written, Net):
        raise WorkflowError(f"{written!r} is no stage: a pipeline takes functions, stage(...) and patterns")
    return [FunctionStage(written, [], None, None, {})]


class FunctionStage(StreamStage):
    """A function, called for the items in their order.

    Args:
        function: of one item, or of an item and the state.
        state: the state at the beginning; empty: there is none.
        name: of its tasks; None: that of the function.
        batch: items in one task; None: as the pipeline says.
        settings: of its tasks.

    Raises:
        WorkflowError: it is no function that a task can call.
    """

    def __init__(
        self,
        function: Callable[..., object],
        state: Sequence[object],
        name: str | None,
        batch: int | None,
        settings: TaskSettings,
    ) -> None:
        if isinstance(function, Program | SourceFile):
            what = function_name(function)
            raise WorkflowError(
                f"{what!r} is no function of an item; as a stage write farm(..., in_flight=1)"
            )
        check_function(function, 1 + len(state), "an item and the state" if state else "an item")
        self.name: str = name or function_name(function)
        self._function = function
        self._state = state
        self._batch = batch
        self._settings = settings

    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``."""
        net = build.net
        idle, busy = build.place(f"({name} idle)", [None]), net.place(f"({name} busy)")
        waiting = net.place(f"({name} batch)")
        assert target.room is not None
        net.transition(
            f"({name} takes)",
            None,
            {
                "items": take(source.items, most=self._batch or build.options.batch),
                "_idle": idle,
                "_room": take(target.room, as_many_as="items"),
            },
            [forward("items", waiting), forward("_idle", busy), *source.give_back("_room")],
        )
        run: EachItem | EachWithState = EachItem(self._function)
        inputs: Sources = [waiting, Unpassed(busy)]
        outputs: dict[str, Sequence[Target]] | list[Target] = [each(target.items), forward(1, idle)]
        if self._state:
            run = EachWithState(self._function, name)
            state = build.place(f"({name} state)", self._state)
            inputs = [waiting, state, Unpassed(busy)]
            outputs = {"results": [each(target.items)], "state": [state, forward(2, idle)]}
        settings: TaskSettings = {**build.options.settings, **self._settings}
        net.transition(name, run, inputs, outputs, **settings)
        if source.end is not None and target.end is not None:
            net.transition(
                f"({name} ends)",
                None,
                {"_end": source.end, "_idle": idle, "_room": target.room},
                [forward("_end", target.end), forward("_idle", idle), forward("_room", target.room)],
                priority=LAST,
            )


def check_function(function: Callable[..., object], count: int, what: str) -> None:
    """See that a function can be called with so many arguments.

    Raises:
        WorkflowError: not so, or it is async.
    """
    if not callable(function):
        raise WorkflowError(f"{function!r} is no stage: a pipeline takes functions, stage(...) and patterns")
    name = function_name(function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise WorkflowError(f"{name} is async, and a task calls plain functions")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # one of C that does not tell
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        head = f"{name}({', '.join(signature.parameters)})"
        raise WorkflowError(f"{head} is called with {what}: {error}") from None
