"""What tasks were made of: code, scripts, source files, and files on the host of the job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Net, Program, SourceFile
from gspc_trio.components.job.shell.identities import FileContents, TaskFiles, identities_of


def one(run: Any, **options: Any) -> bytes:
    """The identity of the only transition of a net."""
    net = Net("one")
    net.transition("it", run, {"item": net.input("items")}, net.output("results"), **options)
    return identities_of(net)["it"]


def test_the_name_of_a_function_and_inline_transitions_do_not_count() -> None:
    def first(item: int) -> int:
        return item

    def second(item: int) -> int:
        return item

    def third(item: int) -> int:
        return -item

    assert one(first) == one(second) != one(third)
    net = Net("inline")
    net.transition("it", first, {"item": net.input("items")}, net.output("results"), inline=True)
    assert identities_of(net) == {}


def test_what_cannot_be_compared_has_no_identity(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:

        def write(item: int) -> int:
            return file.write(str(item))

        assert one(write) == b""


def test_a_script_and_a_source_file_count_by_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script, source = Path("work.sh"), Path("source.py")
    made = []
    for text in ("pass", "pass", "raise ValueError"):
        script.write_text(text)
        source.write_text(f"def main(item): {text}")
        made.append((one(Program(["sh", "work.sh", "{item}"])), one(SourceFile(str(source)))))
    assert made[0] == made[1]
    assert made[0][0] != made[2][0]
    assert made[0][1] != made[2][1]
    source.unlink()
    assert one(SourceFile(str(source))) == b""


def test_what_a_program_stores_is_no_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compile_it = Program(["cc", "-o", "a.out", "a.c"])
    staged = {"stage_in": {"a.c": "a.c"}, "stage_out": {"a.out": "a.out"}}
    before = one(compile_it, **staged), one(compile_it)
    Path("a.out").write_text("made")
    assert before[0] == one(compile_it, **staged)
    assert before[1] != one(compile_it)


def test_a_file_is_known_by_what_it_has(tmp_path: Path) -> None:
    files, path = FileContents(str(tmp_path)), tmp_path / "file"
    assert (files.mark("file"), files.digest("file")) == (None, None)
    path.write_text("one")
    first, mark = files.digest("file"), files.mark("file")
    assert first is not None
    os.utime(path, (1, 1))
    assert files.mark("file") != mark
    assert files.digest("file") == first
    path.write_text("two")
    assert files.digest("file") not in (None, first)
    (tmp_path / "folder").mkdir()
    assert files.digest("folder") is None


def test_a_set_of_files_is_the_same_while_no_file_in_it_is_new(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    files = TaskFiles(str(tmp_path))
    mark, before = files.mark("*.txt"), files.digest("*.txt")
    assert files.is_same("*.txt", mark)
    (tmp_path / "b.txt").write_text("b")
    assert not files.is_same("*.txt", mark)
    assert files.digest("*.txt") not in (None, before)
    (tmp_path / "b.txt").unlink()
    assert files.digest("*.txt") == before
    lone = files.mark("a.txt")
    assert files.is_same("a.txt", lone)
    (tmp_path / "a.txt").write_text("more")
    assert not files.is_same("a.txt", lone)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("")
    assert TaskFiles(str(tmp_path), files_max=2).digest("*.txt") is None
