"""Helpers of all commands: running them under trio, stop signals, error messages, logging, JSON output."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO, TypeAlias

import trio

from gspc_trio.core.frames import is_ours, user_frames
from gspc_trio.nursery.connections.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectionProblem,
    WrongRole,
)

if TYPE_CHECKING:  # a command without options needs nothing that reads command lines
    from cyclopts import App

    from gspc_trio.protocol.address import WebSocketAddress
    from gspc_trio.protocol.listening import BadSetting

log: logging.Logger = logging.getLogger(__name__)

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a command in good order: Ctrl-C, what ``kill`` sends, the end of the terminal."""

INSTALL_COMPLETION = "Install completion for bash, zsh or fish: commands, options, ids of jobs and RIFs."

RECEIVED_S = 0.5
"""How long a function of the user's that runs inside the workflow engine may keep a signal waiting."""


class CommandError(ValueError):
    """A command cannot do what it was asked; the message says why and what to do."""


class UsageError(CommandError):
    """The command line is wrong; the message names the argument. The exit status is 2."""


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


SERVICE_FILE, RUN_FILE = "coallocation.json", "coallocation-run.json"
"""Name of the connection file of a co-allocation service in the user's runtime directory."""


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


SERVICES = {
    "rts": ("run-time system", "gspc-rts start"),
    "rm": ("resource manager", "gspc-rts rm"),
    "iml": ("memory layer", "gspc-iml start"),
    "coallocation": ("co-allocation service", "gspc-coallocate serve"),
}
"""Role -> what it is called, and what starts one: of all that have a connection file."""


def explain(error: BaseException) -> str:
    """Return what to tell the user of an error: its message, and advice where there is any."""
    if isinstance(error, ConnectionProblem):
        what, start = SERVICES.get(error.wanted, SERVICES["rts"])
        if isinstance(error, ConnectFailed):
            return f"{error}: is the {what} running? start one with: {start}"
        if isinstance(error, WrongRole):
            found = next((name for role, (name, _) in SERVICES.items() if f"is {role!r}" in str(error)), "")
            return (
                f"the connection file is that of a {found or 'service of another kind'} "
                f"({error.address}), and that of a {what} is needed"
            )
        if isinstance(error, AuthenticationFailed):
            return f"{error}: the connection file is not the one of the {what} that answers there"
    if isinstance(error, OSError) and error.strerror is not None:
        where = "standard output" if error.filename is None and _stays_unwritten() else error.filename
        return error.strerror if where is None else f"{where}: {error.strerror}"
    return str(error) or type(error).__name__


def _stays_unwritten() -> bool:
    """Whether standard output does not take what is printed: its disk is full, for instance."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def run_command(
    app: App, arguments: list[str] | None = None, given: Mapping[str, object] | None = None
) -> None:
    """Parse the command line, run the command under trio and exit.

    The command ends with exit status 0, 1 after an error, 2 after a wrong command line, or 128 + the signal
    that stopped it.

    Args:
        app: knows the commands.
        arguments: the command line; None: that of this process.
        given: arguments of the command that are on no command line.
    """
    from cyclopts import CycloptsError

    from gspc_trio.cli.arguments import describe_usage_error

    _open_standard_streams()
    if "--install-completion" not in app:
        app.register_install_completion_command(group=app["--help"].group, help=INSTALL_COMPLETION)
    name = app.name[0] if app.name else "gspc"
    try:
        command, bound, left = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(f"{name}: {describe_usage_error(error)}", file=sys.stderr)
        sys.exit(2)
    more = {name: value for name, value in (given or {}).items() if name in left}
    run_and_exit(name, lambda: command(*bound.args, **bound.kwargs, **more))


def run_and_exit(name: str, command: Callable[[], object]) -> None:
    """Run a command, under trio if it is asynchronous, and exit as :func:`run_command` says.

    Args:
        name: of the program, for what is told of errors.
        command: whose arguments have been read.
    """
    _open_standard_streams()
    status = 0
    try:
        result = command()
        if isinstance(result, Awaitable):
            status = trio.run(_with_signals, lambda: result)
            if isinstance(status, DecidedStatus):
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        elif isinstance(result, DecidedStatus):
            status = result
        sys.stdout.flush()
    except BaseException as group:
        status = _tell(name, group)
    try:
        sys.stdout.flush()
    except OSError:  # nobody reads it; without this the interpreter complains of it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _open_standard_streams() -> None:
    """Have something behind descriptors 0 to 2 when we were started without."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):  # results may have characters that the terminal has not
        sys.stdout.reconfigure(errors="backslashreplace")


