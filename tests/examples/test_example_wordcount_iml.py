"""The example counts what is there, with the corpus mapped by its tasks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.commands import run_program
from tests.e2e.support import HANG_S, ROOT

pytestmark = pytest.mark.process


def test_it_counts_the_words_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "one.txt").write_text("the cat and the dog\n" * 1000)
    (tmp_path / "sub" / "two.md").write_text("The end")
    (tmp_path / "not.bin").write_text("the the the")
    command = (sys.executable, str(ROOT / "examples" / "wordcount_iml.py"), str(tmp_path))
    done = run_program(*command, cwd=tmp_path, env=os.environ, timeout_s=HANG_S)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "20009 bytes in 1 ranges, 5002 words"
    assert [line.split() for line in lines[1:]] == [
        ["2001", "the"],
        ["1000", "and"],
        ["1000", "cat"],
        ["1000", "dog"],
        ["1", "end"],
    ]
    assert done.stderr == ""


def test_a_directory_without_texts_is_named(tmp_path: Path) -> None:
    command = (sys.executable, str(ROOT / "examples" / "wordcount_iml.py"), str(tmp_path))
    done = run_program(*command, cwd=tmp_path, env=os.environ, timeout_s=HANG_S)
    assert (done.returncode, done.stderr) == (1, f"there are no text files under {tmp_path}\n")
