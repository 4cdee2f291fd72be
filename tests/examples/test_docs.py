"""What the guides show is true: their files are written, their commands are run, their outputs are compared.

The guides that tell of commands; ``tests/docs`` runs the Python of all pages.
A block of Python, TOML or XML begins with its file's name in a comment; a block of shell commands is run
where these files are; a block of text after it is what it prints, lines in any order, for any host and time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.e2e.support import ROOT, World

GUIDES = [
    "getting-started.md",
    "workflow-files.md",
    "resume.md",
    "from-hyperqueue.md",
    "from-snakemake.md",
    "launcher.md",
    "languages.md",
]

COMMANDS = ("jobserver", "rts", "launcher", "top")

CARETS = re.compile(r" *[~^]+ *")
"""Under lines of a traceback; other versions of Python put others."""

VARYING = [
    (re.compile(r"\d+\.\d+ s\b"), "TIME"),
    (re.compile(r"on r\d+\.core\d+ \([^)]*\)"), "on RESOURCE"),
    (re.compile(r'"[^"]*/([a-z]+\.py)"'), r'"\1"'),
    (re.compile(r"elapsed_s\": [\d.e-]+"), "TIME"),
]


def blocks(guide: str) -> Iterator[tuple[int, str, str]]:
    """Return line number, language and text of each block of code."""
    lines = (ROOT / "docs" / guide).read_text(encoding="utf-8").splitlines()
    begin, language = 0, ""
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if begin:
            yield begin, language, "\n".join(lines[begin : number - 1]) + "\n"
            begin = 0
        else:
            begin, language = number, line.removeprefix("```")
    assert not begin, f"{guide}: the block of line {begin} has no end"


def plain(text: str) -> list[str]:
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, text)
    return sorted(line.rstrip() for line in text.splitlines() if not CARETS.fullmatch(line))


def make_commands(world: World) -> None:
    """Offer our commands, and ``python``, as an activated virtual environment does."""
    commands = {f"gspc-{name}": f"-m gspc_trio.cli.{name}" for name in COMMANDS} | {"python": ""}
    (world.folder / "bin").mkdir()
    for name, arguments in commands.items():
        path = world.folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        path.chmod(0o755)
    world.environment["PATH"] = f"{world.folder / 'bin'}:{world.environment['PATH']}"
    world.environment["COLUMNS"] = "120"
    (world.folder / "examples").symlink_to(ROOT / "examples")


def is_about_make(commands: str) -> bool:
    """See whether these commands set this repository up; if so they must be targets of its Makefile."""
    words = commands.split()
    if words[0] != "make":
        return False
    makefile = (ROOT / "Makefile").read_text()
    for line in commands.splitlines():
        if line.startswith("make "):
            assert f"\n{line.split()[1]}:" in makefile
    return True


def run(world: World, text: str) -> CompletedProcess[str]:
    """Run shell commands; plain ones of ours need neither a shell nor processes started anew."""
    if program := re.fullmatch(r"python (\w+\.py)\n", text):
        return world.run_program(sys.executable, program[1])
    commands = [re.fullmatch(r"gspc-(\w+) ([\w./=: -]+)", line) for line in text.splitlines()]
    if None in commands:
        return world.run_program("sh", "-ec", text)
    all_of_it = CompletedProcess(text, 0, "", "")
    for command in filter(None, commands):
        done = world.run(command[1], *command[2].split())
        all_of_it.stdout += done.stdout
        all_of_it.stderr += done.stderr
        all_of_it.returncode = done.returncode
        if done.returncode:
            break
    return all_of_it


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_true(world: World, guide: str) -> None:
    make_commands(world)
    printed: str | None = None
    for line, language, text in blocks(guide):
        where = f"docs/{guide}:{line}"
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            assert name, f"{where}: the first line is to be a comment with the file's name"
            (world.folder / name[1]).write_text(text)
        elif name := re.match(r"# (\w+\.toml)\n|<!-- (\w+\.\w+) -->\n", text):
            (world.folder / (name[1] or name[2])).write_text(text)
        elif language == "mermaid":
            assert text in [path.read_text() for path in world.folder.glob("*.mmd")], where
        elif language == "sh" and text.startswith("gspc-rts start"):
            world.start_rts(*text.split()[2:])
        elif language == "sh" and not is_about_make(text):
            done = run(world, text)
            printed = done.stdout + done.stderr
            assert done.returncode == 0 or "gspc-jobserver: " in done.stderr, f"{where}: {printed}"
            assert "Traceback" not in done.stderr.partition("attempt")[0], f"{where}: {printed}"
        elif language == "text":
            assert printed is not None, f"{where}: no commands come before this output"
            assert plain(printed) == plain(text), where


def test_every_setting_of_a_task_is_in_the_guide() -> None:
    from gspc_trio.workflow.settings import TaskSettings

    text = Path(ROOT / "docs" / "workflow-files.md").read_text(encoding="utf-8")
    for name in TaskSettings.__annotations__:
        assert f"| `{name}`" in text, f"workflow-files.md does not tell of {name}"
