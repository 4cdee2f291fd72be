"""Nets made up by Hypothesis, and a naive reading of which of their transitions can fire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from gspc_trio.core.task import TaskState
from gspc_trio.workflow.arcs import InputArc, OutputArc, Place, Take, each, forward, take
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.in_flight import IN_FLIGHT
from gspc_trio.workflow.net import Net, Subnet, Transition
from gspc_trio.workflow.runtime import RunningNet, RunningTransition
from gspc_trio.workflow.search import Binding
from gspc_trio.workflow.tokens import Token

PLACES = [f"p{number}" for number in range(5)]


LEAST = st.sampled_from([0, 0, 0, 0, 1, 2])
"""How many tokens an arc takes at least; 0 stands for a plain arc."""


def total(value: Any) -> int:
    return value if isinstance(value, int) else sum(value)


def add_up(**tokens: Any) -> dict[str, Any]:
    """What every transition runs: a small number and a few more of them."""
    number = sum(map(total, tokens.values())) % 7
    return {"one": number, "many": list(range(number % 3))}


class Divisible:
    """A condition on all tokens."""

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor

    def __call__(self, **tokens: Any) -> bool:
        return sum(map(total, tokens.values())) % self.divisor == 1


def first_is_odd(a0: Any) -> bool:
    """A condition on the tokens of one arc; every transition has this one."""
    return total(a0) % 2 == 1


def always() -> bool:
    """A condition on no tokens."""
    return True


CONDITIONS = [None, Divisible(2), Divisible(3), Divisible(5), first_is_odd, always]


def parity(value: int) -> int:
    return value % 2


@st.composite
def nets(draw: st.DrawFn) -> Net:
    """A net whose inline transitions always come to an end: they only move tokens to later places."""
    net = Net("random")
    for name in PLACES:
        net.input(name, default=draw(st.lists(st.integers(0, 6), max_size=5)))
    for number in range(draw(st.integers(1, 5))):
        _add_transition(draw, net, f"t{number}")
    used = {arc.place for transition in net.transitions.values() for arc in transition.inputs}
    for name in PLACES:
        if name not in used:
            net.replace_place(name, may_keep=True)
    return net


def _add_transition(draw: st.DrawFn, net: Net, name: str) -> None:
    taken = draw(st.lists(st.sampled_from(PLACES[:-1]), min_size=1, max_size=3))
    inline = draw(st.booleans())
    inputs: dict[str, Any] = {}
    for index, place in enumerate(taken):
        least = draw(LEAST)
        most = least + draw(st.integers(0, 2))
        inputs[f"a{index}"] = take(place, least=least, most=most) if least else place
    readable = [place for place in PLACES if place not in taken]
    reads = draw(st.lists(st.sampled_from(readable), max_size=1)) if readable else []
    targets = PLACES[PLACES.index(max(taken)) + 1 :] if inline else PLACES
    outputs: dict[str, Any] = {}
    for port, wrap in (("one", lambda place: place), ("many", each)):
        outputs[port] = [wrap(place) for place in draw(st.lists(st.sampled_from(targets), max_size=1))]
    kind = st.sampled_from(sorted(inputs))
    outputs["-"] = []
    for source in draw(st.lists(kind, max_size=1)):
        target = draw(st.sampled_from(targets))
        is_each = isinstance(inputs[source], Take)
        outputs["-"].append(forward(source, each(target) if is_each else target))
    singles = all(isinstance(source, str) for source in inputs.values())
    can_match = singles and len(inputs) + len(reads) > 1
    read_arcs = {f"r{index}": place for index, place in enumerate(reads)}
    names = sorted({**inputs, **read_arcs})
    match: Any = None
    if can_match and draw(st.booleans()):
        match = dict.fromkeys(draw(st.lists(st.sampled_from(names), min_size=2, unique=True)), parity)
    net.transition(
        name,
        add_up,
        inputs,
        outputs,
        reads=read_arcs,
        condition=draw(st.sampled_from(CONDITIONS)),
        match=match,
        priority=draw(st.integers(-1, 1)),
        inline=inline,
        in_flight=None if inline else draw(st.sampled_from([None, None, 1, 2])),
    )


def bindings(transition: RunningTransition, engine: WorkflowEngine) -> Iterator[list[list[Token]]]:
    """Every choice of tokens for the arcs with which the transition can fire, found by trying all."""
    name, most = transition.description.name, transition.description.in_flight
    begun = [one for one in engine.activities.values() if one.transition.description.name == name]
    unended = [one for one in begun if one.state in (TaskState.READY, TaskState.SUBMITTED)]
    if most is not None and len(unended) >= most:
        return
    for choice in _choices(transition, 0, []):
        if holds(transition, choice, engine):
            yield choice


def _choices(
    transition: RunningTransition, index: int, chosen: list[list[Token]]
) -> Iterator[list[list[Token]]]:
    if index == len(transition.bounds):
        yield chosen
        return
    bound = transition.bounds[index]
    used = {id(token) for tokens in chosen for token in tokens}
    free = [token for token in bound.place if id(token) not in used]
    for tokens in _picks(bound.arc, free):
        yield from _choices(transition, index + 1, [*chosen, tokens])


def _picks(arc: InputArc, free: list[Token]) -> list[list[Token]]:
    if not arc.is_batch:
        return [[token] for token in free]
    return [free[: arc.most]] if len(free) >= arc.least else []


def holds(transition: RunningTransition, chosen: list[list[Token]], engine: WorkflowEngine) -> bool:
    description, decode = transition.description, engine.codec.decode
    values = [
        list(map(decode, tokens)) if arc.is_batch else decode(tokens[0])
        for arc, tokens in zip(description.inputs, chosen, strict=True)
    ]
    keys = {key(value) for key, value in zip(description.keys, values, strict=False) if key is not None}
    if len(keys) > 1:
        return False
    condition = description.condition
    return condition is None or bool(condition.function(*[values[index] for index in condition.order]))


def flat(binding: Binding) -> list[list[Token]]:
    return [list(token.value.tokens) if token.is_batch else [token] for token in binding]


class Observed:
    """Stands before a running net and compares every firing with what trying all choices says."""

    def __init__(self, engine: WorkflowEngine) -> None:
        self.engine = engine
        self.net: RunningNet = engine.running

    def __getattr__(self, name: str) -> Any:
        return getattr(self.net, name)

    def next_ready(self) -> tuple[RunningTransition, Binding] | None:
        enabled = [
            transition
            for transition in self.net.transitions.values()
            if next(bindings(transition, self.engine), None) is not None
        ]
        found = self.net.next_ready()
        if found is None:
            assert enabled == []
            return None
        transition, binding = found
        best = max(transition.description.priority for transition in enabled)
        assert transition in enabled
        assert transition.description.priority == best
        chosen = flat(binding)
        ids = [[id(token) for token in tokens] for tokens in chosen]
        assert any(
            [[id(token) for token in tokens] for tokens in choice] == ids
            for choice in bindings(transition, self.engine)
        ), f"{transition.description.name} cannot fire with these tokens"
        return found


def observe(engine: WorkflowEngine) -> WorkflowEngine:
    engine.running = Observed(engine)  # type: ignore[assignment]
    return engine


def marking(engine: WorkflowEngine) -> dict[str, list[Any]]:
    return {
        name: [engine.codec.decode(token) for token in place] for name, place in engine.running.places.items()
    }


__all__ = ["PLACES", "add_up", "bindings", "marking", "nets", "observe"]


# Activities


def double(number: int) -> int:
    return 2 * number


def activity_of(name: str, inner: Net, source: Place, target: Place) -> Transition:
    """Return a transition whose firings take a token, and are activities of a net from ``in`` to ``out``."""
    return Transition(
        name,
        None,
        (InputArc("token", source.name),),
        outputs=(("results", False),),
        output_arcs=(OutputArc(target.name, 0),),
        in_flight=IN_FLIGHT,
        subnet=Subnet(inner, ("in",), ("out",), (None,)),
    )


def spread_net(name: str, width: int, depth: int = 1) -> Net:
    """Return a net that doubles each of so many numbers from a token on, by tasks or further activities."""
    net = Net(name)
    begun, parts, out = net.place("in"), net.place("parts"), net.place("out", may_keep=True)
    made = {"parts": each(parts)}
    net.replace_place(begun, may_lack=True)
    begun = net.places["in"]
    net.transition(f"{name}.split", Spread(width), {"token": begun}, made, inline=True)
    if depth == 1:
        net.transition(f"{name}.double", double, {"number": parts}, out)
    else:
        deeper = f"{name}.spread"
        net.transitions[deeper] = activity_of(deeper, spread_net(deeper, width, depth - 1), parts, out)
    return net


class Spread:
    """What makes several numbers of one."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, token: int) -> dict[str, list[int]]:
        return {"parts": [token + number for number in range(self.width)]}


@st.composite
def nets_with_activities(draw: st.DrawFn) -> Net:
    """A random net, between whose last place and a result activities run."""
    net = draw(nets())
    net.replace_place(PLACES[-1], may_keep=True)
    inner = spread_net("spread", draw(st.integers(0, 2)), draw(st.integers(1, 2)))
    last, out = net.places[PLACES[-1]], net.output("made")
    net.transitions["spread"] = activity_of("spread", inner, last, out)
    return net
