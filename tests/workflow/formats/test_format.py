from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.formats.format import (
    PROBLEMS_MAX,
    PROBLEMS_SHOWN_MAX,
    FormatError,
    Problem,
    Problems,
    ReadOptions,
    Source,
    check_options,
    find_format,
    format_names,
    gathered,
    recognise,
)
from gspc_trio.workflow.net import Net

HAZE = """
from gspc_trio.workflow.formats.format import Format


class Haze(Format):
    name, suffixes = "haze", (".haze",)

    def recognises(self, head):
        return head.startswith(b"haze")

    def read(self, source, options):
        raise NotImplementedError
"""


def test_what_several_lose_is_told_in_one_line() -> None:
    lost = [f"transition 't{number}': its condition" for number in range(5)]
    lost.insert(1, 'place "it\'s": its tokens')
    lost.append("place 'b': its tokens")
    lost.append("place 'c': its name: x")
    lost.append("something else")
    assert gathered(lost) == [
        "5 transitions: its condition ('t0', 't1', 't2' and 2 more)",
        "2 places: its tokens (\"it's\", 'b')",
        "place 'c': its name: x",
        "something else",
    ]


def test_what_is_no_text_is_told_with_its_place() -> None:
    assert Source("f", b"\xef\xbb\xbf\xc3\xa4\n").text() == "ä\n"
    with pytest.raises(FormatError, match=r"^f:2:2: this is no text in UTF-8: there is the byte 0xe9$"):
        Source("f", b"\xef\xbb\xbfa\n\xc3\xa4\xe9").text()


def test_problems_are_told_in_order_and_each_once() -> None:
    problems = [
        Problem("b", 2, 1, "y"),
        Problem("a", 10, 0, "x"),
        Problem("a", 9, 3, "x"),
        Problem("a", 0, 0, "x"),
    ]
    assert str(FormatError([*problems, *problems])).splitlines() == [
        "a: x",
        "a:9:3: x",
        "a:10: x",
        "b:2:1: y",
    ]


def test_very_many_problems_are_counted() -> None:
    error = FormatError(Problem("f", line, 1, "wrong") for line in range(1, PROBLEMS_SHOWN_MAX + 38))
    lines = str(error).splitlines()
    assert len(lines) == PROBLEMS_SHOWN_MAX + 1
    assert lines[-1] == "f: and 37 more"


def test_a_thousand_problems_are_enough() -> None:
    problems = Problems()
    source = Source("f", b"")
    for number in range(PROBLEMS_MAX - 1):
        problems.append(source.problem("x" * 5_000 if not number else "y", number))
    with pytest.raises(FormatError, match=r"(?s)f: x{1000}\.\.\.\n.*f: and at least 950 more$"):
        problems.append(source.problem("z", PROBLEMS_MAX))


def test_each_built_in_format_is_there_under_its_own_name() -> None:
    assert [find_format(name).name for name in format_names()] == format_names()


def test_options_are_for_the_formats_that_know_them() -> None:
    check_options(find_format("pnml"), ReadOptions(firings=3, explored=True))
    with pytest.raises(
        WorkflowError, match="--scale is for files of the format wfformat, and this one is pnml"
    ):
        check_options(find_format("pnml"), ReadOptions(scale=2.0))


def test_formats_of_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "haze_format.py").write_text(HAZE)
    info = tmp_path / "haze_format-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: haze_format\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gspc_trio.formats]\nhaze = haze_format:Haze\nthin = builtins:dict\ngone = haze_format:absent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    haze = find_format("haze")
    with pytest.raises(WorkflowError, match="haze is only read: 'n' cannot be written as haze"):
        haze.write(Net("n"), None)
    for name, why in (
        (
            "hazes",
            r"no format 'hazes' \(did you mean 'haze'\?\); there are: python, pnml, .*gone, haze, thin",
        ),
        ("thin", r"the format 'thin' of builtins:dict is \{\}, which is no Format"),
        ("gone", "the format 'gone' of haze_format:absent cannot be used: AttributeError"),
    ):
        with pytest.raises(WorkflowError, match=why):
            find_format(name)


def test_a_source_finds_nothing_by_itself() -> None:
    assert Source("f", b"").find("other") is None


def test_an_installed_format_that_is_broken_does_not_keep_others_from_being_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "broken_format-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken_format\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gspc_trio.formats]\nbroken = broken_format:Absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = recognise(".pnml", b"<pnml>")
    assert found is not None
    assert found.name == "pnml"
