"""Entry points of the installed commands: a module loaded in a moment, which loads the rest.

Ctrl-C while a command is being loaded just ends it. As a KeyboardInterrupt it would show the innards of what
is imported at that moment, or get lost in one of the import system's own callbacks.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gspc_trio.core.imports import collector_paused

if TYPE_CHECKING:  # a command is named here before it is loaded
    from gspc_trio.components.worker.shell.template_process import StartedTemplate


@contextmanager
def _loading() -> Iterator[None]:
    with collector_paused():
        handler = signal.getsignal(signal.SIGINT)
        if handler is not signal.default_int_handler:  # it is ignored for us, or somebody else's
            yield
            return
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)


def _run(main: Callable[[], None]) -> None:
    """Run a command to the end of its process."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _leave(end.code or 0)
        raise
    finally:
        gc.freeze()  # all goes now: to look for garbage first would take as long as to run a short command


def _leave(status: int) -> None:
    """End this process as the interpreter does, but without clearing its modules one by one.

    That would take as long as a short command. Returns if there is something that the interpreter has to do.
    """
    if sys.gettrace() or sys.getprofile() or threading.active_count() > _daemons() + 1:
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # it complains of that
        return
    os._exit(status & 0xFF)


def _daemons() -> int:
    return sum(thread.daemon for thread in threading.enumerate())


def rts() -> None:
    """Run the command ``gspc-rts``."""
    with _loading():
        from gspc_trio.cli.rts import main
    _run(main)


def jobserver() -> None:
    """Run the command ``gspc-jobserver``."""
    if sys.argv[1:2] == ["each"]:
        _each()
        return
    with _loading():
        from gspc_trio.cli.jobserver import main
    _run(main)


def _each() -> None:
    """Run ``gspc-jobserver each``, which needs little of the rest. Its template starts meanwhile."""
    with _loading():
        from gspc_trio.components.worker.shell.template_process import FOR_COMMANDS, early_template

        own = not any(argument.startswith(_NO_TEMPLATE) for argument in sys.argv[2:])
        with early_template(own, FOR_COMMANDS) as template:
            main = _main_of_each()
    try:
        _run(lambda: main(template))
    finally:
        if template is not None:
            template.abandon()


def _main_of_each() -> Callable[[StartedTemplate | None], None]:
    """Load what runs the list. Without options there is nothing to read: that takes a sixth of the start."""
    from gspc_trio.cli.each import runner

    options = runner.plain_options(sys.argv[2:])
    if options is not None:
        return partial(runner.main, options)
    from gspc_trio.cli.each.command import main

    return main


_NO_TEMPLATE = ("--rts", "--connection-file", "--dry-run", "--help", "-h")
"""With one of these nothing is run here."""


def iml() -> None:
    """Run the command ``gspc-iml``."""
    with _loading():
        from gspc_trio.cli.iml import main
    _run(main)


def top() -> None:
    """Run the command ``gspc-top``."""
    with _loading():
        from gspc_trio.cli.top import main
    _run(main)


def coallocate() -> None:
    """Run the command ``gspc-coallocate``."""
    with _loading():
        from gspc_trio.cli.coallocation.commands import main
    _run(main)


def launcher() -> None:
    """Run the command ``gspc-launcher``."""
    with _loading():
        from gspc_trio.cli.launcher import main
    _run(main)


def monitor() -> None:
    """Run the command ``gspc-monitor``."""
    with _loading():
        from gspc_trio.cli.monitor.commands import main
    _run(main)
