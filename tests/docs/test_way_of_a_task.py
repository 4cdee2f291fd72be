"""The way of a task in docs/concepts.md names files that are there, and not many."""

from __future__ import annotations

import re
from pathlib import Path

import gspc_trio

ROOT = Path(gspc_trio.__file__).parent
CONCEPTS = ROOT.parent / "docs" / "concepts.md"

FILES_MAX = 30
"""Files that the id of a task crosses from submit to inject."""


def way() -> list[tuple[int, str]]:
    """Return the steps: number and file."""
    text = CONCEPTS.read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- The way of a task -->")
    listed, end, _ = rest.partition("<!-- End of the way of a task -->")
    assert end
    return [
        (int(number), file) for number, file in re.findall(r"^\| (\d+) \| `([^`]+)` \|", listed, re.MULTILINE)
    ]


def test_the_way_names_files_that_are_there_once_each() -> None:
    files = [file for _, file in way()]
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert len(set(files)) == len(files)


def test_the_way_is_short_and_counted() -> None:
    numbers = [number for number, _ in way()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 10 < len(numbers) <= FILES_MAX


def test_the_files_beside_the_way_are_there_too() -> None:
    text = CONCEPTS.read_text(encoding="utf-8").partition("<!-- End of the way of a task -->")[2]
    named = re.findall(r"`((?:protocol|nursery|components/wire)/[\w/.]*)`", text.partition("\n## ")[0])
    assert len(named) >= 4
    assert [file for file in named if not (ROOT / file).exists()] == []
