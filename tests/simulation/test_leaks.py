"""The counting of what starts and stops leave: it finds what is left, and the system leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gspc_trio.testing.leaks import Left, look, what_leaked

HANG_S = 300.0


@pytest.mark.process
def test_a_few_starts_and_stops_of_the_embedded_system_leave_nothing():
    command = [sys.executable, "-m", "gspc_trio.testing.leaks", "--starts", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("6 starts and stops in")


@pytest.mark.process
def test_what_is_left_is_named(tmp_path: Path):
    before = look(tmp_path)
    assert what_leaked(before, look(tmp_path)) == []
    (tmp_path / "rest").write_text("left")
    reading, writing = os.pipe()
    stay = threading.Event()
    thread = threading.Thread(target=stay.wait)
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        lines = what_leaked(before, look(tmp_path))
    finally:
        stay.set()
        thread.join()
        child.communicate()
        os.close(reading)
        os.close(writing)
    assert f"files left: {tmp_path}/rest" in lines
    assert sum(line == "descriptors left: pipe" for line in lines) == 3
    assert any(line.startswith("processes left: ") for line in lines)
    assert any(line.startswith("threads: ") for line in lines)
    assert what_leaked(before, look(tmp_path)) == [f"files left: {tmp_path}/rest"]


def test_memory_may_breathe_but_not_grow():
    before = Left((), 1, (), (), 50.0)
    assert what_leaked(before, Left((), 1, (), (), 55.0)) == []
    assert what_leaked(before, Left((), 1, (), (), 60.0)) == ["memory: 60.0 MiB instead of 50.0"]
