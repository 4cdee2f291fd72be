"""Segments mapped into a process, in large pages where the kernel has some."""

from __future__ import annotations

import ctypes
import mmap
import os

LARGE_PAGE_BYTES = 1 << 21
"""Of x86 and most ARM. Where they have another size, what is asked for here has no effect."""

_MADV_COLLAPSE = 25
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MREMAP_MAYMOVE = 1
_MREMAP_FIXED = 2
_FAILED = ctypes.c_void_p(-1).value
_BOTH = mmap.PROT_READ | mmap.PROT_WRITE

_PY_BUFFER_WORDS = 16
"""No less than a ``Py_buffer`` of CPython has; the first is its address."""

_libc = ctypes.CDLL(None, use_errno=True)
_ADDRESS, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc.mmap.restype, _libc.mmap.argtypes = _ADDRESS, (_ADDRESS, _SIZE, _INT, _INT, _INT, ctypes.c_long)
_libc.mremap.restype, _libc.mremap.argtypes = _ADDRESS, (_ADDRESS, _SIZE, _SIZE, _INT, _ADDRESS)
_libc.munmap.argtypes = (_ADDRESS, _SIZE)
_libc.madvise.argtypes = (_ADDRESS, _SIZE, _INT)


def map_segment(descriptor: int, size_bytes: int, *, writable: bool = False) -> memoryview:
    """Return the memory behind a descriptor; it is mapped as long as something has a view of it.

    Args:
        descriptor: of a segment.
        size_bytes: how much of it.
        writable: it is to be written: all its pages are mapped at once, for a fault for each costs several
            times as much.

    Raises:
        OSError: it cannot be mapped.
        ValueError: it is smaller than that.
    """
    protection = _BOTH if writable else mmap.PROT_READ
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if writable else 0)
    if size_bytes < LARGE_PAGE_BYTES:
        return memoryview(mmap.mmap(descriptor, size_bytes, flags, protection))
    return _aligned(descriptor, size_bytes, flags, protection)


def make_large_pages(descriptor: int, size_bytes: int) -> None:
    """Have a segment in large pages if it has no pages yet; who writes or maps it later has less to do.

    The kernel is asked for each segment alone, so it need not be set to use large pages for shared memory.
    Where it has none (before Linux 6.1, or memory is in pieces), the segment stays as it is.
    """
    if size_bytes < LARGE_PAGE_BYTES or os.fstat(descriptor).st_blocks:
        return
    view = _aligned(descriptor, size_bytes, mmap.MAP_SHARED, _BOTH)
    count = size_bytes // LARGE_PAGE_BYTES
    size_bytes = count * LARGE_PAGE_BYTES
    # The kernel makes one page of many only where there is one.
    view[:size_bytes:LARGE_PAGE_BYTES] = bytes(count)
    _libc.madvise(address_of(view), size_bytes, _MADV_COLLAPSE)


def _aligned(descriptor: int, size_bytes: int, flags: int, protection: int) -> memoryview:
    """Map a file where a large page may begin."""
    there = os.fstat(descriptor).st_size
    if size_bytes > there:
        raise ValueError(f"{size_bytes} bytes of a segment that has {there}")
    # Python's mmap is given no address. So it has room, and the file comes to lie within that.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    room = memoryview(mmap.mmap(-1, size_bytes + LARGE_PAGE_BYTES, private, protection))
    skipped = -address_of(room) % LARGE_PAGE_BYTES
    view = room[skipped : skipped + size_bytes]
    if _libc.mmap(address_of(view), size_bytes, protection, flags | _MAP_FIXED, descriptor, 0) == _FAILED:
        raise OSError(ctypes.get_errno(), f"mmap of {size_bytes} bytes")
    return view


def address_of(buffer: memoryview) -> int:
    """Return where the bytes of a contiguous buffer lie."""
    found = (ctypes.c_void_p * _PY_BUFFER_WORDS)()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), found, 0)
    address = found[0] or 0
    ctypes.pythonapi.PyBuffer_Release(found)
    return address


def make_private(address: int, size_bytes: int, descriptor: int) -> None:
    """Map a file in place of what is mapped there now, so that nobody sees what is written there.

    Raises:
        OSError: it cannot be; what was mapped there stays.
    """
    made = _libc.mmap(None, size_bytes, _BOTH, mmap.MAP_PRIVATE, descriptor, 0)
    if made == _FAILED:
        raise OSError(ctypes.get_errno(), f"mmap of {size_bytes} bytes")
    if _libc.mremap(made, size_bytes, size_bytes, _MREMAP_MAYMOVE | _MREMAP_FIXED, address) == _FAILED:
        number = ctypes.get_errno()
        _libc.munmap(made, size_bytes)
        raise OSError(number, f"mremap of {size_bytes} bytes")
