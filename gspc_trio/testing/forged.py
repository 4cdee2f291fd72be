"""Messages with something wrong in them, made from the types of all messages there are.

A new type of message, or a new field, is covered by itself. It is made as it travels, before any type is
checked: a message with likely values, of which one field (or one within a field) is replaced, or none.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from enum import Enum
from random import Random
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
from msgspec import Struct

from gspc_trio.components.wire.registry import WIRE_TYPES
from gspc_trio.core.ids import GrantId
from gspc_trio.protocol.limits import NUMBER_MAX
from gspc_trio.records.facts import RECORD_TYPES, Record

Path: TypeAlias = tuple[int, ...]
"""Where a value is in nested arrays."""

POISON: Sequence[Any] = (
    None, True, False, 0, 1, -1, 2**31, NUMBER_MAX, NUMBER_MAX + 1, 2**63, 2**64 - 1, -(2**63), 0.5, -1.0,
    1e308, -1e308, float("nan"), float("inf"), float("-inf"), "", "a", "\0", "\udcff", "x" * 70_000, b"",
    b"\xc1\x03", b"\xff" * 300, (), ((),), ((((((((((((),),),),),),),),),),),), {}, {"a": 1}, {1: ()},
    ("r1.core0", "r1.core0"), ("",), (1, 2, 3), (0, 0), (-1, -1), (NUMBER_MAX, NUMBER_MAX), ((0, 0), (1, 1)),
)  # fmt: skip
"""What takes the place of a field, whatever its type is."""

_NUMBERS = (0, 0, 1, 1, 2, 3, 5, 100, 4096, 1 << 20, NUMBER_MAX)
_TIMES = (0.0, 0.001, 1.0, 6.0, 1e9, float(NUMBER_MAX))
_BYTES = (b"", b"x", b"code", b"\x93\x01\x02\x03", bytes(300))


class Names(Struct):
    """What may stand in a message for it to look right.

    Attributes:
        texts: ids of the hostile peer and of others, words that mean something.
        grants: that were given, or look so.
    """

    texts: list[str]
    grants: list[GrantId]


class ForgedMessages:
    """Makes messages as they travel, before they are packed.

    Args:
        random: to draw from.
        names: what looks right; may be changed at any time.
    """

    def __init__(self, random: Random, names: Names) -> None:
        self._random = random
        self.names = names
        self._hints: dict[type, tuple[Any, ...]] = {}

    def every(self) -> Iterator[tuple[type, Any]]:
        """Yield each type of message with each of its fields replaced once, and as it should be."""
        for kind in WIRE_TYPES:
            fields = self.honest(kind)
            yield kind, fields
            for path in list(_paths(fields)):
                yield kind, _replaced(fields, path, self._random.choice(POISON))

    def some(self, kinds: Sequence[type]) -> tuple[type, Any]:
        """Return one message of these types, two of three such that the codec takes them."""
        random = self._random
        kind = random.choice(kinds)
        fields = self.honest(kind)
        for _ in range(random.choice((0, 0, 0, 0, 1, 2))):
            paths = list(_paths(fields))
            if paths:
                fields = _replaced(fields, random.choice(paths), random.choice(POISON))
        return kind, fields

    def honest(self, kind: type) -> Any:
        """Return the fields of a message of this type that the codec takes."""
        return self._value(kind)

    def _value(self, kind: Any) -> Any:
        random, origin, arguments = self._random, get_origin(kind), get_args(kind)
        if kind == GrantId:
            return random.choice(self.names.grants)
        if origin is Annotated:
            least = arguments[1].min_length or 0
            value = self._value(arguments[0])
            return value if arguments[1].min_length is None or len(value) >= least else self._value(kind)
        if kind is Record:
            number = random.randrange(len(RECORD_TYPES))
            return (number, *self._value(RECORD_TYPES[number]))
        if origin in (Union, types.UnionType):
            return self._value(random.choice(arguments))
        if origin is tuple:
            many = arguments[-1] is Ellipsis
            members = arguments[:1] * random.choice((0, 1, 1, 2)) if many else arguments
            return tuple([self._value(member) for member in members])
        if origin is frozenset:
            return (self._value(arguments[0]),)
        if origin is dict:
            return {self._value(arguments[0]): self._value(arguments[1])}
        if kind in _LEAVES:
            return random.choice(_LEAVES[kind]) if kind is not str else random.choice(self.names.texts)
        if issubclass(kind, Enum):
            return random.choice([member.value for member in kind])
        assert issubclass(kind, Struct) or attrs.has(kind), kind
        if kind not in self._hints:
            hints = get_type_hints(kind, include_extras=True)
            self._hints[kind] = tuple(hints[name] for name in kind.__match_args__)
        return tuple([self._value(hint) for hint in self._hints[kind]])


_LEAVES: dict[Any, Sequence[Any]] = {
    str: (),
    int: _NUMBERS,
    float: _TIMES,
    bool: (False, True),
    bytes: _BYTES,
    type(None): (None,),
}


def _paths(value: Any) -> Iterator[Path]:
    """Yield where there is something in nested arrays, from outside to inside."""
    if type(value) is tuple:
        for place, element in enumerate(value):
            yield (place,)
            for path in _paths(element):
                yield (place, *path)


def _replaced(value: Any, path: Path, other: Any) -> Any:
    """Return nested arrays with another value in one place."""
    if not path:
        return other
    place, *rest = path
    return (*value[:place], _replaced(value[place], tuple(rest), other), *value[place + 1 :])
