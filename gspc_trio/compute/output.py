"""Printed output of tasks: descriptors 1 and 2 are nameless files; after each task their end is taken."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, Protocol

from gspc_trio.compute.channel import OUTPUT_BYTES_MAX

CRASH_BYTES_MAX, CRASH_CHARACTERS_MAX = 20_000, 1_000
"""How much is read of what a process printed when it crashed, and told of it."""


class Output(Protocol):
    """Where the standard output and error of tasks go."""

    def take(self) -> tuple[bytes, bytes]:
        """Return the last part of what was printed to standard output and error since the last call."""
        ...


def open_nameless_file() -> int:
    """Return the descriptor of a new file that only its descriptors keep alive; writes are appended."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    with suppress(OSError):
        return os.open(os.environ.get("TMPDIR", "/tmp"), flags | os.O_TMPFILE, 0o600)
    # No such directory, or its file system has no files without a name: memory will do.
    memory = os.memfd_create("gspc-output")
    try:
        return os.open(f"/proc/self/fd/{memory}", flags)
    finally:
        os.close(memory)


def last_words(descriptor: int) -> str:
    """Return for people what a process that has died said last: where it crashed, or its last line, or ""."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    text = (
        os.pread(descriptor, CRASH_BYTES_MAX, max(0, size - CRASH_BYTES_MAX)).decode(errors="replace").strip()
    )
    if "Fatal Python error" in text:
        from gspc_trio.core.frames import describe_crash  # seldom needed

        return describe_crash(text)[:CRASH_CHARACTERS_MAX]
    line = text.rpartition("\n")[2].strip()[-500:]
    return f"last line on its standard error: {line}" if line else ""


class ProcessOutput:
    """Standard output and error of the whole process, also of code that is not Python."""

    def __init__(self, stdout: int, stderr: int) -> None:
        """Put the two files in place of descriptors 1 and 2 and of ``sys.stdout`` and ``sys.stderr``."""
        self._files = (stdout, stderr)  # above 2: a task may close or redirect its own
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        self._streams = (_text_stream(1), _text_stream(2))
        sys.stdout = sys.__stdout__ = self._streams[0]  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._streams[1]  # type: ignore[misc]

    def take(self) -> tuple[bytes, bytes]:
        """Return the last OUTPUT_BYTES_MAX bytes of each file and empty both."""
        for stream in self._streams:
            try:
                stream.flush()
            except (ValueError, OSError):  # closed by the task, or disk full
                continue
        stdout, stderr = self._files
        return _take_tail(stdout), _take_tail(stderr)


def _text_stream(descriptor: int) -> TextIOWrapper[Any]:
    # By line: others can read what a task has printed so far, and it does not die with the process.
    return open(descriptor, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _take_tail(descriptor: int) -> bytes:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if size == 0:
        return b""
    tail = os.pread(descriptor, OUTPUT_BYTES_MAX, max(0, size - OUTPUT_BYTES_MAX))
    os.ftruncate(descriptor, 0)
    return tail
