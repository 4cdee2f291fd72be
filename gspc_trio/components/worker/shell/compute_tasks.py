"""The channel of tasks to a compute process: hands out in packets, takes back what is still unread."""

from __future__ import annotations

import errno
import os
import socket
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import trio

from gspc_trio.components.worker.messages import Submission
from gspc_trio.compute.channel import (
    DEFINE,
    LARGE,
    PACKET_BYTES_MAX,
    PACKET_S,
    PACKET_TASKS_MAX,
    RUN,
    list_head,
    pack,
    pack_run,
    unpack,
)
from gspc_trio.core.ids import Attempt, TaskId

RETRY_S = 0.01
"""Wait before trying again where the kernel cannot say when there is room for more attached files."""

_ITEM_BYTES_MAX = PACKET_BYTES_MAX - 8  # room for the head of the list
_ITEM_HEAD_BYTES = 40
_ARGUMENT_HEAD_BYTES = 5  # at most so much goes with an item, and with each of its arguments


class CodeTimes(dict[int, float]):
    """Seconds that a task of each code takes: an exponential average of what was measured in a job."""

    WEIGHT = 0.3

    def note(self, code_id: int, duration_s: float, count: int = 1) -> None:
        """Take ``count`` more measurements into account that took ``duration_s`` each, on average."""
        known = self.get(code_id)
        if known is None:
            self[code_id] = duration_s
        else:
            weight = 1.0 - (1.0 - self.WEIGHT) ** count
            self[code_id] = known + weight * (duration_s - known)


