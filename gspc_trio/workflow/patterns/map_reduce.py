"""The pattern ``map_reduce``: items are mapped, and the results reduced to one."""

from __future__ import annotations

from collections.abc import Iterable

from gspc_trio.workflow.arcs import WorkflowError, each, forward, take
from gspc_trio.workflow.calls import Run
from gspc_trio.workflow.flight import IN_FLIGHT
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import one_input
from gspc_trio.workflow.settings import TaskSettings
from gspc_trio.workflow.tokens import Batch

FAN_IN = 16
"""How many values one reduce task combines, unless told otherwise."""

COUNT_BATCH_MAX = 1024
"""Items that are counted at once."""

_STEER = 1  # counting comes before what depends on the count
_LAST = -1


def map_reduce(
    map: Run,
    reduce: Run,
    *,
    initial: object = None,
    fan_in: int = FAN_IN,
    name: str = "map_reduce",
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "result",
    in_flight: int = IN_FLIGHT,
    map_settings: TaskSettings | None = None,
    reduce_settings: TaskSettings | None = None,
) -> Net:
    """Return a net that maps each item at its input port and reduces the results to one, at its output port.

    Results are reduced as they come, in a tree: ``reduce`` has to be associative and commutative. A lone
    result is not reduced. The items all have to be there when the net is started.

    Args:
        map: function of one item, or a Program that uses ``{item}``, or a SourceFile.
        reduce: function of a list of 2 to ``fan_in`` results of ``map`` or ``reduce``, which returns one of
            the kind.
        initial: the result if there are no items.
        fan_in: how many results one reduce task combines at most.
        name: of the net.
        default: items to use if none are given when the net is started.
        input_port, output_port: names of the ports.
        in_flight: how many map tasks may have begun and not ended.
        map_settings: what the map tasks need and state.
        reduce_settings: what the reduce tasks need and state.

    Raises:
        WorkflowError: ``map`` or ``reduce`` cannot be called so, ``fan_in`` is less than 2, or a setting
            makes no sense.
    """
    if fan_in < 2:
        raise WorkflowError(f"map_reduce needs a fan_in of at least 2, not {fan_in}")
    net = Net(name)
    items, result = net.input(input_port, default), net.output(output_port)
    counted, parts = net.place("counted"), net.place("parts")
    left = net.place("left", [0])  # one token: how many results are there or still to come
    net.transition(
        "count",
        _add_number,
        {"items": take(items, most=COUNT_BATCH_MAX), "left": left},
        [left, forward("items", each(counted))],
        priority=_STEER,
        inline=True,
    )
    net.transition("map", map, one_input(map, counted), parts, in_flight=in_flight, **(map_settings or {}))
    _add_reduction(net, reduce, fan_in, reduce_settings or {})
    net.transition(
        "finish",
        None,
        {"part": parts, "left": left},
        forward("part", result),
        condition=lambda left: left == 1,
    )
    net.transition(
        "finish without items",
        lambda: initial,
        {"_left": left},
        result,
        condition=lambda _left: _left == 0,
        priority=_LAST,
        inline=True,
    )
    return net


def _add_reduction(net: Net, reduce: Run, fan_in: int, settings: TaskSettings) -> None:
    """Gather parts as they come, and put back one part for each batch of them."""
    parts, left, batches = net.places["parts"], net.places["left"], net.place("batches")
    net.transition(
        "gather",
        _number_after_reduce,
        {"parts": take(parts, least=2, most=fan_in), "left": left},
        [left, forward("parts", batches)],
        condition=_Gather(fan_in),
        inline=True,
    )
    net.transition("reduce", reduce, [batches], parts, **settings)


def _add_number(items: Batch, left: int) -> int:
    return left + len(items)


def _number_after_reduce(parts: Batch, left: int) -> int:
    return left - len(parts) + 1


class _Gather:
    """Reduce a full batch, or the last results when no more are to come."""

    def __init__(self, fan_in: int) -> None:
        self._fan_in = fan_in

    def __call__(self, parts: Batch, left: int) -> bool:
        return len(parts) == self._fan_in or len(parts) == left
