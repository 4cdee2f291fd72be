"""The patterns ``keep`` and ``discard``: a predicate says which items go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Unpack

from gspc_trio.core.pattern_code import KeepItem
from gspc_trio.workflow.arcs import Unpassed, each
from gspc_trio.workflow.calls import function_name
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import IN_FLIGHT_OF_STREAM, add_end, slots_of
from gspc_trio.workflow.patterns.pipeline import check_function, pipeline
from gspc_trio.workflow.patterns.stream import Builder, Stream, StreamStage
from gspc_trio.workflow.settings import TaskSettings, task_settings, whole_number


def keep(
    predicate: Callable[..., object],
    *,
    name: str | None = None,
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "results",
    in_flight: int = IN_FLIGHT_OF_STREAM,
    **settings: Unpack[TaskSettings],
) -> Net:
    """Return a net that lets those items go on for which a predicate is true; it is a stage, too.

    The predicate runs in tasks, one for each item, many at once. Items keep their order.

    Args:
        predicate: function of an item.
        name: of the net and its tasks; by default the predicate's.
        default: items to use if none are given when the net is started.
        input_port, output_port: names of the ports.
        in_flight: how many of its tasks may have begun and not ended.
        settings: what the tasks need and state.

    Raises:
        WorkflowError: the predicate cannot be called with one argument, or a setting makes no sense.
    """
    stage = FilterStage(predicate, True, name, in_flight, settings)
    return pipeline(stage, name=name, default=default, input_port=input_port, output_port=output_port)


def discard(
    predicate: Callable[..., object],
    *,
    name: str | None = None,
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "results",
    in_flight: int = IN_FLIGHT_OF_STREAM,
    **settings: Unpack[TaskSettings],
) -> Net:
    """Return a net that lets those items go on for which a predicate is false; the rest as :func:`keep`."""
    stage = FilterStage(predicate, False, name, in_flight, settings)
    return pipeline(stage, name=name, default=default, input_port=input_port, output_port=output_port)


class FilterStage(StreamStage):
    """A predicate that says which items go on.

    Args:
        predicate: of an item.
        wanted: what it has to say for an item to go on.
        name: of its tasks; None: that of the predicate.
        in_flight: how many of its tasks may have begun and not ended.
        settings: of its tasks.

    Raises:
        WorkflowError: it is no function that a task can call, or a setting makes no sense.
    """

    def __init__(
        self,
        predicate: Callable[..., object],
        wanted: bool,
        name: str | None,
        in_flight: int,
        settings: TaskSettings,
    ) -> None:
        check_function(predicate, 1, "an item")
        task_settings(settings)
        self.name: str = name or function_name(predicate)
        self.ahead: int = whole_number("in_flight", in_flight, 1)
        self._code = KeepItem(predicate, wanted)
        self._settings = settings

    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``."""
        assert target.room is not None
        slots = slots_of(build, name, source, self.ahead)
        build.net.transition(
            name,
            self._code,
            [source.items, Unpassed(target.room), *([] if slots is None else [Unpassed(slots)])],
            {
                "items": [each(target.items), *source.give_back_one(1, slots)],
                "room": each(target.room),
            },
            in_flight=self.ahead,
            ordered=build.options.ordered,
            **self._settings,
        )
        add_end(build, name, source, target, slots, self.ahead)
