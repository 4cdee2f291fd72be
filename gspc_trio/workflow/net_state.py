"""What a running net shows of itself: the values at its ports, its tasks, what keeps it from going on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from gspc_trio.core.ids import TaskId
from gspc_trio.core.net import NetStatus, PlaceKind, PlaceStatus, TransitionStatus
from gspc_trio.core.task import TaskState
from gspc_trio.workflow.marking import AnyPlace
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.ports import Ports
from gspc_trio.workflow.runtime import RunningNet, RunningTransition
from gspc_trio.workflow.search import Chance
from gspc_trio.workflow.state import Activity
from gspc_trio.workflow.tokens import Token, TokenCodec, Value


class NetState:
    """A net that runs, its tokens and its tasks under way.

    Attributes:
        net: the workflow.
        codec: makes bytes of values, and back.
        running: the places with their tokens, and the transitions.
        ports: what comes in and goes out while it runs.
        activities: tasks that are under way, failed or cancelled.
        last_task_id: the newest task.
    """

    def __init__(self, net: Net, codec: TokenCodec, chance: Chance | None = None) -> None:
        self.net = net
        self.codec = codec
        self.running = RunningNet(net, codec, chance)
        self.ports = Ports(self.running)
        self.activities: dict[TaskId, Activity] = {}
        self._counts = dict.fromkeys(
            (TaskState.READY, TaskState.SUBMITTED, TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED),
            0,
        )
        self.last_task_id = 0

    def outputs(self) -> dict[str, list[Value]]:
        """Return the values at each output port, in the order in which they came."""
        decode = self.codec.decode
        return {name: [decode(token) for token in self.running.places[name]] for name in self.net.outputs}

    def output_ports(self) -> Sequence[str]:
        """Return the names of the output ports."""
        return tuple(self.net.outputs)

    def output_tokens(self, port: str, seen: int) -> list[Token]:
        """Return the tokens at an output port but for the first ``seen``, oldest first."""
        place = self.running.places[port]
        newest = list(islice(reversed(place), max(0, len(place) - seen)))
        newest.reverse()
        return newest

    def value_of(self, token: Token) -> Value:
        """Return the value of a token."""
        return self.codec.decode(token)

    def counts(self) -> dict[TaskState, int]:
        """Return the number of tasks in each state; SUBMITTED are those extracted."""
        return dict(self._counts)

    def state(self, task_id: TaskId) -> TaskState:
        """Return the state of a task.

        Raises:
            KeyError: there never was such a task.
        """
        activity = self.activities.get(task_id)
        if activity is not None:
            return activity.state
        if 0 < task_id <= self.last_task_id:
            return TaskState.FINISHED
        raise KeyError(task_id)

    @property
    def is_stopped(self) -> bool:
        """Whether a termination transition has ended the workflow: nothing more is handed out."""
        return self.running.is_stopped

    def is_at_rest(self) -> bool:
        """Return whether no task is ready or extracted and nothing can fire; failed ones may remain.

        Raises:
            TransitionFailed: a condition raised.
        """
        if self._counts[TaskState.SUBMITTED] or self._counts[TaskState.READY]:
            return False
        return self.is_stopped or not self.running.can_fire()

    def describe(self) -> NetStatus:
        """Return the net and how far it is."""
        active: dict[str, dict[TaskState, int]] = {}
        for activity in self.activities.values():
            states = active.setdefault(activity.transition.description.name, {})
            states[activity.state] = states.get(activity.state, 0) + 1
        return describe_net(self.running, active)

    def explain_stuck(self) -> list[str]:
        """Return what keeps the workflow from going on, a line each; empty if it is finished or at work."""
        if self.is_stopped or not self.is_at_rest():
            return []
        if self.ports.waits and not self.activities:
            return []
        kept = []
        for task_id, activity in self.activities.items():
            name = activity.transition.description.name
            why = f": {activity.error.message}" if activity.error else ""
            kept.append(f"task {task_id} ({name}) was {activity.state} and keeps the tokens it took{why}")
        return kept + explain_stuck(self.running)

    def check(self) -> None:
        """Assert that queues, states and counts agree."""
        self.running.check()
        for state in (TaskState.READY, TaskState.SUBMITTED, TaskState.FAILED, TaskState.CANCELLED):
            there = sum(activity.state is state for activity in self.activities.values())
            assert self._counts[state] == there, f"{state}: {self._counts[state]} counted, {there} there"
        assert self._counts[TaskState.FINISHED] + len(self.activities) == self.last_task_id, "a task was lost"


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
    places = [PlaceStatus(name, _kind(place), len(place)) for name, place in net.places.items()]
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


def _kind(running: AnyPlace) -> PlaceKind:
    place = running.description
    if place.is_input:
        return PlaceKind.INPUT
    if place.is_output and not (place.may_keep and running.takers):  # it is one like others
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
