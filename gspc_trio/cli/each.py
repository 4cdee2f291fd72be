"""``gspc-jobserver each``: run a command for each line of a file or pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, TextIO

import trio
from cyclopts import App, Parameter

from gspc_trio.cli import common
from gspc_trio.cli.arguments import FILE_NAMES, Cores, Flag, LogJson, MaybeSeconds, Tries, Verbose
from gspc_trio.cli.common import CommandError, UsageError, running_connection, set_up_logging
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.core.imports import collector_paused
from gspc_trio.integrations.command_lists import BadHalt, DoneBefore, Entry, Halt, Items, Template, words_of
from gspc_trio.nursery.scopes.collector import tuned_collector
from gspc_trio.policies.scheduling import USUAL_OF_PROGRAMS
from gspc_trio.version import VERSION

if TYPE_CHECKING:
    from gspc_trio.compute.commands import CommandLine, Ended

RtsFile = Annotated[
    Path | None,
    Parameter(
        name=FILE_NAMES,
        help="Connection file of a running run-time system; by default, one is started for this list.",
    ),
]

READ_BYTES = 1 << 16
"""Most that is read of the list at a time."""

FAILURES_SHOWN_MAX = 20
COMMAND_CHARACTERS_MAX = 200
"""Commands that have failed are listed in the end: so many, and of each so much."""


async def each(
    template: str = "",
    file: Path | None = None,
    *,
    rts: RtsFile = None,
    arg_file: Annotated[Path | None, Parameter(name=["--arg-file", "-a"])] = None,
    null: Annotated[bool, Parameter(name=["--null", "-0"], negative=())] = False,
    jobs: Annotated[Cores, Parameter(name=["--jobs", "-j"])] = 0,
    timeout: MaybeSeconds = None,
    attempts: Tries = 1,
    keep_order: Annotated[bool, Parameter(name=["--keep-order", "-k"], negative=())] = False,
    halt: str = "never",
    resume: Path | None = None,
    dry_run: Annotated[bool, Flag] = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
    template_process: Annotated[StartedTemplate | None, Parameter(parse=False)] = None,
) -> int:
    """Run a command for each line of a list, many at a time.

    Each command's output is shown when it has ended, all of it together. Commands are run by sh, in this
    directory, with nothing on standard input. The exit status is 1 if some have failed; they are listed.

    Parameters
    ----------
    template
        The command. {} stands for the line, {.} for it without extension, {/} for its file name, {//} for its
        directory, {/.} for its file name without extension, {#} for its number. They are quoted as
        needed. Without any of these the line comes at the end. Without a template each line is a command.
    file
        The list; - or nothing for standard input. It is read as it is needed, and may be without end.
    arg_file
        The list, if there is no template.
    null
        What is read ends with zero bytes, not with lines: find -print0.
    jobs
        How many run at a time; 0 for all cores. With --rts by default as many as it has cores.
    timeout
        Seconds after which a command is killed, and has failed.
    attempts
        How often a command is tried until its exit status is 0.
    keep_order
        Show output in the order of the list.
    halt
        soon: begin no more after a failure; now: also kill what runs; never. With ,fail=N after N failures.
    resume
        Note in this file what was done, and leave out what it says was done before.
    dry_run
        Only print the commands.
    """
    set_up_logging(verbose, log_json)
    if arg_file is not None and file is not None:
        raise UsageError("give the list once: as FILE, or with --arg-file")
    if template == "-" and file is None:
        template, file = "", Path("-")
    halting = _halting(halt)
    with ExitStack() as stack:
        listed = stack.enter_context(_opened(file or arg_file))
        journal, done = (None, DoneBefore()) if resume is None else stack.enter_context(_journal(resume))
        commands = _Commands(listed, template, b"\0" if null else b"\n", done)
        run = _Run(commands, journal, halting, (timeout, attempts))
        if dry_run:
            async for _, command in commands.read():
                _write(os.fsencode(command) + b"\n", b"")
            return 0
        connection = None if rts is None else running_connection(rts)
        with tuned_collector():
            return await run.all(connection, jobs, keep_order, template_process)


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
            from gspc_trio.components.embed import open_prepared_rts, open_rts
            from gspc_trio.compute.commands import Ended, run_command_plainly
            from gspc_trio.executor.trio_pool import open_pool
            from gspc_trio.workflow.failures import ExecutorBroken

        try:
            if rts is None and template is not None:
                system = open_prepared_rts(template, cores=jobs, data_bytes=0)
            else:
                system = open_rts(cores=0 if rts is not None else jobs, connection_file=rts)
            async with system as opened, open_pool(opened, output="keep", policy=USUAL_OF_PROGRAMS) as pool:
                at_once = pool.capacity() if rts is None or not jobs else min(jobs, pool.capacity())
                limit = at_once if (jobs and rts is not None) or self._halt.when != "never" else None
                outcomes = pool.outcomes(
                    run_command_plainly, self._calls(), ordered=keep_order, in_flight=limit
                )
                async with aclosing(outcomes):
                    async for (number, command, *_), ended in outcomes:
                        if isinstance(ended, ExecutorBroken):
                            raise ended
                        await self._note(
                            number, command, ended if isinstance(ended, BaseException) else Ended(*ended)
                        )
                        if self._halt.when == "now" and self._halt.is_due(self._failed):
                            break
        except ExecutorBroken as error:
            raise CommandError(str(error)) from error
        return self._tell()

    async def _calls(self) -> AsyncGenerator[CommandLine, None]:
        timeout_s, attempts = self._limits
        async with aclosing(self._commands.read()) as commands:
            async for number, command in commands:
                if self._halt.is_due(self._failed):
                    return
                words = words_of(command)
                encoded = None if words is None else tuple(map(os.fsencode, words))
                yield number, os.fsencode(command), encoded, timeout_s, attempts

    async def _note(self, number: int, encoded: bytes, ended: Ended | BaseException) -> None:
        """Show what a command has printed, and note how it has ended."""
        command = os.fsdecode(encoded)
        if isinstance(ended, BaseException):
            entry, how = Entry(number, command, None, 0.0), str(ended)
        else:
            entry, how = Entry(number, command, ended.status, round(ended.seconds, 3)), ended.how
            if ended.stdout or ended.stderr:
                await trio.to_thread.run_sync(_write, ended.stdout, ended.stderr)
        self._ended += 1
        if self._journal is not None:
            try:
                self._journal.write(entry.text())
                self._journal.flush()
            except OSError as error:
                raise CommandError(f"--resume {self._journal.name}: {error.strerror}") from error
        if how:
            self._failed += 1
            if len(self._failures) < FAILURES_SHOWN_MAX:
                shown = (
                    command
                    if len(command) <= COMMAND_CHARACTERS_MAX
                    else f"{command[:COMMAND_CHARACTERS_MAX]}..."
                )
                self._failures.append(f"  command {number}: {how}: {shown}")

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
        more = self._failed - len(self._failures)
        for line in (*self._failures, *([f"  and {more} more"] if more else [])):
            print(line, file=sys.stderr)
        return 1


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


app: App = App(name="gspc-jobserver", version=VERSION)
app.command(each)


def main(template: StartedTemplate | None) -> None:
    """Run the command ``gspc-jobserver each``: of the whole application this is the part that it needs.

    Args:
        template: started for it; None: it starts one if it needs one.
    """
    common.run_command(app, given={"template_process": template})
