"""The pattern ``split_join``: a stream is split into substreams, and their results are joined again."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from gspc_trio.workflow.arcs import Source, Target, WorkflowError, each, forward, take
from gspc_trio.workflow.patterns.pipeline import StageLike, stages_of
from gspc_trio.workflow.patterns.stream import LAST, Builder, Stream, StreamStage
from gspc_trio.workflow.tokens import Batch

SPLITS = ("duplicate", "round_robin")
JOINS = ("round_robin", "tuple")

_NO_FILL = object()


def split_join(
    split: str, join: str, *substreams: StageLike | Sequence[StageLike], fill: object = _NO_FILL
) -> StreamStage:
    """Return a stage of a pipeline that splits its items into substreams and joins their results.

    It works only inside a pipeline.

    Args:
        split: ``"duplicate"``: each substream gets each item; ``"round_robin"``: item i goes to substream
            i mod n.
        join: ``"round_robin"``: results are taken from the substreams in turn; one that has ended is skipped;
            ``"tuple"``: one result of each substream makes a tuple.
        substreams: a stage each, as a pipeline takes them, or a list of several.
        fill: stands in a tuple for the result of a substream that has ended before others. Without it, the
            job fails then.

    Raises:
        WorkflowError: there is no such policy, or no substream.
    """
    for policy, known, what in ((split, SPLITS, "split"), (join, JOINS, "join")):
        if policy not in known:
            names = " or ".join(map(repr, known))
            raise WorkflowError(f"split_join: the policy to {what} is {names}, not {policy!r}")
    if not substreams:
        raise WorkflowError("split_join needs a substream: a function, stage(...) or a pattern")
    if fill is not _NO_FILL and join != "tuple":
        raise WorkflowError("split_join: fill stands in tuples; the join is 'round_robin'")
    parts = []
    for written in substreams:
        if isinstance(written, Sequence):
            parts.append([stage for one in written for stage in stages_of(one)])
        else:
            parts.append(list(stages_of(written)))
        if not parts[-1]:
            raise WorkflowError("split_join: a substream is a stage, or a list of some")
    return SplitJoin(split, join, parts, [] if fill is _NO_FILL else [fill])


class SplitJoin(StreamStage):
    """Splits a stream into substreams and joins their results.

    Args:
        split, join: the policies.
        parts: the stages of each substream.
        fill: stands in tuples for what is lacking; empty: nothing may be lacking.
    """

    wants_end = True
    name = "split_join"

    def __init__(
        self, split: str, join: str, parts: Sequence[Sequence[StreamStage]], fill: Sequence[object]
    ) -> None:
        self._split, self._join = split, join
        self._parts = parts
        self._fill = fill

    def __repr__(self) -> str:
        return f"split_join({self._split!r}, {self._join!r}, ...), which works only inside a pipeline"

    def add(self, build: Builder, name: str, source: Stream, target: Stream) -> None:
        """Add what takes items from ``source`` and puts results to ``target``."""
        begins, ends = [], []
        for number, stages in enumerate(self._parts):
            first, last = stages[0], stages[-1]
            of_it = f"{name} {number}"
            begins.append(build.stream(f"{of_it} begin", first.ahead, ends=True, may_leave=first.may_leave))
            end = build.stream(f"{of_it} end", last.ahead, ends=True)
            assert end.room is not None
            # However many wait here for others: if their stage waited for room, the others might never come.
            waiting = build.net.replace_place(end.items, room=end.room.name)
            ends.append(evolve(end, items=waiting))
        if self._split == "duplicate":
            self._duplicate(build, name, source, begins)
        else:
            self._deal(build, name, source, begins)
        for stages, begin, end in zip(self._parts, begins, ends, strict=True):
            build.chain(stages, begin, end)
        if self._join == "tuple":
            self._join_tuples(build, name, ends, target)
        else:
            self._join_in_turn(build, name, ends, target)

    def _duplicate(self, build: Builder, name: str, source: Stream, begins: Sequence[Stream]) -> None:
        """Let each substream have each item, and the end."""
        rooms = {f"_room {n}": take(one.room or "", as_many_as="items") for n, one in enumerate(begins)}
        build.net.transition(
            f"({name} splits)",
            None,
            {"items": take(source.items, most=build.options.batch), **rooms},
            [*(forward("items", each(one.items)) for one in begins), *source.give_back("_room 0")],
        )
        self._end_all(build, name, source, begins)

    def _deal(self, build: Builder, name: str, source: Stream, begins: Sequence[Stream]) -> None:
        """Let the substreams have the items in turn, and all of them the end."""
        turns = [build.place(f"({name} deals {n})", [None] if n == 0 else []) for n in range(len(begins))]
        for number, (one, turn) in enumerate(zip(begins, turns, strict=True)):
            following = turns[(number + 1) % len(turns)]
            build.net.transition(
                f"({name} splits {number})",
                None,
                {"item": source.items, "_turn": turn, "_room": one.room or ""},
                [forward("item", one.items), forward("_turn", following), *source.give_back_one("_room")],
            )
        self._end_all(build, name, source, begins)

    @staticmethod
    def _end_all(build: Builder, name: str, source: Stream, begins: Sequence[Stream]) -> None:
        rooms: dict[str, Source] = {f"_room {n}": one.room or "" for n, one in enumerate(begins)}
        back: list[Target] = [forward(f"_room {n}", one.room or "") for n, one in enumerate(begins)]
        assert source.end is not None
        build.net.transition(
            f"({name} ends)",
            None,
            {"_end": source.end, **rooms},
            [*(forward("_end", one.end or "") for one in begins), *back],
            priority=LAST,
        )

    def _join_in_turn(self, build: Builder, name: str, ends: Sequence[Stream], target: Stream) -> None:
        """Take results in turn; the token of the turn says which substreams have not ended."""
        net, room = build.net, target.room or ""
        turns = [
            build.place(f"({name} turn {n})", [list(range(len(ends)))] if n == 0 else [])
            for n in range(len(ends))
        ]
        over = target.end or build.place(f"({name} over)")
        routes: dict[str, Target | Sequence[Target]] = {str(n): each(turn) for n, turn in enumerate(turns)}
        for number, (one, turn) in enumerate(zip(ends, turns, strict=True)):
            inputs: dict[str, Source] = {"ring": turn, "_item": one.items, "_room": room}
            net.transition(
                f"({name} joins {number})",
                _Turn(len(ends), keeps=True),
                inputs,
                {**routes, "": forward("_item", target.items)},
                inline=True,
            )
            assert one.end is not None
            net.transition(
                f"({name} skips {number})",
                _Turn(len(ends), keeps=False),
                {"ring": turn, "_end": one.end, "_room": room},
                {**routes, "over": each(over), "": [forward("_room", room)]},
                priority=LAST,
                inline=True,
            )

    def _join_tuples(self, build: Builder, name: str, ends: Sequence[Stream], target: Stream) -> None:
        """Take one result of each substream in turn; the token of the turn says how many were found."""
        net, count = build.net, len(ends)
        turns = [build.place(f"({name} turn {n})", [0] if n == 0 else []) for n in range(count)]
        together = build.place(f"({name} together)")
        full, empty = net.place(f"({name} full)"), net.place(f"({name} empty)")
        for number, (one, turn) in enumerate(zip(ends, turns, strict=True)):
            is_last = number + 1 == count
            routes: dict[str, Target | Sequence[Target]] = (
                {"full": each(full), "empty": each(empty)} if is_last else {"next": each(turns[number + 1])}
            )
            net.transition(
                f"({name} joins {number})",
                _Found(count, is_last, 1, self._fill),
                {"found": turn, "_item": one.items},
                {**routes, "": forward("_item", together)},
                inline=True,
            )
            assert one.end is not None
            net.transition(
                f"({name} fills {number})",
                _Found(count, is_last, 0, self._fill),
                {"found": turn},
                {**routes, "fill": each(together)},
                reads={"_end": one.end},
                priority=LAST,
                inline=True,
            )
        net.transition(
            f"({name} gives)",
            _as_tuple,
            {"items": take(together, count), "_full": full, "_room": target.room or ""},
            {"tuple": target.items, "found": turns[0]},
            inline=True,
        )
        net.transition(
            f"({name} is over)",
            None,
            {"_fills": take(together, count), "_empty": empty},
            forward("_empty", target.end or build.place(f"({name} over)")),
        )


class _Turn:
    """Says which substream has its turn next.

    Args:
        count: how many there are.
        keeps: whether the one that has its turn has another one later.
    """

    def __init__(self, count: int, *, keeps: bool) -> None:
        self._count = count
        self._keeps = keeps

    def __call__(self, ring: Sequence[int]) -> dict[str, list[object]]:
        following = [*ring[1:], *ring[:1]] if self._keeps else list(ring[1:])
        routes: dict[str, list[object]] = {str(number): [] for number in range(self._count)}
        if following:
            routes[str(following[0])] = [following]
        return {**routes, "over": [] if following else [None]}


class _Found:
    """Counts the results that a tuple has.

    Args:
        count: how many belong into one.
        is_last: whether this is about the last one.
        found: 1 if there is one, 0 if its substream has ended.
        fill: stands for those that are lacking; empty: none may be lacking.
    """

    def __init__(self, count: int, is_last: bool, found: int, fill: Sequence[object]) -> None:
        self._count, self._is_last, self._found = count, is_last, found
        self._fill = fill

    def __call__(self, found: int) -> dict[str, list[object]]:
        found += self._found
        if self._is_last and 0 < found < self._count and not self._fill:
            raise WorkflowError(
                f"a tuple lacks the results of {self._count - found} of {self._count} substreams, which have "
                "ended; with fill= something stands for them"
            )
        goes: dict[str, list[object]] = {"next": [found]}
        if self._is_last:
            goes = {"full": [None] if found else [], "empty": [] if found else [None]}
        return {**goes, "fill": list(self._fill) or [None]}


def _as_tuple(items: Batch) -> dict[str, object]:
    return {"tuple": tuple(items), "found": 0}
