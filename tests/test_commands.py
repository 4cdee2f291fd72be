"""Forks are seen, heard and ended as processes that were started anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.commands import ROOT, Forked, can_fork, run_program
from tests.support import until_ended

pytestmark = pytest.mark.process

HANG_S = 60.0

SAYS_WHAT_IT_IS = """
import json, os, sys
seen = [open(f"/proc/self/{name}").read().rstrip("\\0").split("\\0") for name in ("cmdline", "environ")]
print(json.dumps([*seen, __name__, sys.argv, os.getcwd(), os.getsid(0) == os.getpid(), dict(os.environ)]))
print("careful", file=sys.stderr)
sys.exit(3)
"""


def test_a_fork_is_seen_as_what_was_asked_for(tmp_path: Path):
    (tmp_path / "says.py").write_text(SAYS_WHAT_IT_IS)
    words = (sys.executable, "says.py", "one")
    done = run_program(*words, cwd=tmp_path, env={"MINE": "1"}, timeout_s=HANG_S)
    assert (done.returncode, done.stderr) == (3, "careful\n")
    assert json.loads(done.stdout) == [
        list(words),
        ["MINE=1"],
        "__main__",
        ["says.py", "one"],
        str(tmp_path),
        True,
        {"MINE": "1"},
    ]


def test_warnings_are_errors_when_that_is_asked_for(tmp_path: Path):
    (tmp_path / "warns.py").write_text("import warnings; warnings.warn('mind this')")
    for words, status in ((("warns.py",), 0), (("-W", "error", "warns.py"), 1)):
        done = run_program(sys.executable, *words, cwd=tmp_path, env={}, timeout_s=HANG_S)
        assert (done.returncode, "mind this" in done.stderr) == (status, True)


def test_a_fork_is_waited_for_and_killed(tmp_path: Path):
    (tmp_path / "waits.py").write_text("import signal\nprint('there', flush=True)\nsignal.pause()\n")
    process = Forked((sys.executable, "waits.py"), cwd=tmp_path, env={})
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    os.kill(process.pid, signal.SIGKILL)
    assert process.communicate(HANG_S) == ("", "")
    assert (process.wait(), process.poll(), process.returncode) == (-signal.SIGKILL,) * 3
    process.kill()  # nobody: it has ended


OUTER = """
import sys
from tests.commands import Forked

process = Forked((sys.executable, "waits.py"), cwd=sys.argv[1], env={})
process.stdout.readline()
print(process.pid, flush=True)
sys.stdin.read()
"""


def test_forks_end_when_the_tests_that_wanted_them_are_killed(tmp_path: Path):
    (tmp_path / "waits.py").write_text("import signal\nprint('there', flush=True)\nsignal.pause()\n")
    command = [sys.executable, "-c", OUTER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        tests.kill()
    trio.run(until_ended, pid)


def test_what_python_itself_is_told_needs_a_process_of_its_own():
    assert can_fork((sys.executable, "-m", "gspc_trio.cli.rts", "stop"), {})
    assert can_fork((sys.executable, "program.py"), {})
    assert not can_fork((sys.executable, "-c", "pass"), {})
    assert not can_fork((sys.executable, "program.py"), {"preexec_fn": print})
    assert not can_fork(("sh", "-c", "true"), {})
