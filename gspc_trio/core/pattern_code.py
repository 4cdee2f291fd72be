"""What the tasks of patterns run around the functions of users.

Compute processes import it, and are many: it needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class EachItem:
    """Calls a function for each of some items, in their order.

    Args:
        function: of one item.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.__wrapped__ = function

    def __call__(self, items: Sequence[object]) -> list[object]:
        return [self.__wrapped__(item) for item in items]


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
            returned = self.__wrapped__(item, state)
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise TypeError(
                    f"{self._name} has a state, so it has to return (result, state), not {returned!r:.200}"
                )
            result, state = returned
            results.append(result)
        return {"results": results, "state": state}
