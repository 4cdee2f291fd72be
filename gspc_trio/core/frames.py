"""Where in the user's code an error came from."""

from __future__ import annotations

import os
import re
from types import TracebackType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

CRASH_FRAMES_MAX = 8
"""Innermost frames that are told of a process that crashed."""

CAUSES_MAX = 5
STACK_LINES_MAX = 100
"""How many causes of an error are told, and most lines of all stacks together; the middle is left out."""

_CRASH = re.compile(r"^Fatal (?:Python )?error: (.*)$", re.MULTILINE)
_CRASHED_THREAD = re.compile(r"^Current thread .*\(most recent call first\):\n((?:  .*\n?)*)", re.MULTILINE)
_CRASH_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def is_ours(file_name: str) -> bool:
    """Return whether a file is part of this package, or of Python's own import system."""
    return file_name.startswith((_PACKAGE, "<frozen importlib"))


def user_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error from where it left this package; None if it never did."""
    frames = error.__traceback__
    while frames is not None and is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def user_stack(error: BaseException) -> str:
    """Return file, line and function of each of these frames, as Python prints them, or "".

    Behind them are the errors that were stated as its causes, with theirs. Frames of this package are no part
    of it.
    """
    lines = _lines(error)
    for _ in range(CAUSES_MAX if lines else 0):
        cause = error.__cause__
        if cause is None or not (more_lines := _lines(cause)):
            break
        lines += [f"caused by {type(cause).__name__}: {cause}", *more_lines]
        error = cause
    more = len(lines) - STACK_LINES_MAX
    if more > 0:
        half = STACK_LINES_MAX // 2
        lines[half:-half] = [f"  [... {more} more lines ...]"]
    return "\n".join(lines)


def _lines(error: BaseException) -> list[str]:
    import traceback

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_ours(frame.filename)]
    return "".join(traceback.format_list(frames)).splitlines()


def innermost_line(error: BaseException) -> str:
    """Return where in the user's own files an error came from: ``FILE:LINE, in FUNCTION``, or "".

    What was raised in a library counts for the line that called that.
    """
    import sysconfig

    libraries = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})
    frames, found = user_frames(error), ""
    while frames is not None:
        code = frames.tb_frame.f_code
        if not (is_ours(code.co_filename) or code.co_filename.startswith((*libraries, "<"))):
            found = f"{code.co_filename}:{frames.tb_lineno}, in {code.co_name}"
        frames = frames.tb_next
    return found


def describe_crash(printed: str) -> str:
    """Return in one line what ``faulthandler``, or a module in C++, printed when a process crashed, or "".

    Args:
        printed: the end of what the process has printed on standard error.
    """
    crash = _CRASH.search(printed)
    if crash is None:
        return ""
    thread = _CRASHED_THREAD.search(printed, crash.end())
    frames = [] if thread is None else _CRASH_FRAME.findall(thread.group(1))
    own = ("<string>", "<module>")  # what started this interpreter
    stack = [
        f"{name} ({file}:{line})" for file, line, name in frames if not is_ours(file) and (file, name) != own
    ]
    shown = ", called by ".join(stack[:CRASH_FRAMES_MAX])
    return f"{crash.group(1)} in {shown}" if shown else crash.group(1)
