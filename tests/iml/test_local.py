"""Requests to a memory server: a process that asks checks what the server would close the connection for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.iml.local import (
    LOOK_UP,
    NEW,
    PUBLISH,
    TEXT_BYTES_MAX,
    BadPacket,
    check_request,
    pack,
    requests_of,
)

FIELDS = st.one_of(st.text(max_size=3), st.integers(-(2**54), 2**54), st.none(), st.binary(max_size=2))


@settings(max_examples=100)
@given(st.sampled_from([(LOOK_UP, 1), (PUBLISH, 3), (NEW, 3)]), st.lists(FIELDS, min_size=3, max_size=3))
def test_what_is_refused_where_it_is_asked_is_what_the_server_refuses(
    operation: tuple[int, int], fields: list[Any]
) -> None:
    number, count = operation
    accepted = []
    for check in (
        lambda: check_request(number, tuple(fields[:count])),
        lambda: requests_of(pack((number, 1, *fields[:count]))),
    ):
        try:
            check()
            accepted.append(True)
        except (TypeError, BadPacket):
            accepted.append(False)
    assert len(set(accepted)) == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (3, "a memory server wants a text that is not empty, not 3"),
        ("", "a memory server wants a text that is not empty, not ''"),
        ("x" * (TEXT_BYTES_MAX + 1), "takes names of 65536 bytes at most"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_a_name_that_is_none_is_refused(name: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        check_request(PUBLISH, ("j1", "d1", name))
