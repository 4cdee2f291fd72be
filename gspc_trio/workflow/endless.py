"""Endless loops: inline transitions that fire on and on while nothing else happens."""

from __future__ import annotations

from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.runtime import RunningNet, RunningTransition, TransitionFailed
from gspc_trio.workflow.structure import could_fire_for_ever

ADVICE = (
    "make its condition become false, or let a task do the work; "
    "to allow more firings, use Net({!r}, inline_firings_max=...)"
)
"""What the author of a net can do."""


class EndlessLoop(TransitionFailed):
    """Inline transitions have fired very often, and nothing else happens."""

    def __init__(self, names: list[str], number: int, net: Net) -> None:
        first, *others = names
        also = f" (with {', '.join(map(repr, others))})" if others else ""
        WorkflowError.__init__(
            self,
            f"transition {first!r}{also} has fired inline {number:,} times without a task in between, and "
            f"would never stop: {net.endless_advice or ADVICE.format(net.name)}",
        )


class Endless:
    """Counts firings of those inline transitions that nothing but their conditions can stop.

    Others are not counted: they use up tokens, of which there are only so many. The count begins anew with
    each task that is handed out, each result, and each token that comes from outside.

    Args:
        net: the workflow; its ``inline_firings_max`` is what is allowed.
        running: the same, running.
    """

    def __init__(self, net: Net, running: RunningNet) -> None:
        self._net = net
        self._suspects = {name: running.transitions[name] for name in sorted(could_fire_for_ever(net))}
        for suspect in self._suspects.values():
            suspect.is_suspect = True
        self._fired = 0
        self._half_way: dict[str, int] = {}

    def reset(self) -> None:
        """Something else has happened."""
        self._fired = 0

    def note(self, transition: RunningTransition) -> None:
        """One of the inline transitions that are counted is about to fire.

        Raises:
            EndlessLoop: it, or another one, has fired too often.
        """
        self._fired += 1
        most = self._net.inline_firings_max
        if self._fired == most // 2:
            self._half_way = {name: suspect.fired for name, suspect in self._suspects.items()}
        elif self._fired > most:
            often = {name: one.fired - self._half_way.get(name, 0) for name, one in self._suspects.items()}
            names = sorted((name for name in often if often[name]), key=lambda name: -often[name])
            raise EndlessLoop(names or [transition.description.name], most, self._net)
