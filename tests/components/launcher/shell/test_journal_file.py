"""The directory of a study's journal: for one launcher at a time, and whole lines only."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from attrs import evolve

from gspc_trio.components.launcher.journal import StudyHead, check_head, options_of_head
from gspc_trio.components.launcher.options import BadOption
from gspc_trio.components.launcher.shell.journal_file import StudyJournal
from gspc_trio.version import VERSION
from tests.components.launcher.support import USUAL

HEAD = StudyHead(VERSION, "s", "/out", "/work", options_of_head(USUAL), "00")


def filled(directory: Path) -> Path:
    """Write a journal with two lines."""
    journal = StudyJournal(directory)
    assert journal.head is None
    journal.begin(HEAD)
    journal.note("one\n")
    journal.note("two\n")
    journal.close()
    return directory / "study.journal"


def test_what_was_noted_is_read_and_more_is_added(tmp_path: Path):
    filled(tmp_path / "j")
    journal = StudyJournal(tmp_path / "j")
    assert (journal.head, journal.lines) == (HEAD, ["one", "two"])
    journal.note("three\n")
    journal.close()
    again = StudyJournal(tmp_path / "j")
    assert again.lines == ["one", "two", "three"]
    again.close()


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path):
    path = filled(tmp_path / "j")
    with path.open("a") as file:
        file.write("thr")
    journal = StudyJournal(tmp_path / "j")
    journal.note("four\n")
    journal.close()
    again = StudyJournal(tmp_path / "j")
    assert again.lines == ["one", "two", "four"]
    again.close()


def test_one_launcher_at_a_time_has_it(tmp_path: Path):
    journal = StudyJournal(tmp_path / "j")
    with pytest.raises(BadOption, match=r"^journal: another launcher uses .*/j$"):
        StudyJournal(tmp_path / "j")
    journal.close()
    StudyJournal(tmp_path / "j").close()


@pytest.mark.parametrize("content", ["", "x", "{}\n", '{"version": 1}\n', "\udcff\n"])
def test_another_file_is_no_journal(content: str, tmp_path: Path):
    path = filled(tmp_path / "j")
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadOption, match=r"^journal: .*study.journal is no journal of a study$"):
        StudyJournal(tmp_path / "j")


def test_a_full_disk_ends_the_journal_and_not_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    filled(tmp_path / "j")
    journal = StudyJournal(tmp_path / "j")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        journal.note("three\n")
    journal.note("four\n")
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
