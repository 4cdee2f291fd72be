"""What all tests need of the process that runs them."""

from __future__ import annotations

import os
import signal

from gspc_trio.components.worker.shell.compute import GROUP_VARIABLE


def pytest_configure() -> None:
    """Take signals again that were ignored, by a shell in the background or nohup: children inherit that.

    Whatever else pins to CPUs of this machine is not heeded.
    """
    os.environ[GROUP_VARIABLE] = f"tests-{os.getpid()}"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
