"""A net made ready to run: places with their tokens, transitions with their searches and ready queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec import Struct

from gspc_trio.core.code import BadResult, split_outputs
from gspc_trio.core.ids import TaskId
from gspc_trio.workflow.arcs import ANSWERS, OutputArc, Place
from gspc_trio.workflow.calls import USER_CODE, TransitionFailed
from gspc_trio.workflow.in_flight import Encoded, InFlight, Order
from gspc_trio.workflow.marking import (
    AnswerPlace,
    AnyPlace,
    BagPlace,
    Clock,
    QueuePlace,
    ReferenceCounts,
    StockedPlace,
    StreamPort,
    TokenCounter,
    WatchedPlace,
)
from gspc_trio.workflow.net import Net, Transition
from gspc_trio.workflow.search import (
    BatchSearch,
    Binding,
    Bound,
    Chance,
    Condition,
    DrawnSearch,
    FilterSearch,
    JoinSearch,
    PartSearch,
    Search,
    SearchPaused,
    search_for,
)
from gspc_trio.workflow.tokens import Token, TokenCodec, Value


class OutputTarget(Struct, frozen=True, eq=False):
    """Where the tokens of one output arc go.

    Attributes:
        place: there.
        output: index of the output, -1 for a forwarded input.
        forwarded: index of the input arc, -1 for an output.
        each: whether a forwarded batch falls apart, or the elements of an output become tokens.
        part: of a forwarded batch, the token that is passed on alone; -1: all of it.
        first: of a forwarded batch, the first token that is passed on.
    """

    place: AnyPlace
    output: int
    forwarded: int
    each: bool
    part: int
    first: int


def _target(description: Transition, arc: OutputArc, place: AnyPlace) -> OutputTarget:
    each = arc.each if arc.output < 0 else description.outputs[arc.output][1]
    return OutputTarget(place, arc.output, arc.forwarded, each, arc.part, arc.first)


class RunningTransition:
    """A transition with the places around it.

    Attributes:
        description: what it does.
        is_ready: whether it is in its ready queue: a token has come since it was last found unable to fire.
        is_suspect: whether nothing but conditions stops it from firing inline for ever.
        fired: how often it has.
        flight: its tasks that have not ended, if only so many may be in flight.
        fire: fires an inline transition with some tokens.
        order: its results, if they keep the order of its tasks.
        on_groups: takes the groups of tasks that end by a firing.
        on_failure: takes errors of its condition, which does not hold then; None: they are raised.
    """

    __slots__ = (
        "_codec",
        "_consumed",
        "_counted",
        "_find",
        "_queue",
        "_refilled",
        "bounds",
        "description",
        "fire",
        "fired",
        "flight",
        "is_ready",
        "is_suspect",
        "on_failure",
        "on_groups",
        "on_result",
        "order",
        "search",
        "targets",
    )

    def __init__(
        self,
        description: Transition,
        places: dict[str, AnyPlace],
        queue: deque[RunningTransition],
        codec: TokenCodec,
        chance: Chance | None,
    ) -> None:
        self.description: Transition = description
        self.is_ready: bool = False
        self.is_suspect: bool = False
        self.fired: int = 0
        self.on_groups: Callable[[Value], None] | None = None
        self.on_failure: Callable[[TransitionFailed], None] | None = None
        self._queue = queue
        self._codec = codec
        self.bounds: tuple[Bound, ...] = tuple(Bound(arc, places[arc.place]) for arc in description.inputs)
        self.targets: tuple[OutputTarget, ...] = tuple(
            target
            for arc in description.output_arcs
            for target in ((_target(description, arc, places[arc.place]),) * arc.copies)
        )
        self._consumed = tuple(
            (index, bound.place, bound.arc.is_batch)
            for index, bound in enumerate(self.bounds)
            if bound.arc.consumed
        )
        self._refilled = tuple(
            (index, place, place.description.successor)
            for index, place, _ in self._consumed
            if place.description.successor is not None
        )
        self._counted: tuple[tuple[int, TokenCounter], ...] = ()
        self.fire: Callable[[Binding], None] = self._fire_direct if description.is_direct else self._fire
        condition = None
        if description.condition is not None:
            condition = Condition(description.condition, codec, self._condition_failed)
        self.search: Search = search_for(self.bounds, condition, description.keys, codec, self.mark, chance)
        watching = self.search.inner if isinstance(self.search, DrawnSearch) else self.search
        most = description.in_flight
        self.flight: InFlight | None = InFlight(most) if most is not None else None
        self.on_result: Callable[[TaskId, Binding, Encoded], None] | None = None
        self.order: Order | None = Order(self.produce_result) if description.ordered else None
        self._find = self.search.find if most is None else self._find_in_flight
        for index, bound in enumerate(self.bounds):
            if isinstance(watching, FilterSearch | JoinSearch | PartSearch | BatchSearch):
                assert isinstance(bound.place, WatchedPlace)
                bound.place.watchers.append((watching, index))
            if self not in bound.place.takers:
                bound.place.takers.append(self)
            if isinstance(bound.place, StockedPlace):  # several arcs may take from it together
                bound.place.least += bound.arc.most

    def mark(self) -> None:
        """Put it into its ready queue."""
        if not self.is_ready:
            self.is_ready = True
            self._queue.append(self)

    def find(self) -> Binding | None:
        """Return the tokens with which it can fire next, or None.

        Raises:
            SearchPaused: there is more to look at.
            TransitionFailed: its condition or a key raised.
        """
        try:
            return self._find()
        except SearchPaused:
            raise
        except Exception as error:
            raise TransitionFailed(self.description.name, "its condition failed", error) from error

    def _condition_failed(self, error: Exception) -> bool:
        """Tell that its condition has failed for some tokens; return whether to go on."""
        if self.on_failure is None:
            return False
        self.on_failure(TransitionFailed(self.description.name, "its condition failed", error))
        return True

    def _find_in_flight(self) -> Binding | None:
        """Find nothing while as many of its tasks are in flight as may be."""
        flight = self.flight
        assert flight is not None
        return self.search.find() if flight.unended < flight.most else None

    def can_fire(self) -> bool:
        """Return whether it can fire, however long the search takes.

        Raises:
            TransitionFailed: its condition or a key raised.
        """
        while True:
            with suppress(SearchPaused):
                return self.find() is not None

    def take_no_tokens(self) -> None:
        """Find nothing from now on: others take its tokens."""
        self._find = lambda: None

    def count_with(self, counters: Mapping[int, TokenCounter]) -> None:
        """Have counters of places: id of the place -> counter."""
        self._counted = tuple(
            (index, counters[id(place)]) for index, place, _ in self._consumed if id(place) in counters
        )

    def release(self, binding: Binding) -> None:
        """The firing is over: the tokens that it took are no longer counted."""
        for index, counter in self._counted:
            token = binding[index]
            counter.add(-len(token.value) if token.is_batch else -1)

    def _fire(self, binding: Binding) -> None:
        """Fire as an inline transition."""
        outputs = self.compute(binding)
        self.consume(binding)
        self.produce_values(binding, outputs)
        if self._counted:
            self.release(binding)

    def _fire_direct(self, binding: Binding) -> None:
        """Fire as an inline transition that returns a value for each of its outputs."""
        call, decode = self.description.inline_call, self._codec.decode
        assert call is not None
        try:
            values: Value = call.function(*[decode(binding[index]) for index in call.order])
        except Exception as error:
            raise TransitionFailed(self.description.name, "it failed", error) from error
        self.consume(binding)
        for target in self.targets:
            if target.output < 0:
                self._forward(target, binding)
                continue
            put, value = target.place.put, values[target.output]
            if target.each:
                for one in value:
                    put(Token(one))
            else:
                put(Token(value))
        if self._counted:
            self.release(binding)
        if self.on_groups is not None:
            self.on_groups(values[self.description.ends_groups])

    def group_of(self, binding: Binding) -> object:
        """Return the group that a task with these tokens belongs to.

        Raises:
            TransitionFailed: what says so raised.
        """
        call, decode = self.description.group, self._codec.decode
        assert call is not None
        try:
            return call.function(*[decode(binding[index]) for index in call.order])
        except Exception as error:
            raise TransitionFailed(self.description.name, "its group failed", error) from error

    def _successors(self, binding: Binding) -> list[tuple[AnyPlace, object]]:
        """Return what comes to places that always have a token, in place of what is taken there.

        Raises:
            TransitionFailed: there is no other value.
        """
        try:
            return [
                (place, successor(self._codec.decode(binding[index])))
                for index, place, successor in self._refilled
            ]
        except Exception as error:
            raise TransitionFailed(self.description.name, "there is no further value", error) from error

    def consume(self, binding: Binding) -> None:
        """Take the tokens away, but for those that it only reads.

        Raises:
            TransitionFailed: a place that makes values has no further one; the tokens are still there.
        """
        if self._refilled:
            fresh = self._successors(binding)
            self.take(binding)
            for place, value in fresh:
                place.put(Token(value))
        else:
            self.take(binding)

    def take(self, binding: Binding) -> None:
        """Take the tokens away, and let nothing come in their place."""
        self.fired += 1
        for index, place, is_batch in self._consumed:
            if is_batch:
                for part in binding[index].value.tokens:
                    place.remove(part)
            else:
                place.remove(binding[index])

    def compute(self, binding: Binding) -> tuple[tuple[object, ...], ...]:
        """Return the tokens for each output of an inline transition.

        Raises:
            TransitionFailed: what it runs raised, or returned something that does not fit its outputs.
        """
        description = self.description
        call = description.inline_call
        if call is None:
            return ()
        decode = self._codec.decode
        try:
            value: Value = call.function(*[decode(binding[index]) for index in call.order])
            if description.is_direct:
                ports = zip(value, description.outputs, strict=True)
                return tuple(tuple(one) if is_each else (one,) for one, (_, is_each) in ports)
            return split_outputs(value, description.outputs)
        except BadResult as error:
            raise TransitionFailed(description.name, "its result does not fit", error) from error
        except Exception as error:
            raise TransitionFailed(description.name, "it failed", error) from error

    def produce_values(self, binding: Binding, outputs: tuple[tuple[object, ...], ...]) -> None:
        """Put values, and what is forwarded, onto the places behind it."""
        for target in self.targets:
            if target.output < 0:
                self._forward(target, binding)
            else:
                put = target.place.put
                for value in outputs[target.output]:
                    put(Token(value))

    def produce_result(self, task_id: TaskId, binding: Binding, outputs: Encoded) -> None:
        """Put the result of a task onto the places behind it."""
        self.produce_encoded(binding, outputs)
        if self.on_result is not None:
            self.on_result(task_id, binding, outputs)

    def produce_encoded(self, binding: Binding, outputs: tuple[tuple[bytes, ...], ...]) -> None:
        """Put encoded values, and what is forwarded, onto the places behind it."""
        for target in self.targets:
            if target.output < 0:
                self._forward(target, binding)
            else:
                put = target.place.put
                for data in outputs[target.output]:
                    put(Token(data=data))

    def _forward(self, target: OutputTarget, binding: Binding) -> None:
        token = binding[target.forwarded]
        if target.each:
            tokens = token.value.tokens
            for part in tokens[target.first :] if target.first else tokens:
                target.place.put(part.copy())
        elif target.part >= 0:
            target.place.put(self._codec.part(token, target.part))
        elif target.first:
            target.place.put(self._codec.batch(token.value.tokens[target.first :]))
        else:
            target.place.put(token.copy())


USER_CODE.update(
    method.__code__
    for method in (
        RunningTransition.find,
        RunningTransition.compute,
        RunningTransition.group_of,
        RunningTransition._fire_direct,
    )
)


def _place(
    description: Place, clock: Clock | None, is_counted: bool, is_drawn: bool, gets_results: bool
) -> AnyPlace:
    if description.name == ANSWERS:
        return AnswerPlace(description)
    if description.room:
        return StreamPort(description)
    if clock is not None:
        return BagPlace(description, clock) if is_drawn else WatchedPlace(description, clock)
    gets_many = description.is_input or description.initial or gets_results
    return StockedPlace(description) if gets_many and not is_counted else QueuePlace(description)


class RunningNet:
    """The places and transitions of a net, and which transitions may be able to fire.

    Attributes:
        places: name -> place.
        transitions: name -> transition.
        queues: ready queues, those of the highest priority first.
        counters: place -> what counts its tokens.
        clock: numbers the tokens on watched places.
        stops: places that, with a token, end the workflow.
        references: counts values whose last token counts; None: there are none.
        until: output ports that end the workflow when each has a token, though input ports are open.
        chance: draws what fires next; None: what has come first does.
    """

    def __init__(self, net: Net, codec: TokenCodec, chance: Chance | None = None) -> None:
        self.chance = chance
        watched = {
            arc.place
            for transition in net.transitions.values()
            if transition.condition is not None or transition.keys or chance is not None
            for arc in transition.inputs
        }
        if net.references is not None:
            watched = set(net.places)
        self.clock: Clock = Clock()
        counted = {place.counts for place in net.places.values() if place.counts}
        results = {
            arc.place
            for transition in net.transitions.values()
            if len(transition.inputs) == 1 and not transition.is_inline
            for arc in transition.output_arcs
        }
        self.places: dict[str, AnyPlace] = {
            name: _place(
                place,
                self.clock if name in watched else None,
                name in counted,
                chance is not None,
                name in results,
            )
            for name, place in net.places.items()
        }
        self.counters: dict[str, TokenCounter] = {
            place.counts: TokenCounter(self.places[place.name])
            for place in net.places.values()
            if place.counts
        }
        for place in self.places.values():
            if isinstance(place, StreamPort):
                place.room = self.places[place.description.room]
        self.references: ReferenceCounts | None = None
        if net.references is not None:
            self.references = ReferenceCounts(net.references, codec, self.places)
            for each in self.places.values():
                if isinstance(each, WatchedPlace):
                    each.watchers.append((self.references, 0))
        self.until: tuple[AnyPlace, ...] = (
            tuple(self.places[name] for name in net.outputs) if net.until_outputs else ()
        )
        self.stops: tuple[AnyPlace, ...] = tuple(
            place for place in self.places.values() if place.description.stops
        )
        priorities = sorted({transition.priority for transition in net.transitions.values()}, reverse=True)
        by_priority: dict[int, deque[RunningTransition]] = {priority: deque() for priority in priorities}
        self.queues: tuple[deque[RunningTransition], ...] = tuple(by_priority.values())
        self.transitions: dict[str, RunningTransition] = {
            name: RunningTransition(transition, self.places, by_priority[transition.priority], codec, chance)
            for name, transition in net.transitions.items()
        }
        by_id = {id(self.places[name]): counter for name, counter in self.counters.items()}
        for name, counter in self.counters.items():
            self.places[name].takers.append(counter)
        for transition in self.transitions.values() if by_id else ():
            transition.count_with(by_id)

    def begin_counting(self, held: Mapping[str, int]) -> None:
        """Count the tokens of places from now on; ``held`` says how many of each tasks have taken."""
        for name, counter in self.counters.items():
            counter.begin(len(self.places[name]) + held.get(name, 0))

    @property
    def is_stopped(self) -> bool:
        """Whether there is a token on a place that ends the workflow."""
        return any(place.tokens for place in self.stops)

    def next_ready(self) -> tuple[RunningTransition, Binding] | None:
        """Return a transition of the highest priority that can fire, and its tokens; None if none can.

        The transition goes to the back of its queue, so that all of one priority have their turns.

        Raises:
            SearchPaused: a search has more to look at: ask again.
            TransitionFailed: a condition or a key raised; nothing is lost.
        """
        if self.chance is not None:
            return self._drawn(self.chance)
        while True:
            for queue in self.queues:
                if queue:
                    break
            else:
                return None
            transition = queue[0]
            binding = transition.find()
            if binding is not None:
                if len(queue) > 1:
                    queue.rotate(-1)
                return transition, binding
            queue.popleft()
            transition.is_ready = False

    def next_name(self) -> str | None:
        """Return the name of the transition that is looked at next; None: there is none, or it is drawn."""
        first = next(filter(None, self.queues), None)
        return first[0].description.name if first and self.chance is None else None

    def look_until(self, name: str) -> bool:
        """Look at transitions that cannot fire, as :meth:`next_ready` did until its search for one paused.

        Args:
            name: of that one, which is looked at next.

        Returns:
            False if it does not come to that.

        Raises:
            TransitionFailed: see :meth:`next_ready`.
        """
        while queue := next(filter(None, self.queues), None):
            transition = queue[0]
            if transition.description.name == name:
                return True
            with suppress(SearchPaused):
                if transition.find() is not None:
                    return False
                queue.popleft()
                transition.is_ready = False
        return False

    def _drawn(self, chance: Chance) -> tuple[RunningTransition, Binding] | None:
        """Return one of all transitions of the highest priority that can fire, and its tokens, both drawn."""
        chance.begin()
        for queue in self.queues:
            while queue:
                position = chance.draw(len(queue))
                transition = queue[position]
                binding = transition.find()
                if binding is not None:
                    chance.firing += 1
                    return transition, binding
                del queue[position]
                transition.is_ready = False
        return None

    def can_fire(self) -> bool:
        """Return whether any transition can fire.

        Raises:
            TransitionFailed: a condition or a key raised.
        """
        return any(transition.can_fire() for queue in self.queues for transition in queue)

    def check(self) -> None:
        """Assert that exactly the transitions that are marked are queued, and that no other can fire."""
        queued = [transition for queue in self.queues for transition in queue]
        assert len(queued) == len(set(map(id, queued))), "a transition is queued twice"
        for transition in self.transitions.values():
            is_queued = any(transition is other for other in queued)
            assert transition.is_ready == is_queued, (
                f"{transition.description.name}: marked and queued differ"
            )
            if not is_queued:
                assert not transition.can_fire(), f"{transition.description.name} can fire and is not queued"
        for name, place in self.places.items():
            if isinstance(place, WatchedPlace):
                serials = [token.serial for token in place]
                assert serials == sorted(place.tokens), f"{name}: tokens are out of order"
