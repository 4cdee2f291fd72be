"""The page of the executor lists the tests of CPython that fail."""

from __future__ import annotations

from pathlib import Path

from tests.cpython.known_failures import KNOWN_FAILURES

PAGE = Path(__file__).parents[2] / "docs" / "executor.md"


def test_they_are_listed_with_their_reasons() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = [line for line in text.splitlines() if line.startswith("| `") and "Test.test_" in line]
    assert listed == [f"| `{name}` | {reason} |" for name, reason in KNOWN_FAILURES.items()]
