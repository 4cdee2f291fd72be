"""The pattern ``farm``: one task for each item."""

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

COUNT_BATCH_MAX = 1024
"""Items that are numbered at once."""


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
        net.transition(name, code, one_input(run, items), results, in_flight=in_flight, **settings)
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


def _paired(run: Run) -> WithItem:
    if isinstance(run, Program | SourceFile) or not callable(run):
        raise WorkflowError("pairs=True is for functions: a program or source file returns its item itself")
    return WithItem(run)


def one_input(run: Run, place: Place) -> Sources:
    """Return the input of what gets one item: by name for programs, which know arguments only so."""
    return {"item": place} if isinstance(run, Program) else [place]


def _number_items(items: Batch, count: int) -> dict[str, object]:
    return {"count": count + len(items), "numbers": range(count, count + len(items))}


def _following(next: int) -> int:
    return next + 1
