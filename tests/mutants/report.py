"""The page that says what has found which mutant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutants.mutant import ROOT, Mutant

FOUND = Path(__file__).parent / "found.json"
"""What ``make mutants`` has found when it was run last."""

PAGE = ROOT / "docs" / "mutants.md"

HEAD = """# Mutants

<!-- This page is generated: make mutants -->

A mutant is a small fault that is put into the product on purpose: a release that is forgotten, a fence that
is not noted, a step that is out of order. Each is looked for twice: by the tests nearest to the file that it
changes, and by [simulating](simulation.md) clusters from seeds, which knows nothing of the mutant. What
neither finds is explained.

`tests/mutants` holds the table: text that takes the place of other text. `make mutants` looks for all of
them, for hours, and writes this page. `make simulate` looks at seeds that find some of them.

"""


def is_found(row: Mapping[str, Any]) -> bool:
    """Whether tests or a seed have found a mutant."""
    return bool(row.get("test")) or row.get("seed") is not None


def page(mutants: Sequence[Mutant], found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    rows = [(one, found[one.name]) for one in mutants if one.name in found]
    by_seed = sum(row.get("seed") is not None for _, row in rows)
    by_test = sum(bool(row.get("test")) for _, row in rows)
    unjudged = sum("test" not in row for _, row in rows)
    neither = sum(not is_found(row) for _, row in rows if "test" in row)
    oldest = min(row["date"] for _, row in rows)
    lines = [
        f"There are {len(rows)} mutants. Simulating has found {by_seed}, {100 * by_seed // len(rows)} %.",
        f"Tests were asked for {len(rows) - unjudged}, and have found {by_test};",
        f"{neither} of these nobody has found. The oldest figure is of {oldest}.",
        "",
        "`Seed` is the first that finds the mutant. Where none does, it says how many seeds were tried, of",
        "how many that reach the changed statement, of how many at all: what so few do not find others may.",
    ]
    for rule in dict.fromkeys(one.rule for one in mutants):
        lines += ["", f"## {rule}", "", "| Mutant | File | Test | Seed | Remark |", "|---|---|---|---|---|"]
        for one, row in rows:
            if one.rule == rule:
                lines.append(f"| {one.name} | `{one.file}` | {_test(row)} | {_seed(row)} | {one.why} |")
    return HEAD + "\n".join(lines) + "\n"


def _test(row: Mapping[str, Any]) -> str:
    """Return the first test that has found it; a dash: they were asked, and have not."""
    if "test" not in row:
        return ""
    return str(row["test"]).partition("[")[0].replace("::", ": ") or "-"


def _seed(row: Mapping[str, Any]) -> str:
    if row.get("seed") is not None:
        return str(row["seed"])
    return f"- ({row['tried']} of {row['reaching']} of {row['seeds']})" if "seeds" in row else ""


def write_page(mutants: Sequence[Mutant], found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the page."""
    PAGE.write_text(page(mutants, found))
