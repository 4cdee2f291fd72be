"""What the tasks of patterns run around the functions of users.

Compute processes import it, and are many: it needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from operator import itemgetter
from typing import TypeAlias

Rank: TypeAlias = tuple[int, int]
"""From which item a pair comes, and which one of its pairs it is."""


def _name_item(error: Exception, item: object) -> None:
    """Say with which one of the items of a task its function has raised."""
    with suppress(Exception):  # of the item's own code
        error.add_note(f"the item was {item!r:.200}")


class EachItem:
    """Calls a function for each of some items, in their order.

    Args:
        function: of one item.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.__wrapped__ = function

    def __call__(self, items: Sequence[object]) -> list[object]:
        function, results, item = self.__wrapped__, [], None
        try:
            for item in items:
                results.append(function(item))
        except Exception as error:
            _name_item(error, item)
            raise
        return results


class EachWithState:
    """Calls a function for each of some items, in their order, and hands the state from one call to the next.

    Args:
        function: of an item and the state; it returns a result and the new state.
        name: what to call it before people.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self.__wrapped__ = function
        self._name = name

    def __call__(self, items: Sequence[object], state: object) -> dict[str, object]:
        results = []
        for item in items:
            try:
                returned = self.__wrapped__(item, state)
            except Exception as error:
                _name_item(error, item)
                raise
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise TypeError(
                    f"{self._name} has a state, so it has to return (result, state), not {returned!r:.200}"
                )
            result, state = returned
            results.append(result)
        return {"results": results, "state": state}


class KeepItem:
    """Lets an item go on, or makes room for another one in its place.

    Args:
        predicate: of an item.
        wanted: what it has to say for the item to go on.
    """

    def __init__(self, predicate: Callable[..., object], wanted: bool) -> None:
        self.__wrapped__ = predicate
        self._wanted = wanted

    def __call__(self, item: object) -> dict[str, object]:
        if bool(self.__wrapped__(item)) is self._wanted:
            return {"items": [item], "room": []}
        return {"items": [], "room": [None]}


class FoldWindow:
    """Combines the items of a window, one after the other.

    Args:
        combine: of what the items before have become, and the next item.
        initial: what ``combine`` gets with the first item.
    """

    def __init__(self, combine: Callable[..., object], initial: object) -> None:
        self.__wrapped__ = combine
        self._initial = initial

    def __call__(self, *parts: Sequence[object]) -> object:
        found = deepcopy(self._initial)  # the next window begins with it, too
        for part in parts:
            for item in part:
                found = self.__wrapped__(found, item)
        return found


class MapPairs:
    """Calls a function that gives pairs, and gathers their values by key.

    Args:
        function: of an item; it returns one pair (key, value) as a tuple, or several pairs: a list of them,
            another iterable, or a mapping.
        name: what to call it before people.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self._function = function
        self._name = name

    def __call__(self, item: object, number: int) -> dict[object, list[tuple[Rank, object]]]:
        returned = self._function(item)
        several = returned.items() if isinstance(returned, Mapping) else returned
        pairs = [returned] if isinstance(returned, tuple) else several
        found: dict[object, list[tuple[Rank, object]]] = {}
        if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
            pairs = [returned]
        for index, pair in enumerate(pairs):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"{self._name} has to give pairs (key, value), not {pair!r:.200}")
            key, value = pair
            found.setdefault(key, []).append(((number, index), value))
        return found


def merge_by_key(
    parts: Sequence[Mapping[object, list[tuple[Rank, object]]]],
) -> dict[object, list[tuple[Rank, object]]]:
    """Return the values of several parts by key."""
    found: dict[object, list[tuple[Rank, object]]] = {}
    for part in parts:
        for key, values in part.items():
            found.setdefault(key, []).extend(values)
    return found


def split_by_key(
    part: Mapping[object, list[tuple[Rank, object]]],
) -> list[tuple[object, list[object]]]:
    """Return each key with its values, both in the order of the items from which they come."""
    found = [(key, sorted(values, key=itemgetter(0))) for key, values in part.items()]
    found.sort(key=lambda one: one[1][0][0])
    return [(key, [value for _, value in values]) for key, values in found]


class ReduceKey:
    """Reduces the values of one key.

    Args:
        function: of a list of values.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.__wrapped__ = function

    def __call__(self, of_key: tuple[object, list[object]]) -> tuple[object, object]:
        key, values = of_key
        return key, self.__wrapped__(values)
