"""Nets of gspc-trio as PNML: their places, transitions and arcs, and what PNML cannot say of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gspc_trio.core.staging import Named
from gspc_trio.workflow.arcs import InputArc, OutputArc, Place
from gspc_trio.workflow.formats.pnml.model import PnmlArc, PnmlNet, PnmlNode, PnmlPage
from gspc_trio.workflow.formats.pnml.tasks import TaskNeeds, element_of
from gspc_trio.workflow.net import Net, Transition

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Maker:
    def __init__(self, net: Net, groups: Mapping[tuple[str, str], tuple[str, ...]]) -> None:
        self.net, self.groups = net, groups
        self.lost: list[str] = []
        self._ids: set[str] = set()
        self._pages: dict[tuple[str, ...], str] = {(): ""}
        self.made = PnmlNet(self._id(net.name or "net"))
        self.made.name = self._name("the net", net.name, self.made.id)
        self._places = {place.name: self._place(place) for place in net.places.values()}

    def make(self) -> PnmlNet:
        for transition in self.net.transitions.values():
            self._transition(transition)
        return self.made

    def _id(self, wanted: str) -> str:
        base = _NOT_IN_IDS.sub("_", wanted) or "n"
        if not (base[0].isalpha() or base[0] == "_"):
            base = f"_{base}"
        name, number = base, 1
        while name in self._ids:
            number += 1
            name = f"{base}-{number}"
        self._ids.add(name)
        return name

    def _name(self, what: str, name: str, node_id: str) -> str:
        text = " ".join(_NOT_IN_XML.sub("?", name).split())
        if text != name:
            self.lost.append(f"{what}: the name {name!r} is written as {text!r}")
        return "" if text == node_id else text

    def _page(self, group: tuple[str, ...]) -> str:
        if group not in self._pages:
            parent = self._page(group[:-1])
            page = PnmlPage(self._id(group[-1]), parent=parent)
            page.name = self._name("a page", group[-1], page.id)
            self._pages[group] = page.id
            self.made.pages[page.id] = page
        return self._pages[group]

    def _place(self, place: Place) -> str:
        what = f"place {place.name!r}"
        node = PnmlNode(self._id(place.name), page=self._page(self.groups.get(("place", place.name), ())))
        node.name = self._name(what, place.name, node.id)
        node.tokens = len(place.initial)
        values = place.initial[:1] if isinstance(place.initial, range) else place.initial
        if any(value is not None for value in values):
            named = any(type(value) is Named for value in values)
            lost = "published data" if named else "the values of its tokens"
            self.lost.append(f"{what}: {lost}")
        if place.counts or place.successor is not None:
            self.lost.append(
                f"{what}: that its token is {'counted' if place.counts else 'made'} by the engine"
            )
        if place.stops or place.is_final:
            self.lost.append(f"{what}: that a token there ends the workflow")
        elif place.is_input != place.is_output and not place.may_keep:  # others: places of PNML themselves
            self.lost.append(f"{what}: that it is an {'input' if place.is_input else 'output'} port")
        self.made.places[node.id] = node
        return node.id

    def _transition(self, transition: Transition) -> None:
        what = f"transition {transition.name!r}"
        page = self._page(self.groups.get(("transition", transition.name), ()))
        node = PnmlNode(self._id(transition.name), page=page)
        node.name = self._name(what, transition.name, node.id)
        if not transition.is_inline and transition.subnet is None:
            needs = TaskNeeds(transition.shape, transition.options, transition.in_flight)
            node.kept.append(element_of(needs))
        self.lost += [f"{what}: {lost}" for lost in _lost(transition)]
        self.made.transitions[node.id] = node
        taken: dict[str, int] = {}
        put: dict[str, int] = {}
        for taken_by in transition.inputs:
            place = self._places[taken_by.place]
            taken[place] = taken.get(place, 0) + taken_by.least
            if not taken_by.consumed:
                put[place] = put.get(place, 0) + taken_by.least
        for arc in transition.output_arcs:
            place = self._places[arc.place]
            put[place] = put.get(place, 0) + arc.copies * _tokens(arc, transition)
        for place, weight in taken.items():
            self._arc(place, node.id, weight)
        for place, weight in put.items():
            self._arc(node.id, place, weight)

    def _arc(self, source: str, target: str, weight: int) -> None:
        self.made.arcs.append(PnmlArc(self._id(f"{source}-to-{target}"), source, target, weight))


def _tokens(arc: OutputArc, transition: Transition) -> int:
    """Return how many tokens a forwarded batch is, if it falls apart; else there is one."""
    return transition.inputs[arc.forwarded].least if arc.each and arc.forwarded >= 0 else 1


def _lost(transition: Transition) -> list[str]:
    lost = []
    if transition.is_inline and transition.run is not None:
        lost.append("the function that the engine calls")
    elif transition.subnet is not None:
        lost.append("the net of its activities")
    elif not transition.is_inline:
        lost.append("what its tasks run: give functions by --tasks")
    if transition.condition is not None:
        lost.append("its condition")
    if transition.keys:
        lost.append("the keys by which tokens belong together")
    if transition.priority and transition.is_inline:
        lost.append(f"its priority ({transition.priority})")
    if transition.stage is not None:
        lost.append("the files and ranges of its tasks")
    if transition.group is not None or transition.ends_groups >= 0:
        lost.append("the groups of tasks that end together")
    if transition.ordered:
        lost.append("that its results keep their order")
    lost += [text for arc in transition.inputs if (text := _lost_of_arc(arc))]
    if any(each for _, each in transition.outputs):
        lost.append("that a task decides how many tokens it puts: one is written")
    return lost


def _lost_of_arc(arc: InputArc) -> str:
    if not arc.consumed:
        return f"that it only reads from {arc.place!r}: it takes the token and puts one back"
    if arc.like:
        return f"that it takes as many tokens from {arc.place!r} as another input: {arc.least} is written"
    if arc.least != arc.most:
        return f"that it takes up to {arc.most} tokens from {arc.place!r}: {arc.least} is written"
    return ""


def pnml_of(net: Net, groups: Mapping[tuple[str, str], tuple[str, ...]]) -> tuple[PnmlNet, list[str]]:
    """Return a net as PNML has it, and what PNML cannot say of it, a line each.

    Args:
        net: what is to be written.
        groups: ("place" or "transition", name) -> names of the subnets around it.
    """
    maker = _Maker(net, groups)
    return maker.make(), maker.lost
