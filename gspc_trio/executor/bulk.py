"""Maps over many items: these travel in ranges, and have neither a task nor a future of their own each.

The caller's thread reads the items, packs them, and takes results; all else is done in the executor's loop.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import trio
from msgspec import Struct

from gspc_trio.components.job.item_values import (
    BLOCK_ITEMS,
    ENCODED,
    ITEM_BYTES_MAX,
    PLAIN,
    can_share,
    open_results,
    together_max,
)
from gspc_trio.components.job.item_values import packed as pack
from gspc_trio.components.job.ranges import (
    ItemsAdded,
    Stop,
)
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.core.current import current_place
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import (
    DEFAULT_OPTIONS,
    LastAttempt,
    Shape,
    TaskError,
    TaskOptions,
    TaskState,
)
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.futures import Deadline, SomeTaskFuture, lending
from gspc_trio.executor.items import Found, Items, Part
from gspc_trio.executor.results import result_or_cancel
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.failures import exception_of

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.handle import Job
    from gspc_trio.executor.call_table import CallTable
    from gspc_trio.executor.told import ToldItems

FEW = 256
"""So many items of a map are always calls of their own, and so are all of a map that has no more."""


class Block(Struct, frozen=True):
    """Items as they wait.

    Attributes:
        begin, end: their numbers.
        columns: for each parameter the encoded list of arguments; or integers, as they were given.
        are_encoded: whether the arguments are encoded each, too.
        together_max: how many are in a range at most.
    """

    begin: int
    end: int
    columns: tuple[bytes | range, ...]
    are_encoded: bool
    together_max: int


def block_of(begin: int, columns: Sequence[Sequence[object]]) -> Block | None:
    """Return a block of items; None if they have to be calls of their own: nobody knows how they travel.

    Args:
        begin: number of the first one.
        columns: for each parameter, the arguments of all of them.
    """
    count = len(columns[0])
    packed: list[bytes | range] = []
    are_encoded = not all(map(can_share, columns))
    for column in columns:
        if type(column) is range and not are_encoded:
            packed.append(column)
            continue
        values = list(column)
        if are_encoded:
            if any(isinstance(value, Future) for value in values):
                return None
            try:
                values = [dumps(value) for value in values]
            except Exception:  # futures in containers, or what cannot be sent: each is told of itself
                return None
        packed.append(pack(values))
    bytes_each = sum(len(data) for data in packed if isinstance(data, bytes)) // count + 1
    if bytes_each > ITEM_BYTES_MAX:
        return None
    return Block(begin, begin + count, tuple(packed), are_encoded, together_max(bytes_each))


class ItemsMap(Items):
    """A map over many items: what reads them gets their results in order."""

    def __init__(
        self, maps: Maps, name: str, code_ids: tuple[int, int], shape: Shape, options: TaskOptions, cores: int
    ) -> None:
        super().__init__(maps, name, code_ids, shape, options, cores)
        self._loop = maps.loop
        self._blocks: dict[int, tuple[Block, list[int]]] = {}  # with the number of those that have not ended
        self._begins: list[int] = []  # of all blocks
        self._opened: tuple[Block | None, list[Sequence[Any]]] = (None, [])
        self._next = 0
        self._changed = threading.Condition()
        self._found: dict[int, tuple[int, Found]] = {}  # number of the first item -> behind the last, result
        self._wanted = -1
        self._error: BaseException | None = None

    # The caller's thread

    def read(
        self,
        iterables: Sequence[Iterable[Any]],
        submit: Callable[[Iterator[tuple[object, ...]]], list[Any]],
    ) -> None:
        """Take items, and have them computed.

        Args:
            iterables: of each parameter, the arguments.
            submit: makes calls of their own of items; returns their futures.

        Raises:
            Exception: reading them has raised it.
        """
        try:
            for columns in blocks_of(iterables):
                begin, count = self._next, len(columns[0])
                block = block_of(begin, columns) if begin >= FEW else None
                self._next += count
                if block is None:
                    futures = submit(zip(*columns, strict=True))
                    with self._changed:
                        self._found[begin] = begin + count, futures
                    continue
                with self._changed:
                    self._blocks[begin] = block, [count]
                    self._begins.append(begin)
                self._news.append(ItemsAdded(begin, begin + count, block.together_max))
                self._loop.put_items(self)
        except BaseException:
            self.close()
            raise
        finally:
            self._is_read = True
        if self._begins:
            self.tell(Tick())  # it may be over

    def results(self, deadline: Deadline) -> Iterator[Any]:
        """Yield the results in order; whoever stops early cancels the rest."""
        position = 0
        try:
            while position < self._next:
                position, found = self._wait(position, deadline)
                if isinstance(found, bytes):
                    yield loads(found)
                elif isinstance(found, list):
                    found.reverse()
                    try:
                        while found:
                            yield result_or_cancel(found.pop(), deadline)
                    finally:
                        _cancel(found)
                elif isinstance(found, memoryview):
                    results, encoded, errors = open_results(found)
                    if encoded or errors:
                        yield from self._each(results, encoded, errors)
                    else:
                        yield from results
                else:
                    raise found
        finally:
            self.close()

    def _each(
        self, results: list[Any], encoded: dict[int, bytes], errors: dict[int, list[Any]]
    ) -> Iterator[Any]:
        for number, result in enumerate(results):
            if number in errors:
                raise exception_of(TaskError(*errors[number]), LastAttempt(self.name, 1))
            yield loads(encoded.pop(number)) if number in encoded else result

    def _wait(self, position: int, deadline: Deadline) -> tuple[int, Found]:
        """Return what was found for the item of this number and those behind it, with the one to go on with.

        Raises:
            TimeoutError: it was not there in time.
        """
        loop = self._loop
        with self._changed:
            if position not in self._found and self._error is None:
                loop.check_process()
                loop.check_may_wait()
                self._wanted = position
                lends = loop.is_elsewhere and current_place() is not None
                with lending() if lends else nullcontext():
                    self._changed.wait_for(lambda: self._is_there(position), deadline.left_s())
            there = self._found.pop(position, None)
        if there is not None:
            return there
        raise TimeoutError if self._error is None else self._error

    def _is_there(self, position: int) -> bool:
        return position in self._found or self._error is not None

    def close(self) -> None:
        """Cancel what has not ended."""
        with self._changed:
            found, self._found = self._found, {}
        for _, what in found.values():
            if isinstance(what, list):
                _cancel(what)
        self._next = 0
        self._is_unwanted = True
        if self._begins and not self._is_over:
            self.tell(Stop())

    # The loop's thread

    def put_found(self, begin: int, end: int, found: Found) -> None:
        """These items have ended."""
        where = self._begins[bisect_right(self._begins, begin) - 1]
        with self._changed:
            left = self._blocks[where][1]
            left[0] -= end - begin
            if not left[0]:
                del self._blocks[where]
            self._found[begin] = end, found
            if begin == self._wanted:
                self._changed.notify_all()

    def end(self, error: BaseException) -> None:
        """Nothing more will come."""
        with self._changed:
            self._error = error
            self._changed.notify_all()
        self._is_over = True
        self.maps.active.pop(self, None)

    def _arguments(self, part: Part) -> tuple[bytes, list[Sequence[Any]]]:
        block = self._blocks[self._begins[bisect_right(self._begins, part.begin) - 1]][0]
        if self._opened[0] is not block:
            self._opened = (
                block,
                [column if isinstance(column, range) else loads(column) for column in block.columns],
            )
        begin, end = part.begin - block.begin, part.end - block.begin
        return ENCODED if block.are_encoded else PLAIN, [column[begin:end] for column in self._opened[1]]


class Owner(Protocol):
    """What maps ask of the executor's loop."""

    is_elsewhere: bool
    """Whether it has joined a run-time system that runs: a task that waits may hold a core of that."""

    def put_items(self, items: ItemsMap) -> None:
        """Look at a map that has more items."""
        ...

    def stir(self) -> None:
        """Look at all maps."""
        ...

    def capacity(self, shape: Shape) -> int:
        """Return how many tasks of a shape can run at a time."""
        ...

    def check_process(self) -> None:
        """Raise RuntimeError in a fork of the process that it belongs to."""
        ...

    def check_may_wait(self) -> None:
        """Raise RuntimeError in a thread that would wait for ever."""
        ...


