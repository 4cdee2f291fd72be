"""``gspc-launcher``: run a study, which is a server job and the client jobs that it asks for."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import trio
from attrs import asdict, evolve
from cyclopts import App, Parameter

from gspc_trio.cli.common import (
    DecidedStatus,
    UsageError,
    print_json,
    run_command,
    set_up_logging,
    stopping_signals,
)
from gspc_trio.cli.study_commands import add_study_commands
from gspc_trio.components.launcher.options import option_table, read_options
from gspc_trio.components.launcher.shell.service import RunningStudy, StudyEnd, open_launcher
from gspc_trio.records.shell.stream import RecordStream
from gspc_trio.version import VERSION

app: App = App(
    name="gspc-launcher",
    help="Run a study: a server job, and the client jobs that it asks for.",
    version=VERSION,
    version_flags=["--version", "-v"],
)

add_study_commands(app)

ConfigFile = Annotated[Path | None, Parameter(name=["--config-name", "--config_name", "-c"])]


@app.default
async def launch(
    *command: str,
    config_name: ConfigFile = None,
    print_options: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
    tls: Annotated[bool, Parameter(negative=())] = False,
    records: Path | None = None,
    journal: Path | None = None,
) -> int:
    """Run a study until its server says that it is done.

    The exit status is 0 then, 1 when the study fails, and 130 or 143 when Ctrl-C or a signal stops it, which
    cancels all its jobs.

    Parameters
    ----------
    command
        Program and arguments of the server, after "--"; by default the option server_command.
    config_name
        File with the options of the study, in TOML; or a Melissa configuration whose name ends in .json.
    print_options
        Print each option, its type, its default and what it is for, and do nothing else.
    json
        Print the options as JSON.
    tls
        Encrypt the connections of servers (TLS 1.3); needed where they run on other hosts.
    records
        Write what happens to this file, a line of JSON each; gspc-top --replay FILE shows it.
    journal
        Note all that happens in this directory. When this command is killed, and started again with the same
        directory, it goes on with the study.
    """
    if print_options:
        _print_options(json)
        return 0
    if json:
        raise UsageError("--json says how to print options: give --print-options, too")
    if config_name is None:
        raise UsageError("which study? name the file with its options: --config-name study.toml")
    options = await trio.to_thread.run_sync(read_options, config_name)
    if command:
        options = evolve(options, server_command=command)
    set_up_logging(options.verbose > 1, log_json=False)
    if options.verbose == 1:
        logging.getLogger("gspc_trio").setLevel(logging.INFO)
    stream = RecordStream(VERSION)
    if records is not None:
        stream.open_file(records)
    wanted = stream.append if records is not None else None
    async with (
        open_launcher(options, tls=tls, records=wanted, journal=journal) as study,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(stream.flush_regularly)
        _say(f"study {study.name}: its files are in {study.output_dir}")
        await nursery.start(_stop_on_signals, study)
        end = await study.wait()
        nursery.cancel_scope.cancel()
    stream.close_file()
    _tell(end)
    return DecidedStatus(end.status)


async def _stop_on_signals(
    study: RunningStudy, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Stop the study in good order; a second signal changes nothing."""
    with trio.open_signal_receiver(*stopping_signals()) as signals:
        task_status.started()
        is_first = True
        async for number in signals:
            study.stop(number)
            if is_first:
                _say(f"stopping: all jobs of study {study.name} are cancelled")
            is_first = False


def _tell(end: StudyEnd) -> None:
    """Say how a study has ended, unless its server says that it is done."""
    if end.status:
        _say(end.reason)
    for line in end.lines:
        print(f"    {line}", file=sys.stderr)
    if end.left:
        _say(f"these jobs may be left; look for them, and cancel them by hand: {', '.join(end.left)}")


def _say(line: str) -> None:
    print(f"gspc-launcher: {line}", file=sys.stderr, flush=True)


def _print_options(as_json: bool) -> None:
    rows = list(option_table())
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    texts = [(row.name, row.type, "" if row.default is None else _toml(row.default)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text, row in zip(texts, rows, strict=True):
        columns = "  ".join(word.ljust(width) for word, width in zip(text, widths, strict=True))
        choices = f": {', '.join(row.choices)}" if row.choices else ""
        print(f"{columns}  {row.meaning}{choices}")


def _toml(value: object) -> str:
    """Return a value as a file with options has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def main() -> None:
    """Run the command ``gspc-launcher``."""
    run_command(app)


if __name__ == "__main__":
    main()
