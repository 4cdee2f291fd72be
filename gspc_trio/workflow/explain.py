"""Explanations of a workflow that can go no further."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gspc_trio.core.net import NetStatus, PlaceKind, PlaceStatus, TransitionStatus
from gspc_trio.core.task import TaskState
from gspc_trio.workflow.arcs import Place
from gspc_trio.workflow.marking import AnyPlace
from gspc_trio.workflow.runtime import RunningNet, RunningTransition


def unfinished_places(net: RunningNet) -> list[AnyPlace]:
    """Return the places where tokens wait in vain, when no transition can fire any more.

    Tokens may be left at output ports, on places that may keep them, on places from which nobody takes, and
    on those whose every taker puts back what it takes (permits, counters).
    """
    return [place for place in net.places.values() if place.tokens and _wants_to_be_empty(net, place)]


def _wants_to_be_empty(net: RunningNet, place: AnyPlace) -> bool:
    description = place.description
    if description.is_output or description.may_keep or description.stops:
        return False
    return any(not _puts_back(transition, place) for transition in _takers(net, place))


def _takers(net: RunningNet, place: AnyPlace) -> Iterator[RunningTransition]:
    for transition in net.transitions.values():
        if any(bound.place is place and bound.arc.consumed for bound in transition.bounds):
            yield transition


def _puts_back(transition: RunningTransition, place: AnyPlace) -> bool:
    return any(target.place is place for target in transition.targets)


def explain_stuck(net: RunningNet) -> list[str]:
    """Return a line for each transition for which tokens wait and which still cannot fire."""
    lines: dict[str, None] = {}
    for place in unfinished_places(net):
        for transition in _takers(net, place):
            lines[_explain(transition)] = None
    return list(lines)


def describe_net(net: RunningNet, active: Mapping[str, Mapping[TaskState, int]]) -> NetStatus:
    """Return the net and how far it is.

    Args:
        net: the net.
        active: transition -> state -> number of its tasks that have not finished.
    """
    places = [PlaceStatus(name, _kind(place.description), len(place)) for name, place in net.places.items()]
    transitions = []
    for name, running in net.transitions.items():
        states = dict(active.get(name, {}))
        transitions.append(
            TransitionStatus(
                name,
                tuple(dict.fromkeys(arc.place for arc in running.description.inputs)),
                tuple(dict.fromkeys(arc.place for arc in running.description.output_arcs)),
                states,
                done=running.fired - sum(states.values()),
                fired=running.fired,
                inline=running.description.is_inline,
            )
        )
    return NetStatus(tuple(places), tuple(transitions))


def _kind(place: Place) -> PlaceKind:
    if place.is_input:
        return PlaceKind.INPUT
    if place.is_output:
        return PlaceKind.OUTPUT
    return PlaceKind.STOP if place.stops else PlaceKind.PLACE


def _explain(transition: RunningTransition) -> str:
    name = transition.description.name
    missing: list[str] = []
    present: list[str] = []
    for place, least in _needs(transition).values():
        there = len(place)
        text = f"{place.description.name!r} ({there} of {least})"
        (present if there >= least else missing).append(text)
    if not missing:
        there_are = ", ".join(present)
        return f"transition {name!r} has tokens on {there_are}, but its condition holds for none of them"
    has = f"; it has tokens on {', '.join(present)}" if present else ""
    return f"transition {name!r} lacks tokens on {', '.join(missing)}{has}"


def _needs(transition: RunningTransition) -> dict[str, tuple[AnyPlace, int]]:
    needs: dict[str, tuple[AnyPlace, int]] = {}
    for bound in transition.bounds:
        name = bound.arc.place
        least = needs[name][1] if name in needs else 0
        needs[name] = (bound.place, least + bound.arc.least)
    return needs
