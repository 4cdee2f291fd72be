"""Places while a net runs: who waits for their tokens, and in which order the tokens came."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol

from gspc_trio.workflow.arcs import Place
from gspc_trio.workflow.bulk.stock import Stock, TokenStock, joined
from gspc_trio.workflow.tokens import AskedToken, CountedValue, FindReferences, Token, TokenCodec

STOCK_DRAWN = 1024
"""Of many values at the beginning so many become tokens at a time."""


class Taker(Protocol):
    """A transition that has an arc from the place.

    Attributes:
        is_ready: whether it is marked already, so that another mark says nothing new.
    """

    is_ready: bool

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
        self.description: Place = description
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
            if not taker.is_ready:
                taker.mark()

    def first(self) -> Token:
        """Return the token that is there longest."""
        return self.tokens[0]

    def remove(self, token: Token) -> None:
        """Take away this token, which must be the first."""
        taken = self.tokens.popleft()
        assert taken is token, "tokens are taken from the front"


class StockedPlace(QueuePlace):
    """A queue that may get very many values at a time: few of them are tokens yet.

    Attributes:
        least: so many tokens are made at least, as long as there are values.
        is_ranged: whether values are taken in ranges; then none becomes a token by itself.
    """

    __slots__ = ("_drawn", "_later", "_left", "is_ranged", "least")

    def __init__(self, description: Place) -> None:
        super().__init__(description)
        self.least: int = 1
        self.is_ranged: bool = False
        self._later: deque[Stock | Token] = deque()
        self._drawn = 0  # of the first one of these
        self._left = 0  # in all of these

    def __len__(self) -> int:
        return len(self.tokens) + self._left

    def __iter__(self) -> Iterator[Token]:
        return chain(self.tokens, self._tokens_later())

    def __reversed__(self) -> Iterator[Token]:
        return chain(self._last_tokens(), reversed(self.tokens))

    def _tokens_later(self) -> Iterator[Token]:
        """Yield tokens of what is behind those that are made."""
        for position, there in enumerate(self._later):
            if isinstance(there, Token):
                yield there
            else:
                yield from map(there.token, range(0 if position else self._drawn, len(there)))

    def _last_tokens(self) -> Iterator[Token]:
        """Yield the same, the last one first."""
        for position, there in zip(range(len(self._later) - 1, -1, -1), reversed(self._later), strict=True):
            if isinstance(there, Token):
                yield there
            else:
                first = 0 if position else self._drawn
                yield from map(there.token, range(len(there) - 1, first - 1, -1))

    def values(self, codec: TokenCodec) -> list[object]:
        """Return the values of all tokens, in order."""
        found = list(map(codec.decode, self.tokens))
        for position, there in enumerate(self._later):
            if isinstance(there, Token):
                found.append(codec.decode(there))
            else:
                found += there.decoded(codec, 0 if position else self._drawn)
        return found

    def fill(self, values: Sequence[object], *, encoded: bool = False) -> None:
        """Add many values, or encodings of values, to the place; wake up the takers."""
        self.put_stock(Stock(values, encoded))

    def put_stock(self, stock: Stock) -> None:
        """Add what may be very many values; wake up the takers."""
        if not len(stock):
            return
        self._later.append(stock)
        self._left += len(stock)
        if not self.is_ranged and len(self.tokens) < self.least:
            self._draw()
        for taker in self.takers:
            if not taker.is_ready:
                taker.mark()

    def put(self, token: Token) -> None:
        """Add a token and wake up the takers."""
        if not self._later:
            super().put(token)
        else:
            self._later.append(token)
            self._left += 1

    def remove(self, token: Token) -> None:
        """Take away this token, which must be the first."""
        taken = self.tokens.popleft()
        assert taken is token, "tokens are taken from the front"
        if self._later and len(self.tokens) < self.least:
            self._draw()

    def _draw(self) -> None:
        """Make tokens of some values."""
        count, later = self.least + STOCK_DRAWN, self._later
        while later and count:
            first = later[0]
            if isinstance(first, Token):
                self.tokens.append(first)
                made, is_used_up = 1, True
            else:
                end = min(len(first), self._drawn + count)
                self.tokens.extend(map(first.token, range(self._drawn, end)))
                made, self._drawn, is_used_up = end - self._drawn, end, end == len(first)
            count -= made
            self._left -= made
            if is_used_up:
                later.popleft()
                self._drawn = 0

    def take_in_ranges(self) -> None:
        """Make no tokens from now on; those that were drawn and not taken are values again."""
        self.is_ranged = True
        if self._later and len(self.tokens) == self._drawn:
            self._left += self._drawn
            self._drawn = 0
            self.tokens.clear()

    def take_stock(self, count: int, codec: TokenCodec) -> Stock:
        """Take away the first ``count`` values, which must be there."""
        parts: list[Stock] = []
        while count:
            part = self._take_part(count)
            parts.append(part)
            count -= len(part)
        return joined(parts, codec)

    def _take_part(self, count: int) -> Stock:
        """Take away some values of one kind, at most so many."""
        if self.tokens:
            return TokenStock([self.tokens.popleft() for _ in range(min(count, len(self.tokens)))])
        later = self._later
        if isinstance(later[0], Token):
            tokens: list[Token] = []
            while later and isinstance(token := later[0], Token) and len(tokens) < count:
                tokens.append(token)
                later.popleft()
            self._left -= len(tokens)
            return TokenStock(tokens)
        first = later[0]
        begin, end = self._drawn, min(len(first), self._drawn + count)
        self._left -= end - begin
        self._drawn = end
        if end == len(first):
            later.popleft()
            self._drawn = 0
        return first.part(begin, end)

    def samples(self, each: int) -> Iterator[Token]:
        """Return some of the tokens that are not taken yet: at most so many of each kind that is there."""
        yield from islice(self.tokens, each)
        for there in islice(reversed(self._later), each):
            if isinstance(there, Token):
                yield there
            else:
                first = self._drawn if there is self._later[0] else 0
                step = max(1, (len(there) - first) // each)
                yield from map(there.token, islice(range(first, len(there), step), each))


class AnswerPlace(QueuePlace):
    """The place that sends answers to those who have asked; no token stays there."""

    __slots__ = ("_asked",)

    def __init__(self, description: Place) -> None:
        super().__init__(description)
        self._asked: Token | None = None

    def put(self, token: Token) -> None:
        """Take the token with which somebody may have asked, or, after it, the answer."""
        asked, self._asked = self._asked, None
        if asked is None:
            self._asked = token
        elif isinstance(asked, AskedToken):
            asked.asker.answer(token)


class StreamPort(QueuePlace):
    """An output port whose tokens are taken off while the workflow runs, and which may hold it back.

    For each token that comes here one is used up elsewhere, which stands for room. It is put back at once
    while nobody takes tokens off, and else when the token is taken off.

    Attributes:
        room: the place of the tokens that stand for room.
        is_held: whether somebody takes tokens off.
        owed: so many tokens have come, and their room was not put back.
        taken: so many tokens were taken off.
    """

    __slots__ = ("is_held", "owed", "room", "taken")

    def __init__(self, description: Place) -> None:
        super().__init__(description)
        self.room: AnyPlace
        self.is_held: bool = False
        self.owed: int = 0
        self.taken: int = 0

    def put(self, token: Token) -> None:
        """Add a token and wake up the takers."""
        super().put(token)
        if self.is_held:
            self.owed += 1
        else:
            self.room.put(Token(None))

    def hold(self, is_held: bool) -> None:
        """Hold the workflow back from now on, or no longer."""
        self.is_held = is_held
        if not is_held:
            self._put_back(self.owed)

    def take_off(self, count: int) -> None:
        """Take away the first ``count`` tokens."""
        for _ in range(count):
            self.tokens.popleft()
        self.taken += count
        self._put_back(self.owed - len(self.tokens))

    def _put_back(self, count: int) -> None:
        for _ in range(count):
            self.owed -= 1
            self.room.put(Token(None))


class WatchedPlace:
    """A place from whose middle a condition may pick tokens; it numbers them as they arrive."""

    __slots__ = ("clock", "description", "takers", "tokens", "watchers")

    def __init__(self, description: Place, clock: Clock) -> None:
        self.description: Place = description
        self.clock: Clock = clock
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
            if not taker.is_ready:
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


class BagPlace(WatchedPlace):
    """A place from which any token may be drawn.

    Attributes:
        bag: the tokens, in an order that depends on nothing but what has come and gone.
    """

    __slots__ = ("_at", "bag")

    def __init__(self, description: Place, clock: Clock) -> None:
        super().__init__(description, clock)
        self.bag: list[Token] = []
        self._at: dict[int, int] = {}

    def put(self, token: Token) -> None:
        """Add a token, tell the watchers and wake up the takers."""
        self._at[id(token)] = len(self.bag)
        self.bag.append(token)
        super().put(token)

    def remove(self, token: Token) -> None:
        """Take away this token; the last one of the bag comes where it was."""
        position, last = self._at.pop(id(token)), self.bag.pop()
        if last is not token:
            self.bag[position] = last
            self._at[id(last)] = position
        super().remove(token)

    def arrange(self, serials: Sequence[int]) -> None:
        """Put the tokens into the order in which a bag had them that was dumped."""
        self.bag = [self.tokens[serial] for serial in serials]
        self._at = {id(token): position for position, token in enumerate(self.bag)}


class ReferenceCounts:
    """Counts where values are that somebody has to be told of when the last one is gone.

    It watches all places. A value that occurs in a token counts, and in one that a task has taken until its
    result is there.

    Args:
        find: value of a token -> the values to be counted in it.
        codec: decodes tokens.
        places: name -> place.
    """

    def __init__(self, find: FindReferences, codec: TokenCodec, places: Mapping[str, AnyPlace]) -> None:
        self._find = find
        self._decode = codec.decode
        self._places = places
        self._counts: dict[Hashable, int] = {}
        self._gone: dict[Hashable, CountedValue] = {}

    def arrived(self, _arc: int, token: Token) -> None:
        """A token has come to a place, or a task holds it."""
        for one in self._find(self._decode(token)):
            self._counts[one.key] = self._counts.get(one.key, 0) + 1

    def left(self, _arc: int, token: Token) -> None:
        """A token has gone from a place, or a task holds it no more."""
        for one in self._find(self._decode(token)):
            self._counts[one.key] -= 1
            if not self._counts[one.key]:
                self._gone.setdefault(one.key, one)

    def settle(self) -> None:
        """A firing is over: put values that are nowhere any more onto the places that want them.

        Raises:
            ValueError: one cannot come there.
        """
        while self._gone:
            key = next(iter(self._gone))
            gone = self._gone.pop(key)
            if not self._counts.get(key):
                self._counts.pop(key, None)
                if gone.problem:
                    raise ValueError(gone.problem)
                self._places[gone.place].put(Token(gone.value))

    def begin(self) -> None:
        """All tokens of the beginning, or of a dump, are there."""
        self._gone.clear()


class Clock:
    """Numbers arrivals over all watched places of a net."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: int = 0


