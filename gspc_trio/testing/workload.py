"""Random workflows whose results do not depend on who computes what when, and what a plain loop gets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, TypeAlias
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.worker.messages import Submission
from gspc_trio.compute.code import FunctionOfItems, ImportedFunction, decode_code
from gspc_trio.compute.ranges import call_items
from gspc_trio.core.code import Variant, Variants
from gspc_trio.core.rules import split_outputs
from gspc_trio.core.task import Requirement, TaskError
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.testing.simulated.backend import Behaviour
from gspc_trio.workflow.arcs import Place, each
from gspc_trio.workflow.calls import Run
from gspc_trio.workflow.net import Net

Token: TypeAlias = dict[str, Any]
"""``key`` is unique in its place, ``value`` a number; large ones have a ``pad`` that follows from that."""

TASK_S = 0.15
"""Mean time of a task that :func:`behave` makes up, about."""

NEVER_S = 1e9
"""What takes so long never ends."""

TASKS_S = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5), 3.0
"""Times of such tasks, and one that few of them take."""

LINKS_S = (0.0, 0.0, 0.0, 0.0001, 0.0005, 0.001, 0.02), 0.5
"""The same of the links of chains."""

ITEM_S = 1e-5
"""The time of an item that travels with many others."""

FAILURES_MAX = 2
"""How often a task of these workflows fails at most before it finishes."""

_ENOUGH: Mapping[str, Any] = {"attempts": FAILURES_MAX + 3, "loss_attempts": 50, "wait": True}

TASK_SETTINGS: Sequence[Mapping[str, Any]] = (
    _ENOUGH,
    {**_ENOUGH, "estimate_s": 0.1},
    {**_ENOUGH, "requires": "node"},
    {**_ENOUGH, "requires": ["core", "core"]},
    {**_ENOUGH, "stage_in": True, "stage_out": True},
    {**_ENOUGH, "stage_in": True},
    {**_ENOUGH, "may_rerun": False, "attempts": 1},
)
"""What tasks ask for; enough attempts for all that the faults may take."""

_ANY_HOST = tuple(f"r{1000 * first + number}.node" for first in range(6) for number in range(1, 31))
"""Of those that there may be: a run-time system that has come back names hosts from the next thousand on."""

LATER_TASK_SETTINGS: Sequence[Mapping[str, Any]] = (
    {**_ENOUGH, "timeout_s": 5.0},
    {**_ENOUGH, "timeout_s": 5.0, "stage_in": True},
    {**_ENOUGH, "memory_bytes": 300 << 20},
    {**_ENOUGH, "memory_bytes": 700 << 20},
    {**_ENOUGH, "requires": ["core", "core"], "same_host": True},
    {**_ENOUGH, "requires": ["node", "core"]},
    {**_ENOUGH, "requires": Requirement("core", ("r1.node", "r2.core0"))},
    {**_ENOUGH, "requires": Requirement("core", _ANY_HOST, hard=True)},
)
"""What they ask for besides in wide runs; hosts have some memory then."""


def features_of(host: str) -> tuple[str, ...]:
    """Return the features of a host: those of a cluster are called ``h1`` and so on."""
    number = host.removeprefix("h")
    return ("any", "odd") if number.isdecimal() and int(number) % 2 else ("any",)


_FIRST_CORES = tuple(name.replace("node", "core0") for name in _ANY_HOST)

PLACED_TASK_SETTINGS: Sequence[Mapping[str, Any]] = (
    {**_ENOUGH, "requires": Requirement("core", features=("odd",))},
    {**_ENOUGH, "requires": Requirement("core", ("r2.node", "r1.core0"), features=("any",))},
    {**_ENOUGH, "requires": [Requirement("core", features=("odd",)), "core"]},
    {**_ENOUGH, "memory_bytes": 300 << 20, "requires": Requirement("core", features=("any", "odd"))},
    {**_ENOUGH, "requires": Requirement("core", _FIRST_CORES, hard=True)},
    {**_ENOUGH, "requires": Requirement("core", _FIRST_CORES[:1], patience_s=0.5)},
)
"""What they ask for besides in runs with features and ranks; the workers of ranks may have several names."""

HASTY_TASK_SETTINGS: Sequence[Mapping[str, Any]] = (
    {**_ENOUGH, "wait": False, "requires": "node"},
    {**_ENOUGH, "wait": False, "requires": Requirement("core", ("r1.node", "r1001.node"), hard=True)},
    {**_ENOUGH, "wait": False, "requires": Requirement("node", ("r2.node", "r1002.node"), hard=True)},
)
"""Of a job that does not wait for what is not there, nor on its way; some of it can be gone for a while."""

WIDE_MEMORY_BYTES = 1 << 30
"""Of each host in such a run."""

STUCK = 4
"""One of so many first attempts with a time-out never ends."""


def settings_for(
    hosts: int, cores: int, *, wide: bool = False, placed: bool = False
) -> Sequence[Mapping[str, Any]]:
    """Return those of the settings that so many hosts, with so many cores each, can serve.

    Args:
        hosts, cores: how many.
        wide: whether tasks may ask for more than cores and nodes.
        placed: whether they may ask for features, and for the workers of ranks.
    """
    named = (*TASK_SETTINGS, *PLACED_TASK_SETTINGS) if placed else TASK_SETTINGS
    usual = [one for one in named if hosts * cores > 1 or not isinstance(one.get("requires"), list)]
    if not wide:
        return usual
    needs = {("core", "core"): cores > 1, ("node", "core"): hosts > 1}
    wishes = ((one, one.get("requires")) for one in LATER_TASK_SETTINGS)
    return [*usual, *(one for one, named in wishes if not isinstance(named, list) or needs[tuple(named)])]


KINDS = ("bump", "bump", "bump", "relay", "spread", "twin", "sort")
"""Of stages, as often as they are drawn."""

KINDS_OUTSIDE = ("bump", "bump", "spread", "fork")
"""Those whose tokens nobody looks at but tasks."""

PAD_BYTES_MAX = 9_000


def _made(like: Token, key: str, value: int) -> Token:
    """Make a token; it has a pad if that of which it is made has one."""
    if "pad" not in like:
        return {"key": key, "value": value}
    return {"key": key, "value": value, "pad": bytes((value % 251,)) * (value * 7919 % PAD_BYTES_MAX)}


def bump(token: Token) -> Token:
    """Change the number."""
    return _made(token, token["key"], (token["value"] * 31 + 7) % 1009)


def spread(token: Token) -> list[Token]:
    """Make none, one or two of one."""
    number = token["value"] % 3
    return [_made(token, f"{token['key']}.{index}", token["value"] + index) for index in range(number)]


def twin(token: Token) -> dict[str, Token]:
    """Make one for each of two places."""
    return {"left": dict(token), "right": _made(token, token["key"], token["value"] + 1)}


def merge(left: Token, right: Token) -> Token:
    """Make one of two with the same key."""
    return {"key": left["key"], "value": (left["value"] * 13 + right["value"]) % 1009}


def doom(token: Token) -> Token:
    """Fail, always (see :func:`behave`)."""
    return token


def link(value: int) -> int:
    """Change a number, in little time: the task of a chain."""
    return (value * 31 + 7) % 1009


def link_twice(one: int, factor: int, other: int) -> int:
    """Make one number of two."""
    return (one * factor + other) % 1009


def is_welcome(value: int) -> bool:
    """Whether :func:`crowd` takes a number."""
    return value % 101 != 7


def crowd(value: int) -> int:
    """Change a number, or refuse it: one of many tasks that take no time."""
    if not is_welcome(value):
        raise ValueError(f"{value} is not welcome")
    return 3 * value + 1


def crowd_again(value: int) -> int:
    """Change a number once more."""
    return value + 5


def is_even(token: Token) -> bool:
    """Whether the number is even."""
    return bool(token["value"] % 2 == 0)


def is_odd(token: Token) -> bool:
    """Whether the number is odd."""
    return not is_even(token)


ON_NODE, SPREAD_ON_NODE = Variant(bump, requires="node"), Variant(spread, requires="node", estimate_s=0.05)
VARIED_STAGES = 0.7
"""Share of the stages with variants in a workload that has some."""


def size_of(token: Token) -> int:
    """Return what passes for the size of a token."""
    return 100 + int(token["value"])


class Stage(Struct, frozen=True):
    """Some transitions: ``kind`` is one of :data:`KINDS` (twin is two) or fork; places are numbers."""

    kind: str
    source: int
    targets: tuple[int, ...]


class Workload(Struct, frozen=True):
    """A random workflow.

    Attributes:
        stages: each place is the source of one stage at most; the others are output ports.
        tokens: at the beginning, in place 0.
        settings: of the stages' tasks, in the order of the stages.
        varied: numbers of stages whose tasks have variants: one for a core, one for a node.
    """

    stages: tuple[Stage, ...]
    tokens: tuple[Token, ...]
    settings: tuple[Mapping[str, Any], ...]
    varied: frozenset[int] = frozenset()

    def with_variants(self, random: Random) -> Workload:
        """Return the same, with variants in some of the stages that require nothing else."""
        free = [number for number, one in enumerate(self.settings) if "requires" not in one]
        return replace(self, varied=frozenset(number for number in free if random.random() < VARIED_STAGES))

    @classmethod
    def make(
        cls,
        random: Random,
        tasks: int,
        settings: Sequence[Mapping[str, Any]] = ({},),
        stages_max: int = 6,
        kinds: Sequence[str] = KINDS,
        padded: bool = False,
    ) -> Workload:
        """Make one up.

        Args:
            random: to draw from.
            tasks: about how many tasks it is to have.
            settings: what the tasks of a stage may state; one is drawn for each.
            stages_max: number of stages.
            kinds: of stages, to draw from.
            padded: tokens have some kilobytes.
        """
        open_places, places, stages = [0], 1, []
        for _ in range(random.randint(1, stages_max)):
            source = open_places.pop(random.randrange(len(open_places)))
            kind = random.choice(kinds)
            number = {"sort": 2, "twin": 3, "fork": 2}.get(kind, 1)
            targets = tuple(range(places, places + number))
            places += number
            stages.append(Stage(kind, source, targets))
            open_places += targets[-1:] if kind == "twin" else targets
        weight = sum({"relay": 0, "sort": 0, "twin": 2}.get(stage.kind, 1) for stage in stages) or 1
        count = max(1, tasks // weight)
        like: Token = {"pad": b""} if padded else {}
        tokens = tuple(_made(like, f"k{index}", random.randrange(1000)) for index in range(count))
        return cls(tuple(stages), tokens, tuple(random.choice(settings) for _ in stages))

    @classmethod
    def doomed(cls, random: Random, hopeless: bool) -> Workload:
        """Make one up that fails.

        Args:
            random: to draw from.
            hopeless: its tasks ask for what is nowhere; else they always fail.
        """
        settings: dict[str, Any] = {"requires": "nowhere"}
        if not hopeless:
            attempts = random.randint(1, 3)
            settings = {"attempts": attempts, "may_rerun": attempts < 3, "wait": True}
        kind = "bump" if hopeless else "doom"
        tokens = tuple(_made({}, f"k{index}", random.randrange(1000)) for index in range(3))
        return cls((Stage(kind, 0, (1,)),), tokens, ({**settings, "loss_attempts": 50},))

    def net(self) -> Net:
        """Return it as a net; its output ports are named ``p`` and the number of the place."""
        net = Net("workload")
        sources = {stage.source for stage in self.stages}
        sources |= {place for stage in self.stages if stage.kind == "twin" for place in stage.targets[:2]}
        count = 1 + sum(len(stage.targets) for stage in self.stages)
        places = [
            net.place(f"p{number}", self.tokens if number == 0 else ())
            if number in sources
            else net.output(f"p{number}")
            for number in range(count)
        ]
        for number, stage in enumerate(self.stages):
            self._add(net, number, stage, places)
        return net

    def _add(self, net: Net, number: int, stage: Stage, places: Sequence[Place]) -> None:
        source, targets = places[stage.source], [places[target] for target in stage.targets]
        settings: Any = self.settings[number]
        name = f"{stage.kind}{number}"
        if stage.kind == "bump":
            run: Run = Variants(core=bump, node=ON_NODE, size=size_of) if number in self.varied else bump
            net.transition(name, run, {"token": source}, targets[0], **settings)
        elif stage.kind == "doom":
            net.transition(name, doom, {"token": source}, targets[0], **settings)
        elif stage.kind == "spread":
            run = Variants.by_order(node=SPREAD_ON_NODE, core=spread) if number in self.varied else spread
            net.transition(name, run, {"token": source}, each(targets[0]), **settings)
        elif stage.kind == "relay":
            net.transition(name, bump, {"token": source}, targets[0], inline=True)
        elif stage.kind == "twin":
            outputs = {"left": targets[0], "right": targets[1]}
            net.transition(name, twin, {"token": source}, outputs, **settings)
            inputs = {"left": targets[0], "right": targets[1]}
            net.transition(f"merge{number}", merge, inputs, targets[2], match="key", **settings)
        elif stage.kind == "fork":
            outputs = {"left": targets[0], "right": targets[1]}
            net.transition(name, twin, {"token": source}, outputs, **settings)
        else:
            net.transition(f"even{number}", None, {"token": source}, targets[0], condition=is_even)
            net.transition(f"odd{number}", None, {"token": source}, targets[1], condition=is_odd)

    def results(self) -> dict[str, list[Token]]:
        """Return what a plain loop gets: output port -> tokens, in the order of their keys."""
        count = 1 + sum(len(stage.targets) for stage in self.stages)
        places: list[list[Token]] = [[] for _ in range(count)]
        places[0] = list(self.tokens)
        ends = set(range(count))
        for stage in self.stages:
            tokens, places[stage.source] = places[stage.source], []
            ends.discard(stage.source)
            if stage.kind in ("bump", "relay", "doom"):
                places[stage.targets[0]] += map(bump, tokens)
            elif stage.kind == "spread":
                places[stage.targets[0]] += [made for token in tokens for made in spread(token)]
            elif stage.kind == "twin":
                ends -= set(stage.targets[:2])
                pairs = map(twin, tokens)
                places[stage.targets[2]] += [merge(pair["left"], pair["right"]) for pair in pairs]
            elif stage.kind == "fork":
                pairs = map(twin, tokens)
                for pair in pairs:
                    places[stage.targets[0]].append(pair["left"])
                    places[stage.targets[1]].append(pair["right"])
            else:
                places[stage.targets[0]] += filter(is_even, tokens)
                places[stage.targets[1]] += filter(is_odd, tokens)
        return {f"p{number}": in_order(places[number]) for number in sorted(ends)}


def in_order(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens in the order of their keys."""
    return sorted(tokens, key=lambda token: str(token["key"]))


