"""Values of many tokens of a place that are no tokens yet: few of them are looked at at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from gspc_trio.workflow.tokens import Token, TokenCodec

Opened: TypeAlias = tuple[Sequence[object], dict[int, bytes]]
"""Results of a range, and those that are encoded each: number -> result."""

Column: TypeAlias = tuple[Sequence[object], bool]
"""Arguments of a range, and whether they are encoded values."""


class Stock:
    """Values, or encoded values, in order.

    Args:
        values: as they were given.
        is_encoded: whether they are encodings of values.
    """

    __slots__ = ("_is_encoded", "_values")

    def __init__(self, values: Sequence[object], is_encoded: bool = False) -> None:
        self._values = values
        self._is_encoded = is_encoded

    def __len__(self) -> int:
        return len(self._values)

    def token(self, index: int) -> Token:
        """Return a token for one of the values."""
        value = self._values[index]
        if not self._is_encoded:
            return Token(value)
        assert isinstance(value, bytes)
        return Token(data=value)

    def part(self, begin: int, end: int) -> Stock:
        """Return the values from ``begin`` to before ``end``."""
        return Stock(_cut(self._values, begin, end), self._is_encoded)

    def column(self, _codec: TokenCodec) -> Column:
        """Return all values as the arguments of a range."""
        return self._values, self._is_encoded

    def decoded(self, codec: TokenCodec, begin: int) -> Iterable[object]:
        """Return the values from ``begin`` on."""
        if self._is_encoded:
            return (codec.decode(self.token(index)) for index in range(begin, len(self._values)))
        return _cut(self._values, begin, len(self._values))


class PackedStock(Stock):
    """Results of a range as they came; they are opened when somebody looks at one of them.

    Args:
        count: how many there are.
        open_results: opens them.
    """

    __slots__ = ("_count", "_encoded", "_open")

    def __init__(self, count: int, open_results: Callable[[], Opened]) -> None:
        super().__init__(())
        self._count = count
        self._open: Callable[[], Opened] | None = open_results
        self._encoded: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._count

    def _look(self) -> Sequence[object]:
        if self._open is not None:
            self._values, self._encoded = self._open()
            self._open = None
        return self._values

    def token(self, index: int) -> Token:
        """Return a token for one of the values."""
        value = self._look()[index]
        data = self._encoded.get(index) if self._encoded else None
        return Token(value) if data is None else Token(data=data)

    def part(self, begin: int, end: int) -> Stock:
        """Return the values from ``begin`` to before ``end``."""
        values = self._look()
        if not self._encoded:
            return Stock(_cut(values, begin, end))
        return TokenStock(list(map(self.token, range(begin, end))))

    def column(self, codec: TokenCodec) -> Column:
        """Return all values as the arguments of a range."""
        values = self._look()
        if not self._encoded:
            return values, False
        return [codec.encode(self.token(index)) for index in range(len(values))], True

    def decoded(self, codec: TokenCodec, begin: int) -> Iterable[object]:
        """Return the values from ``begin`` on."""
        values = self._look()
        if not self._encoded:
            return _cut(values, begin, len(values))
        return [codec.decode(self.token(index)) for index in range(begin, len(values))]


class TokenStock(Stock):
    """Tokens that are taken together.

    Args:
        tokens: in order.
    """

    __slots__ = ("_tokens",)

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(())
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def token(self, index: int) -> Token:
        """Return one of the tokens."""
        return self._tokens[index]

    def part(self, begin: int, end: int) -> Stock:
        """Return the tokens from ``begin`` to before ``end``."""
        return TokenStock(self._tokens[begin:end])

    def column(self, codec: TokenCodec) -> Column:
        """Return all values as the arguments of a range."""
        return list(map(codec.encode, self._tokens)), True

    def decoded(self, codec: TokenCodec, begin: int) -> Iterable[object]:
        """Return the values from ``begin`` on."""
        return map(codec.decode, self._tokens[begin:])


def joined(parts: Sequence[Stock], codec: TokenCodec) -> Stock:
    """Return one stock of several, in order."""
    if len(parts) == 1:
        return parts[0]
    columns = [part.column(codec) for part in parts]
    if not any(are_encoded for _, are_encoded in columns):
        return Stock([value for values, _ in columns for value in values])
    encoded: list[object] = []
    for values, are_encoded in columns:
        encoded += values if are_encoded else map(codec.dumps, values)
    return Stock(encoded, True)


def _cut(values: Sequence[object], begin: int, end: int) -> Sequence[object]:
    """Return some of the values; of types of users nobody knows what a slice is."""
    if type(values) in (list, tuple, range):
        return values if begin == 0 and end == len(values) else values[begin:end]
    return [values[index] for index in range(begin, end)]
