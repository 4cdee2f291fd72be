"""Framing between a RIF, its template and its compute processes: constants and functions for both sides.

Three channels, all between processes of one host that trust each other, all msgpack:

- control, RIF to template and back (packets, file descriptors attached);
- tasks, RIF to compute process (packets, so that the RIF can take back whole ones that are still unread);
- results, compute process to RIF (a stream of frames; its end says that the process is gone).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, TypeAlias

import msgpack

MARKER = "GSPC_TREE"
"""Environment variable of the template and all below it: ids of the trees it belongs to, colons between."""

FOLDER_PREFIX = "gspc-files-"
"""Names of the directories begin so in which tasks with files run."""

PACKET_BYTES_MAX = 65536
"""Longest packet of tasks; a longer item travels as a file in memory, attached to the packet."""

PACKET_TASKS_MAX = 256
"""Most tasks in one packet."""

PACKET_S = 0.0003
"""About as many seconds of work go into one packet, once the time of its code is known."""

CONTROL_BYTES_MAX = 65536
"""Longest packet on the control channel."""

BUSY_S = 0.5
"""A template says so often at least that it is still there while it owes the answer to a kill."""

OUTPUT_BYTES_MAX = 65536
"""The last so many bytes of each of standard output and error are kept of an attempt."""

FRAME_HEADER = Struct("<Q")
"""Length of the frame of results that follows."""

# Control, RIF to template: (kind, ...)
FORK, KILL = range(2)
# FORK number cpus gpus kind + descriptors of a file that describes the job and of the channels; KILL number

# Kinds of processes of a job that a template forks
TASKS, THREADS, TRANSFERS = range(3)
# TASKS: runs tasks, channels of tasks and results; THREADS: hosts threads; TRANSFERS: moves what URIs name

# Control, template to RIF: (kind, ...)
READY, FORKED, EXITED, KILLED, BUSY = range(5)
# READY; FORKED number pid problem; EXITED number status last_words + descriptors of its standard output and
# error; KILLED number survivors; BUSY

# Control of a host of threads, RIF to host: (kind, ...)
OPEN_THREAD, INTERRUPT_THREAD = range(2)
# OPEN_THREAD number cpus + descriptors: tasks, results, standard output and error; INTERRUPT_THREAD number

# Orders, RIF to a process that moves what URIs name: (kind, ...), answered by one of those below
FETCH, STORE, LIST = range(3)
# Each has uri host allowed_directories temporary_directory and: FETCH bytes_max + descriptor to write to;
# STORE bytes + descriptor to read from; LIST files_max

# Such a process to its RIF: (kind, ...)
MOVED, DONE, FAILED, FOUND = range(4)
# MOVED bytes so far; DONE bytes; FAILED may_pass message; FOUND there_are_more uris

# Items in a packet of tasks: (kind, ...)
DEFINE, RUN, LARGE = range(3)
# DEFINE code_id data;
# RUN task_id attempt code_id arguments memory_bytes may_rerun [held [directory [after]]]:
# after is (task_id, attempt) of what has run directly before: its result replaces each empty argument;
# LARGE kind first second + descriptor of a file that holds the item (its kind and first two fields repeated)


UNDEFINED = "undefined code"
"""Kind of the error of a task that was not run: the packet that defines its code was taken back before it."""

UNMADE = "unmade argument"
"""Kind of the error of a task that was not run: its process has not just made the result that it takes."""

Message: TypeAlias = Any
"""What msgpack has unpacked: lists of plain values, from a process of the same program."""

INITIALIZER = "initializer"
"""Kind of the error of a task that was not run: the job's initializer has failed in its process."""


def pack(message: object) -> bytes:
    """Return a message, an item or anything else made of plain data as bytes."""
    global _packer
    data: bytes = _packer.pack(message)
    if len(data) > _BUFFER_KEPT_BYTES_MAX:
        _packer = _new_packer()
    return data


def _new_packer() -> msgpack.Packer:
    return msgpack.Packer(unicode_errors="surrogateescape", buf_size=_BUFFER_KEPT_BYTES_MAX)


_BUFFER_KEPT_BYTES_MAX = 1 << 16
_packer = _new_packer()  # making one costs as much as packing a small message


def unpack(data: bytes | bytearray | memoryview) -> Message:
    """Return what :func:`pack` was given, lists for all sequences."""
    return msgpack.unpackb(data, unicode_errors="surrogateescape", strict_map_key=False)


def unpack_results(frame: bytes | bytearray | memoryview) -> Message:
    """Return the results of a frame, tuples for all sequences."""
    return msgpack.unpackb(frame, unicode_errors="surrogateescape", use_list=False)


def list_head(count: int) -> bytes:
    """Return how a packed list of so many elements begins."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdd" + count.to_bytes(4, "big")


def pack_run(
    task_id: int,
    attempt: int,
    code_id: int,
    arguments: Sequence[bytes],
    memory_bytes: int,
    may_rerun: bool,
    held: Sequence[str] = (),
    directory: bytes = b"",
    after: tuple[int, int] | None = None,
) -> list[bytes]:
    """Return an item that runs a task, in pieces: long arguments are not copied."""
    pieces = [
        list_head(10 if after else 9 if directory else 8 if held else 7),
        *map(pack, (RUN, task_id, attempt, code_id)),
        list_head(len(arguments)),
    ]
    for argument in arguments:
        pieces += [b"\xc6" + len(argument).to_bytes(4, "big"), argument]
    pieces += [pack(memory_bytes), pack(may_rerun)]
    if held or directory or after:
        pieces.append(pack(held))
    if directory or after:
        pieces.append(pack(directory))
    if after:
        pieces.append(pack(after))
    return pieces


def output_directory() -> str:
    """Return the directory whose disk takes what tasks print."""
    return os.environ.get("TMPDIR", "/tmp")


def open_nameless_file() -> int:
    """Return the descriptor of a new file that only its descriptors keep alive; writes are appended."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    with suppress(OSError):
        return os.open(output_directory(), flags | os.O_TMPFILE, 0o600)
    # No such directory, or its file system has no files without a name: memory will do.
    memory = os.memfd_create("gspc-output")
    try:
        return os.open(f"/proc/self/fd/{memory}", flags)
    finally:
        os.close(memory)
