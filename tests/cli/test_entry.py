"""How the process of a command ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import atexit, sys, threading, time
from gspc_trio.cli import entry
atexit.register(print, "at exit")
"""

ENDS = {
    "sys.exit(3)": (3, "at exit\n", ""),
    "print('said', end=' ')": (0, "said at exit\n", ""),
    "sys.exit('why')": (1, "at exit\n", "why\n"),
    "threading.Thread(target=lambda: [time.sleep(0.01), print('last')]).start(), sys.exit(4)": (
        *(4, "last\nat exit\n", ""),
    ),
    "sys.stdout.close(), sys.exit(5)": (5, "", None),
}
"""What the command does -> exit status, standard output and error; None for what Python says of it."""


@pytest.mark.parametrize("command", ENDS)
def test_a_command_ends_as_the_interpreter_would_end_it(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{BEGIN}entry._run(lambda: ({command}, None)[1])"],
        capture_output=True,
        text=True,
        check=False,
    )
    status, said, errors = ENDS[command]
    assert (done.returncode, done.stdout) == (status, said)
    if errors is not None:
        assert done.stderr == errors
