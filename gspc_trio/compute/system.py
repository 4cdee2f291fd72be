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

own_reads: list[int] = [0, 0]
"""Calls, and bytes: what this process has read for itself while a task ran. It is none of the task's."""


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


def read_status(path: str) -> bytes:
    """Return what the kernel says in a small file; it counts in :data:`own_reads`.

    Raises:
        OSError: it says nothing.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.pread(file, 4096, 0)
    finally:
        os.close(file)
    own_reads[0] += 1
    own_reads[1] += len(content)
    return content


def interrupt_thread(thread: int, exception: type[BaseException]) -> None:
    """Raise ``exception`` in a thread (``threading.get_ident``) at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


class VariableInPlace:
    """A variable of the environment whose value, always of one length, changes where it is.

    Of each value that the C library is given to copy, it keeps the copy for ever: a process that has put a
    hundred thousand there has lost 11 MB.

    Args:
        name: of the variable.
        length: of its values.

    Attributes:
        text: what the environment has, which cannot become longer or shorter.
        value: the part of it to change.
    """

    def __init__(self, name: bytes, length: int) -> None:
        self.text: bytearray = bytearray(name + b"=" + bytes(length + 1))
        self.value: slice = slice(len(name) + 1, len(name) + 1 + length)
        self._held = (ctypes.c_char * len(self.text)).from_buffer(self.text)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._held))  # the environment is read to the very end

    def attach(self) -> None:
        """Have it in the environment, in place of one of that name."""
        if _libc.putenv(self._held) != 0:
            raise MemoryError("there is no room for another variable in the environment")
