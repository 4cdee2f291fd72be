"""Patterns for several files, and what each file is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.core.file_sets import (
    NameClash,
    check_distinct,
    escape,
    fill_pattern,
    fills,
    is_glob,
    matches,
    name_files,
)


def test_files_are_numbered_or_keep_their_names() -> None:
    names = ["b.txt", "a.txt", "sub/c.txt"]
    assert name_files("part-{index}", names) == ["part-0", "part-1", "part-2"]
    assert name_files("{index:03}/x-{index}.txt", names[:1], 7) == ["007/x-7.txt"]
    assert name_files("in/", names) == ["in/b.txt", "in/a.txt", "in/sub/c.txt"]
    assert name_files("./", names) == names
    assert name_files("lone", ["x"]) == ["lone"]


def test_what_has_no_name_needs_a_number() -> None:
    assert name_files("part-{index}", ["", ""]) == ["part-0", "part-1"]
    with pytest.raises(
        NameClash, match=r"value 1 for in/ has no name: number the files, as in in/part-\{index\}"
    ):
        name_files("in/", ["a", ""])


def test_a_clash_names_both() -> None:
    check_distinct([("in/a", "x/a"), ("in/b", "y/a")])
    with pytest.raises(
        NameClash, match="x/a and y/a would both be in/a: put them into directories of their own"
    ):
        check_distinct([("in/a", "x/a"), ("in/b", "x/b"), ("in/a", "y/a")])
    with pytest.raises(NameClash, match="x/a would be in/a, which is the directory of y/b"):
        check_distinct([("in/a", "x/a"), ("in/a/b", "y/b")])


def test_a_pattern_is_filled_for_each_of_several_values() -> None:
    assert fill_pattern("{a}/*.txt", {"a": "x"}) == ("x/*.txt",)
    assert fill_pattern("{a}-{b}", {"a": ["x", "y"], "b": (1, 2)}) == ("x-1", "x-2", "y-1", "y-2")
    assert fill_pattern("{a}/{c}", {"a": "*[?"}) == ("[*][[][?]/{c}",)
    assert fill_pattern("{a}", {"a": []}) == ()


@given(st.text(st.sampled_from("ab*?[]!^\\-."), min_size=1))
def test_what_is_escaped_stands_for_itself(text: str) -> None:
    assert matches(escape(text), text)
    assert not matches(escape(text), text + "x")


@pytest.mark.parametrize(
    ("pattern", "fine", "bad"),
    [
        ("corpus/*.txt", ["corpus/a.txt", "corpus/.txt"], ["corpus/a/b.txt", "corpus/a.txt2", "other/a.txt"]),
        ("corpus/**/*.txt", ["corpus/a.txt", "corpus/x/y/a.txt"], ["corpus/a.csv", "corpusx/a.txt"]),
        ("corpus/**", ["corpus/a", "corpus/a/b"], ["other"]),
        (
            "corpus/{name}/?[ab]",
            ["corpus/x/1a", "corpus/x/y/1b"],
            ["corpus/x/1c", "corpus//1a", "corpus/x/a"],
        ),
        ("corpus/[!a]", ["corpus/b"], ["corpus/a", "corpus//", "corpus/^a"]),
        ("corpus/[^a]", ["corpus/^", "corpus/a"], ["corpus/b"]),
        ("out/{name}/", ["out/x/a", "out/x/a/b"], ["out/x", "outx/a"]),
        ("out/{name}-{index:03}.txt", ["out/x-001.txt"], ["out/x.txt"]),
        ("./", ["a", "a/b"], [""]),
        ("plain[1]", ["plain[1]", "plain1"], ["plain[]", "plain"]),
    ],
)
def test_a_path_is_what_its_author_has_stated_or_not(pattern: str, fine: list[str], bad: list[str]) -> None:
    assert [path for path in fine if not matches(pattern, path)] == []
    assert [path for path in bad if matches(pattern, path)] == []


def test_a_pattern_that_is_filled_is_the_one_that_was_stated() -> None:
    assert fills("corpus/{name}/*.txt", "corpus/x/*.txt")
    assert fills("corpus/{name}/*.txt", "corpus/[*]x[[]/*.txt", escaped=True)
    for pattern in ("corpus/*/*.txt", "corpus/x/**/*.txt", "corpus/[ab]/*.txt", "corpus/a[/*.txt"):
        assert not fills("corpus/{name}/*.txt", pattern, escaped=True)
    for pattern in ("corpus/x/y.txt", "corpus/*.txt", "corpus/x/**", "corpus/x/*.txt2"):
        assert not fills("corpus/{name}/*.txt", pattern)
    assert [is_glob(path) for path in ("a/b", "a*", "?", "[a]")] == [False, True, True, True]