class TokenCounter:
    """Keeps the number of tokens of a place, as the one token of another place.

    Attributes:
        place: where the number is.
        is_ready: never, so that it is told of each token.
    """

    __slots__ = ("_count", "is_ready", "place")

    def __init__(self, place: AnyPlace) -> None:
        self.place: AnyPlace = place
        self.is_ready: bool = False
        self._count: int | None = None

    def begin(self, count: int) -> None:
        """Count from now on; the number is at its place already if this is a net that was loaded."""
        self._count = count
        if not self.place.tokens:
            self.place.put(Token(count))

    def mark(self) -> None:
        """A token has come to the place whose tokens are counted."""
        self.add(1)

    def add(self, number: int) -> None:
        """There are so many tokens more; or less, where a task that had taken some has ended."""
        if self._count is None:
            return
        self._count += number
        self.place.remove(self.place.first())
        self.place.put(Token(self._count))


AnyPlace = QueuePlace | WatchedPlace


def first_unused(place: AnyPlace, used: Iterable[Token], most: int) -> list[Token]:
    """Return at most ``most`` tokens from the front of the place, without those in ``used``."""
    taken = {id(token) for token in used}
    if not taken:
        return list(islice(place, most))
    return list(islice((token for token in place if id(token) not in taken), most))


class Entry:
    """An element of a chain; one that was removed still knows what came after it."""

    __slots__ = ("is_there", "key", "next", "previous", "token")

    def __init__(self, token: Token, key: object, previous: Entry | None) -> None:
        self.token: Token = token
        self.key: object = key
        self.previous: Entry | None = previous
        self.next: Entry | None = None
        self.is_there: bool = True

    def successor(self) -> Entry | None:
        """Return the next element that is still there."""
        entry = self.next
        while entry is not None and not entry.is_there:
            entry = entry.next
        return entry


class Chain:
    """Tokens in the order of their arrival; some go away while it is being walked along."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: Entry | None = None
        self.last: Entry | None = None

    def append(self, token: Token, key: object) -> Entry:
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
