"""Cuts the items of a map into ranges, each of which is one task: a machine without I/O.

Items wait in spans of numbers. As long as one takes long, each is a task of its own. When they turn out to be
short, several travel together: so many as a worker computes in about :data:`RANGE_S`. A worker ends a range
early when that takes much longer; what is left comes back, and travels in much smaller ranges. Every item of
a range that was lost is from then on a task of its own.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.machine import Tick

RANGE_S = 0.002
"""About so much work is in a range."""

PARTS = 4
"""A range has at least this part of what it may have, where so many items wait: each costs as a task does."""

GROWTH = 4
"""A range has at most so many times the items of one that has come back, and at least that part of what the
one before had."""

REMEMBERED = 4
"""The quickest of so many ranges tells how long items take: on a busy machine others have waited for it."""

LESS = 8
"""What comes back travels in ranges so many times smaller: an item waits for few that are much longer."""

TASKS_PER_CORE = 16
RANGES_PER_CORE = 8
"""So many tasks of one item, and ranges, are under way at first."""

TASKS_MAX = 10_000
"""Tasks of one item that are under way, and ranges, at most: so many are seen by who asks for hosts."""

PATIENCE_S = 0.1
"""When nothing has come back for so long, items are taken for long ones."""

QUICK_PATIENCE_S = 0.5
"""The same where items were short: on a busy machine a process waits for long until it has a core."""

FIRST_PATIENCE_S = 1.0
"""The same before the first task has ended: processes may have to start for it."""

STALLED_GROWTH = 8
"""Then there can be so many times the tasks."""

TURNAROUND = 4
"""Ranges that come back within so many times their own work found idle workers: there can be more of them."""


class ItemsAdded(Struct, frozen=True):
    """Items from ``begin`` to before ``end`` wait, those behind all before; a range has ``together_max``.

    Those that ``join`` may be in one range with those that were added directly before.
    """

    begin: int
    end: int
    together_max: int
    join: bool = False


class RangeEnded(Struct, frozen=True):
    """The first ``done`` items of a task were computed in ``duration_s``; the others come back.

    With ``apart`` every item from now on is a task of its own: they do what is known of tasks alone.
    """

    number: int
    done: int
    duration_s: float
    apart: bool = False


class RangeLost(Struct, frozen=True):
    """A task has ended without a result: an item has failed then, those of a range are tried again."""

    number: int


class RangeCancelled(Struct, frozen=True):
    """A task was cancelled, and with it its items."""

    number: int


class Stop(Struct, frozen=True):
    """Nobody wants what has not begun."""


class CoresKnown(Struct, frozen=True):
    """So many tasks can run at a time: more than was known."""

    cores: int


Event: TypeAlias = ItemsAdded | RangeEnded | RangeLost | RangeCancelled | Tick | Stop | CoresKnown


class RunItems(Struct, frozen=True):
    """Compute items from ``begin`` to before ``end`` as one task, known by ``number``."""

    number: int
    begin: int
    end: int


class DropItems(Struct, frozen=True):
    """Items from ``begin`` to before ``end`` will not be computed."""

    begin: int
    end: int


Action: TypeAlias = RunItems | DropItems


class Under(Struct):
    """A task under way."""

    begin: int
    end: int
    since: float


class Ranges:
    """The items of one map.

    Args:
        cores: how many tasks can run at a time, as far as is known.

    Attributes:
        cores: see above.
    """

    def __init__(self, cores: int) -> None:
        self.cores: int = cores
        self._next = 0
        self._added = 0
        self._ended = 0
        self._waiting: deque[ItemsAdded] = deque()
        self._back: deque[int] = deque()  # each to be a task of its own
        self._under: dict[int, Under] = {}
        self._last = 0
        self._together = 0  # of those under way that were cut from what waits
        self._alone: set[int] = set()  # tasks of items that came back
        self._size = 1
        self._tasks_max = TASKS_PER_CORE * cores
        self._ranges_max = RANGES_PER_CORE * cores
        self._apart = False
        self._heard = 0.0
        self._has_ended = False
        self._items_s: deque[float] = deque(maxlen=REMEMBERED)  # of an item, in the last whole ranges

    @property
    def waiting(self) -> int:
        """Items that are part of no task."""
        return sum(span.end - span.begin for span in self._waiting) + len(self._back)

    @property
    def left(self) -> int:
        """Items that have not ended."""
        return self._added - self._ended

    @property
    def computing(self) -> int:
        """Items that are part of a task."""
        return sum(task.end - task.begin for task in self._under.values())

    @property
    def is_quick(self) -> bool:
        """Whether items are so short that several travel together."""
        return self._size > 1

    @property
    def tasks(self) -> int:
        """Tasks under way."""
        return len(self._under)

    def deadline(self) -> float | None:
        """Return when it wants to hear of the time, None if it need not."""
        is_open = self._size == 1 and self._tasks_max >= TASKS_MAX
        if is_open or not self._waiting:
            return None
        if not self._has_ended:
            return self._heard + FIRST_PATIENCE_S
        return self._heard + (QUICK_PATIENCE_S if self.is_quick else PATIENCE_S)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take what has happened; return what to do.

        Raises:
            ValueError: it cannot happen now; then nothing has changed.
        """
        actions: list[Action] = []
        match event:
            case ItemsAdded():
                self._add(event, now)
            case RangeEnded():
                self._end(event, now)
            case RangeLost():
                self._lose(event, now)
            case RangeCancelled():
                task = self._take(event)
                self._ended += task.end - task.begin
            case Tick():
                due = self.deadline()
                if due is not None and now >= due:
                    self._size, self._heard = 1, now
                    self._tasks_max = min(TASKS_MAX, STALLED_GROWTH * self._tasks_max)
            case Stop():
                self._drop_all(actions)
            case CoresKnown(cores):
                self.cores = max(cores, self.cores)
                self._tasks_max = max(self._tasks_max, TASKS_PER_CORE * cores)
                self._ranges_max = max(self._ranges_max, RANGES_PER_CORE * cores)
        self._cut(now, actions)
        return actions

    def _add(self, event: ItemsAdded, now: float) -> None:
        if event.begin < self._next or event.end <= event.begin or event.together_max < 1:
            raise ValueError(f"{event}: the next item is {self._next} or a later one")
        if not (self._waiting or self._under):
            self._heard = now
        last = self._waiting[-1] if event.join and self._waiting else None
        if last is not None and (last.end, last.together_max) == (event.begin, event.together_max):
            self._waiting[-1] = ItemsAdded(last.begin, event.end, event.together_max)
        else:
            self._waiting.append(event)
        self._next = event.end
        self._added += event.end - event.begin

    def _take(self, event: RangeEnded | RangeLost | RangeCancelled) -> Under:
        task = self._under.pop(event.number, None)
        if task is None:
            raise ValueError(f"{event}: there is no such task")
        if event.number in self._alone:
            self._alone.discard(event.number)
        else:
            self._together -= 1
        return task

    def _end(self, event: RangeEnded, now: float) -> None:
        there = self._under.get(event.number)
        if there is not None and not 0 <= event.done <= there.end - there.begin:
            raise ValueError(f"{event}: it has the items from {there.begin} to before {there.end}")
        task = self._take(event)
        self._heard, self._has_ended = now, True
        self._ended += event.done
        if rest := task.end - task.begin - event.done:
            self._waiting.appendleft(ItemsAdded(task.end - rest, task.end, max(1, rest // LESS)))
        self._apart |= event.apart
        self._learn(event, task, now)

    def _learn(self, event: RangeEnded, task: Under, now: float) -> None:
        """Choose how many items travel together, and how many tasks are under way, from how one has run."""
        if not event.done:
            self._size = 1
            return
        item_s = max(event.duration_s, 1e-9) / event.done
        if event.done < task.end - task.begin:  # one of them was much longer than those before
            self._items_s.clear()
            fitting = min(int(RANGE_S / item_s), event.done // 2)
        else:
            self._items_s.append(item_s)
            fitting = int(RANGE_S / min(self._items_s))
        # One that took long may have waited for a busy machine: those to come are not much shorter for it.
        fitting = max(fitting, self._size // GROWTH)
        self._size = 1 if self._apart else max(1, min(fitting, max(self._size, GROWTH * event.done)))
        if self._size == 1:
            self._tasks_max = min(TASKS_MAX, 2 * self._tasks_max)
            return
        self._tasks_max = TASKS_PER_CORE * self.cores
        if now - task.since < TURNAROUND * max(event.duration_s, RANGE_S):
            self._ranges_max = min(TASKS_MAX, self._ranges_max + 1)
        else:
            self._ranges_max = max(RANGES_PER_CORE * self.cores, self._ranges_max - 1)

    def _lose(self, event: RangeLost, now: float) -> None:
        task = self._take(event)
        self._heard = now
        if task.end - task.begin == 1:
            self._ended += 1
        else:
            self._size = 1
            self._back.extend(range(task.begin, task.end))

    def _drop_all(self, actions: list[Action]) -> None:
        actions += [DropItems(item, item + 1) for item in self._back]
        actions += [DropItems(span.begin, span.end) for span in self._waiting]
        self._ended += self.waiting
        self._back.clear()
        self._waiting.clear()

    def _cut(self, now: float, actions: list[Action]) -> None:
        """Make tasks of what waits, as long as there is room."""
        while self._back and len(self._alone) < TASKS_MAX:
            item = self._back.popleft()
            self._alone.add(self._run(item, item + 1, now, actions))
        if not self._waiting:
            return
        limit = self._tasks_max if self._size == 1 else self._ranges_max
        waiting = self.waiting
        while self._waiting and self._together < limit:
            span = self._waiting.popleft()
            # Towards the end ranges are smaller, so that workers end at about the same time.
            share = max(-(-waiting // (2 * self.cores)), self._size // PARTS, 1)
            end = min(span.end, span.begin + min(self._size, share, span.together_max))
            self._together += 1
            self._run(span.begin, end, now, actions)
            waiting -= end - span.begin
            if end < span.end:
                self._waiting.appendleft(ItemsAdded(end, span.end, span.together_max))

    def _run(self, begin: int, end: int, now: float, actions: list[Action]) -> int:
        self._last += 1
        self._under[self._last] = Under(begin, end, now)
        actions.append(RunItems(self._last, begin, end))
        return self._last

    def check(self) -> None:
        """Assert what always holds: each item waits, is part of one task, or has ended."""
        assert self.waiting + self.computing + self._ended == self._added, "an item is nowhere, or twice"
        spans = [(span.begin, span.end) for span in self._waiting]
        spans += [(task.begin, task.end) for task in self._under.values()]
        spans += [(item, item + 1) for item in self._back]
        spans.sort()
        for (_, end), (begin, _) in pairwise(spans):
            assert end <= begin, f"item {begin} is in two places"
        assert self._together + len(self._alone) == len(self._under), "tasks are counted wrongly"
        assert max(len(self._alone), self._together) <= TASKS_MAX, "too many tasks"
        assert all(self._under[number].end - self._under[number].begin == 1 for number in self._alone)
