"""Exploration of a net: which markings it can reach, and what that says of it; nothing is run elsewhere.

Each choice of a transition and of its tokens leads from one marking to another. What the engine decides by
the order in which tokens came, is left open here.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.code import split_outputs
from gspc_trio.workflow.arcs import OutputArc, WorkflowError
from gspc_trio.workflow.calls import SaysAll
from gspc_trio.workflow.net import Net, Transition
from gspc_trio.workflow.tokens import Value

KNOWN_MAX = 1_000_000
"""So many choices of tokens are remembered, with what they do."""

EXAMPLES_MAX = 10
"""So many deadlocks and failures are told, the first ones that are found."""


class States(Struct, frozen=True):
    """What is known of the markings that a net can reach.

    Attributes:
        markings: how many were found.
        edges: how many firings lead from these to a marking; each choice of tokens counts.
        complete: whether these are all.
        most_on_place: name of a place -> the most tokens that it ever has.
        most_tokens: the most tokens there are at a time, altogether.
        deadlocks: how many of the markings let no transition fire, nor fail.
        deadlock_examples: some of them: place -> number of tokens.
        never: transitions that never fire, as far as was looked.
        failures: some errors of conditions and functions, each with the first marking in which it comes; what
            failed leads nowhere.
    """

    markings: int
    edges: int
    complete: bool
    most_on_place: dict[str, int]
    most_tokens: int
    deadlocks: int
    deadlock_examples: tuple[dict[str, int], ...]
    never: tuple[str, ...]
    failures: tuple[str, ...] = ()


def explore(net: Net, markings_max: int, hidden: Collection[str] = ()) -> States:
    """Return what can be known of a net by looking at so many markings.

    Args:
        net: without tasks.
        markings_max: 1 or more.
        hidden: places that are not told of, and whose tokens do not count.

    Raises:
        WorkflowError: a transition is a task.
    """
    for transition in net.transitions.values():
        if transition.subnet is not None:
            raise WorkflowError(
                f"each firing of transition {transition.name!r} is an activity, with a net of its own: only "
                "nets without such can be explored; inline unfolds it"
            )
        if not transition.is_inline:
            raise WorkflowError(
                f"transition {transition.name!r} runs tasks, and nobody knows what they return: only nets "
                "whose transitions the engine fires itself can be explored"
            )
    if all(map(_is_plain, net.transitions.values())) and _is_colourless(net, hidden):
        return _PlainExploration(net, hidden).explore(markings_max)
    return _Exploration(net, hidden).explore(markings_max)


def _is_plain(transition: Transition) -> bool:
    return (
        transition.run is None
        and transition.condition is None
        and not transition.keys
        and not transition.priority
        and all(arc.consumed and arc.least == arc.most and not arc.like for arc in transition.inputs)
        and not any(
            arc.each or arc.first or (transition.inputs[arc.forwarded].is_batch and arc.part < 0)
            for arc in transition.output_arcs
        )
        and len({arc.place for arc in transition.inputs}) == len(transition.inputs)
    )


def _is_colourless(net: Net, hidden: Collection[str]) -> bool:
    """Return whether the tokens of a net in which nobody looks at values have none."""
    return not any(
        place.stops
        or place.counts
        or place.successor is not None
        or any(value is not None for value in place.initial)
        for place in net.places.values()
        if place.name not in hidden
    )


_Effect: TypeAlias = tuple[int, int, int, int]
"""Of a transition its number, what it takes, the difference that it makes, and that in number of tokens."""


class _PlainExploration:
    """Of a net whose tokens are alike.

    A marking is one number with a field of bits for each place, the highest of them always 0 there. With that
    bit set everywhere, a marking minus what a transition takes keeps all of these bits just if it can fire.
    """

    def __init__(self, net: Net, hidden: Collection[str]) -> None:
        self.net, self.hidden = net, hidden
        self.places = list(net.places)
        self.numbers = {name: number for number, name in enumerate(self.places)}
        self.initial = {name: len(place.initial) for name, place in net.places.items()}
        self.taken: list[dict[str, int]] = []
        self.made: list[dict[str, int]] = []
        for transition in net.transitions.values():
            self.taken.append({arc.place: arc.least for arc in transition.inputs})
            made: Counter[str] = Counter()
            for arc in transition.output_arcs:
                made[arc.place] += arc.copies
            self.made.append(dict(made))

    def explore(self, markings_max: int) -> States:
        highest = max([1, *self.initial.values(), *(n for taken in self.taken for n in taken.values())])
        bits = highest.bit_length() + 6
        while (found := self._explore(markings_max, bits)) is None:
            bits *= 2
        return found

    def _packed(self, counts: Mapping[str, int], bits: int) -> int:
        return sum(count << (bits * self.numbers[name]) for name, count in counts.items() if count)

    def _unpacked(self, marking: int, bits: int) -> dict[str, int]:
        mask = (1 << bits) - 1
        return {name: (marking >> (bits * number)) & mask for number, name in enumerate(self.places)}

    def _explore(self, markings_max: int, bits: int) -> States | None:
        """Explore with fields of so many bits; return None if they are too small."""
        guards = sum(1 << (bits * number + bits - 1) for number in range(len(self.places)))
        effects = self._effects(bits)
        touched = self._touched(effects)
        first, there = self._packed(self.initial, bits), self._count(self.initial)
        guarded = first | guards
        enabled = [effect for effect in effects if (guarded - effect[1]) & guards == guards]
        pending, seen = deque([(first, enabled, there)]), {first}
        unfired = set(range(len(effects)))
        edges, complete, most_tokens = 0, True, there
        most = _Most(bits, guards)
        most.note(first)
        dead, examples = 0, list[dict[str, int]]()
        while pending:
            marking, enabled, there = pending.popleft()
            edges += len(enabled)
            if unfired:
                unfired.difference_update([number for number, _, _, _ in enabled])
            if not enabled:
                dead += 1
                if dead <= EXAMPLES_MAX:
                    examples.append(self._told(self._unpacked(marking, bits)))
            for number, _, difference, more in enabled:
                following = marking + difference
                if following in seen:
                    continue
                if len(seen) >= markings_max:
                    complete = False
                    continue
                if following & guards:
                    return None
                seen.add(following)
                most.note(following)
                most_tokens = max(most_tokens, there + more)
                guarded = following | guards
                others, numbers = touched[number]
                now = [effect for effect in enabled if effect[0] not in numbers]
                now += [effect for effect in others if (guarded - effect[1]) & guards == guards]
                now.sort()
                pending.append((following, now, there + more))
        never = tuple(name for number, name in enumerate(self.net.transitions) if number in unfired)
        on_place = {
            name: most.highest.get(number, 0)
            for number, name in enumerate(self.places)
            if name not in self.hidden
        }
        return States(len(seen), edges, complete, on_place, most_tokens, dead, tuple(examples), never)

    def _effects(self, bits: int) -> list[_Effect]:
        effects = []
        for number, (taken, made) in enumerate(zip(self.taken, self.made, strict=True)):
            less = self._packed(taken, bits)
            more = self._count(made) - self._count(taken)
            effects.append((number, less, self._packed(made, bits) - less, more))
        return effects

    def _touched(self, effects: Sequence[_Effect]) -> list[tuple[list[_Effect], frozenset[int]]]:
        """Return for each transition those that may be able to fire only before or only after it does."""
        takers: dict[str, list[int]] = {}
        for number, taken in enumerate(self.taken):
            for name in taken:
                takers.setdefault(name, []).append(number)
        touched = []
        for taken, made in zip(self.taken, self.made, strict=True):
            changed = [name for name in {**taken, **made} if taken.get(name, 0) != made.get(name, 0)]
            numbers = frozenset(number for name in changed for number in takers.get(name, ()))
            touched.append(([effects[number] for number in sorted(numbers)], numbers))
        return touched

    def _count(self, counts: Mapping[str, int]) -> int:
        return sum(count for name, count in counts.items() if name not in self.hidden)

    def _told(self, counts: Mapping[str, int]) -> dict[str, int]:
        return {name: count for name, count in counts.items() if count and name not in self.hidden}


class _Most:
    """The most tokens that each place has had.

    Attributes:
        highest: number of a place -> number of tokens.

    Args:
        bits: of the field of a place in a marking.
        guards: the highest bit of each field.
    """

    def __init__(self, bits: int, guards: int) -> None:
        self.highest: dict[int, int] = {}
        self._bits, self._guards = bits, guards
        self._packed = guards

    def note(self, marking: int) -> None:
        """Look at one more marking."""
        more = self._guards & ~(self._packed - marking)
        while more:
            lowest = more & -more
            place = lowest.bit_length() // self._bits - 1
            shift = place * self._bits
            count = (marking >> shift) & ((1 << self._bits) - 1)
            self._packed += (count - self.highest.get(place, 0)) << shift
            self.highest[place] = count
            more ^= lowest


Tokens: TypeAlias = tuple[int, ...]
"""Tokens of a place, as numbers of their values, in order of these."""

Choice: TypeAlias = tuple[Tokens, ...]
"""For each input arc the tokens that it takes or reads."""


class _Values:
    """Numbers for values: equal ones of the same type have the same."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self._numbers: dict[object, int] = {}

    def number(self, value: object) -> int:
        key = _key(value)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found


