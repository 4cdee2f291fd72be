"""The pattern ``map_reduce``: items are mapped, and the results reduced to one."""

from __future__ import annotations

from collections.abc import Iterable

from gspc_trio.core.code import Program, SourceFile, Variants
from gspc_trio.core.pattern_code import MapPairs, ReduceKey, merge_by_key, split_by_key
from gspc_trio.workflow.arcs import (
    Forward,
    Place,
    Sources,
    Unpassed,
    WorkflowError,
    each,
    forward,
    take,
)
from gspc_trio.workflow.calls import Run, function_name
from gspc_trio.workflow.in_flight import IN_FLIGHT
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import IN_FLIGHT_OF_STREAM, FarmStage, one_input
from gspc_trio.workflow.patterns.pipeline import check_function, pipeline
from gspc_trio.workflow.patterns.stream import LAST, Builder, PatternNet, Stream, StreamStage
from gspc_trio.workflow.settings import TaskSettings, whole_number
from gspc_trio.workflow.tokens import Batch

FAN_IN = 16
"""How many values one reduce task combines, unless told otherwise."""

COUNT_BATCH_MAX = 1024
"""Items that are counted at once."""

_STEER = 1  # counting comes before what depends on the count


def map_reduce(
    map: Run,
    reduce: Run,
    *,
    initial: object = None,
    fan_in: int = FAN_IN,
    name: str = "map_reduce",
    default: Iterable[object] | None = None,
    input_port: str = "items",
    output_port: str = "result",
    in_flight: int | None = None,
    map_settings: TaskSettings | None = None,
    reduce_settings: TaskSettings | None = None,
    by_key: bool = False,
) -> Net:
    """Return a net that maps each item at its input port and reduces the results to one, at its output port.

    Results are reduced as they come, in a tree: ``reduce`` has to be associative and commutative. A lone
    result is not reduced. The items all have to be there when the net is started; as a stage of a pipeline it
    takes them as they come, and gives its result when no more come.

    Args:
        map: function of one item, or a Program that uses ``{item}``, or a SourceFile. With ``by_key`` a
            function that gives pairs (key, value): one pair as a tuple, or several as a list or a mapping.
        reduce: function of a list of 2 to ``fan_in`` results of ``map`` or ``reduce``, which returns one of
            the kind. With ``by_key`` a function of the list of all values of one key, in the order of their
            items; it may return anything.
        by_key: reduce the values of each key by a task of its own. There is one result for each key, a pair
            (key, what ``reduce`` has returned), in the order in which the items have the keys.
        initial: the result if there are no items; with ``by_key`` there is none then.
        fan_in: how many results one reduce task combines at most.
        name: of the net.
        default: items to use if none are given when the net is started.
        input_port, output_port: names of the ports.
        in_flight: how many map tasks may have begun and not ended; by default 16,384, and 1,024 as a stage
            of a pipeline and with ``by_key``.
        map_settings: what the map tasks need and state.
        reduce_settings: what the reduce tasks need and state.

    Raises:
        WorkflowError: ``map`` or ``reduce`` cannot be called so, ``fan_in`` is less than 2, or a setting
            makes no sense.
    """
    if fan_in < 2:
        raise WorkflowError(f"map_reduce needs a fan_in of at least 2, not {fan_in}")
    stage = _stage(map, reduce, initial, fan_in, name, in_flight, map_settings, reduce_settings, by_key)
    if by_key:
        return pipeline(stage, name=name, default=default, input_port=input_port, output_port=output_port)
    net = PatternNet(name, [stage])
    items, result = net.input(input_port, default), net.output(output_port)
    most = IN_FLIGHT if in_flight is None else in_flight
    _add_alone(
        net, items, result, map, reduce, initial, fan_in, most, map_settings or {}, reduce_settings or {}
    )
    return net


