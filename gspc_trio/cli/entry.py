"""Entry points of the installed commands: a module loaded in a moment, which loads the rest.

Ctrl-C while a command is being loaded just ends it. As a KeyboardInterrupt it would show the innards of what
is imported at that moment, or get lost in one of the import system's own callbacks.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _loading() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:  # it is ignored for us, or somebody else's
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def rts() -> None:
    """Run the command ``gspc-rts``."""
    with _loading():
        from gspc_trio.cli.rts import main
    main()


def jobserver() -> None:
    """Run the command ``gspc-jobserver``."""
    with _loading():
        from gspc_trio.cli.jobserver import main
    main()


def iml() -> None:
    """Run the command ``gspc-iml``."""
    with _loading():
        from gspc_trio.cli.iml import main
    main()


def top() -> None:
    """Run the command ``gspc-top``."""
    with _loading():
        from gspc_trio.cli.top import main
    main()


def launcher() -> None:
    """Run the command ``gspc-launcher``."""
    with _loading():
        from gspc_trio.cli.launcher import main
    main()
