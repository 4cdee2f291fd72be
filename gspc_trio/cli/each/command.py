"""``gspc-jobserver each``: run a command for each line of a file or pipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gspc_trio.cli import common
from gspc_trio.cli.arguments import FILE_NAMES, OR_INPUT, Cores, Flag, LogJson, MaybeSeconds, Tries, Verbose
from gspc_trio.cli.each.runner import ListOptions, run_list
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.version import VERSION

RtsFile = Annotated[
    Path | None,
    Parameter(
        name=FILE_NAMES,
        help="Connection file of a running run-time system; by default, this host alone runs them.",
    ),
]


async def each(
    template: Annotated[str, OR_INPUT] = "",
    file: Annotated[Path | None, OR_INPUT] = None,
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
    options = ListOptions(
        template,
        file,
        rts,
        arg_file,
        null,
        jobs,
        timeout,
        attempts,
        keep_order,
        halt,
        resume,
        dry_run,
        verbose,
        log_json,
    )
    return await run_list(options, template_process)


app: App = App(name="gspc-jobserver", version=VERSION)
app.command(each)


def main(template: StartedTemplate | None) -> None:
    """Run the command ``gspc-jobserver each``: of the whole application this is the part that it needs.

    Args:
        template: started for it; None: it starts one if it needs one.
    """
    common.run_command(app, given={"template_process": template})
