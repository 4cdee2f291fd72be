"""Texts and bytes inside of encoded values are found without opening these."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.protocol.pieces import header, list_header, mapping_header, pieces_of
from gspc_trio.protocol.values import BadValue, dumps, loads

LONG = [b"x" * 300, "é" * 20_000, b"y" * 70_000]
CONTENTS = st.one_of(st.binary(max_size=40), st.text(max_size=40), st.sampled_from(LONG))


def found_in(value: object) -> list[tuple[str, bytes]]:
    data = memoryview(dumps(value))
    return [(piece.name, bytes(data[piece.begin : piece.end])) for piece in pieces_of(data, 1000)]


def bytes_of(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


@given(st.lists(CONTENTS, max_size=20))
def test_a_list_or_tuple_is_its_elements(values: list[bytes | str]) -> None:
    expected = [("", bytes_of(value)) for value in values]
    assert found_in(values) == expected
    assert found_in(tuple(values)) == expected


@given(st.dictionaries(st.text(max_size=50), CONTENTS, max_size=20))
def test_a_mapping_is_its_values_with_their_names(values: dict[str, bytes | str]) -> None:
    assert found_in(values) == [(name, bytes_of(value)) for name, value in values.items()]


def test_what_is_nested_has_names_like_paths() -> None:
    assert found_in({"a": {"b": b"1", "c": {"d": "2"}}, "e": b"3"}) == [
        ("a/b", b"1"),
        ("a/c/d", b"2"),
        ("e", b"3"),
    ]
    assert found_in([[b"1"], [b"2", b"3"]]) == [("", b"1"), ("", b"2"), ("", b"3")]
    assert found_in("lone") == [("", b"lone")]


@pytest.mark.parametrize("value", [5, [b"a", 5], {5: b"a"}, {b"a": b"a"}, {"a": None}, [1.5], True, {1, 2}])
def test_nothing_else_becomes_a_file(value: object) -> None:
    with pytest.raises(BadValue):
        found_in(value)


def test_there_is_a_limit() -> None:
    with pytest.raises(BadValue, match="more than 2 files"):
        pieces_of(memoryview(dumps([b"", b"", b""])), 2)


@given(st.binary(max_size=30))
def test_what_is_no_value_is_refused(data: bytes) -> None:
    try:
        pieces = pieces_of(memoryview(data), 1000)
    except BadValue:
        return
    assert all(0 <= piece.begin <= piece.end <= len(data) for piece in pieces)


@pytest.mark.parametrize("size_bytes", [0, 255, 256, 65535, 65536])
def test_a_value_is_written_in_parts(size_bytes: int) -> None:
    content = b"x" * size_bytes
    assert loads(list_header(2) + (header(size_bytes) + content) * 2) == [content] * 2
    assert loads(mapping_header(1) + dumps("name") + header(size_bytes) + content) == {"name": content}
    assert header(size_bytes) + content == dumps(content)


def test_more_than_a_value_can_have_is_refused() -> None:
    with pytest.raises(BadValue):
        header(1 << 32)
