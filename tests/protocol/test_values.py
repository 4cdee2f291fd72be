"""Encoded values come back equal and of the same exact types, whatever they are."""

from __future__ import annotations

import collections
import contextlib
import enum
import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.protocol.values import (
    DEPTH_MAX,
    LONG_BYTES,
    BadValue,
    dumps,
    is_plain,
    loads,
    open_published,
    published_pieces,
)


class Colour(enum.IntEnum):
    RED = 1


class Word(str):
    pass


Point = collections.namedtuple("Point", "x y")


def same(left: Any, right: Any) -> bool:
    """Equal and of the same exact type, all the way down; NaN is itself, -0.0 is not 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return math.copysign(1, left) == math.copysign(1, right) and (left == right or left != left)
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(one, other) and same(left[one], right[other]) for one, other in zip(left, right, strict=True)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


plain_atoms = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
)
odd_atoms = (
    st.integers()
    | st.text(st.characters(categories=["Cs"]), min_size=1)
    | st.sampled_from([Colour.RED, Word("a"), Point(1, 2), 1j, frozenset({1}), range(3), bytearray(b"b")])
)
keys = (
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.tuples(st.integers(), st.text())
)


def nested(atoms: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        atoms,
        lambda inner: (
            st.lists(inner)
            | st.lists(inner).map(tuple)
            | st.dictionaries(keys, inner)
            | st.tuples(inner, inner)
        ),
        max_leaves=20,
    )


@settings(max_examples=150)
@given(nested(plain_atoms | odd_atoms))
def test_any_value_comes_back_equal_and_of_the_same_exact_types(value: Any) -> None:
    assert same(loads(dumps(value)), value)


@settings(max_examples=100)
@given(nested(plain_atoms))
def test_plain_data_needs_no_pickle(value: Any) -> None:
    assert is_plain(dumps(value)) is not _has_wide_int(value)


def _has_wide_int(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_wide_int(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple):
        return any(map(_has_wide_int, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64


@pytest.mark.parametrize(
    "value", [True, (), [()], {(1, (2,)): [(3,)]}, [1, True, 1.0], {1: "int", "1": "str", b"1": "bytes"}]
)
def test_plain_data_with_tuples_and_like_numbers_is_msgpack(value: Any) -> None:
    assert is_plain(dumps(value))
    assert same(loads(dumps(value)), value)


@pytest.mark.parametrize(
    "value", [Colour.RED, Word("x"), Point(1, 2), [bytearray(b"x")], {1, 2}, 2**64, "\ud800"]
)
def test_what_msgpack_would_change_is_pickled(value: Any) -> None:
    assert not is_plain(dumps(value))
    assert same(loads(dumps(value)), value)


def test_deep_nesting_and_cycles_are_pickled() -> None:
    deep: list[Any] = []
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    assert not is_plain(dumps(deep))
    assert loads(dumps(deep)) == deep
    cycle: list[Any] = []
    cycle.append(cycle)
    back = loads(dumps(cycle))
    assert back[0] is back


def test_lambdas_and_things_of_main_travel_by_value() -> None:
    assert loads(dumps(lambda x: x + 1))(1) == 2
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("class Local:\n    value = 7", namespace)
    assert loads(dumps(namespace["Local"]())).value == 7


def test_long_bytes_are_msgpack_like_short_ones() -> None:
    for size in (LONG_BYTES, LONG_BYTES + 1):
        data = dumps(bytes(size))
        assert is_plain(data)
        assert loads(data) == bytes(size)


def test_a_value_that_nothing_can_pickle_is_refused_in_one_line() -> None:
    with pytest.raises(BadValue, match=r"type generator cannot be sent .*; make a list of what it yields$"):
        dumps(number for number in ())
    too_deep: list[Any] = []
    for _ in range(100_000):
        too_deep = [too_deep]
    with pytest.raises(pickle.PicklingError, match="a value of type list cannot be sent"):
        dumps(too_deep)


@pytest.mark.parametrize("data", [b"", b"\x92\x01", b"\xd4\x07\x00", b"\x01\x02", b"\xa2\xff\xfe"])
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(BadValue):
        loads(data)


def test_views_are_read_without_a_copy_of_their_own() -> None:
    for value in ({"a": (1,)}, Colour.RED):
        assert loads(memoryview(dumps(value))) == value


@pytest.mark.parametrize("value", [None, 7, "text", [1, {"a": (2,)}], Colour.RED, b"", {"x": bytes(100_000)}])
def test_a_published_value_comes_back(value: object) -> None:
    data = b"".join(published_pieces(value))
    back = open_published(memoryview(data))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [b"bytes", bytearray(b"bytes"), memoryview(b"b.y.t.e.s")[::2]])
def test_published_bytes_are_kept_as_they_are(value: object) -> None:
    data = b"".join(published_pieces(value))
    assert data == b"bytes"
    assert open_published(memoryview(data)) == b"bytes"


def test_buffers_of_a_published_value_are_views() -> None:
    data = memoryview(b"".join(published_pieces([pickle.PickleBuffer(bytes(1000))])))
    (back,) = open_published(data)
    assert bytes(back) == bytes(1000)
    assert memoryview(back).readonly


@given(st.binary(max_size=40))
def test_what_only_begins_like_a_published_value_is_refused_in_one_way(rest: bytes) -> None:
    begin = bytes(published_pieces(1)[0][:16])
    with contextlib.suppress(BadValue, pickle.UnpicklingError, EOFError, IndexError):
        open_published(memoryview(begin + rest))
