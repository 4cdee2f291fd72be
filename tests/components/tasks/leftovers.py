"""Tasks that change their process, or fork."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from typing import Any

from tests.components.tasks import behaviour


def state() -> list[Any]:
    """What a task finds in its process."""
    mask = os.umask(0o77)
    handlers = [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)]
    return [os.getcwd(), mask, sorted(os.environ.items()), handlers, signal.getitimer(signal.ITIMER_REAL)[0]]


def change_everything(folder: str) -> str:
    os.chdir(folder)
    os.chdir("..")
    os.umask(0)
    os.umask(0o77)
    os.environ["GSPC_LEFT"] = "new"
    os.environ["HOME"] = "/nowhere"
    os.environ.pop("PATH")
    os.putenv("GSPC_PAST", "the dictionary")
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
        signal.signal(number, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 3600)
    return os.getcwd()


def change_everything_and_fail(folder: str) -> None:
    change_everything(folder)
    raise LookupError("on purpose")


def environment_of_programs() -> str:
    import subprocess

    return subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=True).stdout


def look_late() -> Any:
    import lasting  # type: ignore[import-not-found]

    return lasting.look()


def fork_and_return(path: str) -> int:
    if os.fork() == 0:
        behaviour.note(path)
    else:
        os.wait()
    print("returned")
    return os.getpid()


def fork_and_raise(path: str) -> int:
    if os.fork() == 0:
        behaviour.note(path)
        raise LookupError("in the child")
    return os.waitstatus_to_exitcode(os.wait()[1])


def fork_and_exit(path: str) -> int:
    if os.fork() == 0:
        behaviour.note(path)
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.wait()[1])


def fork_and_go_on(path: str) -> int:
    """The parent returns at once, the child later."""
    if os.fork() == 0:
        behaviour.note(path)
        while not os.path.exists(path + ".gate"):
            time.sleep(0.001)
    return os.getpid()


def speak() -> None:
    print("said")
    os.write(1, b"written\n")
    with open("/dev/stdout", "a") as again:
        again.write("by name\n")
    os.write(2, b"complained\n")


def close_streams() -> None:
    sys.stdout.close()
    sys.stderr.close()


def close_descriptors() -> None:
    for descriptor in (1, 2):
        os.close(descriptor)


def remove_streams() -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def wrap_streams() -> None:
    """Put a stream in place of standard output that closes what is below it when it goes."""
    sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="ascii")
    print("wrapped", end="")


def redirect_descriptors() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.close(nothing)


def redirect_to_empty_file() -> None:
    empty = os.memfd_create("empty")
    os.dup2(empty, 1)
    os.close(empty)


def redirect_to_pipe_and_fail() -> None:
    for end, descriptor in zip(os.pipe(), (1, 2), strict=True):
        os.dup2(end, descriptor)
        os.close(end)
    raise LookupError("on purpose")
