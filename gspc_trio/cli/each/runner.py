"""Runs the commands of a list for ``gspc-jobserver each``; what reads command lines is not loaded for it."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TextIO

import trio

from gspc_trio.cli import common
from gspc_trio.cli.common import CommandError, UsageError, running_connection, set_up_logging
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.core.imports import collector_paused
from gspc_trio.integrations.command_lists import BadHalt, DoneBefore, Entry, Halt, Items, Template, words_of
from gspc_trio.nursery.scopes.collector import tuned_collector

if TYPE_CHECKING:  # loaded once all else is
    from gspc_trio.cli.each.processes import CommandProcesses
    from gspc_trio.compute.commands import CommandLine, Fields
    from gspc_trio.executor.trio_pool import TaskPool

READ_BYTES = 1 << 16
"""Most that is read of the list at a time."""

FAILURES_SHOWN_MAX = 20
COMMAND_CHARACTERS_MAX = 200
"""Commands that have failed are listed in the end: so many, and of each so much."""

EARLY_MAX = 1_000
"""So many commands at most have ended while the output of one before them is awaited."""


class ListOptions(NamedTuple):
    """What is to be done with a list; the fields are the arguments of ``gspc-jobserver each``."""

    template: str = ""
    file: Path | None = None
    rts: Path | None = None
    arg_file: Path | None = None
    null: bool = False
    jobs: int = 0
    timeout: float | None = None
    attempts: int = 1
    keep_order: bool = False
    halt: str = "never"
    resume: Path | None = None
    dry_run: bool = False
    verbose: bool = False
    log_json: bool = False


async def run_list(options: ListOptions, template_process: StartedTemplate | None) -> int:
    """Run the commands of a list; return the exit status.

    Args:
        options: of the command line.
        template_process: that was started for this run; None: one is started when it is needed.
    """
    set_up_logging(options.verbose, options.log_json)
    template, file = options.template, options.file
    if options.arg_file is not None and file is not None:
        raise UsageError("give the list once: as FILE, or with --arg-file")
    if template == "-" and file is None:
        template, file = "", Path("-")
    halting = _halting(options.halt)
    with ExitStack() as stack:
        listed = stack.enter_context(_opened(file or options.arg_file))
        resume = options.resume
        journal, done = (None, DoneBefore()) if resume is None else stack.enter_context(_journal(resume))
        commands = _Commands(listed, template, b"\0" if options.null else b"\n", done)
        run = _Run(commands, journal, halting, (options.timeout, options.attempts))
        if options.dry_run:
            async for _, command in commands.read():
                _write(os.fsencode(command) + b"\n", b"")
            return 0
        connection = None if options.rts is None else running_connection(options.rts)
        try:
            return await run.all(connection, options.jobs, options.keep_order, template_process)
        except BaseException:
            if trio.current_effective_deadline() == -inf:  # a signal has cancelled all
                run.tell_interrupted()
            raise


def _halting(text: str) -> Halt:
    try:
        return Halt.parse(text)
    except BadHalt as error:
        raise UsageError(f"--halt {text}: {error}") from error


@contextmanager
def _opened(file: Path | None) -> Iterator[BinaryIO]:
    """Open the list."""
    if file is None or str(file) == "-":
        yield sys.stdin.buffer
        return
    with file.open("rb") as opened:
        yield opened


@contextmanager
def _journal(path: Path) -> Iterator[tuple[TextIO, DoneBefore]]:
    """Read what was done before, and open the file to note more."""
    if path.exists() and not path.is_file():  # a device may be read without end
        raise CommandError(f"--resume {path}: this is no plain file, which a journal must be")
    with ExitStack() as stack:
        try:
            file = path.open("a+", encoding="utf-8", errors="replace")
            stack.callback(_close, file)
            file.seek(0)
            if not Entry.may_be(file.readline()):
                raise CommandError(f"--resume {path}: this is another file, no journal: name one of its own")
            file.seek(0)
            done = DoneBefore(file)
            if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
                file.write("\n")  # it was killed while it wrote
        except OSError as error:
            raise CommandError(f"--resume {path}: {error.strerror}") from error
        yield file, done


def _close(journal: TextIO) -> None:
    """Each entry was written when it was made; one that could not be is told of there."""
    with suppress(OSError):
        journal.close()


class _Commands:
    """The commands of a list, as they are read.

    Args:
        file: the list.
        template: of the commands; "": the items are commands.
        end: ends an item.
        done: what was done before.

    Attributes:
        number: of items so far.
        skipped: how many of them were done before.
    """

    def __init__(self, file: BinaryIO, template: str, end: bytes, done: DoneBefore) -> None:
        self.number = self.skipped = 0
        self._descriptor = file.fileno()
        self._template = Template(template) if template else None
        self._items = Items(end)
        self._done = done

    async def read(self) -> AsyncGenerator[tuple[int, str], None]:
        """Yield number and command of each that was not done before."""
        data = b"\n"
        while data:
            data = await trio.to_thread.run_sync(
                os.read, self._descriptor, READ_BYTES, abandon_on_cancel=True
            )
            for item in self._items.read(data):
                self.number += 1
                command = item if self._template is None else self._template.fill(item, self.number)
                if self._done.take(command):
                    self.skipped += 1
                else:
                    yield self.number, command


class _Run:
    """One run of a list.

    Args:
        commands: to run.
        journal: in which is noted what was done.
        halt: when to halt.
        limits: seconds that a command may take, and how often it is tried.
    """

    def __init__(
        self, commands: _Commands, journal: TextIO | None, halt: Halt, limits: tuple[float | None, int]
    ) -> None:
        self._commands = commands
        self._journal = journal
        self._halt = halt
        self._limits = limits
        self._ended = self._failed = 0
        self._failures: list[str] = []
        self._begun: deque[int] = deque()  # numbers whose outputs are to be shown in order
        self._early: dict[int, tuple[CommandLine, Fields | BaseException]] = {}
        self._shown = trio.Event()

    async def all(
        self, rts: Path | None, jobs: int, keep_order: bool, template: StartedTemplate | None
    ) -> int:
        """Run all; return the exit status.

        Args:
            rts: connection file of a running run-time system.
            jobs: how many to run at a time; 0: as many as can.
            keep_order: show outputs in the order of the list.
            template: that was started for this run; None: one is started when it is needed.
        """
        with collector_paused():
            from gspc_trio.compute.commands import CommandLine
            from gspc_trio.workflow.failures import ExecutorBroken

        try:
            with tuned_collector():
                async with self._opened(rts, jobs, template) as pool:
                    at_once = pool.capacity() if rts is None or not jobs else min(jobs, pool.capacity())
                    limit = at_once if (jobs and rts is not None) or not self._may_begin_ahead else None
                    # A failure counts at once, even while the output of a command before it is awaited.
                    orders = keep_order and self._halt.when != "never"
                    given = self._calls(orders)
                    outcomes = pool.outcomes(given, ordered=keep_order and not orders, in_flight=limit)
                    async with aclosing(outcomes):
                        async for fields, ended in outcomes:
                            if isinstance(ended, ExecutorBroken):
                                raise ended
                            done = CommandLine(*fields)
                            self._count(done, ended)
                            if not orders:
                                await self._note(done, ended)
                            else:
                                self._early[done.number] = done, ended
                                await self._note_in_order()
                            if self._halt.when == "now" and self._halt.is_due(self._failed):
                                break
                    for number in sorted(self._early):
                        await self._note(*self._early[number])
        except ExecutorBroken as error:
            raise CommandError(str(error)) from error
        return self._tell()

    def tell_interrupted(self) -> None:
        """Say how far it was."""
        failed = f"{self._failed} of them had failed:" if self._failed else "none of them had failed"
        _say(f"interrupted: {self._ended} commands had ended, {failed}")
        self._list_failures()

    @property
    def _may_begin_ahead(self) -> bool:
        """Whether more may have begun when a command fails."""
        return self._halt.when == "never"

    def _opened(
        self, rts: Path | None, jobs: int, template: StartedTemplate | None
    ) -> AbstractAsyncContextManager[CommandProcesses | _Tasks]:
        """Return what runs the commands, to be opened: processes of this host, or tasks elsewhere."""
        with collector_paused():
            if rts is None:
                from gspc_trio.cli.each.processes import open_processes

                return open_processes(jobs, template, ahead=self._may_begin_ahead)
            return _open_tasks(rts)

    async def _calls(self, orders: bool) -> AsyncGenerator[Fields, None]:
        """Yield the fields of each command line; ``orders``: remember their order."""
        timeout_s, attempts = self._limits
        async with aclosing(self._commands.read()) as commands:
            async for number, command in commands:
                while len(self._early) >= EARLY_MAX:
                    self._shown = trio.Event()
                    await self._shown.wait()
                if self._halt.is_due(self._failed):
                    return
                if orders:
                    self._begun.append(number)
                yield [number, command, words_of(command), timeout_s, attempts]

    async def _note_in_order(self) -> None:
        """Note commands that have ended, up to the first one that has not."""
        while self._begun and self._begun[0] in self._early:
            await self._note(*self._early.pop(self._begun.popleft()))
        self._shown.set()

    def _count(self, done: CommandLine, ended: Fields | BaseException) -> None:
        """Count a command that has failed: from now on no other one begins, if that is wanted.

        Args:
            done: the command.
            ended: the fields of ``Ended``, or why there are none.
        """
        how = str(ended) if isinstance(ended, BaseException) else ended[1]
        if how:
            self._failed += 1
            if len(self._failures) < FAILURES_SHOWN_MAX:
                command = done.line
                if len(command) > COMMAND_CHARACTERS_MAX:
                    command = f"{command[:COMMAND_CHARACTERS_MAX]}..."
                self._failures.append(f"  command {done.number}: {how}: {command}")

    async def _note(self, done: CommandLine, ended: Fields | BaseException) -> None:
        """Show what a command has printed, and note how it has ended.

        Args:
            done: the command.
            ended: the fields of ``Ended``, or why there are none.
        """
        number, command = done.number, done.line
        status, seconds = None, 0.0
        if not isinstance(ended, BaseException):
            status, _, stdout, stderr, seconds = ended
            if stdout or stderr:
                await trio.to_thread.run_sync(_write, stdout, stderr)
        self._ended += 1
        if self._journal is not None:
            entry = Entry(number, command, status, round(seconds, 3))
            try:
                self._journal.write(entry.text())
                self._journal.flush()
            except OSError as error:
                raise CommandError(f"--resume {self._journal.name}: {error.strerror}") from error

    def _tell(self) -> int:
        """Say what has failed; return the exit status."""
        if self._commands.skipped:
            _say(
                f"left out what was done before: {self._commands.skipped} of {self._commands.number} commands"
            )
        if not self._failed:
            return 0
        halted = ", and no more were begun" if self._halt.is_due(self._failed) else ""
        _say(f"{self._failed} of {self._ended} commands failed{halted}:")
        self._list_failures()
        return 1

    def _list_failures(self) -> None:
        more = self._failed - len(self._failures)
        for line in (*self._failures, *([f"  and {more} more"] if more else [])):
            print(line, file=sys.stderr)


@asynccontextmanager
async def _open_tasks(rts: Path) -> AsyncIterator[_Tasks]:
    """Run commands as tasks on the hosts of a run-time system, as long as the block runs."""
    from gspc_trio.components.embed import open_rts
    from gspc_trio.executor.trio_pool import open_command_pool

    async with open_rts(connection_file=rts) as system, open_command_pool(system) as pool:
        yield _Tasks(pool)


class _Tasks:
    """Has tasks run commands, as ``CommandProcesses`` has processes of this host run them.

    Args:
        pool: that runs them.
    """

    def __init__(self, pool: TaskPool) -> None:
        self._pool = pool

    def capacity(self) -> int:
        """Return how many can run at a time."""
        return self._pool.capacity()

    async def outcomes(
        self, items: AsyncIterable[Fields], *, ordered: bool, in_flight: int | None
    ) -> AsyncGenerator[tuple[Fields, Fields | BaseException], None]:
        """Yield the fields of each command beside how it has ended: fields, or why there are none."""
        from gspc_trio.compute.commands import run_command

        outcomes = self._pool.outcomes(run_command, items, ordered=ordered, in_flight=in_flight)
        async with aclosing(outcomes):
            async for outcome in outcomes:
                yield outcome


def _say(text: str) -> None:
    print(f"gspc-jobserver: {text}", file=sys.stderr)


def _write(stdout: bytes, stderr: bytes) -> None:
    for stream, data, name in (
        (sys.stdout, stdout, "standard output"),
        (sys.stderr, stderr, "standard error"),
    ):
        if data:
            try:
                stream.buffer.write(data)
                stream.flush()
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OSError(error.errno, error.strerror, name) from error


def plain_options(arguments: Sequence[str]) -> ListOptions | None:
    """Return what a command line without options says; None: it has some, or too much."""
    if len(arguments) > 2 or any(one.startswith("-") and one != "-" for one in arguments):
        return None
    template, file = [*arguments, "", ""][:2]
    return ListOptions(template, Path(file) if len(arguments) > 1 else None)


def main(options: ListOptions, template: StartedTemplate | None) -> None:
    """Run ``gspc-jobserver each`` with options that have been read, and end this process.

    Args:
        options: of the command line.
        template: started for it; None: it starts one if it needs one.
    """
    common.run_and_exit("gspc-jobserver", lambda: run_list(options, template))