def _add_alone(
    net: Net,
    items: Place,
    result: Place,
    map: Run,
    reduce: Run,
    initial: object,
    fan_in: int,
    in_flight: int,
    map_settings: TaskSettings,
    reduce_settings: TaskSettings,
) -> None:
    """Map all items, which are there from the beginning, and reduce the results to one."""
    counted, parts = net.place("counted"), net.place("parts")
    left = net.place("left", [0])  # one token: how many results are there or still to come
    net.transition(
        "count",
        _add_number,
        {"items": take(items, most=COUNT_BATCH_MAX), "left": left},
        [left, forward("items", each(counted))],
        priority=_STEER,
        inline=True,
    )
    net.transition("map", map, one_input(map, counted), parts, in_flight=in_flight, **map_settings)
    batches = net.place("batches")
    _add_reduction(net, ("gather", "reduce"), reduce, parts, left, batches, fan_in, reduce_settings)
    net.transition(
        "finish",
        None,
        {"part": parts, "left": left},
        forward("part", result),
        condition=lambda left: left == 1,
    )
    net.transition(
        "finish without items",
        lambda: initial,
        {"_left": left},
        result,
        condition=lambda _left: _left == 0,
        priority=LAST,
        inline=True,
    )


def _add_reduction(
    net: Net,
    names: tuple[str, str],
    reduce: Run,
    parts: Place,
    left: Place,
    batches: Place,
    fan_in: int,
    settings: TaskSettings,
) -> None:
    """Gather parts as they come, and put back one part for each batch of them."""
    net.transition(
        names[0],
        _number_after_reduce,
        {"parts": take(parts, least=2, most=fan_in), "left": left},
        [left, forward("parts", batches)],
        condition=_Gather(fan_in),
        inline=True,
    )
    net.transition(names[1], reduce, [batches], parts, **settings)


def _stage(
    map: Run,
    reduce: Run,
    initial: object,
    fan_in: int,
    name: str,
    in_flight: int | None,
    map_settings: TaskSettings | None,
    reduce_settings: TaskSettings | None,
    by_key: bool,
) -> StreamStage:
    """Return what the pattern is in a pipeline."""
    most = IN_FLIGHT_OF_STREAM if in_flight is None else whole_number("in_flight", in_flight, 1)
    settings = (map_settings or {}, reduce_settings or {})
    if not by_key:
        return ReduceStage(map, reduce, initial, fan_in, name, most, settings, None)
    for function, what in ((map, "an item"), (reduce, "a list of values")):
        if isinstance(function, Program | SourceFile | Variants):
            raise WorkflowError(f"by_key is for functions, not for {function_name(function)!r}")
        check_function(function, 1, what)
    assert callable(map)
    assert callable(reduce)
    pairs = MapPairs(map, function_name(map))
    return ReduceStage(pairs, merge_by_key, {}, fan_in, name, most, settings, ReduceKey(reduce))


