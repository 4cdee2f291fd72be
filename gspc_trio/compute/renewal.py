"""Renewal of a compute process: after so many tasks another one goes on, with nothing of what they left.

The process that the template has forked runs no task then. It forks those that do, one after another, and
waits. Each hands over what it has read and not begun, with the codes that it knows.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from collections.abc import Callable
from typing import NamedTuple

from gspc_trio.compute import process_tree
from gspc_trio.compute.channel import DEFINE, pack, unpack
from gspc_trio.compute.loop import Item, Loop

KILL_S = 2.0
"""Bound on ending what the tasks of one process have left running."""


class HandedOver(NamedTuple):
    """What one process leaves to the next.

    Attributes:
        codes: number -> encoded code, of those that it was told.
        items: what it has read and not begun.
    """

    codes: dict[int, bytes]
    items: list[Item]


class Turn:
    """The part of the tasks that one process runs.

    Args:
        loop: that runs them.
        tasks_max: how many it runs.
        before: what the process before has left.
    """

    def __init__(self, loop: Loop, tasks_max: int, before: HandedOver) -> None:
        self._loop = loop
        self._left = tasks_max
        self._items = before.items
        for code_id, data in before.codes.items():
            loop.define(code_id, data)

    def run(self) -> HandedOver | None:
        """Run tasks until there were enough; return what is left, None if the channel has ended."""
        while True:
            items = self._items or self._loop.receive()
            if items is None:
                return None
            for position, item in enumerate(items):
                self._loop.handle(item)
                self._left -= item[0] != DEFINE
                if not self._left:
                    self._loop.send()
                    return HandedOver(self._loop.codes, items[position + 1 :])
            self._items = []


def run_turns(tasks_max: int, enter: Callable[[], Loop]) -> bool:
    """Run the tasks of a compute process in forks of it, each of which runs so many.

    It ends as a fork ends that does not come to its end: killed by the same signal, or with the same status.

    Args:
        tasks_max: of one process.
        enter: called in each fork, returns the loop.

    Returns:
        whether this is the process that waits, when the other side has ended the channel; False in a fork.
    """
    left = HandedOver({}, [])
    while True:
        descriptor = os.memfd_create("gspc-renewal")
        pid = os.fork()
        if not pid:
            handed = Turn(enter(), tasks_max, left).run()
            content = pack([False] if handed is None else [True, *handed])
            os.pwrite(descriptor, content, 0)
            return False
        _, status = os.waitpid(pid, 0)
        process_tree.kill_all_descendants(os.getpid(), KILL_S)
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        os.close(descriptor)
        if not content:
            _end_like(status)
        goes_on, *fields = unpack(content)
        if not goes_on:
            return True
        left = HandedOver(*fields)


def _end_like(status: int) -> None:
    """End as another process did."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        faulthandler.disable()  # it has said where
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code not in (-signal.SIGKILL, -signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
