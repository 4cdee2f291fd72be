"""What Linux offers and Python's library does not."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

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


def interrupt_thread(thread: int, exception: type[BaseException]) -> None:
    """Raise ``exception`` in a thread (``threading.get_ident``) at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))
