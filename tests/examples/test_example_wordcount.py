"""The word count of real processes equals a plain one, whatever lies under the directory."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import ROOT, World

EXAMPLE = str(ROOT / "examples" / "wordcount.py")

ODD_FILES = {
    "plain.py": b"def main():\n    return None  # None\n",
    "UPPER.txt": b"Word WORD word wOrD",
    "empty.md": b"",
    "no words.rst": b"123 _ 4_5 \0 \r\n --",
    "invalid.txt": b"before\xffafter \xe2\x82 cut\xe2\x82A \xc3b \xf0\x9f word\xc3",
    "letters.md": "naïve Straße ÉCOLE \u212aelvin \u0130stanbul \u017fmall ｗide x\u0301y".encode(),
    "lines.txt": b"one\rtwo\r\nthree\n\nfour-five_six7seven\x0ceight\x85nine",
    "mark.py": b"\xef\xbb\xbffirst word",
    "wide.txt": "utf sixteen".encode("utf-16"),
    "a name with spaces and ä, ' and \".txt": b"spaces in names",
    "deep/deeper/deepest/.hidden.py": b"deep and hidden",
    ".md": b"nothing but a suffix",
    "deep/other.PY": b"never counted",
    "other.txt.bak": b"never counted",
    "pyproject.toml": b"never counted",
    "py": b"never counted",
}


def make_odd_tree(folder: Path) -> None:
    for name, data in ODD_FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with open(os.fsencode(folder) + b"/not utf-8 \xff.txt", "wb") as file:
        file.write(b"odd name")
    (folder / "dangling.py").symlink_to("nowhere.py")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "linked.py").symlink_to("plain.py")
    (folder / "up").symlink_to("..")
    (folder / "directory.py").mkdir()
    os.mkfifo(folder / "pipe.txt")


def count_plainly(folder: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and path.name.endswith((".py", ".txt", ".md", ".rst")):
            text = path.read_bytes().decode("utf-8", errors="replace")
            counts.update(word.lower() for word in re.findall("[A-Za-z]+", text))
    return dict(counts)


def run(world: World, path: Path) -> dict[str, Any]:
    result: dict[str, Any] = world.run_json("jobserver", "run", EXAMPLE, "--set", f"path={path}")
    return result


def test_it_equals_a_plain_count_of_an_odd_tree(world: World) -> None:
    tree = world.folder / "a tree"
    make_odd_tree(tree)
    expected = count_plainly(tree)
    assert {"ve", "cut", "a", "before", "hidden", "suffix", "odd", "elvin"} <= expected.keys()
    assert not {"never", "kelvin", "naive", "wide", "small"} & expected.keys()
    result = run(world, tree)
    assert result["outputs"] == {"counts": [expected]}
    assert result["tasks"]["failed"] == 0


def test_a_large_tree_is_counted_in_several_tasks(world: World) -> None:
    tree = world.folder / "tree"
    tree.mkdir()
    for number in range(20):
        line = f"number {number} of many {'abc'[number % 3]}\n"
        (tree / f"{number}.txt").write_text(line * (1_100_000 // len(line)))
    (tree / "long line.md").write_text("word " * 600_000)
    result = run(world, tree)
    assert result["outputs"]["counts"] == [count_plainly(tree)]
    assert result["tasks"]["finished"] == 21 + 2, "a task for each large file, and two that add them up"


def test_many_small_files_share_a_task(world: World) -> None:
    tree = world.folder / "tree"
    tree.mkdir()
    for number in range(600):
        (tree / f"{number}.py").write_text("x" * (number % 2))
    result = run(world, tree)
    assert result["outputs"]["counts"] == [{"x": 300}]
    assert result["tasks"]["finished"] == 3 + 1


def test_an_empty_directory_has_no_words(world: World) -> None:
    (world.folder / "tree").mkdir()
    result = run(world, world.folder / "tree")
    assert result["outputs"] == {"counts": [{}]}
    assert set(result["tasks"].values()) == {0}


@pytest.mark.parametrize("path", ["nowhere", "file.txt"])
def test_what_is_no_directory_is_told_clearly_and_where(world: World, path: str) -> None:
    (world.folder / "file.txt").write_text("word")
    done = world.run("jobserver", "run", EXAMPLE, "--json", "--set", f"path={path}")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[1].startswith("  File ")
    assert f"no directory {path}" in done.stderr
    assert "--set path=DIR" in done.stderr


def test_what_cannot_be_read_is_named_and_left_out(world: World) -> None:
    tree = world.folder / "tree"
    (tree / "secret folder").mkdir(parents=True)
    for name in ("good.txt", "secret.txt", "secret folder/bad.txt"):
        (tree / name).write_text("word")
    (tree / "secret.txt").chmod(0)
    if os.access(tree / "secret.txt", os.R_OK):
        pytest.skip("this user may read every file")
    (tree / "secret folder").chmod(0)
    done = world.run("jobserver", "run", EXAMPLE, "--set", f"path={tree}")
    (tree / "secret folder").chmod(0o700)
    assert done.returncode == 0
    assert "1  word" in done.stdout
    assert "1 files" in done.stdout
    assert sorted(line.split(" cannot be read")[0] for line in done.stderr.splitlines()) == [
        f"wordcount: {tree}/secret folder",
        f"wordcount: {tree}/secret.txt",
    ]


def test_the_report_shows_the_top_words_and_what_it_took(world: World) -> None:
    tree = world.folder / "tree"
    tree.mkdir()
    words = [chr(ord("a") + number) * 3 for number in range(25)]
    (tree / "words.txt").write_text(
        " ".join(word for number, word in enumerate(words) for _ in range(100 * number))
    )
    done = world.run("jobserver", "run", EXAMPLE, "--set", f"path={tree}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split() for line in lines[:20]] == [
        [f"{100 * number:,}", words[number]] for number in range(24, 4, -1)
    ]
    assert lines[20] == "1 files"
    assert re.fullmatch(r"1 task in \d+\.\d+ s", lines[21])
    assert len(lines) == 22
    assert done.stderr == ""


def load_example() -> Any:
    specification = importlib.util.spec_from_file_location("example_wordcount", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_by_default_it_reads_the_standard_library_of_this_python_without_installed_packages() -> None:
    example = load_example()
    default = inspect.signature(example.workflow).parameters["path"].default
    assert default == Path(os.__file__).resolve().parent
    parts = {Path(name).relative_to(default).parts[0] for name in example.find_files(default)}
    assert {"json", "email", "os.py"} <= parts
    assert not {"site-packages", "dist-packages"} & parts


def test_packages_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "one.py").write_text("word")
    assert list(load_example().find_files(tmp_path)) == [str(packages / "one.py")]