def _tell(name: str, group: BaseException) -> int:
    """Tell the user why a command ended, and return its exit status."""
    errors = list(flatten(group))
    interrupts = [error for error in errors if isinstance(error, KeyboardInterrupt)]
    if len(interrupts) == len(errors):
        return 128 + next((error.args[0] for error in interrupts if error.args), signal.SIGINT)
    if any(isinstance(error, SystemExit) for error in errors):
        raise group
    if all(isinstance(error, BrokenPipeError) for error in errors):
        return 128 + signal.SIGPIPE  # whoever read our output has seen enough
    for line in dict.fromkeys(_line(error) for error in errors if not isinstance(error, KeyboardInterrupt)):
        print(f"{name}: {line}", file=sys.stderr)
    log.debug("the command failed", exc_info=group)
    return 2 if any(isinstance(error, UsageError) for error in errors) else 1


def _line(error: BaseException) -> str:
    stack = "" if type(error).__module__.startswith("gspc_trio.") else _stack_of_user(error)
    if stack:
        return f"{type(error).__name__}: {error}\n{stack}"
    if isinstance(error, _errors_for_people()):
        return explain(error)
    log.error("internal error", exc_info=error)
    return (
        f"internal error: {type(error).__name__}: {error} (this is a defect of gspc-trio; please report it)"
    )


def _errors_for_people() -> tuple[type[BaseException], ...]:
    """Return the errors whose message is meant for people; any other one is a defect of ours."""
    from gspc_trio.components.job.result import JobFailed
    from gspc_trio.components.rm.shell.remote import ManagerGone
    from gspc_trio.components.rts.shell.peers import RtsError
    from gspc_trio.iml.errors import ImlError
    from gspc_trio.nursery.connections.connection_file import ConnectionFileError
    from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError

    ours = (AuthenticationFailed, ConnectionFileError, ImlError, JobFailed, PeerGone, RemoteError, RtsError)
    return (*ours, ManagerGone, LookupError, OSError, ValueError)


def _stack_of_user(error: BaseException) -> str:
    """Return the frames of an error from where it entered a file of the user's, "" if it never did."""
    import sysconfig  # only here: most commands end without

    libraries = tuple(
        sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
    )
    frames = user_frames(error)
    while frames is not None and (
        is_ours(frames.tb_frame.f_code.co_filename)
        or frames.tb_frame.f_code.co_filename.startswith((*libraries, "<frozen"))
    ):
        frames = frames.tb_next
    return "" if frames is None else "".join(traceback.format_tb(frames)).rstrip()


class DecidedStatus(int):
    """The exit status of a command that has done what cannot be stopped: signals change it no more."""


