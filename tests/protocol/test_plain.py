"""Classes as plain data: what comes back is equal, and what is wrong is said in one line."""

from __future__ import annotations

from enum import StrEnum

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from gspc_trio.components.job.messages import MemoryStatus
from gspc_trio.iml.messages import LayerStatus
from gspc_trio.protocol.plain import BadPlainData, from_json, from_plain, to_json, to_plain


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(Struct, frozen=True):
    number: int
    colour: Colour = Colour.RED


@frozen
class Outer:
    name: str
    inner: tuple[Inner, ...] = ()
    options: dict[str, str] = field(factory=dict)
    seconds: float | None = None


INNERS = st.builds(Inner, st.integers(-(2**53), 2**53), st.sampled_from(Colour))
OUTERS = st.builds(
    Outer,
    st.text(),
    st.lists(INNERS).map(tuple),
    st.dictionaries(st.text(), st.text()),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@given(OUTERS)
def test_what_was_written_is_read_again(value: Outer) -> None:
    assert from_plain(to_plain(value), Outer) == value
    assert from_json(to_json(value), Outer) == value


def test_plain_data_has_the_names_of_fields() -> None:
    assert to_plain(Outer("a", (Inner(1),))) == {
        "name": "a",
        "inner": ({"number": 1, "colour": "red"},),
        "options": {},
        "seconds": None,
    }
    assert to_plain(MemoryStatus(LayerStatus("i"))) == {
        "layer": {"instance": "i", "servers": (), "data": (), "transfers": (), "jobs": ()},
        "bandwidths": {},
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "Expecting value"),
        ("[1]", "Expected `object`, got `array`"),
        ("{}", "missing required field `name`"),
        ('{"name": 1}', r"Expected `str`, got `int` - at `\$.name`"),
        ('{"name": "a", "inner": [{"number": "1"}]}', r"got `str` - at `\$.inner\[0\].number`"),
        ('{"name": "a", "inner": [{"number": 1, "colour": "green"}]}', "Invalid enum value 'green'"),
        ('{"name": "a", "seconds": true}', r"got `bool` - at `\$.seconds`"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(line: str, why: str) -> None:
    with pytest.raises(BadPlainData, match=why) as caught:
        from_json(line, Outer)
    assert "\n" not in str(caught.value)


def test_what_is_not_known_is_not_looked_at() -> None:
    assert from_json('{"name": "a", "later": 1}', Outer) == Outer("a")
