"""What tasks of a transition need, as a file of PNML keeps it: an element that only gspc-trio understands."""

from __future__ import annotations

import json

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskOptions
from gspc_trio.protocol.plain import BadPlainData, from_json, to_plain
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.formats.pnml.model import PnmlNode
from gspc_trio.workflow.formats.xml_tree import Element
from gspc_trio.workflow.net import Transition
from gspc_trio.workflow.settings import checked_needs, whole_number

NAMESPACE = "http://www.pnml.org/version-2009/grammar/pnml"

TOOL = "gspc-trio"
"""Name in the toolspecific elements that are ours."""


class TaskNeeds(Struct, frozen=True):
    """What the tasks of a transition need.

    Attributes:
        shape: their resources.
        options: their retries, time-outs, priority.
        in_flight: how many may have begun and not ended; None for any number.
    """

    shape: Shape = CORE
    options: TaskOptions = DEFAULT_OPTIONS
    in_flight: int | None = None

    def given_to(self, transition: Transition) -> Transition:
        """Return a transition whose tasks need this.

        Raises:
            WorkflowError: something in it makes no sense.
        """
        shape, options = checked_needs(self.shape, self.options)
        in_flight = None if self.in_flight is None else whole_number("in_flight", self.in_flight, 1)
        return replace(
            transition, shape=shape, options=options, in_flight=in_flight, priority=options.priority
        )


def is_ours(element: Element) -> bool:
    """Return whether an element says something that only gspc-trio understands."""
    return element.tag == "toolspecific" and element.attributes.get("tool") == TOOL


def element_of(needs: TaskNeeds) -> Element:
    """Return the element that keeps the needs of tasks, but for what is so by default."""
    said = _different(to_plain(needs), to_plain(TaskNeeds()))
    task = Element("task", NAMESPACE, text=json.dumps(said) if said else "")
    return Element("toolspecific", NAMESPACE, {"tool": TOOL, "version": "1"}, children=[task])


def _different(plain: object, default: object) -> object:
    """Return what differs from a default; of maps only the names whose values do."""
    if not (isinstance(plain, dict) and isinstance(default, dict)):
        return plain
    return {name: _different(value, default[name]) for name, value in plain.items() if value != default[name]}


def needs_of(node: PnmlNode) -> TaskNeeds | None:
    """Return what the tasks of a transition need; None if the file does not say that it has some.

    Raises:
        WorkflowError: it is badly written.
    """
    for element in node.kept:
        task = element.child("task") if is_ours(element) else None
        if task is not None:
            try:
                return from_json(task.text or "{}", TaskNeeds)
            except BadPlainData as error:
                raise WorkflowError(f"what its tasks need is badly written: {error}") from None
    return None
