"""What the tests of bridges share: programs to run, and what goes wrong in them."""

from __future__ import annotations

import sys

from tests.e2e.support import World


def run_program(world: World, text: str) -> str:
    """Run a program that a user might write, and return what it prints; it must succeed, and not complain."""
    path = world.folder / "program.py"
    path.write_text(text)
    done = world.run_program(sys.executable, str(path), anew=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


BAD_DAYS = """
import os, re, sys, time
from pathlib import Path
import signal, subprocess, tempfile, threading
import psutil

def die(_number):
    os.kill(os.getpid(), signal.SIGKILL)

def leave(_number):
    os._exit(3)

def hang(_number, folder):
    child = subprocess.Popen(["sleep", "1000"])
    for pid in os.getpid(), child.pid:
        Path(folder, str(pid)).touch()
    time.sleep(1000)

def fail_beside(number, folder):
    if number != 1:
        hang(number, folder)
    wait(lambda: len(os.listdir(folder)) == 2)
    raise ValueError("one has failed")

def wait(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)

def runs(pid):
    try:
        return psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

def interrupt(folder):
    wait(lambda: len(os.listdir(folder)) == 4)
    os.kill(os.getpid(), signal.SIGINT)

def tell(compute, function, *arguments):
    try:
        print(compute(function, *arguments))
    except BaseException as error:
        text = re.sub(r"task \\d+", "a task", str(error)).partition("compute process")[0]
        print(function.__name__, type(error).__name__, text)

def tell_bad_days(compute):
    tell(compute, die)
    tell(compute, leave)
    tell(compute, hang, threading.Lock())
    for function in (fail_beside, hang):
        with tempfile.TemporaryDirectory() as folder:
            if function is hang:
                threading.Thread(target=interrupt, args=(folder,)).start()
            tell(compute, function, folder)
            wait(lambda: not any(map(runs, os.listdir(folder))))
    print("nothing is left")
"""
"""A module: ``tell_bad_days(compute)`` prints what becomes of calls that fail in all ways.

``compute(function, *arguments)`` calls the function for 0 and 1, and these arguments, at the same time.
"""