def behave(submission: Submission, code: bytes, *, scale: float = 1.0) -> Behaviour:
    """Say what an attempt of such a task does: its arguments say how long it takes and how often it fails."""
    entry = _decode(code)
    if isinstance(entry, FunctionOfItems) or entry.qualname.startswith(crowd.__qualname__):
        return _behave_as_crowd(submission, entry)
    draw = crc32(b"".join(submission.arguments)) ^ crc32(entry.qualname.encode())
    is_link = entry.qualname.startswith(link.__qualname__)
    times_s, longest_s = LINKS_S if is_link else TASKS_S
    duration_s = scale * (times_s[draw % 7] if draw % 101 else longest_s)
    failures = (0, 0, 0, 0, 0, 1, 2)[draw // 7 % 7] if draw // 7 % 3 == 0 else 0
    if entry.qualname == doom.__qualname__:
        return Behaviour(duration_s, error=TaskError("ValueError", "it always fails"))
    if submission.options.timeout_s is not None and submission.attempt == 1 and draw % STUCK == 0:
        return Behaviour(NEVER_S)
    if submission.attempt <= failures and submission.options.may_rerun:
        return Behaviour(duration_s, error=TaskError("ValueError", "it fails at first"))
    function: Callable[..., Any] = getattr(sys.modules[entry.module], entry.qualname)
    values = [loads(argument) for argument in submission.arguments]
    by_name = dict(zip(entry.parameters, values[len(values) - len(entry.parameters) :], strict=True))
    result = function(*values[: len(values) - len(entry.parameters)], **by_name)
    if is_link:
        return Behaviour(duration_s, values=((dumps(result),),))
    tokens = split_outputs(result, entry.outputs)
    return Behaviour(duration_s, values=tuple(tuple(map(dumps, group)) for group in tokens))


def _behave_as_crowd(submission: Submission, entry: ImportedFunction | FunctionOfItems) -> Behaviour:
    """Say what an attempt of an item does, or one of a range of items: that may end early, or its process."""
    draw = crc32(b"".join(submission.arguments)) // 7
    if draw % 41 == 0 and submission.attempt == 1:
        return Behaviour(ITEM_S, dies="killed by signal 9")
    if isinstance(entry, ImportedFunction):
        try:
            result = getattr(sys.modules[entry.module], entry.qualname)(*map(loads, submission.arguments))
        except ValueError as error:
            return Behaviour(ITEM_S, error=TaskError("ValueError", str(error)))
        return Behaviour(ITEM_S, values=((dumps(result),),))
    of_one = _decode(entry.code)
    assert isinstance(of_one, ImportedFunction), "ranges are of single calls"
    are_encoded, column = map(loads, submission.arguments)
    count = len(column) if draw % 5 else draw // 5 % (len(column) + 1)
    function = getattr(sys.modules[of_one.module], of_one.qualname)
    answer = call_items(function, are_encoded, column[:count])
    return Behaviour(ITEM_S * count, values=((dumps(answer),),))


@cache
def _decode(code: bytes) -> ImportedFunction | FunctionOfItems:
    entry = decode_code(code)
    assert isinstance(entry, ImportedFunction | FunctionOfItems), "a workload has functions of this module"
    return entry
