"""Transformations: functions net -> net that a job server applies to a workflow (GSPC19 4.3.1, step 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gspc_trio.workflow.arcs import forward
from gspc_trio.workflow.net import Net

Transformation: TypeAlias = Callable[[Net], Net]
"""Takes a net and returns that net, or a changed copy."""

TERMINATED = "(terminated)"
"""Place whose token ends a workflow."""

RUNNING = "(running)"
"""Place whose token a termination transition takes, so that a workflow is ended once."""


def terminate(net: Net) -> Net:
    """Return a net with a termination transition for each of its final output ports.

    A termination transition fires before all others, as soon as a token is at its port, and puts one onto
    the place ``(terminated)``: from then on the engine hands out no task. What runs may still end and is
    taken in. A net without final output ports is returned as it is; it ends when nothing is left to do.
    """
    finals = [place for place in net.places.values() if place.is_final]
    if not finals or TERMINATED in net.places:
        return net
    ending = net.copy()
    running = ending.place(RUNNING, [None], may_keep=True)
    terminated = ending.place(TERMINATED, stops=True)
    priority = 1 + max((transition.priority for transition in net.transitions.values()), default=0)
    for port in finals:
        ending.transition(
            f"(terminate at {port.name})",
            None,
            {"_running": running},
            forward("_running", terminated),
            reads={"_result": port},
            priority=priority,
        )
    return ending
