"""The nets of xpnet among the examples, one for each construct: each prints what is stored beside it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.commands import run_command
from tests.e2e.support import HANG_S, ROOT, World

CONSTRUCTS = ROOT / "examples" / "xpnet" / "constructs"
PROMPT = "$ gspc-"


def printed(world: World, line: str) -> str:
    """Return what a command prints; times and the name of this host are not said."""
    command, *arguments = shlex.split(line)
    done = run_command(command, *arguments, cwd=CONSTRUCTS, env=world.environment, timeout_s=HANG_S)
    text = re.sub(r" in [\d.]+ s\n", " in 0.00 s\n", done.stdout) + done.stderr
    return re.sub(r"attempt 1 on \S+ \(.*\)", "attempt 1 on r1.core0 (HOST)", text)


def commands(transcript: Path) -> list[tuple[str, str]]:
    """Return the commands of a stored transcript, and what each prints."""
    parts = f"\n{transcript.read_text()}".split(f"\n{PROMPT}")[1:]
    return [(line, f"{rest.rstrip()}\n") for line, _, rest in (part.partition("\n") for part in parts)]


def test_each_net_has_a_transcript() -> None:
    assert {path.stem for path in CONSTRUCTS.glob("*.xpnet")} == {
        path.stem for path in CONSTRUCTS.glob("*.txt")
    }


def test_nets_print_what_is_stored_beside_them(world: World) -> None:
    for path in sorted(CONSTRUCTS.glob("*.txt")):
        if path.stem == "cpp":
            continue
        for line, wanted in commands(path):
            assert f"{path.name}: {line}\n{printed(world, line)}" == f"{path.name}: {line}\n{wanted}"


@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler for C++ here")
def test_a_net_with_a_module_in_cpp(world: World) -> None:
    for line, wanted in commands(CONSTRUCTS / "cpp.txt"):
        assert printed(world, line) == wanted
