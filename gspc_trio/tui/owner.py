"""Whoever has started a terminal holds one end of a pipe; the terminal ends when that is closed.

The kernel closes it however the owner ends, also when it is killed: so no terminal outlives it.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LEAVE_S = 1.0
"""How long a terminal without an owner may take to leave in good order."""


def watch_owner(descriptor: int, leave: Callable[[], object]) -> None:
    """End this process when the other end of a pipe is closed.

    Args:
        descriptor: our end of the pipe; nothing is read from it.
        leave: called then, in another thread, to begin to leave in good order.
    """
    threading.Thread(target=_watch, args=(descriptor, leave), name="owner", daemon=True).start()


def _watch(descriptor: int, leave: Callable[[], object]) -> None:
    poller = select.poll()
    poller.register(descriptor, 0)  # only that it hangs up is asked for, which is always told
    poller.poll()
    with suppress(RuntimeError):  # its loop is closed already
        leave()
    time.sleep(LEAVE_S)
    os._exit(1)  # what it would say goes to nobody
