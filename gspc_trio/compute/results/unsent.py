"""Results that wait in a compute process for those of the tasks behind them, to be sent together."""

from __future__ import annotations

import _thread
import socket
from contextlib import suppress
from time import perf_counter, sleep

from gspc_trio.compute.channel import FRAME_HEADER, list_head

GATHER_S = 0.01
"""Results wait at most about so long for those of tasks that send them while they only wait themselves."""

UNSENT_BYTES_MAX = 1 << 20
"""Results are sent when they are more than this."""

LOOK_S = 0.02
"""So often it is looked whether a task that runs for longer than expected keeps results waiting."""

IDLE_LOOKS = 25
"""Nobody looks any more after so many times at which no result had gathered."""


class UnsentResults:
    """Packed results, in the order in which their tasks have ended.

    The thread that runs tasks adds and sends. While it runs a task, another thread sends what has waited for
    longer than ``GATHER_S``: a task that was expected to be quick may take long, and may even wait for what
    somebody does with a result that is here.

    Args:
        channel: where they are sent.

    Attributes:
        size_bytes: of those that wait, without what the other thread may just have sent.
        oldest_s: when the first of them was added (``perf_counter``).
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._packed: list[bytes] = []
        self._sending = _thread.allocate_lock()
        self._is_watched = False
        self.size_bytes: int = 0
        self.oldest_s: float = 0.0

    def __len__(self) -> int:
        return len(self._packed)

    def add(self, packed: bytes, ended_s: float) -> None:
        """Let a result wait for others.

        Args:
            packed: the result.
            ended_s: when its task has ended (``perf_counter``).
        """
        if not self._packed:
            self.oldest_s = ended_s
            self.size_bytes = 0
        self._packed.append(packed)
        self.size_bytes += len(packed)

    def due_s(self) -> float | None:
        """Return in how many seconds they are to be sent; None: there are none."""
        if not self._packed:
            return None
        return max(0.0, self.oldest_s + GATHER_S - perf_counter())

    def send(self) -> None:
        """Send them.

        Raises:
            OSError: nobody reads them any more.
        """
        if not self._packed:
            return
        with self._sending:
            results = self._packed[:]
            if not results:
                return
            del self._packed[: len(results)]  # one more may have been added behind them
            size_bytes = sum(map(len, results))
            head = list_head(len(results))
            pieces = [FRAME_HEADER.pack(len(head) + size_bytes), head, *results]
            for piece in [b"".join(pieces)] if size_bytes <= UNSENT_BYTES_MAX else pieces:
                self._channel.sendall(piece)

    def watch(self) -> None:
        """Have them sent when they are due, whatever the task does that runs meanwhile."""
        if not self._is_watched:
            self._is_watched = True
            _thread.start_new_thread(self._send_what_is_due, ())

    def _send_what_is_due(self) -> None:
        """Send what is due until no results gather any more. This runs in a thread of its own."""
        idle = 0
        with suppress(OSError):  # whoever runs tasks sees that, too
            while idle < IDLE_LOOKS:
                sleep(LOOK_S)
                idle = 0 if self._packed else idle + 1
                if self.due_s() == 0:
                    self.send()
                if idle == IDLE_LOOKS:
                    self._is_watched = False
                    if self._packed:  # they came just before, and their coming started no other thread
                        self._is_watched, idle = True, 0
