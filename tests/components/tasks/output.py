"""A task that prints."""

from __future__ import annotations


def speak(go: str) -> str:
    """Print, wait until there is a file, and print again."""
    import sys
    import time
    from pathlib import Path as TasksPath

    print("begin")
    print("careful", file=sys.stderr)
    while go and not TasksPath(go).exists():
        time.sleep(0.01)
    print("end")
    return go
