"""For programs of co-allocation requests: ``coallocation.barrier()`` waits until all of a job are ready."""

from __future__ import annotations

import os
import socket

from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.core.held import RESOURCES_VARIABLE
from gspc_trio.core.nested import (
    AT_BARRIER,
    BARRIER_VARIABLE,
    YES,
    BarrierPlace,
    TaskHello,
    encode,
    read_place,
)

__all__ = ["barrier"]

_ANSWER_BYTES_MAX = 16 << 20


def barrier() -> bool:
    """Say that this program is ready, and wait until all programs of its job are; tell whether they are.

    For programs of jobs with ``start=inside``. If the answer is yes, the environment variable
    ``GSPC_RESOURCES`` has ``id@host`` of all resources of the job from now on. If it is no, the resources are
    being given back: the program should end soon, and is stopped otherwise.

    Returns:
        bool: False if not all got ready in time, and if the host does not answer.

    Raises:
        RuntimeError: this program is none of a job with ``start=inside``.
    """
    text = os.environ.get(BARRIER_VARIABLE)
    if not text:
        raise RuntimeError(
            "there is no barrier here: this program is none of a co-allocated job with start=inside"
        )
    try:
        place = read_place(text)
    except ValueError as error:
        raise RuntimeError(f"{BARRIER_VARIABLE} is no place of a barrier: {text:.60}") from error
    answer = _answer(place)
    if not answer.startswith(YES):
        return False
    os.environ[RESOURCES_VARIABLE] = answer.removeprefix(YES).decode()
    return True


def _answer(place: BarrierPlace) -> bytes:
    """Return what the host answers, b"" if it does not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.connect("\0" + place.address)
            for said in (encode(TaskHello(place.job, place.task_id, 1)), AT_BARRIER):
                line.sendall(FRAME_HEADER.pack(len(said)) + said)
            (size,) = FRAME_HEADER.unpack(_exactly(line, FRAME_HEADER.size))
            return _exactly(line, min(size, _ANSWER_BYTES_MAX))
        except (OSError, EOFError):
            return b""


def _exactly(line: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = line.recv(size - len(found))
        if not more:
            raise EOFError("the host has ended the connection")
        found += more
    return bytes(found)
