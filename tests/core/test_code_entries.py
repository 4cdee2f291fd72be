from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.core.code import WHOLE, BadResult, Program, SourceFile, fill, placeholders, split_outputs


def test_placeholders_are_names_in_braces_and_nothing_else() -> None:
    assert placeholders("{a} ${b_2} {a} {} {1} {print $1} {{c}}") == ("a", "b_2", "c")


def test_fill_replaces_what_has_a_value() -> None:
    assert fill("{a}-{b}-{a}-{print $1}", {"a": 1}) == "1-{b}-1-{print $1}"


def test_a_program_is_words_and_knows_what_it_asks_for() -> None:
    program = Program(["convert", "{source}", 3], {"HOME": "{home}"}, "/tmp/{folder}")
    assert program.arguments == ("convert", "{source}", "3")
    assert program.environment == {"HOME": "{home}"}
    assert program.names == ("source", "home", "folder")
    assert Program(["true"], None, None) == Program(("true",))


@pytest.mark.parametrize(("arguments", "error"), [("ls -l", TypeError), (b"ls", TypeError), ([], ValueError)])
def test_a_program_without_words_is_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Program(arguments)


def test_a_source_file_is_a_path_and_a_function() -> None:
    assert SourceFile("a.py") == SourceFile("a.py", "main")


@pytest.mark.parametrize(
    ("outputs", "tokens"),
    [
        (WHOLE, (({"x": 1, "y": [2, 3]},),)),
        ((), ()),
        ((("x", False),), ((1,),)),
        ((("y", True), ("y", False)), ((2, 3), ([2, 3],))),
        (((None, False), ("x", False)), (({"x": 1, "y": [2, 3]},), (1,))),
    ],
)
def test_a_returned_value_is_split_over_the_outputs(outputs: Any, tokens: Any) -> None:
    assert split_outputs({"x": 1, "y": [2, 3]}, outputs) == tokens


def test_each_takes_any_iterable_of_tokens() -> None:
    assert split_outputs(range(3), ((None, True),)) == ((0, 1, 2),)


@pytest.mark.parametrize(
    ("value", "output", "message"),
    [
        (3, ("x", False), "a mapping with the port 'x' was to be returned, not an int"),
        ({"y": 1}, ("x", False), "the returned mapping has no port 'x'; it has 'y'"),
        ({}, ("x", False), "it has nothing"),
        ("abc", (None, True), "a list of tokens was to be returned, not a str"),
        ({"x": 3}, ("x", True), "a list of tokens for the port 'x' was to be returned, not an int"),
        ({"x": {1: 2}}, ("x", True), "a list of tokens for the port 'x' was to be returned, not a dict"),
    ],
)
def test_a_value_that_does_not_fit_is_one_clear_line(value: Any, output: Any, message: str) -> None:
    with pytest.raises(BadResult, match=message):
        split_outputs(value, (output,))
