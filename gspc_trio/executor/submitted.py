"""Separate calls that wait in great numbers: those of one function travel in ranges, as items of a map do.

Each has its future. As long as few wait, each is a task of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from operator import attrgetter

import trio

from gspc_trio.components.job.item_values import (
    AWAITED,
    BLOCK_ITEMS,
    errors_in,
    open_answer,
    open_results,
    together_max,
)
from gspc_trio.components.job.ranges import Event, ItemsAdded, RangeCancelled, RangeLost, RunItems
from gspc_trio.core.ids import TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import LastAttempt, Shape, TaskError, TaskState
from gspc_trio.executor.bulk import Maps
from gspc_trio.executor.call_table import Part as TaskPart
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.futures import NUMBERS, PENDING, Call, SomeTaskFuture, finish_all
from gspc_trio.executor.items import Found, Items, Part
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.workflow.failures import ExecutorBroken, exception_of

MANY = 1_000
"""So many tasks that have not ended there are before further calls travel in ranges."""

MANY_QUICK = 64
"""The same of a function whose calls have travelled in ranges before, and were quick."""

LOOK_S = 0.002
"""While calls travel in ranges, the loop looks at new ones so often.

If each new one woke it up, the threads would have the interpreter's lock in turns, and each call would cost
several times as much. So it would if each range that comes back did: ranges would be short.
"""

ALIKE_MIN = 64
"""So many calls are looked at at once, whether they are alike."""

_CODE_ID, _SHAPE = attrgetter("code_id"), attrgetter("shape")
_VALUES, _FUTURE, _STATE = attrgetter("values"), attrgetter("future"), attrgetter("_state")

NUMBER_BYTES = 9
"""Longest number as it travels, for most."""


class CallsPart(Part):
    """A task of several calls.

    Attributes:
        futures: of those that it computes.
        positions: of these among all items of the range; None: it computes all.
        gone: place of each of the others, which had ended before -> whether it was cancelled.
        given: so many have ended, as was said while another one takes long; None: nothing was said.
        given_errors: place among them -> why it has failed; known if calls are told of each.
    """

    __slots__ = ("futures", "given", "given_errors", "gone", "positions")

    def __init__(
        self,
        items: CallItems,
        run: RunItems,
        futures: list[SomeTaskFuture],
        positions: list[int] | None,
        gone: dict[int, bool],
    ) -> None:
        super().__init__(items, run)
        self.gone: dict[int, bool] = gone
        self.futures: list[SomeTaskFuture] = futures
        self.positions: list[int] | None = positions
        self.count: int = len(futures)
        self.given: int | None = None
        self.given_errors: Mapping[int, TaskError] = {}

    @property
    def untold(self) -> int:
        """Number of its calls of which nothing is told as long as it does not finish."""
        return super().untold - (self.given or 0)

    @property
    def is_unwanted(self) -> bool:
        """Whether nobody wants what is computed, as far as that is known."""
        if self.given is not None:
            return self.given < self.count and self.futures[self.given]._state is not PENDING
        return all(future._state is not PENDING for future in self.futures)

    def take_first(self, answer: bytes) -> None:
        """Take what has become of the first ones while another one takes long."""
        done, failed, found = open_answer(answer)
        if self.given is None and done < self.count:
            self.given = done
            items = self.items
            assert isinstance(items, CallItems)
            if items.maps.told is not None:
                self.given_errors = errors_in(found) if failed else {}
            self.number_futures(done)
            items.has_cancelled = True  # if it is lost, these do not run again
            items.tell_futures(self.futures[:done], found)

    def give(self, done: int, found: Found) -> int:
        """Tell the futures of the first ``done`` calls; return how many items have ended by that."""
        futures, items = self.futures[:done], self.items
        assert isinstance(items, CallItems)
        self.number_futures(done)  # first: another thread may make one an argument at once
        items.tell_futures(futures, found)
        whole = done == self.count
        ended = self.end - self.begin if whole else done
        if self.positions is not None and not whole:
            ended = self.positions[done - 1] + 1
        if self.gone:
            items.note_gone([cancelled for place, cancelled in self.gone.items() if place < ended])
        items.forget(self.begin, self.begin + ended)
        return ended

    def number_futures(self, done: int) -> None:
        """Note numbers of calls that are recorded: records tell by them who takes whose result."""
        told = self.items.maps.told
        if told is not None and told.are_recorded:
            first = self.task_id + (self.count > 1)
            for number, future in enumerate(self.futures[:done], first):
                future._task_id = number

    def give_up(self) -> None:
        """It was cancelled, for one of its calls was."""
        self.tell_of_each(self.given or 0, self.given_errors)
        is_over = self.items.is_dropped or all(future._state is not PENDING for future in self.futures)
        if self.count == 1 or is_over:
            super().give_up()
            return
        self.items.maps.extra[TaskState.CANCELLED] -= 1
        self.tell(RangeLost(self.number), 0)

    def fail(self, error: BaseException) -> None:
        """It has no result."""
        self.tell_of_each(self.given or 0, self.given_errors)
        if self.count == 1 < self.end - self.begin and not isinstance(error, ExecutorBroken):
            self.tell(RangeCancelled(self.number), self.give(1, error))
            return
        super().fail(error)


class CallItems(Items):
    """Calls of one function, with futures.

    Args:
        maps: those of the executor.
        call: the first one.
        of_items: number of what calls the function with each of many items.
        cores: how many tasks can run at a time.

    Attributes:
        code_id, width, shape: what they have in common: the function, how many arguments, what each needs.
        futures, rows: of those that come next, with the arguments of each.
        has_cancelled: whether some may have been cancelled.
    """

    def __init__(self, maps: Maps, call: Call, of_items: int, cores: int) -> None:
        super().__init__(maps, call.name, (call.code_id, of_items), call.shape, call.options, cores)
        self.code_id: int = call.code_id
        self.width: int = len(call.values)
        self.shape: Shape = call.shape
        self._is_read = True
        self.futures: list[SomeTaskFuture] = []
        self.rows: list[tuple[object, ...]] = []
        self.has_cancelled: bool = False
        self._next = 0
        self._chunks: dict[int, _Chunk] = {}

    @property
    def is_busy(self) -> bool:
        """Whether there are calls that are so short that they travel together."""
        return self.machine.is_quick and (self.machine.tasks > 0 or self.machine.waiting > 0)

    def tell(self, event: Event) -> None:
        """Have the machine told this soon; in any thread."""
        self._news.append(event)
        if not self.is_busy or isinstance(event, Tick):  # else the loop looks when more calls may have come
            self.maps.loop.stir()

    def flush(self) -> None:
        """Have those computed whose futures and arguments were appended."""
        futures, rows, begin = self.futures, self.rows, self._next
        if not futures:
            return
        self.futures, self.rows = [], []
        self._next = end = begin + len(futures)
        at = begin
        while at < end:
            number = at // BLOCK_ITEMS
            until = min(end, (number + 1) * BLOCK_ITEMS)
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = _Chunk()
            chunk.futures += futures[at - begin : until - begin]
            chunk.rows += rows[at - begin : until - begin]
            at = until
        self._news.append(ItemsAdded(begin, end, together_max(_bytes_each(rows)), True))
        self._is_over = False
        self.maps.active[self] = None

    def _pieces(self, begin: int, end: int) -> Iterable[tuple[_Chunk, int, int]]:
        """Yield the chunks of some items, with their places in them."""
        while begin < end:
            number, place = divmod(begin, BLOCK_ITEMS)
            until = min(end - begin + place, BLOCK_ITEMS)
            yield self._chunks[number], place, until
            begin += until - place

    def _futures(self, begin: int, end: int) -> list[SomeTaskFuture]:
        return [future for chunk, at, until in self._pieces(begin, end) for future in chunk.futures[at:until]]

    def _part(self, run: RunItems) -> Part | None:
        futures = self._futures(run.begin, run.end)
        positions, gone = None, {}
        if self.has_cancelled:
            there = enumerate(futures)
            gone = {place: future.cancelled() for place, future in there if future._state is not PENDING}
            if gone:
                positions = [place for place in range(len(futures)) if place not in gone]
                futures = [futures[place] for place in positions]
        if not futures:
            self.note_gone(list(gone.values()))
            self.forget(run.begin, run.end)
            self.note_ended(run.end - run.begin)
            self.tell(RangeCancelled(run.number))
            return None
        return CallsPart(self, run, futures, positions, gone)

    def note_gone(self, were_cancelled: list[bool]) -> None:
        """Calls are over that had ended before they were in a task."""
        cancelled = sum(were_cancelled)
        self.maps.extra[TaskState.CANCELLED] += cancelled
        self.maps.extra[TaskState.FINISHED] += len(were_cancelled) - cancelled
        self.note_cancelled(cancelled)

    def _arguments(self, part: Part) -> tuple[bytes, list[Sequence[object]]]:
        assert isinstance(part, CallsPart)
        pieces = self._pieces(part.begin, part.end)
        rows = [row for chunk, at, until in pieces for row in chunk.rows[at:until]]
        if part.positions is not None:
            rows = [rows[place] for place in part.positions]
        return AWAITED, list(zip(*rows, strict=True))

    def put_found(self, begin: int, end: int, found: Found) -> None:
        """Tell the futures of these items."""
        self.tell_futures(self._futures(begin, end), found)
        self.forget(begin, end)

    def tell_futures(self, futures: list[SomeTaskFuture], found: Found) -> None:
        """Tell futures what became of their calls."""
        if isinstance(found, memoryview):
            results, encoded, errors = open_results(found)
            if not encoded and not errors:
                finish_all(futures, results)
                return
            for number, (future, result) in enumerate(zip(futures, results, strict=True)):
                if number in errors:
                    future.fail(exception_of(TaskError(*errors[number]), LastAttempt(self.name, 1)))
                elif number in encoded:
                    future.finish(encoded[number])
                else:
                    finish_all((future,), (result,))
        elif isinstance(found, bytes):
            futures[0].finish(found)
        else:
            assert isinstance(found, BaseException)
            for future in futures:
                if isinstance(found, CancelledError):
                    future.give_up()
                else:
                    future.fail(found)

    def forget(self, begin: int, end: int) -> None:
        """These items have ended."""
        for number in range(begin // BLOCK_ITEMS, (end - 1) // BLOCK_ITEMS + 1):
            chunk = self._chunks[number]
            first = number * BLOCK_ITEMS
            chunk.ended += min(end, first + BLOCK_ITEMS) - max(begin, first)
            if chunk.ended == BLOCK_ITEMS:
                del self._chunks[number]

    def pending(self) -> list[SomeTaskFuture]:
        """Return the futures that have not ended."""
        there = [future for chunk in self._chunks.values() for future in chunk.futures]
        return [future for future in (*there, *self.futures) if future._state is PENDING]

    def look(self, now: float) -> None:
        """Tell the machine what is new, and do what it says."""
        super().look(now)
        if self._is_over:
            self._clear()

    def _clear(self) -> None:
        """Forget all; what comes next begins a chunk."""
        self.has_cancelled = False
        self._chunks.clear()
        self._next = -(-self._next // BLOCK_ITEMS) * BLOCK_ITEMS

    def end(self, error: BaseException) -> None:
        """Nothing more will come."""
        self.tell_futures(self.pending(), error)
        self._clear()
        self._news.clear()
        self._is_over = True
        self.maps.active.pop(self, None)


class _Chunk:
    """Items whose numbers are beside each other.

    Attributes:
        futures, rows: of each, with its arguments.
        ended: how many have ended.
    """

    __slots__ = ("ended", "futures", "rows")

    def __init__(self) -> None:
        self.futures: list[SomeTaskFuture] = []
        self.rows: list[tuple[object, ...]] = []
        self.ended = 0


def _bytes_each(rows: Sequence[tuple[object, ...]]) -> int:
    """Return about how long the arguments of each row are, as a power of two: so most that come agree."""
    longest = sum(map(_longest, zip(*rows, strict=True)))
    return 1 << longest.bit_length()


def _longest(column: Sequence[object]) -> int:
    if NUMBERS.issuperset(map(type, column)):
        return NUMBER_BYTES
    return max(len(value) if isinstance(value, str | bytes) else NUMBER_BYTES for value in column)


class SubmittedCalls:
    """Calls that travel in ranges; the loop of the executor calls all of this, in its own thread.

    Args:
        maps: those of the executor.
        codes: its code table.
        take: has the loop look at what was submitted.
    """

    def __init__(self, maps: Maps, codes: CodeTable, take: Callable[[], None]) -> None:
        self._maps = maps
        self._codes = codes
        self._take = take
        self._of: dict[tuple[int, int], CallItems | None] = {}
        self._asked = trio.Event()

    def gather(self, calls: deque[Call], count: int, add: Callable[[Call], None]) -> None:
        """Take the first calls: as many as can travel in ranges, if many tasks have not ended.

        Args:
            calls: of which they are taken.
            count: how many.
            add: takes those that are to be tasks.
        """
        taken = [calls.popleft() for _ in range(count)]  # others append meanwhile
        if count > ALIKE_MIN and self._gather_alike(taken):
            return
        futures = self._maps.table.receivers
        before: CallItems | None = None  # which took the last call
        for call in taken:
            values = call.values
            if not values:
                add(call)
                continue
            if before is None or before.code_id != call.code_id or before.width != len(values):
                before = self._items_of(call, len(futures))
            if before is None or before.shape is not call.shape:
                add(call)
            elif call.future._state is PENDING:
                before.futures.append(call.future)
                before.rows.append(values)
        for items in self._of.values():
            if items is not None and items.futures:
                items.flush()

    def _gather_alike(self, calls: list[Call]) -> bool:
        """Take calls at once, if all are alike and can travel in ranges; return whether they were.

        One by one it takes three times as long.
        """
        first, rows = calls[0], list(map(_VALUES, calls))
        if not first.values or set(map(len, rows)) != {len(first.values)}:
            return False
        if len(set(map(_CODE_ID, calls))) > 1 or len(set(map(id, map(_SHAPE, calls)))) > 1:
            return False
        items = self._items_of(first, len(self._maps.table.receivers))
        if items is None or items.shape is not first.shape:
            return False
        futures = list(map(_FUTURE, calls))
        if set(map(_STATE, futures)) != {PENDING}:
            pairs = [pair for pair in zip(futures, rows, strict=True) if pair[0]._state is PENDING]
            futures, rows = [future for future, _ in pairs], [row for _, row in pairs]
        items.futures += futures
        items.rows += rows
        items.flush()
        return True

    def _items_of(self, call: Call, tasks: int) -> CallItems | None:
        """Return what takes a call into ranges; None if it is to be a task."""
        key = (call.code_id, len(call.values))
        items = self._of.get(key)
        if items is not None and not (items.futures or items.machine.waiting):
            is_few = tasks + items.machine.left < (MANY_QUICK if items.machine.is_quick else MANY)
        else:
            is_few = items is None and tasks < MANY
        if is_few:
            return None
        if key not in self._of:
            items = self._of[key] = self._opened(call)
        return items

    def _opened(self, call: Call) -> CallItems | None:
        """Return what takes calls of this function; None if each is to be a task of its own."""
        maps = self._maps
        if not maps.may_open(call.shape, call.options):
            return None
        of_items = self._codes.items_entry_of(call.code_id)
        return None if of_items is None else CallItems(maps, call, of_items, maps.loop.capacity(call.shape))

    def may_rest(self) -> bool:
        """Whether there is no hurry to look at new calls, as many wait; if so, it is done after a while."""
        if any(items is not None and items.is_busy for items in self._of.values()):
            self._asked.set()
            return True
        return False

    async def keep_time(self) -> None:
        """Tell maps of the time, and look at new calls now and then while others wait, until cancelled."""
        async with open_scope() as nursery:
            nursery.start_soon(self._maps.keep_time)
            nursery.start_soon(self._keep_looking)

    async def _keep_looking(self) -> None:
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            await trio.sleep(LOOK_S)
            self._take()

    def pending(self) -> list[SomeTaskFuture]:
        """Return the futures of those that have not ended."""
        return [future for items in self._of.values() if items is not None for future in items.pending()]

    def is_running(self, future: SomeTaskFuture) -> bool:
        """Return whether a worker computes the task of a future now, or the range in which it is."""
        job = self._maps.table.job
        if job is None:
            return False
        parts = [] if future._task_id else [part.task_id for part in self._parts() if future in part.futures]
        return any(map(job.machine.scheduler.is_running, [future._task_id, *parts]))

    def _parts(self) -> list[CallsPart]:
        parts = tuple(self._maps.table.parts.values())
        return [part for part in parts if isinstance(part, CallsPart)]

    def end_cancelled(self, futures: Iterable[SomeTaskFuture]) -> None:
        """End the tasks of futures that were cancelled, also ranges of which nobody wants a result."""
        table = self._maps.table
        task_ids = [future._task_id for future in futures]
        direct = [table.parts[task_id] for task_id in task_ids if task_id in table.parts]
        table.cancel(task_id for task_id in task_ids if task_id and task_id not in table.parts)
        self._end(direct)
        if all(task_ids):
            return
        for items in self._of.values():
            if items is not None:
                items.has_cancelled = True
        self._end([part for part in self._parts() if part.is_unwanted])

    def take_first(self, task_id: TaskId, answer: bytes) -> None:
        """Take what has become of the first calls of a range that goes on."""
        part = self._maps.table.parts.get(task_id)
        if isinstance(part, CallsPart):
            part.take_first(answer)
            if part.is_unwanted:
                self._end([part])

    def _end(self, unwanted: Sequence[TaskPart]) -> None:
        table = self._maps.table
        told = set(table.cancel([part.task_id for part in unwanted]))
        for part in unwanted:
            if part.task_id not in told:
                part.give_up()
