"""Printed output of tasks: descriptors 1 and 2 are nameless files; after each task their end is taken."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from fcntl import ioctl
from termios import FIONREAD
from typing import Protocol, TextIO

from gspc_trio.compute.channel import OUTPUT_BYTES_MAX

CRASH_BYTES_MAX, CRASH_CHARACTERS_MAX = 20_000, 1_000
"""How much is read of what a process printed when it crashed, and told of it."""

_FAR_BYTES = (1 << 30) - 35
"""So far behind its end a file is positioned to be known by it: not round, small for any file system.

All descriptors of an open file have one position, which others do not have by chance. Writes are appended,
wherever it is, and leave it at the end.
"""

_UNTOUCHED = (-_FAR_BYTES).to_bytes(4, sys.byteorder, signed=True)
"""How much there is behind the position of such a file while nobody has written: what FIONREAD says of it.

So one call finds that nothing was printed and nothing redirected, at a third of the cost of fstat.
"""


class Output(Protocol):
    """Where the standard output and error of tasks go."""

    def take(self) -> tuple[bytes, bytes]:
        """Return the last part of what was printed to standard output and error since the last call."""
        ...

    def keep(self) -> None:
        """Told when imports or an initializer have run, whose changes stay."""
        ...


def last_words(descriptor: int) -> str:
    """Return for people what a process that has died said last: where it crashed, or its last line, or ""."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    text = (
        os.pread(descriptor, CRASH_BYTES_MAX, max(0, size - CRASH_BYTES_MAX)).decode(errors="replace").strip()
    )
    if "Fatal Python error" in text or "Fatal error: " in text:
        from gspc_trio.core.frames import describe_crash  # seldom needed

        return describe_crash(text)[:CRASH_CHARACTERS_MAX]
    line = text.rpartition("\n")[2].strip()[-500:]
    return f"last line on its standard error: {line}" if line else ""


class ProcessOutput:
    """Standard output and error of the whole process, also of code that is not Python."""

    def __init__(self, stdout: int, stderr: int) -> None:
        """Put the two files in place of descriptors 1 and 2 and of ``sys.stdout`` and ``sys.stderr``."""
        self._stdout = _Stream("stdout", 1, stdout)
        self._stderr = _Stream("stderr", 2, stderr)
        self._ahead = bytearray(len(_UNTOUCHED))

    def take(self) -> tuple[bytes, bytes]:
        """Return the last OUTPUT_BYTES_MAX bytes of each file and empty both.

        What the task has closed, replaced or redirected is there again afterwards.
        """
        if self.is_untouched():
            return b"", b""
        return self._stdout.take(), self._stderr.take()

    def is_untouched(self) -> bool:
        """Return whether nothing was printed or redirected since the last call of :meth:`take`."""
        stdout, stderr, ahead = self._stdout.text, self._stderr.text, self._ahead
        if sys.stdout is not stdout or sys.stderr is not stderr:
            return False
        try:
            stdout.flush()
            stderr.flush()
            ioctl(1, FIONREAD, ahead)
            if ahead != _UNTOUCHED:
                return False
            ioctl(2, FIONREAD, ahead)
        except Exception:  # a stream is closed or detached, or its descriptor is closed or no file
            return False
        return ahead == _UNTOUCHED

    def keep(self) -> None:
        """Let the ``sys.stdout`` and ``sys.stderr`` of now be those of all tasks to come."""
        self._stdout.keep()
        self._stderr.keep()


class _Stream:
    """One of the two: the file, the descriptor by which it is known, and the stream in ``sys``."""

    def __init__(self, name: str, descriptor: int, file: int) -> None:
        self._name = name
        self._descriptor = descriptor
        self._file = file  # above 2: a task may close or redirect its own
        os.dup2(file, descriptor)
        os.lseek(file, _FAR_BYTES, os.SEEK_SET)
        self.text: TextIO
        self._open()

    def take(self) -> bytes:
        """Return the last of what was printed, and put right what the task did to the stream."""
        stream = getattr(sys, self._name)
        if stream is not self.text:
            with suppress(Exception):  # it is the task's own, of any type
                stream.flush()
            setattr(sys, self._name, self.text)
            del stream  # it may close what it wraps
        flushed = self._flush()
        position = os.lseek(self._file, _FAR_BYTES, os.SEEK_END)
        if not (flushed and self._position() == position):
            os.dup2(self._file, self._descriptor)
            self._flush()
            position = os.lseek(self._file, _FAR_BYTES, os.SEEK_END)
        tail = _take_tail(self._file, position - _FAR_BYTES)
        os.lseek(self._file, _FAR_BYTES, os.SEEK_SET)
        return tail

    def keep(self) -> None:
        stream = getattr(sys, self._name)
        if stream is not self.text and not getattr(stream, "closed", True):
            self.text = stream

    def _open(self) -> None:
        self.text = _text_stream(self._descriptor)
        setattr(sys, self._name, self.text)
        setattr(sys, f"__{self._name}__", self.text)

    def _flush(self) -> bool:
        """Flush the stream, or open another in place of one that is closed; return whether all was well."""
        try:
            self.text.flush()
        except OSError:  # the descriptor is closed, or the disk is full
            return False
        except Exception:  # it is closed or detached, or what an import has put here fails
            self._open()
        return True

    def _position(self) -> int:
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_CUR)
        except OSError:  # closed, or no file
            return -1


def _text_stream(descriptor: int) -> TextIO:
    # By line: others can read what a task has printed so far, and it does not die with the process.
    return open(descriptor, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _take_tail(descriptor: int, size: int) -> bytes:
    if size == 0:
        return b""
    tail = os.pread(descriptor, OUTPUT_BYTES_MAX, max(0, size - OUTPUT_BYTES_MAX))
    os.ftruncate(descriptor, 0)
    return tail