class TaskChannel:
    """Both ends of the channel of tasks, and what waits for room in it."""

    def __init__(
        self, nursery: trio.Nursery, tasks: socket.socket, unread: socket.socket, times: CodeTimes
    ) -> None:
        """Take over two connected packet sockets.

        Args:
            nursery: for the task that waits for room.
            tasks: our end, not blocking.
            unread: the other end, which the process has, too.
            times: seconds that tasks take, by code.
        """
        self._nursery = nursery
        self._tasks = tasks
        self._unread = unread
        self._times = times
        self._codes: dict[int, bytes] = {}
        self._sent_codes: set[int] = set()
        self._queue: deque[Submission] = deque()
        self._waits_for_room = False
        self._closed = False

    def define(self, code_id: int, data: bytes) -> None:
        """Make an entry of the code table known; it travels with the first task that uses it."""
        self._codes[code_id] = data

    def hand(self, submissions: Sequence[Submission]) -> None:
        """Send these, as far as there is room; the rest follows by itself.

        Raises:
            KeyError: the code of one is not defined; none of them is taken.
        """
        for submission in submissions:
            code_id = submission.code_id
            if code_id not in self._codes:
                raise KeyError(f"task {submission.task_id} uses code {code_id}, which is not defined")
        self._queue.extend(submissions)
        self._send_queue()

    def retract(self) -> tuple[tuple[TaskId, Attempt], ...]:
        """Take back all that the process has not read; return which, in order.

        Packet by packet: a process that reads at the same time may get one from between.
        """
        taken: list[tuple[TaskId, Attempt]] = []
        while (items := self._take_packet()) is not None:
            for kind, first, second in items:
                if kind == RUN:
                    taken.append((first, second))
                else:
                    self._sent_codes.discard(first)
        taken.extend((submission.task_id, submission.attempt) for submission in self._queue)
        self._queue.clear()
        return tuple(taken)

    def close(self) -> None:
        """Let the process see the end of its tasks, and forget what waits."""
        if not self._closed:
            self._closed = True
            self._queue.clear()
            trio.lowlevel.notify_closing(self._tasks)
            self._tasks.close()
            self._unread.close()

    def _send_queue(self) -> None:
        while self._queue and not self._waits_for_room:
            if not self._send_some():
                self._waits_for_room = True
                self._nursery.start_soon(self._wait_for_room)

    def _send_some(self) -> bool:
        """Send one packet made of the head of the queue; return False if there is no room for it now."""
        items: list[tuple[object, ...]] = []
        count = 0
        defined: list[int] = []
        size_bytes = 0
        work_s = task_s = 0.0
        code_id = -1
        for submission in islice(self._queue, PACKET_TASKS_MAX):
            if submission.code_id != code_id:
                code_id = submission.code_id
                known_s = self._times.get(code_id)
                if known_s is None and count:
                    break
                # One alone, until the time of its code is known.
                task_s = PACKET_S if known_s is None else known_s
                if code_id not in self._sent_codes and code_id not in defined:
                    size_bytes += len(self._codes[code_id]) + _ITEM_HEAD_BYTES
                    defined.append(code_id)
                    items.append((DEFINE, code_id, self._codes[code_id]))
            size_bytes += _ITEM_HEAD_BYTES
            for argument in submission.arguments:
                size_bytes += _ARGUMENT_HEAD_BYTES + len(argument)
            if submission.held or submission.directory:
                size_bytes += len(pack(submission.held)) + len(submission.directory)
            if submission.after is not None:
                size_bytes += _ITEM_HEAD_BYTES
            if (count and work_s + task_s > PACKET_S) or size_bytes > PACKET_BYTES_MAX:
                break
            items.append(_run_item(submission))
            count += 1
            work_s += task_s
        if not count:
            return self._send_large(self._queue[0])
        while items[-1][0] == DEFINE:  # of the one that had no room
            items.pop()
            defined.pop()
        if not self._send_packet([pack(items)]):
            return False
        self._sent_codes.update(defined)
        for _ in range(count):
            self._queue.popleft()
        return True

    def _send_large(self, submission: Submission) -> bool:
        """Send the head of the queue, and the code before it if need be, each in a packet of its own."""
        code_id = submission.code_id
        if code_id not in self._sent_codes:
            if not self._send_item([pack((DEFINE, code_id, self._codes[code_id]))], (DEFINE, code_id, 0)):
                return False
            self._sent_codes.add(code_id)
        pieces = pack_run(*_run_item(submission)[1:])
        if not self._send_item(pieces, (RUN, submission.task_id, submission.attempt)):
            return False
        self._queue.popleft()
        return True

    def _send_item(self, pieces: list[bytes], name: tuple[int, int, int]) -> bool:
        if sum(map(len, pieces)) <= _ITEM_BYTES_MAX:
            return self._send_packet([list_head(1), *pieces])
        descriptor = os.memfd_create("gspc-item")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.writelines(pieces)
            return self._send_packet([pack([[LARGE, *name]])], descriptor)
        finally:
            os.close(descriptor)

    def _send_packet(self, pieces: list[bytes], descriptor: int | None = None) -> bool:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            if descriptor is None:
                self._tasks.send(data)
            else:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))
                self._tasks.sendmsg([data], [rights])
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.ETOOMANYREFS, errno.ENOBUFS, errno.EMSGSIZE):
                raise
            return False
        return True

    async def _wait_for_room(self) -> None:
        with suppress(trio.ClosedResourceError):
            while self._queue and not self._closed:
                await trio.lowlevel.wait_writable(self._tasks)
                if self._queue and not self._send_some():
                    await trio.sleep(RETRY_S)
        self._waits_for_room = False

    def _take_packet(self) -> list[tuple[int, int, int]] | None:
        """Take one unread packet back; return (kind, first, second) of its items, None if there is none."""
        if self._closed:
            return None
        try:
            data, ancillary, _, _ = self._unread.recvmsg(
                PACKET_BYTES_MAX, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        for _, _, attached in ancillary:
            for descriptor in array("i", attached):
                os.close(descriptor)
        items = unpack(data)
        return [tuple(item[1:4]) if item[0] == LARGE else tuple(item[:3]) for item in items]


def _run_item(submission: Submission) -> tuple[Any, ...]:
    """The item that runs a task."""
    options = submission.options
    item = (
        RUN,
        submission.task_id,
        submission.attempt,
        submission.code_id,
        submission.arguments,
        options.memory_bytes,
        options.may_rerun,
    )
    if submission.after is not None:
        return (*item, submission.held, os.fsencode(submission.directory), submission.after)
    if submission.directory:
        return (*item, submission.held, os.fsencode(submission.directory))
    return (*item, submission.held) if submission.held else item
