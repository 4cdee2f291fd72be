"""Where tasks that can run go, by what is planned for them and by what hosts have to do already.

A plan is made before anything runs, and its algorithm may know nothing of load. When tasks get ready more is
known: what runs, for how long it is taken to run, and what waits where. Three orders are thought through:

- by end: each task where it ends first, with what must be brought there; those that the longest chain of
  others waits for go first;
- as without a plan: each task on the core that is free first, whatever its speed, wherever the data is;
- by bytes: each task where least is to be brought, of the hosts where it ends in time.

In time is: not so late that all would end later than by the first two. So the third one moves little, and
ends no later than today. It is thought through only if it is known what follows from each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice, zip_longest
from typing import TypeAlias

from gspc_trio.components.job.plan import (
    HOLDERS_RATED,
    Following,
    HostsNow,
    Links,
    PlanData,
    PlanHost,
    ReadyPlace,
    ReadyTask,
    fetch_s,
)

RATED_ALL = 16
"""Of so many hosts or less all are rated for each task."""

FREE_RATED = 3
"""Of hosts of one rack and speed, so many that are free first are rated."""

LATE_SHARE = 1e-9
"""What ends later by this share ends at the same time."""


THOUGHT_THROUGH_MAX = 500
"""If so many tasks or less follow, it is thought through when they end."""

LATER_SHARE = 0.02
"""All may end later by this share than without a plan if far less is brought from other racks."""

_NOWHERE: Mapping[str, float] = {}

LITTLE_SHARE = 0.01
"""What is brought in a smaller share of the time of a task does not matter."""


Kind: TypeAlias = tuple[str, float] | float
"""Rack and speed of hosts, or their speed, wherever they are."""


class Board:
    """Hosts, what each core has to do, and what was brought where.

    Args:
        there: the hosts as they are.
    """

    def __init__(self, there: HostsNow) -> None:
        hosts, free_s = there.hosts, there.free_s
        self.hosts = hosts
        self.links: Links = there.links
        self._names = [name for name in free_s if free_s[name]]
        self._position = {name: number for number, name in enumerate(self._names)}
        self._cores = {name: list(free_s[name]) for name in self._names}
        self._brought = there.brought
        self._fetched: dict[tuple[str, str], float] = {}
        """Data and host -> how long it is brought there."""
        self._new: dict[str, dict[str, float]] = {}
        """Data -> hosts to which it is brought for tasks that were placed here -> when it will be there."""
        self._first: list[tuple[float, int]] | None = None
        """The hosts, by when they are free, as soon as somebody asks."""
        self._by_kind: dict[tuple[str, float], list[tuple[float, int]]] = {}
        self._by_speed: dict[float, list[tuple[float, int]]] = {}
        for number, name in enumerate(self._names):
            heapify(self._cores[name])
            entry = self._cores[name][0], number
            self._by_kind.setdefault((hosts[name].rack, hosts[name].speed), []).append(entry)
            self._by_speed.setdefault(hosts[name].speed, []).append(entry)
        for heap in (*self._by_kind.values(), *self._by_speed.values()):
            heapify(heap)
        self._kinds: dict[str, list[tuple[str, float]]] = {}
        """Rack -> the kinds of hosts that it has."""
        for kind in self._by_kind:
            self._kinds.setdefault(kind[0], []).append(kind)
        self._tops: dict[Kind, list[str]] = {}
        """Kind of hosts -> those that are free first, until a task goes to one of them."""

    def copy(self) -> Board:
        """Return the same hosts, to which other tasks may go from now on."""
        other = copy(self)
        other._cores = {name: free_s[:] for name, free_s in self._cores.items()}
        other._new = {data_id: dict(there) for data_id, there in self._new.items()}
        other._first = None
        other._by_kind = {kind: heap[:] for kind, heap in self._by_kind.items()}
        other._by_speed = {speed: heap[:] for speed, heap in self._by_speed.items()}
        other._tops = dict(self._tops)
        return other

    def rate(self, ready: ReadyTask) -> list[ReadyPlace]:
        """Return what hosts would be for a task: all that differ, as far as that is known cheaply."""
        hosts, task = self.hosts, ready.task
        return [self._place(ready, name) for name in self._worth_rating(ready) if hosts[name].can_run(task)]

    def take_first_free(self, ready: ReadyTask) -> ReadyPlace | None:
        """Have a task go to the host that is free first, of those where it can run; None if there is none."""
        if self._first is None:
            self._first = [(cores[0], self._position[name]) for name, cores in self._cores.items()]
            heapify(self._first)
        passed, found = [], None
        while self._first and found is None:
            entry = heappop(self._first)
            name = self._names[entry[1]]
            if entry[0] != self._cores[name][0]:
                heappush(self._first, (self._cores[name][0], entry[1]))
            elif self.hosts[name].can_run(ready.task):
                found = self._place(ready, name)
                self.take(ready, found)
                heappush(self._first, (self._cores[name][0], entry[1]))
            else:
                passed.append(entry)
        for entry in passed:
            heappush(self._first, entry)
        return found

    def _place(self, ready: ReadyTask, name: str) -> ReadyPlace:
        """Return what a host would be for a task."""
        host, begin_s = self.hosts[name], self._cores[name][0]
        moved_bytes, moved_s, waited_s = self._moved(ready, host, begin_s)
        end_s = begin_s + moved_s + waited_s + ready.task.run_s / host.speed
        return ReadyPlace(name, begin_s, moved_s, end_s, moved_bytes=moved_bytes)

    def _moved(self, ready: ReadyTask, host: PlanHost, begin_s: float) -> tuple[int, float, float]:
        """Return how much data of a task is brought to a host, for how long, and how long that is waited for
        which is brought there for others.
        """
        moved_bytes, moved_s, waited_s, name = 0, 0.0, 0.0, host.name
        for data in ready.task.inputs:
            if name in data.hosts or name in self._brought.get(data.data_id, ()):
                continue
            there_s = self._new.get(data.data_id, _NOWHERE).get(name)
            if there_s is None:
                moved_bytes += data.size_bytes
                brought_s = self._fetched.get((data.data_id, name))
                if brought_s is None:
                    brought_s = fetch_s(data, host, self.hosts, self.links)
                    self._fetched[data.data_id, name] = brought_s
                moved_s += brought_s
            else:
                waited_s += max(0.0, there_s - begin_s - moved_s - waited_s)
        return moved_bytes, moved_s, waited_s

    def _worth_rating(self, ready: ReadyTask) -> list[str]:
        if len(self._names) <= RATED_ALL:
            return self._names
        names: dict[str, None] = {}
        for speed, heap in self._by_speed.items():
            names.update(dict.fromkeys(self._free_first(speed, heap)))
        for data in ready.task.inputs:
            coming = self._brought.get(data.data_id, ()), self._new.get(data.data_id, ())
            for holders in (data.hosts, *coming):
                names.update(dict.fromkeys(it for it in islice(holders, HOLDERS_RATED) if it in self._cores))
        racks = {self.hosts[name].rack for name in names}
        for kind in (kind for rack in racks for kind in self._kinds[rack]):
            names.update(dict.fromkeys(self._free_first(kind, self._by_kind[kind])))
        return sorted(names, key=self._position.__getitem__)

    def _free_first(self, kind: Kind, heap: list[tuple[float, int]]) -> list[str]:
        """Return the hosts of a heap that are free first, and forget what it has of earlier times."""
        found = self._tops.get(kind)
        if found is not None:
            return found
        found = self._tops[kind] = []
        taken: list[tuple[float, int]] = []
        while heap and len(taken) < FREE_RATED:
            entry = heappop(heap)
            name = self._names[entry[1]]
            if entry[0] == self._cores[name][0] and entry not in taken[-1:]:
                taken.append(entry)
                found.append(name)
        for entry in taken:
            heappush(heap, entry)
        return found

    def cores(self) -> list[tuple[float, float]]:
        """Return a heap of when each core has done what it has to do, with its speed."""
        found = [(free_s, self.hosts[name].speed) for name in self._names for free_s in self._cores[name]]
        heapify(found)
        return found

    def take(self, ready: ReadyTask, place: ReadyPlace) -> None:
        """A task goes there."""
        name, host = place.host, self.hosts[place.host]
        cores = self._cores[name]
        heapreplace(cores, place.end_s)
        entry = cores[0], self._position[name]
        kind = host.rack, host.speed
        heappush(self._by_kind[kind], entry)
        heappush(self._by_speed[host.speed], entry)
        self._tops.pop(kind, None)
        self._tops.pop(host.speed, None)
        for data in ready.task.inputs:
            if name not in data.hosts:
                there_s = place.begin_s + place.transfer_s
                self._new.setdefault(data.data_id, {}).setdefault(name, there_s)


def place_by_end(tasks: Sequence[ReadyTask], board: Board) -> list[ReadyPlace | None]:
    """Return where tasks end first that are ready.

    Args:
        tasks: in the order in which equal ones are served.
        board: the hosts as they are.

    Returns:
        for each task its place, None if no host will do.
    """
    return _in_order(tasks, _by_rank(tasks), board, lambda _, places: min(places, key=_end_of))


def place_by_bytes(
    tasks: Sequence[ReadyTask], board: Callable[[], Board], ahead: Following | None
) -> list[ReadyPlace | None]:
    """Return where least is brought for tasks that are ready, of the hosts where they end in time.

    Args:
        tasks: in the order in which equal ones are served.
        board: returns the hosts as they are, each time a new one.
        ahead: what follows from them. None: nobody knows, so each task ends as soon as without a plan.

    Returns:
        for each task its place, None if no host will do.
    """
    by_end, without_plan = place_by_end(tasks, board()), board()
    usual = _without_plan(tasks, without_plan)
    last_s = max(0.0 if ahead is None else ahead.late_s, _last_end(tasks, by_end), _last_end(tasks, usual))
    if ahead is None:
        ends = zip(by_end, usual, strict=True)
        until_s = [max((it.end_s for it in pair if it is not None), default=0.0) for pair in ends]
    else:
        until_s = [last_s - it.after_s for it in tasks]
    found, may_wait = by_end, ahead is None or last_s >= ahead.work_s
    if not any(it is None or it.transfer_s for it in by_end):  # nothing is brought: none is better
        return _with_until(by_end, until_s) if may_wait else by_end
    by_bytes = _least_moved(tasks, board(), until_s)
    if _last_end(tasks, by_bytes) <= last_s * (1 + LATE_SHARE) and may_wait:
        found = by_bytes
    if ahead is not None and len(ahead.run_s) <= THOUGHT_THROUGH_MAX:
        usual_s = (1 + LATER_SHARE) * _all_end(tasks, usual, without_plan, ahead)
        near_until_s = [usual_s - it.after_s for it in tasks]
        with_near = board()
        near = _near_data(tasks, with_near, near_until_s)
        spared_bytes, spared_s = (one - other for one, other in zip(_moved(found), _moved(near), strict=True))
        is_worth_it = spared_bytes > 0 and spared_s > LITTLE_SHARE * usual_s
        if is_worth_it and _all_end(tasks, near, with_near, ahead) <= usual_s:
            found, until_s = near, near_until_s
    return found if found is by_end else _with_until(found, until_s)


def _with_until(places: list[ReadyPlace | None], until_s: Sequence[float]) -> list[ReadyPlace | None]:
    """Return places at which tasks stay as long as they have ended by then."""
    for place, end_s in zip(places, until_s, strict=True):
        if place is not None:
            place.until_s = end_s
    return places


def _least_moved(
    tasks: Sequence[ReadyTask], board: Board, until_s: Sequence[float]
) -> list[ReadyPlace | None]:
    """Return where least is brought, of the hosts where each task has ended by then."""
    wanted = _wanted(tasks)

    def choose(number: int, places: Sequence[ReadyPlace]) -> ReadyPlace:
        in_time = [it for it in places if it.end_s <= until_s[number] * (1 + LATE_SHARE)]
        if not in_time:
            return min(places, key=_end_of)
        own = {data.data_id for data in tasks[number].task.inputs}

        def cost(place: ReadyPlace) -> tuple[bool, bool, float, float]:
            brought_s, end_s = _brought_and_end(place)
            return brought_s > 0, bool(wanted.get(place.host, own) - own), brought_s, end_s

        return min(in_time, key=cost)

    return _in_order(tasks, _by_data(tasks), board, choose)


def _near_data(tasks: Sequence[ReadyTask], board: Board, until_s: Sequence[float]) -> list[ReadyPlace | None]:
    """Return where tasks end first of the racks that have the most of their data, if they have ended by then;
    so little leaves a rack, and those that read the same end one after the other.
    """

    def choose(number: int, places: Sequence[ReadyPlace]) -> ReadyPlace:
        data = _most_of(tasks[number])
        racks = (
            {board.hosts[it].rack for it in data.hosts if it in board.hosts} if data is not None else set()
        )
        in_time = [it for it in places if it.end_s <= until_s[number]]
        if near := [it for it in in_time if board.hosts[it.host].rack in racks]:
            return min(near, key=_end_of)
        return min(in_time or places, key=_brought_and_end if in_time else _end_of)

    return _in_order(tasks, _by_data(tasks), board, choose)


def _moved(places: Sequence[ReadyPlace | None]) -> tuple[float, float]:
    """Return how many bytes are brought, and for how many seconds."""
    there = [it for it in places if it is not None]
    return sum(it.moved_bytes for it in there), sum(it.transfer_s for it in there)


def _all_end(
    tasks: Sequence[ReadyTask], places: Sequence[ReadyPlace | None], board: Board, ahead: Following
) -> float:
    """Return when all tasks have ended that are known: those that are not ready take the core that is free
    first, and no data is brought for them.

    Args:
        tasks: that are ready.
        places: where they go.
        board: with these tasks.
        ahead: what follows.
    """
    ends_s = dict(ahead.ends_s)
    ends_s.update((it.task.task_id, place.end_s) for it, place in zip(tasks, places, strict=True) if place)
    missing = dict.fromkeys(ahead.run_s, 0)
    for users in ahead.users.values():
        for task_id in users:
            if task_id in missing:
                missing[task_id] += 1
    ended = [(end_s, task_id) for task_id, end_s in ends_s.items()]
    heapify(ended)
    cores = board.cores()
    last_s = 0.0
    while ended:
        last_s, done = heappop(ended)
        freed = []
        for task_id in ahead.users.get(done, ()):
            if task_id in missing:
                missing[task_id] -= 1
                if not missing[task_id]:
                    freed.append(task_id)
        for task_id in sorted(freed, key=lambda it: -ahead.run_s[it]):
            free_s, speed = cores[0]
            end_s = max(free_s, last_s) + ahead.run_s[task_id] / speed
            heapreplace(cores, (end_s, speed))
            heappush(ended, (end_s, task_id))
    return last_s


def _by_rank(tasks: Sequence[ReadyTask]) -> list[int]:
    """Return the order of tasks: those first that take longest, with what follows from them.

    Of equal ones those that read most of the same take turns with others: so each data goes to some hosts.
    """
    turns = zip_longest(*_groups(tasks, range(len(tasks))))
    by_turns = (number for turn in turns for number in turn if number is not None)
    return sorted(by_turns, key=lambda it: -(tasks[it].after_s + tasks[it].task.run_s))


def _by_data(tasks: Sequence[ReadyTask]) -> list[int]:
    """Return the same order, but those after each other that read most of the same."""
    return [number for group in _groups(tasks, _by_rank(tasks)) for number in group]


def _groups(tasks: Sequence[ReadyTask], order: Iterable[int]) -> Iterable[list[int]]:
    """Return the tasks that read most of the same, each of them in an order."""
    groups: dict[str, list[int]] = {}
    for number in order:
        most = _most_of(tasks[number])
        groups.setdefault("" if most is None else most.data_id, []).append(number)
    return groups.values()


def _end_of(place: ReadyPlace) -> tuple[float, float]:
    return place.end_s, place.transfer_s


def _brought_and_end(place: ReadyPlace) -> tuple[float, float]:
    """Return for how long data is brought to a place, 0 if that does not matter, and when the task ends."""
    brought_s = place.transfer_s
    is_little = brought_s <= LITTLE_SHARE * (place.end_s - place.begin_s)
    return 0.0 if is_little else brought_s, place.end_s


def _most_of(ready: ReadyTask) -> PlanData | None:
    """Return the largest data that a task reads, None if it reads none."""
    return max(ready.task.inputs, key=lambda it: it.size_bytes, default=None)


def _wanted(tasks: Iterable[ReadyTask]) -> dict[str, set[str]]:
    """Return of the largest data that each task reads what one host alone has, by host."""
    found: dict[str, set[str]] = {}
    for ready in tasks:
        data = _most_of(ready)
        if data is not None and len(data.hosts) == 1:
            found.setdefault(data.hosts[0], set()).add(data.data_id)
    return found


def _in_order(
    tasks: Sequence[ReadyTask],
    order: Iterable[int],
    board: Board,
    choose: Callable[[int, Sequence[ReadyPlace]], ReadyPlace],
) -> list[ReadyPlace | None]:
    """Return where tasks go, one after the other, by a choice among the rated hosts."""
    found: list[ReadyPlace | None] = [None] * len(tasks)
    for number in order:
        ready = tasks[number]
        places = board.rate(ready)
        if places:
            place = choose(number, places)
            board.take(ready, place)
            place.worth_s = _worth_s(place, places)
            place.spared_s = max(it.transfer_s for it in places) - place.transfer_s
            found[number] = place
    return found


def _worth_s(place: ReadyPlace, places: Iterable[ReadyPlace]) -> float:
    """Return how much longer a task takes at the next best host that is worse, however busy they are."""
    takes_s = place.end_s - place.begin_s
    more = (it.end_s - it.begin_s - takes_s for it in places)
    return min((it for it in more if it > LATE_SHARE * takes_s), default=0.0)


def _last_end(tasks: Sequence[ReadyTask], places: Sequence[ReadyPlace | None]) -> float:
    ends = (it.end_s + ready.after_s for ready, it in zip(tasks, places, strict=True) if it is not None)
    return max(ends, default=0.0)


def _without_plan(tasks: Sequence[ReadyTask], board: Board) -> list[ReadyPlace | None]:
    """Return where tasks go that take the core that is free first, whatever its speed."""
    return [board.take_first_free(ready) for ready in tasks]
