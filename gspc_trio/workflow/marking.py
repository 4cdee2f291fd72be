"""Places while a net runs: who waits for their tokens, and in which order the tokens came."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from gspc_trio.workflow.arcs import Place
from gspc_trio.workflow.tokens import Token


class Taker(Protocol):
    """A transition that has an arc from the place."""

    def mark(self) -> None:
        """It may be able to fire now."""
        ...


class Watcher(Protocol):
    """A search that has to know of every token of the place, since it may pick one from the middle."""

    def arrived(self, arc: int, token: Token) -> None:
        """A token has come to the place of this arc."""
        ...

    def left(self, arc: int, token: Token) -> None:
        """A token has gone from the place of this arc; its serial is still there."""
        ...


class QueuePlace:
    """A place whose tokens are only ever taken from the front."""

    __slots__ = ("description", "takers", "tokens")

    def __init__(self, description: Place) -> None:
        self.description = description
        self.tokens: deque[Token] = deque()
        self.takers: list[Taker] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[Token]:
        return iter(self.tokens)

    def __reversed__(self) -> Iterator[Token]:
        return reversed(self.tokens)

    def put(self, token: Token) -> None:
        """Add a token and wake up the takers."""
        self.tokens.append(token)
        for taker in self.takers:
            taker.mark()

    def first(self) -> Token:
        """Return the token that is there longest."""
        return self.tokens[0]

    def remove(self, token: Token) -> None:
        """Take away this token, which must be the first."""
        taken = self.tokens.popleft()
        assert taken is token, "tokens are taken from the front"


class WatchedPlace:
    """A place from whose middle a condition may pick tokens; it numbers them as they arrive."""

    __slots__ = ("clock", "description", "takers", "tokens", "watchers")

    def __init__(self, description: Place, clock: Clock) -> None:
        self.description = description
        self.clock = clock
        self.tokens: OrderedDict[int, Token] = OrderedDict()
        self.takers: list[Taker] = []
        self.watchers: list[tuple[Watcher, int]] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[Token]:
        return iter(self.tokens.values())

    def __reversed__(self) -> Iterator[Token]:
        return reversed(self.tokens.values())

    def put(self, token: Token) -> None:
        """Add a token, tell the watchers and wake up the takers."""
        self.clock.last += 1
        token.serial = serial = self.clock.last
        self.tokens[serial] = token
        for watcher, arc in self.watchers:
            watcher.arrived(arc, token)
        for taker in self.takers:
            taker.mark()

    def first(self) -> Token:
        """Return the token that is there longest."""
        return next(iter(self.tokens.values()))

    def remove(self, token: Token) -> None:
        """Take away this token."""
        del self.tokens[token.serial]
        for watcher, arc in self.watchers:
            watcher.left(arc, token)
        token.serial = 0


class Clock:
    """Numbers arrivals over all watched places of a net."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


AnyPlace = QueuePlace | WatchedPlace


def first_unused(place: AnyPlace, used: Iterable[Token], most: int) -> list[Token]:
    """Return at most ``most`` tokens from the front of the place, without those in ``used``."""
    taken = {id(token) for token in used}
    if not taken:
        return list(islice(place, most))
    return list(islice((token for token in place if id(token) not in taken), most))
