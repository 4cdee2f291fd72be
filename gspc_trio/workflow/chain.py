"""A linked list from which elements go away while it is being walked along."""

from __future__ import annotations

from typing import Any

from gspc_trio.workflow.tokens import Token


class Entry:
    """An element of a chain; one that was removed still knows what came after it."""

    __slots__ = ("is_there", "key", "next", "previous", "token")

    def __init__(self, token: Token, key: Any, previous: Entry | None) -> None:
        self.token = token
        self.key = key
        self.previous = previous
        self.next: Entry | None = None
        self.is_there = True

    def successor(self) -> Entry | None:
        """Return the next element that is still there."""
        entry = self.next
        while entry is not None and not entry.is_there:
            entry = entry.next
        return entry


class Chain:
    """Tokens in the order of their arrival."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: Entry | None = None
        self.last: Entry | None = None

    def append(self, token: Token, key: Any) -> Entry:
        """Add a token at the end."""
        entry = Entry(token, key, self.last)
        if self.last is None:
            self.first = entry
        else:
            self.last.next = entry
        self.last = entry
        return entry

    def remove(self, entry: Entry) -> None:
        """Take an element out."""
        entry.is_there = False
        if entry.previous is None:
            self.first = entry.next
        else:
            entry.previous.next = entry.next
        if entry.next is None:
            self.last = entry.previous
        else:
            entry.next.previous = entry.previous
