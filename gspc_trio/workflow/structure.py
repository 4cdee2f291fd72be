"""What is known of a net before it runs: distances to the end, what follows what, what may go on for ever."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from gspc_trio.core.code import CodeEntry
from gspc_trio.core.task import TaskVariants
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.calls import TransitionFailed, runs_of
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.runtime import RunningNet, RunningTransition
from gspc_trio.workflow.settings import numbered

ADVICE = (
    "make its condition become false, or let a task do the work; "
    "to allow more firings, use Net({!r}, inline_firings_max=...)"
)
"""What the author of a net can do."""

Graph = Mapping[str, Iterable[str]]
"""Transition -> those that take or read what it puts somewhere."""


def distances(net: Net) -> dict[str, int]:
    """Return a number for each transition: the less, the nearer to the end of the workflow are its tokens.

    What counts is the longest way to the end, all transitions of a cycle being one; of the same distance,
    those farther from the beginning count as nearer to the end. So a result is used up before the next one is
    made, also where both are in one cycle.
    """
    following = _following(net)
    to_end = _longest_ways(following)
    from_start = _steps_from_start(net)
    places = {name: (to_end[name], -from_start.get(name, 0)) for name in net.transitions}
    order = {place: number for number, place in enumerate(sorted(set(places.values())))}
    return {name: order[place] for name, place in places.items()}


def followers(net: Net, names: Iterable[str]) -> set[str]:
    """Return the transitions that may yet fire when nothing but tasks of these is under way."""
    following = _following(net)
    users = _users(net)
    found: set[str] = set()
    pending = [one for name in names for one in following[name]]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += following[name]
            for arc in net.transitions[name].inputs:  # a place that always has a token gets the next one
                if net.places[arc.place].successor is not None:
                    pending += users[arc.place]
    return found


def could_fire_for_ever(net: Net) -> frozenset[str]:
    """Return the inline transitions that could fire without end while no task ends.

    One that takes from a place which none of them fills stops when that place is empty; so do those that live
    on what it makes. What remains lives on its own tokens: only conditions can stop it.
    """
    left = {name: transition for name, transition in net.transitions.items() if transition.is_inline}
    takers: dict[str, list[str]] = {}
    for name, transition in left.items():
        for arc in transition.inputs:
            if arc.consumed:
                takers.setdefault(arc.place, []).append(name)
    fillers = Counter(arc.place for transition in left.values() for arc in transition.output_arcs)
    empty = [name for name in takers if not fillers[name] and net.places[name].successor is None]
    while empty:
        for name in takers[empty.pop()]:
            ending = left.pop(name, None)
            for made in () if ending is None else ending.output_arcs:
                fillers[made.place] -= 1
                is_empty = not fillers[made.place] and net.places[made.place].successor is None
                if is_empty and made.place in takers:
                    empty.append(made.place)
    return frozenset(left)


def _users(net: Net) -> dict[str, list[str]]:
    users: dict[str, list[str]] = {}
    for transition in net.transitions.values():
        for place in dict.fromkeys(arc.place for arc in transition.inputs):
            users.setdefault(place, []).append(transition.name)
    return users


def _following(net: Net) -> dict[str, list[str]]:
    users = _users(net)
    return {
        transition.name: [user for arc in transition.output_arcs for user in users.get(arc.place, ())]
        for transition in net.transitions.values()
    }


def _longest_ways(following: Graph) -> dict[str, int]:
    """Return the number of steps of the longest way that begins at each node; a cycle is one step."""
    preceding: dict[str, list[str]] = {name: [] for name in following}
    for name, others in following.items():
        for other in others:
            preceding[other].append(name)
    steps: dict[str, int] = {}
    for first in reversed(_by_end(preceding)):  # a node comes after all that follow it, but for its cycle
        if first in steps:
            continue
        cycle, stack = {first}, [first]
        while stack:
            for other in following[stack.pop()]:
                if other not in steps and other not in cycle:
                    cycle.add(other)
                    stack.append(other)
        behind = [steps[other] for name in cycle for other in following[name] if other in steps]
        steps.update(dict.fromkeys(cycle, 1 + max(behind, default=-1)))
    return steps


def _by_end(graph: Graph) -> list[str]:
    """Return all nodes in the order in which a search in depth has done with them."""
    done: dict[str, None] = {}
    seen: set[str] = set()
    for root in graph:
        stack = [] if root in seen else [(root, iter(graph[root]))]
        seen.add(root)
        while stack:
            name, others = stack[-1]
            for other in others:
                if other not in seen:
                    seen.add(other)
                    stack.append((other, iter(graph[other])))
                    break
            else:
                done[name] = None
                stack.pop()
    return list(done)


def _steps_from_start(net: Net) -> dict[str, int]:
    """Return after how many steps each transition can fire for the first time, if it can."""
    users: dict[str, list[str]] = {}
    missing: dict[str, int] = {}
    for transition in net.transitions.values():
        needed = dict.fromkeys(arc.place for arc in transition.inputs)
        missing[transition.name] = len(needed)
        for place in needed:
            users.setdefault(place, []).append(transition.name)
    filled = {
        place.name: 0 for place in net.places.values() if place.initial or place.is_input or place.counts
    }
    queue = deque(filled)
    steps: dict[str, int] = {}
    while queue:
        place = queue.popleft()
        for user in users.get(place, ()):
            missing[user] -= 1
            if missing[user]:
                continue
            steps[user] = filled[place]  # the last one that it needs
            for arc in net.transitions[user].output_arcs:
                if arc.place not in filled:
                    filled[arc.place] = steps[user] + 1
                    queue.append(arc.place)
    return steps


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
        names: of its transitions that :func:`could_fire_for_ever`.
    """

    def __init__(self, net: Net, running: RunningNet, names: Iterable[str]) -> None:
        self._net = net
        self._suspects = {name: running.transitions[name] for name in sorted(names)}
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


