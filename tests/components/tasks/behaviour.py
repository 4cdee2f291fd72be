"""What tasks do that the tests of compute run, some of it badly."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any


def nothing() -> None:
    pass


def identity(value: Any) -> Any:
    return value


def process_id() -> int:
    return os.getpid()


def note(path: str) -> None:
    """Say that a task has begun."""
    with open(path, "a") as file:
        print(os.getpid(), file=file)


def speak_and_wait(path: str) -> None:
    """Print a little, and wait until there is a file."""
    print("step 1")
    print("step 2")
    print("careful", file=sys.stderr)
    while not os.path.exists(path):
        time.sleep(0.001)


def sleep_after_note(path: str) -> None:
    print("begun")
    note(path)
    time.sleep(3600)


def sleep_deaf_after_note(path: str) -> None:
    """Sleep through a polite request to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep_after_note(path)


def spin_after_note(path: str) -> None:
    print("begun")
    note(path)
    while True:
        pass


def spin_stubbornly(path: str) -> None:
    """Swallow whatever is raised, a few times."""
    note(path)
    for _ in range(3):
        try:
            while True:
                pass
        except BaseException:
            continue


def exit_at_once(status: int) -> None:
    print("about to go", file=sys.stderr)
    os._exit(status)


def crash() -> None:
    ctypes.string_at(0)


def detach_children(path: str) -> None:
    """Start a process that detaches itself twice, forget it, and wait."""
    script = f"(setsid sh -c 'sleep 3600 & echo $! >> {path}; echo $$ >> {path}; wait') &"
    subprocess.run(["sh", "-c", script], check=True)
    subprocess.run(["env", "-i", "setsid", "sh", "-c", f"(sleep 3600 & echo $! >> {path}) &"], check=True)
    time.sleep(3600)


def fork_and_wait(path: str) -> None:
    """Leave a fork of the compute process itself, with all its descriptors."""
    if os.fork() == 0:
        note(path)
        time.sleep(3600)
        os._exit(0)
    time.sleep(3600)


def wait_for_file(begun: str, gate: str) -> None:
    """Say that the task has begun, and end when the other file is there."""
    note(begun)
    while not os.path.exists(gate):
        time.sleep(0.001)
