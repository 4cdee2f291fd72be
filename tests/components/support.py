"""Watches what goes from one state to another, and holds it against the machine's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

S = TypeVar("S")


class TransitionsSeen(Generic[S]):
    """What was seen of a table of transitions.

    Args:
        table: state -> states that may follow.
        gone: what a thing is in that is no longer there.
    """

    def __init__(self, table: Mapping[S, frozenset[S]], gone: S) -> None:
        self.table = table
        self.gone = gone
        self.seen: set[tuple[S, S]] = set()

    def compare(self, before: Mapping[Any, S | None], after: Mapping[Any, S | None]) -> None:
        """See what has become of everything that was there before an event."""
        for key, old in before.items():
            new = after.get(key)
            if new is None:
                new = self.gone
            if old not in (None, self.gone, new):
                assert new in self.table[old], f"{key} from {old} to {new}"
                self.seen.add((old, new))

    @property
    def unseen(self) -> set[tuple[S, S]]:
        """What the table allows and was not seen."""
        return {(old, new) for old, news in self.table.items() for new in news} - self.seen
