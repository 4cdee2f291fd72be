"""Staging by the process that runs a task: there, back, and nothing left (SWF-3)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gspc_trio.compute.errors import TaskFailure
from gspc_trio.compute.wrapper import Wrapped
from gspc_trio.core.staging import WRAPPER_MARK, FilePlan, Gather, Scatter, wrapper_order


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("in/a", "in/b", "tree/x/1", "tree/.y"):
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text(name)
    (tmp_path / "home" / "in" / "link").symlink_to("/etc/passwd")
    return tmp_path / "home"


def wrapped(home: Path, files_max: int = 10, bytes_max: int = 100, **plan: Any) -> Wrapped:
    directory = home.parent / "task"
    said = wrapper_order(FilePlan(0, **plan), str(home), str(directory), files_max, bytes_max)
    assert said is not None
    assert said.startswith(WRAPPER_MARK)
    return Wrapped(os.fsencode(said)[1:])


def test_files_are_there_before_and_what_is_made_is_there_afterwards(home: Path) -> None:
    one = wrapped(
        home,
        fetch=(("data/first", "in/a"),),
        gather=(Gather("set/", ("in/[ab]",)), Gather("all/", ("tree/",)), Gather("no/", ("none/*",), True)),
        store=(("made", "out/made"),),
        scatter=(Scatter("*.txt", "out/texts/"),),
    )
    task = Path(one.stage_in())
    there = sorted(str(path.relative_to(task)) for path in task.rglob("*") if path.is_file())
    assert there == ["all/.y", "all/x/1", "data/first", "set/a", "set/b"]
    assert (task / "data" / "first").read_text() == "in/a"
    for name in ("made", "1.txt", "2.txt"):
        (task / name).write_text(name)
    one.stage_out()
    one.remove()
    one.remove()
    assert not task.exists()
    made = sorted(str(path.relative_to(home)) for path in (home / "out").rglob("*") if path.is_file())
    assert made == ["out/made", "out/texts/1.txt", "out/texts/2.txt"]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"fetch": (("a", "in/none"),)}, "in/none: No such file"),
        ({"fetch": (("a", "../home/in/a"),)}, "leads out of its directory"),
        ({"fetch": (("../a", "in/a"),)}, "leads out of its directory"),
        ({"fetch": (("a", "in/link"),)}, "is a link or a device"),
        ({"gather": (Gather("x/", ("none/*",)),)}, "no file matches"),
        ({"gather": (Gather("x/", ("in/[ab]",)),), "files_max": 1}, "stands for more files|at most 1"),
        ({"fetch": (("a", "in/a"),), "bytes_max": 2}, "4 bytes in a file are more than it may have"),
    ],
)
def test_what_is_not_to_be_had_fails_the_task_in_one_line(
    home: Path, plan: dict[str, Any], problem: str
) -> None:
    one = wrapped(home, **plan)
    with pytest.raises(TaskFailure, match=problem) as caught:
        one.stage_in()
    assert caught.value.kind == "staging"
    one.remove()
    assert not (home.parent / "task").exists()


def test_a_task_that_has_not_made_its_file_leaves_none(home: Path) -> None:
    one = wrapped(home, store=(("made", "out/made"),))
    one.stage_in()
    with pytest.raises(TaskFailure, match="made: No such file"):
        one.stage_out()
    one.remove()
    assert not (home / "out").exists()


def test_a_node_that_does_not_see_the_directory_of_the_job_says_what_to_do(home: Path) -> None:
    with pytest.raises(TaskFailure, match=r"does not see the directory of the job .*; use staging=provider"):
        wrapped(home / "elsewhere", fetch=(("a", "in/a"),)).stage_in()


def test_files_that_are_values_are_for_the_rif() -> None:
    assert wrapper_order(FilePlan(1, fetch=(("a", 0),)), "/h", "/d", 1, 1) is None
    assert wrapper_order(FilePlan(0, store=(("a", 0),)), "/h", "/d", 1, 1) is None