class ReduceStage(StreamStage):
    """Maps the items of a stream and reduces the results, to one or to one for each key.

    The number of parts that are there or still to come is a token. The stream itself is one of them, as long
    as it has not ended: so nothing is taken for the last part before.

    Args:
        map, reduce: what its tasks run.
        initial: the result if there are no items.
        fan_in: how many values one reduce task combines.
        name: of it.
        in_flight: how many map tasks may have begun and not ended.
        settings: of its map tasks, and of its reduce tasks.
        last: reduces the values of a key, which the others only gather; None: there are no keys.
    """

    wants_end = True

    def __init__(
        self,
        map: Run,
        reduce: Run,
        initial: object,
        fan_in: int,
        name: str,
        in_flight: int,
        settings: tuple[TaskSettings, TaskSettings],
        last: ReduceKey | None,
    ) -> None:
        self.name = name
        self._map, self._reduce, self._initial = map, reduce, initial
        self._fan_in, self._in_flight = fan_in, in_flight
        self._settings = settings
        self._last = last

    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``."""
        net = build.net
        slots, begun = build.place(f"({name} slots)", [None] * self._in_flight), net.place(f"({name} begun)")
        counted, numbers, parts = (net.place(f"({name} {what})") for what in ("counted", "numbers", "parts"))
        left, count = build.place(f"({name} left)", [1]), build.place(f"({name} count)", [0])
        net.transition(
            f"({name} counts)",
            _count_more,
            {
                "items": take(source.items, most=COUNT_BATCH_MAX),
                "left": left,
                "count": count,
                "_slots": take(slots, as_many_as="items"),
            },
            {
                "left": left,
                "count": count,
                "numbers": [each(numbers), forward("items", each(counted)), forward("_slots", each(begun))],
                "": [] if source.room is None else [forward("_slots", each(source.room))],
            },
            priority=_STEER,
            inline=True,
        )
        inputs: Sources = [counted, Unpassed(numbers), Unpassed(begun)]
        if self._last is not None:
            inputs = [counted, numbers, Unpassed(begun)]
        elif isinstance(self._map, Program):
            inputs = {"item": counted, "_number": numbers, "_begun": begun}
        slot = "_begun" if isinstance(self._map, Program) else 2
        net.transition(f"{name} map", self._map, inputs, [parts, forward(slot, slots)], **self._settings[0])
        gather, batches = (f"({name} gathers)", f"{name} reduce"), net.place(f"({name} batches)")
        reduces = self._settings[1]
        _add_reduction(net, gather, self._reduce, parts, left, batches, self._fan_in, reduces)
        self._add_end(build, name, source, target, slots, left, parts)

    def _add_end(
        self,
        build: Builder,
        name: str,
        source: Stream,
        target: Stream,
        slots: Place,
        left: Place,
        parts: Place,
    ) -> None:
        """Give the last part on when the stream has ended."""
        net, end = build.net, source.end
        assert end is not None, "it wants to know of the end"
        ended, whole = net.place(f"({name} ended)"), net.place(f"({name} whole)")
        net.transition(
            f"({name} counts down)",
            _one_less,
            {"left": left, "_end": end, "_slot": slots},
            [left, forward("_end", ended), forward("_slot", slots)],
            priority=LAST,
            inline=True,
        )
        net.transition(
            f"({name} finishes)",
            None,
            {"_ended": ended, "left": left, "part": parts},
            [forward("part", whole), forward("_ended", whole)],
            condition=_is_last,
        )
        net.transition(
            f"({name} finishes without items)",
            _Initial(self._initial),
            {"_ended": ended, "_left": left},
            [whole, forward("_ended", whole)],
            condition=_is_none,
            priority=LAST,
            inline=True,
        )
        both = take(whole, 2)  # the result, and then the token that says that no more come
        if self._last is None:
            room = target.room or ""
            ends = [] if target.end is None else [Forward("both", target.end, part=1)]
            given = [Forward("both", target.items, part=0), *ends]
            net.transition(f"({name} gives)", None, {"both": both, "_room": room}, given)
            return
        keys = Stream(net.place(f"({name} keys)"), None, 0, build.place(f"({name} no more keys)"))
        gathered, then = net.place(f"({name} gathered)"), net.place(f"({name} then)")
        parted = [Forward("both", gathered, part=0), Forward("both", then, part=1)]
        net.transition(f"({name} parts)", None, {"both": both}, parted)
        assert keys.end is not None
        net.transition(
            f"{name} split",
            split_by_key,
            [gathered, Unpassed(then)],
            [each(keys.items), forward(1, keys.end)],
        )
        last = FarmStage(self._last, f"{name} keys", self._in_flight, True, self._settings[1])
        last.add(build, f"{name} keys", keys, target)


class _Initial:
    """Returns the result of no items."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __call__(self) -> object:
        return self._value


def _count_more(items: Batch, left: int, count: int) -> dict[str, object]:
    added = len(items)
    return {"left": left + added, "count": count + added, "numbers": range(count, count + added)}


def _one_less(left: int) -> int:
    return left - 1


def _is_last(left: int) -> bool:
    return left == 1


def _is_none(_left: int) -> bool:
    return _left == 0


def _add_number(items: Batch, left: int) -> int:
    return left + len(items)


def _number_after_reduce(parts: Batch, left: int) -> int:
    return left - len(parts) + 1


class _Gather:
    """Reduce a full batch, or the last results when no more are to come."""

    def __init__(self, fan_in: int) -> None:
        self._fan_in = fan_in

    def __call__(self, parts: Batch, left: int) -> bool:
        return len(parts) == self._fan_in or len(parts) == left
