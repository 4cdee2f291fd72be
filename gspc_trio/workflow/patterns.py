"""Patterns: plain functions that build a net with an input port and an output port (ASP-2)."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Unpack

from gspc_trio.core.code import Program, SourceFile, WithItem
from gspc_trio.workflow.arcs import Forward, Place, Sources, Unpassed, WorkflowError, each, forward, take
from gspc_trio.workflow.calls import Run, function_name
from gspc_trio.workflow.flight import IN_FLIGHT
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.settings import TaskSettings
from gspc_trio.workflow.tokens import Batch

FAN_IN = 16
"""How many values one reduce task combines, unless told otherwise."""

COUNT_BATCH_MAX = 1024
"""Items that ``map_reduce`` counts at once."""

_STEER = 1  # counting comes before what depends on the count
_LAST = -1


def farm(
    run: Run,
    *,
    name: str | None = None,
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "results",
    pairs: bool = False,
    ordered: bool = False,
    in_flight: int = IN_FLIGHT,
    **settings: Unpack[TaskSettings],
) -> Net:
    """Return a net that runs one task for each item at its input port; the results come to its output port.

    Args:
        run: a function of one argument, a Program that uses ``{item}``, or a SourceFile.
        name: of the net and its tasks; by default the function's.
        default: items to use if none are given when the net is started.
        input_port, output_port: names of the ports.
        pairs: each result comes with its item, as (item, result): results come as tasks end, in any order.
        ordered: results come in the order of the items: each as soon as those before it are there. Tasks run
            in any order all the same. Behind an item whose task fails there are no results.
        in_flight: how many iterations may be in flight. An iteration is in flight from when its task is made
            until it has ended, and with it all nested tasks that it has started.
        settings: what the tasks need and state.

    Raises:
        WorkflowError: ``run`` cannot be called with one argument, or a setting makes no sense.
    """
    name = name or function_name(run)
    net = Net(name)
    items, results = net.input(input_port, default), net.output(output_port)
    code = _paired(run) if pairs else run
    if ordered:
        _add_ordered(net, name, code, items, results, in_flight, settings)
    else:
        net.transition(name, code, _one_input(run, items), results, in_flight=in_flight, **settings)
    return net


def _add_ordered(
    net: Net, name: str, run: Run, items: Place, results: Place, in_flight: int, settings: TaskSettings
) -> None:
    """Number the items, and let the results go on in the order of their numbers; none of them is opened."""
    numbered, numbers, count = net.place("(numbered)"), net.place("(numbers)"), net.place("(count)", [0])
    ended, made, next_one = net.place("(ended)"), net.place("(made)"), net.place("(next)", [0])
    net.transition(
        "(number)",
        _number_items,
        {"items": take(items, most=COUNT_BATCH_MAX), "count": count},
        {"count": count, "numbers": each(numbers), "items": forward("items", each(numbered))},
        inline=True,
    )
    inputs: Sources = [numbered, Unpassed(numbers)]
    if isinstance(run, Program):
        inputs = {"item": numbered, "_number": numbers}
    number = "_number" if isinstance(run, Program) else 1
    # A number and its result come to one place together, so that they are taken from it together.
    net.transition(name, run, inputs, [forward(number, ended), ended], in_flight=in_flight, **settings)
    net.transition("(pair)", None, {"pair": take(ended, 2)}, forward("pair", made))
    net.transition(
        "(order)",
        _following,
        {"next": next_one, "_pair": made},
        [next_one, Forward("_pair", results, part=1)],
        match={"next": operator.index, "_pair": operator.itemgetter(0)},
        inline=True,
    )


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
    net.transition("map", map, _one_input(map, counted), parts, in_flight=in_flight, **(map_settings or {}))
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


def _paired(run: Run) -> WithItem:
    if isinstance(run, Program | SourceFile) or not callable(run):
        raise WorkflowError("pairs=True is for functions: a program or source file returns its item itself")
    return WithItem(run)


def _one_input(run: Run, place: Place) -> Sources:
    """Return the input of what gets one item: by name for programs, which know arguments only so."""
    return {"item": place} if isinstance(run, Program) else [place]


def _number_items(items: Batch, count: int) -> dict[str, object]:
    return {"count": count + len(items), "numbers": range(count, count + len(items))}


def _following(next: int) -> int:
    return next + 1


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