def _key(value: object) -> object:
    """Return what is equal for equal values of the same type, and can be looked up."""
    if isinstance(value, float):
        return float, repr(value)
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_key, value))
    if isinstance(value, dict):
        return dict, frozenset((_key(name), _key(each)) for name, each in value.items())
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(_key, value))
    try:
        hash(value)
    except TypeError:
        return type(value), pickle.dumps(value)
    return type(value), value


class _Firing(Struct, frozen=True):
    """What a choice of tokens does.

    Attributes:
        holds: whether the transition can fire with it.
        made: tokens by index of a place.
        failure: why it failed, or "".
    """

    holds: bool
    made: tuple[tuple[int, Tokens], ...] = ()
    failure: str = ""


class _Exploration:
    """Of a net whose tokens have values. A marking has the tokens of each place."""

    def __init__(self, net: Net, hidden: Collection[str]) -> None:
        self.net, self.hidden = net, hidden
        self.values = _Values()
        self.places = {name: number for number, name in enumerate(net.places)}
        self.stops = [self.places[place.name] for place in net.places.values() if place.stops]
        self.counters = [
            (self.places[place.name], self.places[place.counts])
            for place in net.places.values()
            if place.counts
        ]
        self.transitions = sorted(net.transitions.values(), key=lambda one: -one.priority)
        self.failures: dict[str, tuple[Tokens, ...]] = {}
        self._failed = False
        self._known: dict[tuple[str, Choice], _Firing] = {}

    def explore(self, markings_max: int) -> States:
        number = self.values.number
        first = self._counted(
            [tuple(sorted(number(value) for value in place.initial)) for place in self.net.places.values()]
        )
        order, seen = [first], {first}
        unfired = dict.fromkeys(self.net.transitions)
        edges, complete = 0, True
        dead: list[tuple[Tokens, ...]] = []
        for marking in order:  # it grows
            is_dead, self._failed = True, False
            for name, following in self._firings(marking):
                is_dead = False
                edges += 1
                unfired.pop(name, None)
                if following not in seen:
                    if len(order) >= markings_max:
                        complete = False
                    else:
                        seen.add(following)
                        order.append(following)
            if is_dead and not self._failed:
                dead.append(marking)
        counts = [{name: len(marking[at]) for name, at in self.places.items()} for marking in order]
        told = [{name: n for name, n in one.items() if name not in self.hidden} for one in counts]
        return States(
            markings=len(order),
            edges=edges,
            complete=complete and not self.failures,
            most_on_place={name: max(one[name] for one in told) for name in told[0]},
            most_tokens=max(sum(one.values()) for one in told),
            deadlocks=len(dead),
            deadlock_examples=tuple(map(self._told, dead[:EXAMPLES_MAX])),
            never=tuple(unfired),
            failures=tuple(map(self._story, islice(self.failures.items(), EXAMPLES_MAX))),
        )

    def _story(self, failure: tuple[str, tuple[Tokens, ...]]) -> str:
        what, marking = failure
        there = ", ".join(f"{name!r}: {count}" for name, count in self._told(marking).items())
        return f"{what}\n  in the marking {there or 'without tokens'}"

    def _told(self, marking: tuple[Tokens, ...]) -> dict[str, int]:
        return {
            name: len(marking[at])
            for name, at in self.places.items()
            if marking[at] and name not in self.hidden
        }

    def _firings(self, marking: tuple[Tokens, ...]) -> Iterator[tuple[str, tuple[Tokens, ...]]]:
        """Return the transitions of the highest priority that can fire, and where each choice leads."""
        if any(marking[stop] for stop in self.stops):
            return
        found: int | None = None
        for transition in self.transitions:
            if found is not None and transition.priority < found:
                return
            for choice in self._choices(transition, marking, 0, {}):
                firing = self._firing(transition, choice)
                if firing.failure:
                    self.failures.setdefault(firing.failure, marking)
                    self._failed = True
                if firing.holds:
                    found = transition.priority
                    yield transition.name, self._following(transition, marking, choice, firing)

    def _choices(
        self, transition: Transition, marking: tuple[Tokens, ...], index: int, used: Mapping[int, Tokens]
    ) -> Iterator[Choice]:
        """Return the choices of tokens for the arcs from this one on; none is used twice."""
        if index == len(transition.inputs):
            yield ()
            return
        arc = transition.inputs[index]
        place = self.places[arc.place]
        left = _without(marking[place], used.get(place, ()))
        if len(left) < arc.least:
            return
        base = arc.like or arc.name
        alike = [other for other in transition.inputs if base in (other.name, other.like)]
        most = min(arc.most, len(left), *(len(marking[self.places[other.place]]) for other in alike))
        for tokens in dict.fromkeys(combinations(left, most)):
            now = {**used, place: (*used.get(place, ()), *tokens)}
            for others in self._choices(transition, marking, index + 1, now):
                yield (tokens, *others)

    def _following(
        self, transition: Transition, marking: tuple[Tokens, ...], choice: Choice, firing: _Firing
    ) -> tuple[Tokens, ...]:
        following = list(marking)
        for arc, tokens in zip(transition.inputs, choice, strict=True):
            if arc.consumed:
                place = self.places[arc.place]
                following[place] = _without(following[place], tokens)
        for place, tokens in firing.made:
            following[place] = tuple(sorted((*following[place], *tokens)))
        return self._counted(following)

    def _counted(self, marking: list[Tokens]) -> tuple[Tokens, ...]:
        """Return a marking in which places that count tokens have their numbers."""
        for place, counted in self.counters:
            marking[place] = (self.values.number(len(marking[counted])),)
        return tuple(marking)

    def _firing(self, transition: Transition, choice: Choice) -> _Firing:
        """Return what a choice of tokens does; it is computed once."""
        key = (transition.name, choice)
        found = self._known.get(key)
        if found is None:
            try:
                found = self._computed(transition, choice)
            except Exception as error:
                kind = "" if isinstance(error, SaysAll) else f"{type(error).__name__}: "
                found = _Firing(False, failure=f"transition {transition.name!r}: {kind}{error}")
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = found
        return found

    def _computed(self, transition: Transition, choice: Choice) -> _Firing:
        values: list[object] = []
        for arc, tokens in zip(transition.inputs, choice, strict=True):
            there = [self.values.values[number] for number in tokens]
            values.append(there if arc.is_batch else there[0])
        condition = transition.condition
        if condition is not None and not condition.function(*[values[index] for index in condition.order]):
            return _Firing(False)
        keys = {
            _key(function(values[index]))
            for index, function in enumerate(transition.keys)
            if function is not None
        }
        if len(keys) > 1:
            return _Firing(False)
        outputs: tuple[tuple[object, ...], ...] = ()
        call = transition.inline_call
        if call is not None:
            result: Value = call.function(*[values[index] for index in call.order])
            if transition.is_direct:
                ports = zip(result, transition.outputs, strict=True)
                outputs = tuple(tuple(one) if is_each else (one,) for one, (_, is_each) in ports)
            else:
                outputs = split_outputs(result, transition.outputs)
        made: list[tuple[int, Tokens]] = []
        for arc, value in zip(transition.inputs, values, strict=True):
            successor = self.net.places[arc.place].successor
            if arc.consumed and successor is not None:
                made.append((self.places[arc.place], (self.values.number(successor(value)),)))
        for target in transition.output_arcs:
            is_made = target.output >= 0
            put = outputs[target.output] if is_made else _forwarded(target, values[target.forwarded])
            numbers = tuple(self.values.number(value) for value in put) * target.copies
            made.append((self.places[target.place], numbers))
        return _Firing(True, tuple(made))


def _forwarded(arc: OutputArc, value: object) -> Sequence[object]:
    """Return the tokens that go on as they are."""
    if arc.part < 0 and not (arc.each or arc.first):
        return [value]
    assert isinstance(value, list), "what falls apart is a batch"
    if arc.part >= 0:
        return [value[arc.part]]
    return value[arc.first :] if arc.each else [value[arc.first :]]


def _without(tokens: Tokens, taken: Tokens) -> Tokens:
    """Return tokens without others that are among them."""
    if not taken:
        return tokens
    left = list(tokens)
    for token in taken:
        left.remove(token)
    return tuple(left)