class Maps:
    """The maps over many items of an executor: its loop calls all of this, in its own thread.

    Args:
        loop: of the executor.
        table: its calls.
        settings: of its job.
        is_each_told: whether what each item prints is written to files of its own.

    Attributes:
        loop: of the executor.
        table: its calls.
        active: those that have items without an end.
        extra: what is to be added to the numbers of tasks, so that items are counted.
        told: tells of each item, if its job has records or spans.
    """

    def __init__(self, loop: Owner, table: CallTable[Any], settings: JobSettings, is_each_told: bool) -> None:
        self.loop: Owner = loop
        self.table: CallTable[Any] = table
        self.active: dict[Items, None] = {}
        self.extra: Counter[TaskState] = Counter()
        self.told: ToldItems | None = None
        self._added = trio.Event()
        self._are_possible = settings.may_have_ranges and not is_each_told

    def begin(self, job: Job, are_recorded: bool) -> None:
        """Take the job that computes them; ``are_recorded`` says whether it has records of tasks."""
        if are_recorded or job.tracer is not None:
            from gspc_trio.executor.told import ToldItems  # most say nothing of each call

            self.told = ToldItems(job, self.table.graph, are_recorded)

    def open(
        self,
        fn: Callable[..., object],
        name: str,
        codes: CodeTable,
        shape: Shape,
        options: TaskOptions,
    ) -> ItemsMap | None:
        """Return a new map; None if each of its items has to be a task of its own; in any thread.

        Args:
            fn: what to call.
            name: of it, for people.
            codes: code table of the executor.
            shape, options: what each item needs, and states about itself.
        """
        if not self.may_open(shape, options):
            return None
        try:
            of_items = codes.items_entry(fn)
        except Exception:  # each call is told of it
            return None
        if of_items is None:
            return None
        codes_of_it = codes.entry(fn, often=True)[0], of_items
        return ItemsMap(self, name, codes_of_it, shape, options, self.loop.capacity(shape))

    def may_open(self, shape: Shape, options: TaskOptions) -> bool:
        """Whether several calls of this shape, with these options, may be one task; in any thread."""
        is_usual = options == DEFAULT_OPTIONS and len(shape.requirements) == 1 and shape.estimate_s is None
        return self._are_possible and is_usual and self.table.job is not None

    def look(self) -> None:
        """Do what is to be done."""
        if not self.active:
            return
        now = trio.current_time()
        for items in tuple(self.active):
            items.look(now)
        self._added.set()

    async def keep_time(self) -> None:
        """Tell maps of the time, until cancelled."""
        while True:
            maps = tuple(self.active)  # others add to them meanwhile
            due = [at for items in maps if (at := items.machine.deadline()) is not None]
            if not due:
                self._added = trio.Event()
                await self._added.wait()
                continue
            await trio.sleep_until(min(due))
            for items in tuple(self.active):
                items.tell(Tick())

    def cancel_waiting(self, cell: int | None = None) -> None:
        """Cancel what has not begun; or all that a cell of a notebook has submitted."""
        for items in tuple(self.active):
            if cell is None or items.cell == cell:
                items.drop(cell is not None)

    def end(self, error: BaseException) -> None:
        """Nothing more will come, for any of them."""
        for items in tuple(self.active):
            items.end(error)

    def count(self, counts: dict[TaskState, int]) -> None:
        """Count items instead of tasks."""
        for state, number in self.extra.items():
            counts[state] = counts.get(state, 0) + number
        for items in tuple(self.active):
            machine = items.machine
            left = machine.waiting + machine.computing - machine.tasks - items.unheard
            counts[TaskState.READY] = counts.get(TaskState.READY, 0) + left


def blocks_of(iterables: Sequence[Iterable[Any]]) -> Iterator[Sequence[Sequence[object]]]:
    """Yield the items of a map block by block, the arguments of each parameter together."""
    size = FEW
    if len(iterables) == 1 and type(iterables[0]) is range:
        whole = iterables[0]
        for piece in (whole[:FEW], whole[FEW:]):  # the rest takes no more room than a block
            if piece:
                yield (piece,)
        return
    if len(iterables) == 1:
        iterator = iter(iterables[0])
        while block := list(islice(iterator, size)):
            yield (block,)
            size = BLOCK_ITEMS
        return
    rows = zip(*iterables, strict=False)
    while found := list(islice(rows, size)):
        yield tuple(zip(*found, strict=True))
        size = BLOCK_ITEMS


def _cancel(futures: Iterable[SomeTaskFuture]) -> None:
    for future in futures:
        future.cancel()
