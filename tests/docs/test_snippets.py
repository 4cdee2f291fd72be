"""The blocks of Python in the documentation run: workflow files are loaded, all others are programs.

A block that begins with ``# file.py`` is written under that name first, so that a later one of its page can
import it or run it. ``<!-- not run -->`` in the line before a block says that it is not to be run, and
``<!-- prints -->`` between a block of Python and one of text that the text is what it prints. A block after
``<!-- needs MODULE -->`` is skipped where there is no such module.
"""

from __future__ import annotations

import builtins
import itertools
import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec import Struct

import gspc_trio
from tests.commands import run_program

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HANG_S = 60.0
NOT_RUN = "<!-- not run -->"
PRINTS = "<!-- prints -->"
NEEDS = re.compile(r"<!-- needs (\w+) -->")


class Snippet(Struct, frozen=True):
    """A block of Python.

    Attributes:
        page: where it is.
        line: of its first line.
        code: what it says.
        name: of its file, or "".
        prints: what it is to print, None if nobody says.
        needs: a module that may be missing, or "".
    """

    page: Path
    line: int
    code: str
    name: str
    prints: str | None
    needs: str = ""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


class Block(Struct, frozen=True):
    """Anything between two fences."""

    line: int
    language: str
    text: str
    before: str


def blocks(page: Path) -> list[Block]:
    """Return what is between the fences of a page."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    begin: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin = number
            continue
        before = next((text for text in reversed(lines[:begin]) if text.strip()), "")
        language = lines[begin].removeprefix("```").strip()
        found.append(Block(begin + 2, language, "\n".join(lines[begin + 1 : number]) + "\n", before))
        begin = None
    assert begin is None, f"{page}: the block of line {begin} has no end"
    return found


def snippets(page: Path) -> Iterator[Snippet]:
    """Return the blocks of Python of a page that are to be run."""
    all_of_it = blocks(page)
    for block, following in itertools.zip_longest(all_of_it, all_of_it[1:]):
        if block.language != "python" or block.before == NOT_RUN:
            continue
        named = re.match(r"# (\w+\.py)\n", block.text)
        prints = following.text if following is not None and following.before == PRINTS else None
        needs = NEEDS.fullmatch(block.before)
        name = named[1] if named else ""
        yield Snippet(page, block.line, block.text, name, prints, needs[1] if needs else "")


def is_workflow(snippet: Snippet) -> bool:
    """Whether it is a workflow file, which does nothing by itself."""
    return "\ndef workflow(" in snippet.code


SNIPPETS = [snippet for page in PAGES for snippet in snippets(page)]
PROGRAMS = [snippet for snippet in SNIPPETS if not is_workflow(snippet)]


def write_files(page: Path, folder: Path) -> None:
    for snippet in snippets(page):
        if snippet.name:
            (folder / snippet.name).write_text(snippet.code)


def run_python(folder: Path, program: str) -> str:
    """Run a program in its folder and return what it prints; it must succeed, and not complain."""
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    done = run_program(sys.executable, "-W", "error", program, cwd=folder, env=env, timeout_s=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize("snippet", PROGRAMS, ids=str)
def test_a_program_runs(snippet: Snippet, tmp_path: Path) -> None:
    if snippet.needs and not find_spec(snippet.needs):
        pytest.skip(f"there is no package {snippet.needs}: make bridges installs it")
    write_files(snippet.page, tmp_path)
    program = snippet.name or "snippet.py"
    (tmp_path / program).write_text(snippet.code)
    printed = run_python(tmp_path, program)
    if snippet.prints is not None:
        assert printed == snippet.prints


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_workflow_files_make_workflows(page: Path, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    names = [snippet.name.removesuffix(".py") for snippet in snippets(page) if is_workflow(snippet)]
    assert all(names), "a workflow file needs a name: # name.py"
    if names:
        made = "\n".join(f"import {name}; build_workflow({name}.workflow)" for name in names)
        (tmp_path / "make.py").write_text(
            f"from gspc_trio.workflow.definition import build_workflow\n{made}\n"
        )
        run_python(tmp_path, "make.py")


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target} is not there"


def anchors(page: Path) -> set[str]:
    """Return the names under which the headings of a page can be linked to."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_headings_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                linked = page.parent / target if target else page
                assert anchor in anchors(linked), f"{page.name}: {linked.name} has no heading {anchor}"


def test_commands_can_be_pasted() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                assert not re.search(r"^\$ |\.\.\.", block.text, re.MULTILINE), f"{page.name}:{block.line}"


def test_there_are_snippets() -> None:
    """The reading of pages itself: the main ones have some, and some say what they print."""
    with_snippets = {snippet.page.name for snippet in SNIPPETS}
    assert {"README.md", "embedding.md"} <= with_snippets
    assert any(snippet.prints for snippet in SNIPPETS)


@pytest.mark.parametrize("page", ["embedding", "memory", "workflow-files"])
def test_the_classes_that_are_named_can_be_imported(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / f"{page}.md").read_text(), flags=re.DOTALL)
    spans = re.findall(r"`([^`]+)`", text)
    named = {name for span in spans for name in re.findall(r"^[A-Z][a-z]\w+$|\b[A-Z][a-z]\w+(?=\()", span)}
    assert named
    assert sorted(named - {*dir(gspc_trio), *dir(builtins)}) == []
