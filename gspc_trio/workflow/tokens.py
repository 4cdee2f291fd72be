"""Tokens: values on places, decoded and encoded only when somebody has to look at them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, overload

from msgspec import Struct

from gspc_trio.core.ids import TaskId

Value: TypeAlias = Any
"""A value of a token, of a type that only the user's code knows: tasks, conditions, reports.

Where a value is only passed on, its type is ``object``."""

Values: TypeAlias = Iterable[object] | AsyncIterator[object]
"""Values of the tokens of an input port: a list, or an iterator that is read while the workflow runs."""

Outputs: TypeAlias = Mapping[str, list[Value]]
"""Output port -> values of its tokens."""

Plain: TypeAlias = Any
"""State as plain data: numbers, texts, bytes, lists and dicts, as a dump has it."""

_UNDECODED = object()


class CountedValue(NamedTuple):
    """A value that is counted, as it occurs in a token.

    Attributes:
        key: equal for those that are one and the same.
        place: name of the place that gets the value when no token has it any more.
        value: what comes there.
        problem: why it cannot come there, "" if it can.
    """

    key: Hashable
    place: str
    value: object
    problem: str = ""


FindReferences: TypeAlias = Callable[[object], Iterable[CountedValue]]
"""Value of a token -> the values to be counted in it, those that are around others first."""


class Token:
    """One token on one place: a Python value, its encoding, or both.

    Attributes:
        value: the value, if anybody looked at it yet.
        data: its encoding, if anybody needed it yet.
        serial: on a watched place, when it arrived there (from 1); 0 elsewhere, and once it has left.
        makers: the tasks that it is from; only there if that is noted.
    """

    __slots__ = ("data", "makers", "serial", "value")
    makers: tuple[TaskId, ...]

    def __init__(self, value: object = _UNDECODED, data: bytes | None = None) -> None:
        self.value: Value = value
        self.data: bytes | None = data
        self.serial: int = 0

    @property
    def is_batch(self) -> bool:
        """Whether it stands for the tokens that one ``take`` arc took together."""
        return type(self.value) is Batch

    def copy(self) -> Token:
        """Return a token of the same value for another place."""
        return Token(self.value, self.data)


class Asker:
    """Who has put a token and waits for an answer; tokens have it, and nothing else.

    Args:
        told: called once, with the token that is the answer, or None when the last token with which it was
            asked is gone.
    """

    __slots__ = ("__weakref__", "_told")

    def __init__(self, told: Callable[[Token | None], None]) -> None:
        self._told: Callable[[Token | None], None] | None = told

    def answer(self, token: Token | None) -> None:
        """Give an answer; only the first one counts."""
        told, self._told = self._told, None
        if told is not None:
            told(token)

    def __del__(self) -> None:
        self.answer(None)


class AskedToken(Token):
    """A token with which somebody has asked for an answer."""

    __slots__ = ("asker",)

    def __init__(self, value: object, data: bytes | None, asker: Asker) -> None:
        super().__init__(value, data)
        self.asker: Asker = asker

    def copy(self) -> Token:
        """Return a token of the same value and asker for another place."""
        return AskedToken(self.value, self.data, self.asker)


class TokenCodec(Struct, frozen=True):
    """How values become bytes and back; the layer above says how.

    Attributes:
        dumps: value -> bytes.
        loads: bytes -> value.
        join: the encodings of some values -> the encoding of the list of them. Without it, batches are
            decoded and encoded again.
    """

    dumps: Callable[[object], bytes]
    loads: Callable[[bytes], object]
    join: Callable[[Sequence[bytes]], bytes] | None = None

    def decode(self, token: Token) -> object:
        """Return the token's value."""
        value = token.value
        if value is _UNDECODED:
            assert token.data is not None
            value = token.value = self.loads(token.data)
        return value

    def encode(self, token: Token) -> bytes:
        """Return the token's encoding."""
        data = token.data
        if data is None:
            value = token.value
            if type(value) is not Batch:
                data = self.dumps(value)
            elif self.join is not None:
                data = self.join([self.encode(part) for part in value.tokens])
            else:
                data = self.dumps(list(value))
            token.data = data
        return data

    def encode_parts(self, token: Token) -> tuple[bytes, ...]:
        """Return the encodings of the tokens that a batch is made of; of any other token its own."""
        value = token.value
        return tuple(map(self.encode, value.tokens)) if type(value) is Batch else (self.encode(token),)

    def part(self, token: Token, index: int) -> Token:
        """Return a token for one of those that a batch is made of; after a dump it is a list."""
        value: Value = self.decode(token)
        return value.tokens[index].copy() if type(value) is Batch else Token(value[index])

    def batch(self, tokens: Sequence[Token]) -> Token:
        """Return one token for all of these."""
        return Token(Batch(tuple(tokens), self))


class Batch(Sequence[Value]):
    """The values of the tokens that one ``take`` arc took: read-only, each decoded only when it is looked at.

    Conditions and inline transitions see it; a task receives a list.
    """

    __slots__ = ("_codec", "tokens")

    def __init__(self, tokens: tuple[Token, ...], codec: TokenCodec) -> None:
        self.tokens: tuple[Token, ...] = tokens
        self._codec = codec

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value:
        if isinstance(index, slice):
            return [self._codec.decode(token) for token in self.tokens[index]]
        return self._codec.decode(self.tokens[index])

    def __iter__(self) -> Iterator[Value]:
        return map(self._codec.decode, self.tokens)

    def __reduce__(self) -> tuple[type, tuple[list[Value]]]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"Batch({list(self)!r})"


class Feed(Sequence[object]):
    """The values of an iterator, which is read while the workflow runs: at the beginning there are none.

    Args:
        source: the iterator, plain or asynchronous.

    Attributes:
        source: see above.
        read: how many values have come from it.
    """

    def __init__(self, source: Iterator[object] | AsyncIterator[object]) -> None:
        self.source = source
        self.read = 0

    def __len__(self) -> int:
        return 0

    @overload
    def __getitem__(self, index: int) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[object]: ...
    def __getitem__(self, index: int | slice) -> object:
        return ()[index]
