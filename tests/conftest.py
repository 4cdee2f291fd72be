"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT again: a shell that runs pytest in the background has it ignored; children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
