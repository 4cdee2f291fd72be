"""System calls of Linux that Python's library does not offer."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES_MAX = 1 << 30

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int | bytes) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def become_subreaper() -> None:
    """Make orphans below this process its children, whatever sessions they are in."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_parent_death_signal(number: int) -> None:
    """Get this signal when the thread that started this process ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def set_name(name: str) -> None:
    """Set the name that ``ps`` and ``top`` show, at most 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def keep_freed_memory() -> None:
    """Keep freed memory for the next large object: to fault in its pages anew costs more than to fill it.

    Only where malloc is glibc's; :func:`give_back_memory` undoes it for what is free then.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES_MAX)
        _libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)


def give_back_memory() -> None:
    """Give freed memory back to the system."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def interrupt_thread(thread: int, exception: type[BaseException]) -> None:
    """Raise ``exception`` in a thread (``threading.get_ident``) at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))
