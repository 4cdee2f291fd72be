"""What every command shares: how it is run, stopped by signals, and how its errors reach people."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import trio
from cyclopts import App, CycloptsError

from gspc_trio.components.job import JobFailed
from gspc_trio.components.rts_peers import RtsError
from gspc_trio.nursery.connection_file import ConnectionFileError, default_connection_file
from gspc_trio.nursery.errors import AuthenticationFailed, ConnectFailed
from gspc_trio.nursery.rpc import PeerGone, RemoteError

log = logging.getLogger(__name__)

EXPECTED_ERRORS = (
    AuthenticationFailed,
    ConnectionFileError,
    JobFailed,
    LookupError,
    OSError,
    PeerGone,
    RemoteError,
    RtsError,
    ValueError,
)
"""Errors whose message is meant for people; any other one is a defect of ours."""


class CommandError(ValueError):
    """A command cannot do what it was asked; the message says why and what to do."""


class JsonFormatter(logging.Formatter):
    """Log records as JSON, a line each."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        data = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            data["traceback"] = self.formatException(record.exc_info)
        return json.dumps(data)


def set_up_logging(verbose: bool, log_json: bool) -> None:
    """Log to standard error: warnings, or with ``verbose`` everything; as text or as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter() if log_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    root = logging.getLogger("gspc_trio")
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.WARNING)


def flatten(error: BaseException) -> Iterator[BaseException]:
    """Return the errors of a group, one by one."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from flatten(part)
    else:
        yield error


def explain(error: BaseException) -> str:
    """Return what to tell the user of an error: its message, and advice where there is any."""
    if isinstance(error, ConnectFailed):
        return f"{error}: is the run-time system running? start one with: gspc-rts start"
    if isinstance(error, AuthenticationFailed):
        return f"{error}: the connection file is not the one of the run-time system that answers there"
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error) or type(error).__name__


def run_command(app: App, arguments: list[str] | None = None) -> None:
    """Parse the command line, run the command under trio and exit.

    The command ends with exit status 0, 1 after an error, 2 after a wrong command line, or 128 + the signal
    that stopped it.
    """
    name = app.name[0] if app.name else "gspc"
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=True)
    except CycloptsError:
        sys.exit(2)
    status = 0
    try:
        result = command(*bound.args, **bound.kwargs)
        if isinstance(result, Awaitable):
            status = trio.run(_with_signals, lambda: result)
    except BaseException as group:
        errors = list(flatten(group))
        if all(isinstance(error, KeyboardInterrupt) for error in errors):
            sys.exit(128 + signal.SIGINT)
        if any(isinstance(error, SystemExit) for error in errors):
            raise
        for error in dict.fromkeys(map(_line, (e for e in errors if not isinstance(e, KeyboardInterrupt)))):
            print(f"{name}: {error}", file=sys.stderr)
        log.debug("the command failed", exc_info=group)
        status = 1
    sys.stdout.flush()
    sys.exit(status)


def _line(error: BaseException) -> str:
    if isinstance(error, EXPECTED_ERRORS):
        return explain(error)
    log.error("internal error", exc_info=error)
    return (
        f"internal error: {type(error).__name__}: {error} (this is a defect of gspc-trio; please report it)"
    )


async def _with_signals(run: Callable[[], Awaitable[int | None]]) -> int:
    """Run a command; SIGINT and SIGTERM cancel it, again and again without making it worse."""
    stopped_by: list[int] = []

    async def listen(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                stopped_by.append(number)
                scope.cancel()

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        await nursery.start(listen)
        with scope:
            status = await run()
        nursery.cancel_scope.cancel()
    if stopped_by:
        return 128 + stopped_by[0]
    return status or 0


def connection_path(given: Path | None) -> Path:
    """Return the connection file to use: the one given, or the user's default."""
    return given if given is not None else default_connection_file()


def running_connection(given: Path | None) -> Path:
    """Return the connection file of the run-time system to talk to: the one given, or the user's default.

    Raises:
        CommandError: there is no such file.
    """
    path = connection_path(given)
    if not path.exists():
        raise CommandError(
            f"there is no connection file {path}: start a run-time system with gspc-rts start, "
            "or name the file of a running one"
        )
    return path


def print_json(data: Any) -> None:
    """Print one JSON object on standard output; what JSON does not have becomes its text."""
    sys.stdout.write(json.dumps(_plain(data)) + os.linesep)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
