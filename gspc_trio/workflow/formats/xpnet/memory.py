"""Memory of modules: buffers, and what is copied between them and the memory layer (IML).

Before a module is called its buffers are made and ranges of the layer are fetched into them; after it has
returned ranges are stored. A range of the layer is a struct with ``handle`` (the name under which the data
was published, or a struct with that as its ``name``), ``offset`` and ``size``; one of a buffer has ``buffer``
(its name), ``offset`` and ``size``.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.published import map_range, put_range
from gspc_trio.workflow.formats.format import FormatError, Problem
from gspc_trio.workflow.formats.in_tasks.native import address_of
from gspc_trio.workflow.formats.xpnet.compiling import compile_value
from gspc_trio.workflow.formats.xpnet.description import Defun, Text, Transfer
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.inference import infer
from gspc_trio.workflow.formats.xpnet.modules import ModuleError
from gspc_trio.workflow.formats.xpnet.tree import TextStart
from gspc_trio.workflow.formats.xpnet.types import INTEGRAL, ValueType
from gspc_trio.workflow.formats.xpnet.values import XpnetValue

GET, PUT = ("get", "getput"), ("put", "getput")
"""Kinds of transfers that copy into buffers, and out of them."""

ALIGNMENT_MAX = 2**30

GetRange: TypeAlias = Callable[[str, int, int], memoryview]
PutRange: TypeAlias = Callable[[str, int, list[memoryview]], None]


class TaskExpression(Struct, eq=False):
    """An expression that a task evaluates: it is compiled where it is first needed.

    Attributes:
        text: as written.
        start: where.
        inputs: name and type of each port that it may use.
    """

    text: str
    start: TextStart
    inputs: tuple[tuple[str, ValueType], ...]
    _function: Callable[..., XpnetValue] | None = None

    def __call__(self, values: Mapping[str, XpnetValue]) -> XpnetValue:
        """Return its value.

        Raises:
            ExpressionError: it has none.
        """
        if self._function is None:
            self._function = compile_value(parse_expression(self.text, self.start), dict(self.inputs))
        return self._function(*[values[name] for name, _ in self.inputs])

    def __reduce__(self) -> tuple[type[TaskExpression], tuple[object, ...]]:
        return TaskExpression, (self.text, self.start, self.inputs)


class BufferPlan(Struct, frozen=True):
    """A buffer, as it is made for each call.

    Attributes:
        name: argument of the function.
        size, alignment: in bytes; no alignment: 1.
        read_only: whether the function leaves it as it is.
    """

    name: str
    size: TaskExpression
    alignment: TaskExpression | None
    read_only: bool


class TransferPlan(Struct, frozen=True):
    """What is copied.

    Attributes:
        kind: ``get``, ``put`` or ``getput``.
        where: what messages call it.
        get_ranges, put_ranges: expressions of the ranges of the layer and of buffers, for what is fetched
            before the call and for what is stored after it.
        allow_empty: whether there may be nothing to copy.
        is_early: whether ranges that are stored after the call are those of before it.
    """

    kind: str
    where: str
    get_ranges: tuple[TaskExpression, TaskExpression] | None
    put_ranges: tuple[TaskExpression, TaskExpression] | None
    allow_empty: bool
    is_early: bool


class Move(Struct, frozen=True):
    """Bytes that lie in one piece in the layer and in a buffer.

    Attributes:
        buffer, begin: name of the buffer, and where in it.
        name, offset: under which the data is published, and where in it.
        size_bytes: how many.
    """

    buffer: str
    begin: int
    name: str
    offset: int
    size_bytes: int


class Memory(Struct, frozen=True):
    """All memory of a module.

    Attributes:
        buffers: in the order in which they are written.
        transfers: likewise.
    """

    buffers: tuple[BufferPlan, ...]
    transfers: tuple[TransferPlan, ...]


class MemoryTask(Struct, eq=False):
    """What a task of a module with memory runs.

    Attributes:
        name: of the module, for messages.
        run: gets the values of the input ports, then the buffers; returns output port -> value.
        inputs: name of each input port, in the order in which the task gets their values.
        memory: what there is around the call.
        is_native: whether ``run`` needs memory with an address; else what is read-only is so.
    """

    name: str
    run: Callable[..., dict[str, XpnetValue]]
    inputs: tuple[str, ...]
    memory: Memory
    is_native: bool = False

    def __call__(self, *values: XpnetValue) -> dict[str, XpnetValue]:
        """Return output port -> value.

        Raises:
            ModuleError: ranges or sizes make no sense.
            ExpressionError: one of the expressions has no value.
            ImlError: there are no such ranges, or no room.
            NoNamedData: there is no memory layer.
            Exception: whatever the module raises.
        """
        return self.called(values, map_range, put_range)

    def called(self, values: Sequence[XpnetValue], get: GetRange, put: PutRange) -> dict[str, XpnetValue]:
        """Do it with a memory layer of which ranges are read and written so."""
        given = dict(zip(self.inputs, values, strict=True))
        sizes = {
            one.name: self._whole(f"the size of the buffer {one.name!r}", one.size(given))
            for one in self.memory.buffers
        }
        fetched = [
            move
            for each in self.memory.transfers
            for move in self._moves(each, each.get_ranges, given, sizes)
        ]
        early = {
            number: self._moves(each, each.put_ranges, given, sizes)
            for number, each in enumerate(self.memory.transfers)
            if each.is_early
        }
        buffers = {
            one.name: self._buffer(one, sizes[one.name], given, fetched, get) for one in self.memory.buffers
        }
        read_only = set() if self.is_native else {one.name for one in self.memory.buffers if one.read_only}
        passed = [view.toreadonly() if name in read_only else view for name, view in buffers.items()]
        results = self.run(*values, *passed)
        after = {**given, **results}
        stored = [
            move
            for number, each in enumerate(self.memory.transfers)
            for move in (early[number] if each.is_early else self._moves(each, each.put_ranges, after, sizes))
        ]
        for move in stored:
            put(move.name, move.offset, [buffers[move.buffer][move.begin : move.begin + move.size_bytes]])
        return results

    def _buffer(
        self,
        plan: BufferPlan,
        size_bytes: int,
        given: Mapping[str, XpnetValue],
        fetched: Sequence[Move],
        get: GetRange,
    ) -> memoryview:
        """Return a buffer with what is fetched: without a copy, if it is one range that nobody changes."""
        alignment = 1
        if plan.alignment is not None:
            what = f"the alignment of the buffer {plan.name!r}"
            alignment = self._whole(what, plan.alignment(given))
            if not 0 < alignment <= ALIGNMENT_MAX:
                raise ModuleError(
                    f"module {self.name}: {what} is {alignment}: 1 to {ALIGNMENT_MAX} bytes are"
                )
        moves = [move for move in fetched if move.buffer == plan.name]
        if plan.read_only and len(moves) == 1 and moves[0].size_bytes == size_bytes:
            view = get(moves[0].name, moves[0].offset, size_bytes)
            if alignment == 1 or address_of(view) % alignment == 0:
                return view
            moves, made = [], aligned(size_bytes, alignment)
            made[:] = view
            return made
        made = aligned(size_bytes, alignment)
        for move in moves:
            made[move.begin : move.begin + move.size_bytes] = get(move.name, move.offset, move.size_bytes)
        return made

    def _moves(
        self,
        plan: TransferPlan,
        ranges: tuple[TaskExpression, TaskExpression] | None,
        values: Mapping[str, XpnetValue],
        sizes: Mapping[str, int],
    ) -> list[Move]:
        if ranges is None:
            return []
        try:
            outside = list(_outside(ranges[0](values)))
            inside = list(_inside(ranges[1](values), sizes))
            there, here = sum(size for _, _, size in outside), sum(size for _, _, size in inside)
            if there != here:
                raise _BadRange(
                    f"ranges of {there} bytes of the memory layer do not go with {here} bytes of buffers"
                )
            if not plan.allow_empty and (not there or any(not size for _, _, size in (*outside, *inside))):
                raise _BadRange('a range is empty: allow that by allow-empty-ranges="true"')
            return list(_paired(outside, inside))
        except _BadRange as error:
            raise ModuleError(f"module {self.name}, {plan.where}: {error}") from None

    def _whole(self, what: str, value: XpnetValue) -> int:
        try:
            return _number(what, value)
        except _BadRange as error:
            raise ModuleError(f"module {self.name}: {error}") from None


class _BadRange(ValueError):
    """A range makes no sense; the message says why."""


def _number(what: str, value: XpnetValue) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _BadRange(f"{what} is {value!r:.60}: a whole number of bytes, 0 or more, is wanted")
    return int(value)


def _fields(value: XpnetValue, first: str) -> Iterator[tuple[XpnetValue, int, int]]:
    """Yield the first field, the offset and the size of each range that a value has."""
    for one in value if isinstance(value, tuple) else (value,):
        if not isinstance(one, dict) or not {first, "offset", "size"} <= one.keys():
            there = f"has {', '.join(one)}" if isinstance(one, dict) else f"is {one!r:.60}"
            raise _BadRange(f"a range is a struct with {first}, offset and size, and this {there}")
        yield (
            one[first],
            _number("the offset of a range", one["offset"]),
            _number("the size of a range", one["size"]),
        )


def _outside(value: XpnetValue) -> Iterator[tuple[str, int, int]]:
    for handle, offset, size in _fields(value, "handle"):
        name = handle.get("name") if isinstance(handle, dict) else handle
        if not isinstance(name, str) or not name:
            raise _BadRange(f"a handle is a name, or a struct with one, and this is {handle!r:.60}")
        yield name, offset, size


def _inside(value: XpnetValue, sizes: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    for buffer, offset, size in _fields(value, "buffer"):
        if buffer not in sizes:
            known = ", ".join(sizes) or "none"
            raise _BadRange(f"there is no buffer {buffer!r:.60}; the buffers are: {known}")
        if offset + size > sizes[buffer]:
            raise _BadRange(
                f"the buffer {buffer!r} has {sizes[buffer]} bytes, and {size} at offset {offset} are wanted"
            )
        yield buffer, offset, size


def _paired(
    outside: Iterable[tuple[str, int, int]], inside: Iterable[tuple[str, int, int]]
) -> Iterator[Move]:
    """Yield what goes where, when the bytes of all ranges stand one after another."""
    there, here = iter(outside), iter(inside)
    name, offset, left = "", 0, 0
    buffer, begin, room = "", 0, 0
    while True:
        while not left:
            found = next(there, None)
            if found is None:
                return
            name, offset, left = found
        while not room:
            buffer, begin, room = next(here)
        size = min(left, room)
        yield Move(buffer, begin, name, offset, size)
        offset, left, begin, room = offset + size, left - size, begin + size, room - size


def aligned(size_bytes: int, alignment: int) -> memoryview:
    """Return new memory of zeros whose address is a multiple of the alignment."""
    spare = alignment if alignment > mmap.PAGESIZE else 0
    view = memoryview(mmap.mmap(-1, max(1, size_bytes + spare)))
    begin = -address_of(view) % alignment
    return view[begin : begin + size_bytes]


class MemoryMaking:
    """Makes the memory of a module; reports what is wrong with it.

    Args:
        function: whose body the module is.
        types: port -> type.
        inputs: input ports in the order in which a task gets their values.
        report: is told each problem.
    """

    def __init__(
        self,
        function: Defun,
        types: Mapping[str, ValueType],
        inputs: Sequence[str],
        report: Callable[[Problem], None],
    ) -> None:
        self._function = function
        self._before = {name: types[name] for name in inputs if name in types}
        outputs = [port.name for port in function.ports.values() if port.is_output]
        self._after = {**self._before, **{name: types[name] for name in outputs if name in types}}
        self._report = report
        self._is_whole = True

    def made(self) -> Memory | None:
        """Return the memory of each call, None if something is wrong with it."""
        buffers = []
        names: set[str] = set()
        for one in self._function.buffers:
            if one.name in self._function.ports or one.name in names:
                self._problem(
                    one.spot.problem(f"the buffer {one.name!r} has the name of a port or of another one")
                )
            names.add(one.name)
            size = self._whole(one.size, "a size")
            alignment = None if one.alignment is None else self._whole(one.alignment, "an alignment")
            if size is not None:
                buffers.append(BufferPlan(one.name, size, alignment, one.read_only))
        transfers = [self._transfer(one) for one in self._function.transfers]
        return Memory(tuple(buffers), tuple(transfers)) if self._is_whole else None

    def _problem(self, problem: Problem) -> None:
        self._report(problem)
        self._is_whole = False

    def _transfer(self, one: Transfer) -> TransferPlan:
        spot = one.spot
        if not self._function.buffers:
            self._problem(spot.problem(f"<{spot.tag}> needs a <memory-buffer> beside it"))
        get = self._ranges(one, self._before) if one.kind in GET else None
        put = (
            self._ranges(one, self._before if one.not_modified else self._after) if one.kind in PUT else None
        )
        where = f"<{spot.tag}> ({spot.source.path.rpartition('/')[2]}:{spot.element.line})"
        is_early = one.not_modified and one.kind in PUT
        return TransferPlan(one.kind, where, get, put, one.allow_empty, is_early)

    def _ranges(
        self, one: Transfer, types: Mapping[str, ValueType]
    ) -> tuple[TaskExpression, TaskExpression] | None:
        kinds = ("list", "struct")
        outside = self._expression(one.outside, types, kinds, "ranges are a struct or a list of them")
        inside = self._expression(one.inside, types, kinds, "ranges are a struct or a list of them")
        return None if outside is None or inside is None else (outside, inside)

    def _whole(self, text: Text, what: str) -> TaskExpression | None:
        return self._expression(text, self._before, INTEGRAL, f"{what} is a whole number")

    def _expression(
        self, text: Text, types: Mapping[str, ValueType], kinds: Sequence[str], wanted: str
    ) -> TaskExpression | None:
        element = text.spot.element
        start = TextStart(text.spot.source.path, element.text_line, element.text_column)
        try:
            parsed = parse_expression(text.text, start)
            found = infer(parsed, types).type
        except FormatError as error:
            for problem in error.problems:
                self._problem(problem)
            return None
        if found.kind not in (*kinds, "any"):
            at = parsed.parts[-1].begin if parsed.parts else 0
            self._problem(parsed.source.problem(at, f"{wanted}: this is of type {found}"))
            return None
        here = TextStart(
            start.path.rpartition("/")[2], start.line, start.column
        )  # a resumed run has another path
        return TaskExpression(text.text, here, tuple(types.items()))
