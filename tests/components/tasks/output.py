"""A task that prints."""

from __future__ import annotations


def speak(go: str) -> str:
    """Print, say so in a file, wait until there is another, and print again."""
    import sys
    import time
    from pathlib import Path as TasksPath

    print("begin")
    print("careful", file=sys.stderr)
    if go:
        TasksPath(f"{go}.begun").touch()
    while go and not TasksPath(go).exists():
        time.sleep(0.01)
    print("end")
    return go


def speak_and_die_once(begun: str) -> None:
    """Print and end the process; the next time print and end as a task does."""
    import os
    from pathlib import Path as TasksPath

    if TasksPath(begun).exists():
        print("end")
        return
    TasksPath(begun).touch()
    print("begin")
    os._exit(3)
