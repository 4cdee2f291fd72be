"""Calls that a program sends to a compute process itself: one task computes many, one after the other.

Who waits for each of many short calls before it makes the next one pays mostly for waking up threads. So the
caller's thread and the compute process talk over a socket of their own while this task runs. The socket
carries results of calls that went well and quickly. All else ends the task, and is its result.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from struct import pack as pack_struct
from time import perf_counter

from gspc_trio.compute.code import CALL_BYTES_MAX, REPLY_HEAD, CallsAnswer
from gspc_trio.compute.errors import ErrorFields, TaskFailure, describe
from gspc_trio.compute.ranges import SILENT_S, undo_changes
from gspc_trio.compute.tidy import changes
from gspc_trio.core.current import ComputePlace, current_place
from gspc_trio.protocol.values import dumps

_CREDENTIALS = Struct("iII")


def serve_calls(
    function: Callable[..., object], address: str, idle_s: float, limit_s: float, values: tuple[object, ...]
) -> CallsAnswer:
    """Call a function with these arguments, and with others that come, until none come any more.

    Args:
        function: what to call.
        address: name of the socket on which the caller listens.
        idle_s: it ends when no call has come for so long.
        limit_s: it ends after so long in any case.
        values: arguments of the first call.
    """
    line = connect_to(address, idle_s)
    if line is None:
        _, data, error = _called(function, values)
        return False, 1, data, error
    try:
        return serve_line(function, line, perf_counter() + limit_s, values)
    finally:
        with suppress(OSError):  # the caller has gone
            line.shutdown(socket.SHUT_RDWR)  # a process that a call has left may hold it, too
        line.close()


def serve_line(
    function: Callable[..., object], line: socket.socket, due_s: float, values: tuple[object, ...]
) -> CallsAnswer:
    """Call it with these arguments, and with those that come on a socket.

    Args:
        function: what to call.
        line: connection to the caller.
        due_s: no more calls are taken after this (``perf_counter``).
        values: arguments of the first call.
    """
    begun, is_last = 0, False
    while True:
        begun += 1
        is_usual, data, error = _called(function, values)
        if not is_usual or data is None or len(data) > CALL_BYTES_MAX:
            return True, begun, data, error
        try:
            line.send(REPLY_HEAD.pack(begun, len(data)) + data, socket.MSG_NOSIGNAL)
            if not is_last and perf_counter() > due_s:
                is_last = True
                line.shutdown(socket.SHUT_RD)  # what was sent before still comes
            try:
                call = line.recv(CALL_BYTES_MAX)
            except BlockingIOError:  # none has come for a while
                is_last = True
                line.shutdown(socket.SHUT_RD)
                call = line.recv(CALL_BYTES_MAX)
        except OSError:
            call = b""
        if not call:
            return True, begun, data, None  # perhaps nobody has heard it there
        values = pickle.loads(call)


def connect_to(address: str, idle_s: float) -> socket.socket | None:
    """Return the connection to the caller, None if it cannot be had; the rest as :func:`serve_calls`."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.setblocking(False)  # others could fill the queue of connections
        line.connect("\0" + address)
        if not _is_own_user(line):
            raise PermissionError
    except OSError:
        line.close()
        return None
    line.setblocking(True)
    idle = divmod(round(idle_s * 1e6), 1_000_000)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, pack_struct("ll", *idle))
    return line


def _is_own_user(line: socket.socket) -> bool:
    """Whether who connects or listens at the other end belongs to this user: all users know such names."""
    found = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(found)[1]
    return uid == os.geteuid()


def _called(
    function: Callable[..., object], values: tuple[object, ...]
) -> tuple[bool, bytes | None, ErrorFields | None]:
    """Call it, and leave the process as it was before.

    Returns:
        whether it has done nothing that more is to be told of than its result; and result or error, as in
        :data:`CallsAnswer`.
    """
    place = current_place() or ComputePlace("", "")
    begun = perf_counter()
    data: bytes | None = None
    error: ErrorFields | None = None
    try:
        try:
            result = function(*values)
        finally:
            if changes.in_fork:
                changes.leave_fork()
        data = dumps(result)
        del result
    except BaseException as problem:
        if not isinstance(problem, TaskFailure) and not place.cut_off:
            error = describe(problem)
    is_usual = place.on_end is None
    if changes.made or place.on_end is not None:
        undo_changes(place)
    if perf_counter() - begun > SILENT_S and place.is_silent is not None:
        is_usual = is_usual and place.is_silent()
    return is_usual, data, error
