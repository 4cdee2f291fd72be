"""What the page on bad days shows is what the commands say."""

from __future__ import annotations

import os
import re
import shlex
import socket
from pathlib import Path

import pytest

from tests.commands import run_command
from tests.docs.test_snippets import HANG_S, NOT_RUN, ROOT, Block, blocks

PAGE = ROOT / "docs" / "troubleshooting.md"
SHOWN = [block for block in blocks(PAGE) if block.language == "console" and block.before != NOT_RUN]

VARIES = [
    (re.compile(rf"\((?:myhost|{re.escape(socket.gethostname())})\)"), "(HOST)"),
    (re.compile(r"compute process \d+"), "compute process PID"),
    (re.compile(r" on r1\.core\d+ "), " on CORE "),
    (re.compile(r'File "[^"]*/(\w+\.py)"'), r'File "\1"'),
    (re.compile(r"\n *[~^]+(?=\n)"), ""),
]
"""What is different on another host, or with another version of Python."""


def same_everywhere(text: str) -> str:
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return text


@pytest.mark.process
@pytest.mark.parametrize("shown", SHOWN, ids=lambda block: f"line {block.line}")
def test_a_command_says_what_is_shown(shown: Block, tmp_path: Path) -> None:
    for block in blocks(PAGE):
        named = re.match(r"# (\w+\.py)\n", block.text)
        if named:
            (tmp_path / named[1]).write_text(block.text)
    command, _, said = shown.text.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    program = program.removeprefix("gspc-")
    done = run_command(program, *arguments, cwd=tmp_path, env=env, timeout_s=HANG_S)
    is_usage = re.search(r"--set: |--cores cannot be used", said) is not None
    assert done.returncode == (2 if is_usage else 1)
    assert same_everywhere(done.stderr) == same_everywhere(said)


def test_commands_are_shown() -> None:
    assert len(SHOWN) > 10
