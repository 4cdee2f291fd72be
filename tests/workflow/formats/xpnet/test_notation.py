"""How values of xpnet are written, in its own notation and in JSON."""

from __future__ import annotations

import json
import pickle

import pytest

from gspc_trio.workflow.formats.format import FormatError
from gspc_trio.workflow.formats.xpnet.compiling import read_value
from gspc_trio.workflow.formats.xpnet.notation import plain_value, show_short, show_value
from gspc_trio.workflow.formats.xpnet.types import ANY, BIGINT, INT, LIST, LONG, STRING
from gspc_trio.workflow.formats.xpnet.values import BadXpnetValue, Shared
from tests.workflow.formats.xpnet.support import START


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("[]", "[]"),
        ("true", "true"),
        ("-5L", "-5"),
        ("5UL", "5"),
        ("123456789012345678901234567890A", "123456789012345678901234567890"),
        ("2.5f", "2.5"),
        ("'c'", '"c"'),
        ('"text"', '"text"'),
        ("{4096 1}", '{"bitset": "10000000000001000"}'),
        ("y(0 255)", '{"bytearray": "00ff"}'),
        ("List (1, 2L)", "[1, 2]"),
        ("Set {2, 1}", "[1, 2]"),
        ("Map [2 -> 'b', 1 -> 'a']", '[[1, "a"], [2, "b"]]'),
        ("Struct [x := 1, y := List ([])]", '{"x": 1, "y": [[]]}'),
        ("shared_done(3L)", '{"shared": 3, "place": "done"}'),
    ],
)
def test_json_has_values_as_it_can(text: str, plain: str) -> None:
    value = read_value(text, ANY, START)
    assert json.dumps(plain_value(value)) == plain
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_value_of_a_known_type_is_written_as_of_that() -> None:
    assert show_value(5, INT) == "5"
    assert show_value(5, LONG) == "5L"
    assert show_value((5,), LIST) == "List (5L)"


def test_a_long_bigint_is_written_and_read() -> None:
    number = 7**12_000 + 1
    text = show_value(-number, BIGINT)
    assert len(text) == 10_142 + 2
    assert read_value(text, BIGINT, START) == -number


def test_a_text_of_another_type_is_told() -> None:
    with pytest.raises(FormatError, match="10:5: this is of type int, and long is needed"):
        read_value("5", LONG, START)


def test_what_is_no_value_is_told_or_shown_as_it_is() -> None:
    with pytest.raises(BadXpnetValue, match="complex is no type of xpnet"):
        show_value(2j)
    assert show_short(2j) == "a value of type complex"
    assert show_short("x" * 1000, STRING) == '"' + "x" * 76 + "..."


def test_shared_values_are_the_same_if_they_are_equal() -> None:
    assert Shared("done", 3) == Shared("done", 3)
    assert len({Shared("done", 3), Shared("done", 3), Shared("other", 3), Shared("done", (3,))}) == 3
