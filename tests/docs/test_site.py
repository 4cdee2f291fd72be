"""The site that ``make site`` makes of docs/: it needs no network, and no link leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_snippets import ROOT

DOCS = ROOT / "docs"
HANG_S = 120.0

NET = """
```mermaid
flowchart LR
  p0((("items")))
  subgraph g1 ["inner"]
    t0[["a #lt; b"]]
  end
  p0 -->|"2"| t0
```
"""

STATES = """
```mermaid
stateDiagram-v2
    NEW : new
    [*] --> NEW
    NEW --> [*]
```
"""


def test_each_page_is_in_the_list_of_pages_once() -> None:
    listed = re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8"))
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted({*pages} - {"README.md", "index.md"}), (
        "docs/README.md lists all pages, each once: it is also the navigation of the site"
    )


def make_site(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Make a site of these pages, as `make site` does."""
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    options = re.search(r"-m sphinx (.*?) -d ", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert options is not None
    words = [*options[1].split(), "-c", str(DOCS / "site"), "docs", "site"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *words], cwd=folder, capture_output=True, text=True, timeout=HANG_S
    )


def test_a_site_needs_no_network_and_shows_diagrams_and_files(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="sphinx is not installed: make site")
    made = make_site(
        tmp_path,
        {
            "docs/index.md": "# First\n\nSee [more](below/more.md#a-heading-of-more).\n",
            "docs/README.md": "# All\n\n## How to\n\n[More](below/more.md)\n",
            "docs/below/more.md": f"# More\n\n## A heading of `more`\n[code](../../x/a.py)\n\n{STATES + NET}",
            "x/a.py": "answer = 42  # [all](notes.md)\n",
        },
    )
    assert (made.returncode, made.stderr) == (0, "")
    text = (tmp_path / "site" / "below" / "more.html").read_text(encoding="utf-8")
    assert 'href="../files/x/a.py.html"' in text
    assert re.findall(r"<text[^>]*>([^<]*)</text>", text) == ["new", "inner", "2", "items", "a &lt; b"]
    assert "42" in (tmp_path / "site" / "files" / "x" / "a.py.html").read_text(encoding="utf-8")
    assert "answer" not in text
    loaded = (
        r"""<(?:script|img|iframe|link)\b[^>]*(?:src|href)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//"""
    )
    for path in (tmp_path / "site").rglob("*"):
        if path.suffix in (".html", ".css"):
            assert re.findall(loaded, path.read_text(encoding="utf-8")) == [], path


def test_what_is_wrong_with_pages_fails_the_site(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="sphinx is not installed: make site")
    made = make_site(
        tmp_path,
        {
            "docs/index.md": "# A\n[a](none.md)\n\n[b](more.md#none)\n\n[c](../none.py)\n\n![d](none.svg)\n",
            "docs/README.md": "# All\n\n## How to\n\n[More](more.md)\n",
            "docs/more.md": "# More\n\n```mermaid\npie\n  a : b\n  : c\n```\n",
            "docs/new.md": "# New\n",
        },
    )
    assert made.returncode == 1
    for place, words in {
        "index.md:2": "none.md", "index.md:4": "'none'", "index.md:6": "no file ../none.py",
        "index.md:8": "none.svg", "more.md:3": "': c' is nothing that the site can draw",
        "new.md": "isn't included in any toctree",
    }.items():  # fmt: skip
        assert re.search(f"{place}: WARNING: .*{re.escape(words)}", made.stderr), made.stderr
