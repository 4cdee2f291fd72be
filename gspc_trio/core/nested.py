"""Nested tasks: the words between a task that starts others and the job server of its job.

The process of the task says them over a socket of its host, and the RIF of the host passes them on unread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import msgspec
from msgspec import Struct

from gspc_trio.core.ids import Attempt, Count, JobId, TaskId
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, LastAttempt, Shape, TaskError, TaskOptions

DEPTH_MAX = 32
"""A task that is nested so deep runs what it submits itself, in its own process, at once."""

LENT_MAX = 64
"""So many tasks may wait for nested tasks on one core: each of them lends it to another one."""

CALL_FIRST, CALL_NAMED, CALL_FILLED = range(3)
"""Numbers of the codes of nested tasks, which are in ``compute.code``: ``call_first``, ``call_named`` and
``call_filled``."""


class TaskHello(Struct, frozen=True, tag=True):
    """The first word of a process: which task it runs."""

    job: JobId
    task_id: TaskId
    attempt: Attempt


class StartNested(Struct, frozen=True, tag=True):
    """Run a task.

    Attributes:
        number: of the task, among those that this process starts; they count up from 1.
        name: for people.
        code_id: CALL_FIRST, CALL_NAMED or CALL_FILLED.
        arguments: each an encoded value, or the number of another task whose result it is.
        shape, options: what it needs and states about itself.
    """

    number: Count
    name: str
    code_id: Count
    arguments: tuple[bytes | Count, ...]
    shape: Shape = CORE
    options: TaskOptions = DEFAULT_OPTIONS


class CancelNested(Struct, frozen=True, tag=True):
    """Cancel a task."""

    number: Count


class ForgetNested(Struct, frozen=True, tag=True):
    """The process has the ends of these tasks, and will not refer to their results."""

    numbers: tuple[Count, ...]


class TaskWaits(Struct, frozen=True, tag=True):
    """From now on the task waits for others, and its core may be used; or it goes on."""

    waits: bool


class ItemsEnded(Struct, frozen=True, tag=True):
    """The first items of the range that the process computes have ended, and the next one takes long.

    ``answer`` is what the task would return if it had only these.
    """

    answer: bytes


class NestedDepth(Struct, frozen=True, tag=True):
    """The first answer to a process: how deep its task is nested. 0: no other task has started it."""

    depth: Count


class NestedEnded(Struct, frozen=True, tag=True):
    """A task has ended: with a value, or with an error; with neither it was cancelled.

    Attributes:
        number: of the task.
        value: what it returned, encoded.
        error: why it failed.
        last: its last attempt, if it failed.
    """

    number: Count
    value: bytes | None = None
    error: TaskError | None = None
    last: LastAttempt | None = None


class NestedBroken(Struct, frozen=True, tag=True):
    """Nothing more can be run for this task, nor does what it has started go on: ``reason`` says why."""

    reason: str


FromTaskProcess: TypeAlias = TaskHello | StartNested | CancelNested | ForgetNested | TaskWaits | ItemsEnded
"""What the process of a task says."""

ToTaskProcess: TypeAlias = NestedDepth | NestedEnded | NestedBroken
"""What it hears."""

encode: Callable[[FromTaskProcess | ToTaskProcess], bytes] = msgspec.msgpack.encode
"""Return a word of these as bytes."""


# It takes 3 ms to make what decodes words, and most programs never need it.


@cache
def _decoder_of_said() -> Callable[[bytes], FromTaskProcess]:
    return msgspec.msgpack.Decoder(FromTaskProcess).decode


@cache
def _decoder_of_heard() -> Callable[[bytes], ToTaskProcess]:
    return msgspec.msgpack.Decoder(ToTaskProcess).decode


def decode_said(data: bytes) -> FromTaskProcess:
    """Return what the process of a task has said.

    Raises:
        msgspec.DecodeError: it is none of these.
    """
    return _decoder_of_said()(data)


def decode_heard(data: bytes) -> ToTaskProcess:
    """Return what the process of a task has heard."""
    return _decoder_of_heard()(data)


# The barrier that programs of a co-allocation call themselves (COA-2): they say it over the same socket.

BARRIER_VARIABLE = "GSPC_BARRIER"
"""Environment variable of programs that were started before all are ready: where they say that they are."""

AT_BARRIER = b"barrier"
"""What a program says when it is ready."""

NO = b"no"
"""The answer if not all got ready; else it is :data:`YES` and what ``GSPC_RESOURCES`` has."""

YES = b"yes "


class BarrierPlace(Struct, frozen=True, array_like=True):
    """Where a program calls the barrier.

    Attributes:
        address: name of the socket of its host.
        job: that runs it.
        task_id: as which it runs.
    """

    address: str
    job: JobId
    task_id: TaskId

    def to_text(self) -> str:
        """Return it as an environment variable has it."""
        return msgspec.msgpack.encode(self).hex()


def read_place(text: str) -> BarrierPlace:
    """Return what an environment variable says.

    Raises:
        ValueError: it is no such place.
    """
    return msgspec.msgpack.decode(bytes.fromhex(text), type=BarrierPlace)
