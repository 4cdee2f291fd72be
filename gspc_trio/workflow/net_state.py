"""What a running net shows of itself: the values at its ports, its tasks, what keeps it from going on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from gspc_trio.core.ids import TaskId
from gspc_trio.core.net import NetStatus, PlaceKind, PlaceStatus, TransitionStatus
from gspc_trio.core.task import TaskState
from gspc_trio.workflow.calls import TransitionFailed
from gspc_trio.workflow.flow import Flow, fire_noting, note_result, parents_of
from gspc_trio.workflow.marking import AnyPlace, StockedPlace
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.ports import Ports
from gspc_trio.workflow.runtime import RunningNet, RunningTransition
from gspc_trio.workflow.search import Binding, Chance
from gspc_trio.workflow.state import Activity
from gspc_trio.workflow.structure import Endless, NetPlan
from gspc_trio.workflow.tokens import Token, TokenCodec, Value


class InRanges(Protocol):
    """What takes tokens in ranges: its items count as tasks that were extracted."""

    def number(self, state: TaskState) -> int:
        """Return how many items that are no tasks are in a state."""
        ...

    def numbers(self) -> Mapping[str, Mapping[TaskState, int]]:
        """Return transition -> state -> number of such items."""
        ...

    def find(self, task_id: TaskId) -> object | None:
        """Return which item of a range this task would be; None: it is none."""
        ...

    def marked(self) -> list[str]:
        """Return the transitions that could take tokens."""
        ...

    def dump(self) -> list[list[Value]]:
        """Return the items that are taken as plain data, as if they were tasks."""
        ...


class NetState:
    """A net that runs, its tokens and its tasks under way.

    Attributes:
        net: the workflow.
        codec: makes bytes of values, and back.
        running: the places with their tokens, and the transitions.
        ports: what comes in and goes out while it runs.
        activities: tasks that are under way, failed or cancelled.
        last_task_id: the newest task.
        others: so many tasks before it are not of this net itself, but of activities, or of a net around it.
        plan: what is known of the net.
        notes_flow: whether it is noted which tasks have made each token (:meth:`note_flow`).
        ranges: takes tokens in ranges; None: each has a task.
    """

    def __init__(self, plan: NetPlan, codec: TokenCodec, chance: Chance | None = None) -> None:
        self.plan = plan
        self.net: Net = plan.net
        self.codec = codec
        self.running: RunningNet = RunningNet(plan.net, codec, chance)
        self.notes_flow: bool = False
        self.ports: Ports = Ports(self.running)
        self.activities: dict[TaskId, Activity] = {}
        self._counts = dict.fromkeys(
            (TaskState.READY, TaskState.SUBMITTED, TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED),
            0,
        )
        self.last_task_id: TaskId = 0
        self.others: int = 0
        self.ranges: InRanges | None = None
        self._arguments = plan.arguments

    def outputs(self) -> dict[str, list[Value]]:
        """Return the values at each output port, in the order in which they came."""
        decode = self.codec.decode
        places = self.running.places
        return {
            name: place.values(self.codec) if isinstance(place, StockedPlace) else list(map(decode, place))
            for name in self.net.outputs
            for place in (places[name],)
        }

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
        if self.ranges is not None and self.ranges.find(task_id) is not None:
            return TaskState.SUBMITTED
        if 0 < task_id <= self.last_task_id:
            return TaskState.FINISHED
        raise KeyError(task_id)

    @property
    def has_failed(self) -> bool:
        """Whether tasks have failed or were cancelled, and keep the tokens they took."""
        return bool(self._counts[TaskState.FAILED] or self._counts[TaskState.CANCELLED])

    def name_of(self, task_id: TaskId) -> str:
        """Return the transition of a task under way, "" of any other."""
        activity = self.activities.get(task_id)
        return "" if activity is None else activity.transition.description.name

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

    def note_flow(self) -> None:
        """Note of each token from now on which tasks have made it, for :meth:`flow`."""
        self.notes_flow = True
        for transition in self.running.transitions.values():
            transition.on_result = partial(note_result, transition)

    def flow(self, task_id: TaskId) -> Flow:
        """Return what a task under way takes, and from which others if that is noted."""
        activity = self.activities[task_id]
        binding, stage = activity.binding, activity.transition.description.stage
        parents = parents_of(activity.transition, binding)
        if stage is None:
            return Flow(parents)
        values = {name: self.codec.decode(binding[arc]) for name, arc in stage.names}
        return Flow(parents, *stage.paths(values))

    def given(self, task_id: TaskId) -> tuple[str, list[bytes]]:
        """Return the transition of a task under way, and its arguments but for what its files need."""
        activity = self.activities[task_id]
        name, encode, binding = activity.transition.description.name, self.codec.encode, activity.binding
        return name, [encode(binding[index]) for index in self._arguments[name]]

    def describe(self) -> NetStatus:
        """Return the net and how far it is."""
        active: dict[str, dict[TaskState, int]] = {}
        for activity in self.activities.values():
            states = active.setdefault(activity.transition.description.name, {})
            states[activity.state] = states.get(activity.state, 0) + 1
        for name, numbers in self.ranges.numbers().items() if self.ranges is not None else ():
            states = active.setdefault(name, {})
            for state, number in numbers.items():
                states[state] = states.get(state, 0) + number
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
            what = "activity" if activity.transition.description.subnet is not None else "task"
            kept.append(f"{what} {task_id} ({name}) was {activity.state} and keeps the tokens it took{why}")
        return kept + explain_stuck(self.running)

    def check(self) -> None:
        """Assert that queues, states and counts agree."""
        self.running.check()
        for state in (TaskState.READY, TaskState.SUBMITTED, TaskState.FAILED, TaskState.CANCELLED):
            there = sum(activity.state is state for activity in self.activities.values())
            if self.ranges is not None:
                there += self.ranges.number(state)
            assert self._counts[state] == there, f"{state}: {self._counts[state]} counted, {there} there"
        there = sum(self._counts.values()) + self.others
        assert there == self.last_task_id, "a task was lost"


class FiringNet(NetState):
    """A net that runs, and whose inline transitions fire.

    Attributes:
        inline_fired: how often inline transitions have fired since this object was made.
        keeps_going: whether it goes on when a firing has failed; see :meth:`keep_going`.
        failures: firings and activities that have failed since somebody has emptied this list, a text each.
        aside: firings that have failed, and the tokens that they took.
    """

    def __init__(self, plan: NetPlan, codec: TokenCodec, chance: Chance | None = None) -> None:
        super().__init__(plan, codec, chance)
        self.inline_fired: int = 0
        self.keeps_going: bool = False
        self.failures: list[str] = []
        self.aside: list[tuple[RunningTransition, Binding]] = []
        self._endless = Endless(plan.net, self.running, plan.suspects)

    def change_counts(self, old: TaskState | None, new: TaskState, number: int) -> None:
        """Count so many items of ranges in another state; None: they are new."""
        self._endless.reset()
        if old is not None:
            self._counts[old] -= number
        self._counts[new] += number

    def _fire(self, transition: RunningTransition, binding: Binding) -> None:
        """Fire an inline transition."""
        if transition.is_suspect:
            self._endless.note(transition)
        try:
            if self.notes_flow:
                fire_noting(transition, binding)
            else:
                transition.fire(binding)
        except TransitionFailed as error:
            self._set_aside(transition, binding, error)
            return
        self.inline_fired += 1
        if self.running.references is not None:
            self._settle(transition)

    def _set_aside(self, transition: RunningTransition, binding: Binding, error: TransitionFailed) -> None:
        """A firing has failed: keep its tokens, so that the others go on.

        Raises:
            TransitionFailed: the engine does not keep going.
        """
        if not self.keeps_going:
            raise error
        transition.take(binding)
        if self.running.references is not None:
            self._settle(transition, held=binding)
        self.aside.append((transition, binding))
        self.failures.append(str(error))
        self.inline_fired += 1

    def _put_back(self) -> None:
        """Put the tokens of failed firings back onto their places: they are tried again."""
        aside, self.aside = self.aside, []
        for transition, binding in aside:
            transition.release(binding)
            for token, bound in zip(binding, transition.bounds, strict=True):
                if bound.arc.consumed:
                    bound.place.put(token.copy())
            if self.running.references is not None:
                self._settle(transition, was_held=binding)

    def keep_going(self, keeps_going: bool = True) -> None:
        """Say whether a firing that fails keeps its tokens, and others go on; see ``failures``.

        A combination of tokens whose condition cannot be evaluated counts as one for which it does not hold.
        """
        self.keeps_going = keeps_going
        for transition in self.running.transitions.values():
            transition.on_failure = self._note if keeps_going else None

    def _note(self, error: TransitionFailed) -> None:
        self.failures.append(str(error))

    def _settle(
        self, transition: RunningTransition, held: Sequence[Token] = (), was_held: Sequence[Token] = ()
    ) -> None:
        """Count what a task takes, or has taken; put what was counted and is gone onto its places.

        Raises:
            TransitionFailed: what is gone does not fit there.
        """
        references = self.running.references
        assert references is not None
        for binding, change in ((held, references.arrived), (was_held, references.left)):
            for token, bound in zip(binding, transition.bounds, strict=False):
                if bound.arc.consumed:
                    change(0, token)
        while True:
            try:
                return references.settle()
            except Exception as error:
                failed = TransitionFailed(transition.description.name, "a value that is counted", error)
                if not self.keeps_going:
                    raise failed from error
                self.failures.append(str(failed))


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