class NetPlan:
    """What is known of a net before it runs; all engines of one net share it.

    Args:
        net: the net.

    Raises:
        WorkflowError: it makes no sense.

    Attributes:
        net: see above.
        code_table: code of its tasks, and behind it that of the nets of its activities.
        code_ids: transition that makes tasks -> number of their code, the first one of several.
        variants: transition whose tasks have several -> those, with the numbers of their code.
        inside: transition whose firings are activities -> number of their first code, plan of their net.
        distances: transition -> how near its tasks are to the end; see :func:`distances`.
        levels: distances are below this number.
        arguments: transition -> the input arcs whose tokens its code gets.
        suspects: inline transitions that :func:`could_fire_for_ever`.
    """

    def __init__(self, net: Net) -> None:
        net.check()
        self.net = net
        self.code_table: list[CodeEntry] = []
        self.code_ids: dict[str, int] = {}
        self.variants: dict[str, TaskVariants] = {}
        self.inside: dict[str, tuple[int, NetPlan]] = {}
        for transition in net.transitions.values():
            if not transition.is_inline and transition.subnet is None:
                self.code_ids[transition.name] = len(self.code_table)
                outputs = transition.code_outputs
                if transition.variants is not None:
                    self.variants[transition.name] = numbered(transition.variants, len(self.code_table))
                for run in runs_of(transition.run):
                    self.code_table.append(CodeEntry(run, transition.parameters, outputs))
        for transition in net.transitions.values():
            if transition.subnet is not None:
                plan = NetPlan(transition.subnet.net)
                self.inside[transition.name] = (len(self.code_table), plan)
                self.code_table += plan.code_table
        steps = max((plan.levels for _, plan in self.inside.values()), default=1)
        self.distances: dict[str, int] = {name: number * steps for name, number in distances(net).items()}
        self.levels: int = max(self.distances.values(), default=0) + steps
        self.arguments: dict[str, tuple[int, ...]] = {
            transition.name: tuple(index for index, arc in enumerate(transition.inputs) if arc.passed)
            for transition in net.transitions.values()
        }
        self.suspects: frozenset[str] = could_fire_for_ever(net)


def find_cycle(parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return tasks each of which waits for the next one, the first once more at the end; [] if none do."""
    done: set[str] = set()
    for start in parents:
        path: dict[str, Iterator[str]] = {}
        stack = [start] if start not in done else []
        while stack:
            task = stack[-1]
            if task not in path:
                path[task] = iter(parents[task])
            for parent in path[task]:
                if parent in path:
                    names = list(path)
                    return [*names[names.index(parent) :], parent]
                if parent not in done:
                    stack.append(parent)
                    break
            else:
                stack.pop()
                del path[task]
                done.add(task)
    return []
