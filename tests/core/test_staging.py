"""Names and plans of tasks' files: what leads out of a directory is no name."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gspc_trio.core.file_sets import matches
from gspc_trio.core.staging import (
    PLAN_MARK,
    BadFileName,
    FilePatterns,
    FilePlan,
    Gather,
    Scatter,
    Stage,
    parts_of,
    split_plan,
)

BAD_NAMES = [
    "", "/", "/etc/passwd", "..", "../x", "a/..", "a/../b", ".", "./a", "a/./b", "a//b", "a/", "a\0b",
    "x" * 256, "/".join(["a" * 200] * 30), "\udfff" + "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_leads_out_of_its_directory_is_none(name: str) -> None:
    with pytest.raises(BadFileName):
        parts_of(name)


@given(st.text(max_size=40))
def test_whatever_is_a_name_stays_below(name: str) -> None:
    try:
        parts = parts_of(name)
    except BadFileName:
        return
    assert "/".join(parts) == name
    assert all(part not in ("", ".", "..") and "/" not in part for part in parts)


def test_a_plan_comes_back_from_among_the_arguments() -> None:
    plan = FilePlan(1, (("in.txt", "corpus/a"), ("more", 1)), (("out", 0), ("x", "y/z")), ((0, 1),))
    arguments = (b"first", b"second", plan.encoded())
    assert split_plan(arguments) == (plan, arguments[:2], ())
    assert split_plan((*arguments, b"behind")) == (plan, arguments[:2], (b"behind",))
    sets = replace(plan, gather=(Gather("in/", ("x/*", 1)),), scatter=(Scatter("*", 1, True),))
    assert split_plan((b"first", b"second", sets.encoded())) == (sets, arguments[:2], ())
    assert split_plan((b"first", b"second")) == (None, (b"first", b"second"), ())
    assert split_plan(()) == (None, (), ())


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (1, (), (), ()),  # more arguments than there are
        (0, (("a", 0),), (), ()),
        (0, (("a", -2),), (), ()),
        (0, ((1, "a"),), (), ()),
        (0, (), (("a", None),), ()),
        (0, (), (), ((0, 7),)),
        (0, (), (), ((0, "x"),)),
        ("x", (), (), ()),
        (0, 5, (), ()),
        (0, (), (), (), ()),
        (0, (), (), (), (("a", ("b",)),), ()),
        (0, (), (), (), (("a", (1,), False),), ()),  # no such argument
        (0, (), (), (), (), (("*", None, False, False),)),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match="plan"):
        split_plan((PLAN_MARK + msgpack.packb(fields),))


def test_patterns_are_filled_with_inputs() -> None:
    stage = Stage(
        fetch=(("in", "texts/{name}.txt"), ("data", 2)),
        store=(("out", "{name}/{other}"),),
        names=(("name", 0),),
    )
    plan = stage.plan(1, {0: [0], 2: [1]}, {"name": "x y"})
    assert plan.fetch == (("in", "texts/x y.txt"), ("data", 1))
    assert plan.store == (("out", "x y/{other}"),)


def test_a_pattern_is_filled_with_anything_but_nothing() -> None:
    assert matches("corpus/{name}.txt", "corpus/a b.txt")
    assert matches("{a}/{b}", "x/y/z")
    assert matches("plain", "plain")
    for path in ("corpus/.txt", "corpus/a.txt2", "other/a.txt", "corpus/atxt"):
        assert not matches("corpus/{name}.txt", path)


def test_only_files_on_the_host_of_the_job_are_asked_for() -> None:
    stage = Stage(fetch=(("in", "a/{x}"), ("data", 1)), store=(("out", 0), ("log", "b")))
    assert FilePatterns.of([None, stage]) == FilePatterns(("a/{x}",), ("b",))
