"""Errors of tasks in a form that can travel: kind, one line, the user's frames, the exception."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from gspc_trio.compute.channel import OUTPUT_BYTES_MAX, output_directory
from gspc_trio.core.frames import user_frames
from gspc_trio.protocol import values

MESSAGE_CHARACTERS_MAX = 1000
TRACEBACK_CHARACTERS_MAX = 65536
PICKLED_BYTES_MAX = 1 << 20

ErrorFields = tuple[str, str, str, bytes]
"""Fields of ``core.task.TaskError``: kind, message, traceback, pickled."""


class TaskFailure(Exception):
    """A failure other than an exception of the task's code: a kind, and what a program has printed."""

    def __init__(
        self, kind: str, message: str, stdout: bytes = b"", stderr: bytes = b"", traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.traceback = traceback
        self.stdout: bytes = stdout[-OUTPUT_BYTES_MAX:]
        self.stderr: bytes = stderr[-OUTPUT_BYTES_MAX:]


def describe(error: BaseException, memory_bytes: int = 0) -> ErrorFields:
    """Return the fields of the task error that ``error`` stands for.

    Args:
        error: what the task raised.
        memory_bytes: the limit that the task had, 0 for none; named when it ran into it.
    """
    if isinstance(error, TaskFailure):
        return error.kind, _one_line(str(error)), error.traceback, b""
    kind = type(error).__name__
    message = _message(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _name_full_disk(error)
    if isinstance(error, MemoryError) and (memory_bytes or not message):
        limit = f"than its memory_bytes of {memory_bytes}" if memory_bytes else "memory than its host gives"
        message = f"the task needed more {limit}" + (message and f": {message}")
    return kind, _one_line(message), _user_traceback(error), _pickled(error)


def _name_full_disk(error: OSError) -> None:
    """A print that fails names no file: say so if it is the disk for what tasks print that is full."""
    directory = output_directory()
    with suppress(OSError):
        if error.filename is None and not os.statvfs(directory).f_bavail:
            why = "which takes what tasks print; TMPDIR names another directory"
            error.add_note(f"{directory} is full, {why}")


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except values.RAISED_BY_USERS as problem:
        return f"(its text cannot be shown: {type(problem).__name__})"


def _sendable(text: str) -> str:
    """The text with escapes for what is no Unicode, as in names of files: it must not cost the outcome."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _one_line(text: str) -> str:
    line = " ".join(_sendable(text).split())
    if len(line) <= MESSAGE_CHARACTERS_MAX:
        return line
    return line[: MESSAGE_CHARACTERS_MAX - 3] + "..."


def _user_traceback(error: BaseException) -> str:
    """The traceback without the frames of this package that led to the user's code, or ""."""
    import traceback

    frames = user_frames(error)
    if frames is None and not isinstance(error, SyntaxError):
        return ""
    try:
        text = _sendable("".join(traceback.format_exception(type(error), error, frames)))
    except values.RAISED_BY_USERS as problem:  # it must not cost the task its outcome
        return f"(the traceback cannot be shown: {type(problem).__name__})"
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return text
    half = TRACEBACK_CHARACTERS_MAX // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def _pickled(error: BaseException) -> bytes:
    """The exception as an encoded value, if it survives the way there and back and is not too long."""
    try:
        data = values.dumps(error)
        if len(data) > PICKLED_BYTES_MAX:
            return b""
        values.loads(data)  # many exceptions with arguments of their own can be written but not read
    except values.RAISED_BY_USERS:
        return b""
    return data