async def _with_signals(run: Callable[[], Awaitable[int | None]]) -> int:
    """Run a command; signals that stop it cancel it, again and again without making it worse."""
    stopped_by: list[int] = []

    async def listen(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with (
            trio.open_signal_receiver(*stopping_signals()) as signals,
            interrupting(stopping_signals()) as heard,
        ):
            task_status.started()
            async for number in signals:
                heard()
                stopped_by.append(number)
                scope.cancel()

    status: int | None = None
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        await nursery.start(listen)
        with scope:
            status = await run()
        nursery.cancel_scope.cancel()
    if stopped_by and not isinstance(status, DecidedStatus):
        return 128 + stopped_by[0]
    return 0 if status is None else status


@contextmanager
def interrupting(numbers: Iterable[int]) -> Iterator[Callable[[], None]]:
    """While the block runs, a signal ends the user's functions that the workflow engine calls, if they keep
    its receiver waiting: a condition that never returns must not keep a command from ending.

    Args:
        numbers: signals, which have handlers already.

    Yields:
        what is to be called when a signal was received.
    """
    handlers = {number: signal.getsignal(number) for number in numbers}
    came = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = number
        handler = handlers[number]
        assert callable(handler)
        handler(number, frame)
        signal.setitimer(signal.ITIMER_REAL, RECEIVED_S, RECEIVED_S)

    def look(_: int, frame: FrameType | None) -> None:
        calls = sys.modules.get("gspc_trio.workflow.calls")  # else nothing of the user's can run in it
        while calls is not None and frame is not None:
            if frame.f_code in calls.USER_CODE:
                heard()
                raise KeyboardInterrupt(came)
            frame = frame.f_back

    def heard() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, look)
    for number in handlers:
        signal.signal(number, note)
    try:
        yield heard
    finally:
        heard()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGALRM, before)


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that stop this process: without SIGHUP under nohup."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (ignored and number is signal.SIGHUP)]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals that stop a command end the block, in which the user's code runs and trio waits."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = {number: signal.signal(number, interrupt) for number in stopping_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def json_alone(wanted: bool) -> Iterator[TextIO]:
    """Yield where to print the one object of JSON, if ``wanted``.

    What else is printed on standard output in the block, also by programs that it starts, goes to standard
    error.
    """
    if not wanted:
        yield sys.stdout
        return
    sys.stdout.flush()
    real = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        yield real
    finally:
        sys.stdout.flush()
        os.dup2(real.fileno(), 1)
        with suppress(OSError):  # print_json has said it
            real.close()


def connection_path(given: Path | None) -> Path:
    """Return the connection file to use: the one given, or the user's default."""
    if given is not None:
        return given
    from gspc_trio.nursery.connections.connection_file import default_connection_file

    return default_connection_file()


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


RtsFiles: TypeAlias = Path | dict[str, Path] | None
"""The connection file of a run-time system, or those of several by name; None: none was given."""


def rts_given(given: Sequence[str] | None) -> RtsFiles:
    """Return what --rts says: FILE, or NAME=FILE as often as there are run-time systems.

    Raises:
        UsageError: names cannot be used, or one is there twice.
    """
    if not given:
        return None
    if len(given) == 1 and ("=" not in given[0] or Path(given[0]).exists()):
        return Path(given[0])
    named: dict[str, Path] = {}
    for text in given:
        name, is_named, file = text.partition("=")
        if not (is_named and file):
            raise UsageError(f"--rts {text}: several run-time systems have names, as in --rts here={text}")
        if name in named:
            raise UsageError(f"--rts {text}: there are two of the name {name}")
        named[name] = Path(file)
    from gspc_trio.components.rts.shell.several import LocationError, check_names

    try:
        check_names(named)
    except LocationError as error:
        raise UsageError(f"--rts: {error}") from error
    return named


def home_of(rts: RtsFiles) -> Path | None:
    """Return the connection file of the first run-time system, which lists the job under the id it prints."""
    return next(iter(rts.values())) if isinstance(rts, dict) else rts


def print_json(data: object, file: TextIO | None = None) -> None:
    """Print one JSON object, by default on standard output; what JSON does not have becomes its text.

    Raises:
        CommandError: the data is nested too deeply for JSON, or contains itself.
        OSError: it cannot be written; the error names standard output, for a stream has no name for people.
    """
    from gspc_trio.protocol.json_values import json_text

    try:
        text = json_text(data)
    except RecursionError:
        raise CommandError("an output is nested too deeply for JSON, or contains itself") from None
    try:
        print(text, file=file or sys.stdout, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def listen_address(host: str, port: int, tls: bool) -> WebSocketAddress:
    """Return where to listen.

    Raises:
        UsageError: others could read along, or this is no single address.
    """
    from gspc_trio.protocol.listening import BadSetting
    from gspc_trio.protocol.listening import listen_address as checked_address

    try:
        return checked_address(host, port, tls)
    except BadSetting as error:
        raise setting_error(error) from error


def setting_error(bad: BadSetting) -> CommandError:
    """Return what to say of an option that is a setting which cannot be used: here, or anywhere."""
    name = bad.name.removesuffix("_bytes").replace("_", "-")
    kind = CommandError if bad.name.endswith("directory") else UsageError
    return kind(f"--{name} {bad.value}: {bad.why}")


def parse_option(text: str) -> tuple[str, str]:
    """Return name and value of ``name=value``.

    Raises:
        UsageError: the text has another form.
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--set {text}: write NAME=VALUE")
    return name, value
