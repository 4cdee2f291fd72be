"""The directory of a study's journal: for one launcher at a time, and whole lines only."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from gspc_trio.components.launcher.http_routes import StudyView
from gspc_trio.components.launcher.journal import (
    JournaledLauncher,
    StudyFile,
    StudyHead,
    check_head,
    options_of_head,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import BadOption
from gspc_trio.components.launcher.shell.journal_file import StudyJournal
from gspc_trio.version import VERSION
from tests.components.launcher.support import USUAL

HEAD = StudyHead(VERSION, "s", "/out", "/work", options_of_head(USUAL), "00")
KNOWN = JournaledLauncher(Launcher(USUAL, "s"), lambda _: None).begin_file()


def beginning(*lines: str) -> StudyFile:
    return StudyFile(HEAD, KNOWN, StudyView().kept(), list(lines))


async def filled(directory: Path) -> Path:
    """Write a journal with two lines."""
    journal = StudyJournal(directory)
    assert journal.kept is None
    await journal.begin(beginning)
    await journal.append(["one"])
    await journal.append(["two"])
    journal.close()
    return directory / "journal.000001"


def lines_in(directory: Path) -> list[str]:
    journal = StudyJournal(directory)
    journal.close()
    assert journal.kept is not None
    assert journal.kept.head == HEAD
    return journal.kept.lines


async def test_what_was_noted_is_read_and_a_new_file_takes_its_place(tmp_path: Path):
    path = await filled(tmp_path / "j")
    assert path.stat().st_mode & 0o777 == 0o600
    assert lines_in(tmp_path / "j") == ["one", "two"]
    journal = StudyJournal(tmp_path / "j")
    await journal.begin(beginning)
    await journal.append(["three", "four"])
    journal.close()
    assert lines_in(tmp_path / "j") == ["three", "four"]
    assert not path.exists()


async def test_a_line_that_was_being_written_is_left_out(tmp_path: Path):
    path = await filled(tmp_path / "j")
    data = path.read_bytes()
    for cut in (1, 5, 9):
        path.write_bytes(data[:-cut])
        assert lines_in(tmp_path / "j") == ["one"]


async def test_a_file_that_has_grown_large_is_to_give_way(tmp_path: Path):
    journal = StudyJournal(tmp_path / "j", file_bytes_max=10)
    await journal.begin(lambda: beginning("x" * 10_000))
    await journal.append(["y" * 5000])
    assert not journal.is_large
    await journal.append(["y" * 10_000])
    assert journal.is_large
    await journal.begin(beginning)
    assert not journal.is_large
    journal.close()


async def test_one_launcher_at_a_time_has_it(tmp_path: Path):
    journal = StudyJournal(tmp_path / "j")
    with pytest.raises(BadOption, match=r"^journal: another launcher uses .*/j$"):
        StudyJournal(tmp_path / "j")
    journal.close()
    StudyJournal(tmp_path / "j").close()


@pytest.mark.parametrize("content", [b"", b"x", b"GSPCS1\r\n", b"GSPCJ1\r\n", b"{}\n", b"\xff\n"])
async def test_another_file_is_no_journal(content: bytes, tmp_path: Path):
    path = await filled(tmp_path / "j")
    path.write_bytes(content)
    with pytest.raises(BadOption, match=r"^journal: .*journal.000001 is no journal of a study$"):
        StudyJournal(tmp_path / "j")


async def test_nobody_goes_on_from_a_journal_that_was_given_up(tmp_path: Path):
    await filled(tmp_path / "j")
    journal = StudyJournal(tmp_path / "j")
    journal.give_up()
    journal.close()
    with pytest.raises(BadOption, match=r"incomplete could not be written to its end: look for jobs"):
        StudyJournal(tmp_path / "j")


def test_a_study_goes_on_with_its_options_only():
    check_head(HEAD, USUAL)
    check_head(HEAD, evolve(USUAL, verbose=2, output_dir="elsewhere"))
    with pytest.raises(BadOption, match="its study was begun with job_limit = 3, and not with 5"):
        check_head(HEAD, evolve(USUAL, job_limit=5))
    with pytest.raises(BadOption, match="it was begun by version none"):
        check_head(StudyHead("none", "s", "", "", {}, ""), USUAL)
