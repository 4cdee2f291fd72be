from __future__ import annotations

from gspc_trio.cli.calls import parse_arguments


def test_arguments_are_json_where_they_can_be() -> None:
    assert parse_arguments(["1", "two", '"3"', "null", "three=[3]", "four=a=b", "a b=1", "{"]) == (
        [1, "two", "3", None, "a b=1", "{"],
        {"three": [3], "four": "a=b"},
    )
