"""``gspc-jobserver convert`` and ``draw``, and reports: workflows and records as other files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gspc_trio.cli.arguments import Settings
from gspc_trio.cli.common import CommandError, UsageError, interruptible
from gspc_trio.cli.foreign import HowToRead, read_net, reading_of
from gspc_trio.components.job.shell.workflow_file import (
    Reading,
    WorkflowFileError,
)
from gspc_trio.core.imports import missing_extra
from gspc_trio.records.facts import Record
from gspc_trio.records.lines import BadRecordLine, read_records
from gspc_trio.workflow.formats.drawing import Drawing, dot_of, drawing_of, mermaid_of
from gspc_trio.workflow.formats.format import (
    PROBLEMS_SHOWN_MAX,
    Format,
    Surroundings,
    Written,
    find_format,
    gathered,
    known_formats,
)
from gspc_trio.workflow.formats.python_file import python_of

if TYPE_CHECKING:
    from gspc_trio.components.monitor.reports import IoReport
    from gspc_trio.reports.run import RecordedRun
    from gspc_trio.workflow.formats.wfformat.trace import Trace

RECORDS_SUFFIX = ".jsonl"
"""With which files of records end."""

TRACE, TRACE_ENDING = "trace", "trace.json"
"""The format of timelines that trace viewers read, and how the names of such files end."""

DOT_S = 60
"""How long Graphviz may take for a picture."""

Lossy = Annotated[bool, Parameter(negative=(), help="Write the file though it cannot say everything.")]


def convert(
    workflow: Path,
    output: Path,
    *,
    settings: Settings = None,
    reading: HowToRead = None,
    to: str = "",
    lossy: Lossy = False,
) -> int:
    """Write a workflow in another format.

    What that format cannot say is listed, and then nothing is written, unless you say --lossy.

    Parameters
    ----------
    workflow
        A workflow file of any format, or records of a run (.jsonl), which become WfFormat (.json) or a
        timeline for Perfetto and other trace viewers (trace.json).
    output
        The file to write; its suffix says the format.
    settings
        As run takes them.
    to
        Format of the output, where its suffix does not say it; trace for a timeline.
    """
    if output.exists() and output.samefile(workflow):
        raise UsageError(f"{output} is the workflow file itself")
    if to == TRACE or (not to and output.name.lower().endswith(TRACE_ENDING)):
        write_trace_events(workflow, output)
        return 0
    written = _written(workflow, settings or [], reading_of(reading), _target(output, to))
    lost = gathered(written.lost)
    for line in lost[:PROBLEMS_SHOWN_MAX]:
        print(f"{workflow}: {line}", file=sys.stderr)
    if len(lost) > PROBLEMS_SHOWN_MAX:
        print(f"{workflow}: and {len(lost) - PROBLEMS_SHOWN_MAX} more", file=sys.stderr)
    if written.lost and not lossy:
        raise CommandError(f"{output} cannot say this of {workflow}; --lossy writes it all the same")
    output.write_bytes(written.data)
    return 0


def _target(output: Path, name: str) -> Format | None:
    """Return the format of a file to be written, None for Python."""
    if name == "python" or (not name and output.suffix == ".py"):
        return None
    if name:
        return find_format(name)
    formats = known_formats()
    for one in formats:
        if output.suffix.lower() in one.suffixes:
            return one
    known = ", ".join([".py", *(suffix for one in formats for suffix in one.suffixes)])
    raise UsageError(f"{output}: its suffix is that of no format; there are: {known}; or choose one by --to")


def _written(path: Path, settings: list[str], reading: Reading, target: Format | None) -> Written:
    if target is not None and path.suffix.lower() == RECORDS_SUFFIX:
        with interruptible():
            return target.of_records(_records(path), Surroundings(_size_bytes, _iso_time))
    net, foreign = read_net(path, settings, reading)
    return python_of(net) if target is None else target.write(net, foreign)


def trace_of(path: Path) -> Trace:
    """Return the run that records in a file tell of.

    Raises:
        WorkflowFileError: there is no such file, or a line is no record.
        WorkflowError: they tell of no task, of several jobs, or nothing of what tasks take.
    """
    from gspc_trio.workflow.formats.wfformat.write import trace_of_records

    with interruptible():
        return trace_of_records(_records(path), Surroundings(_size_bytes, _iso_time)).trace


def _records(path: Path) -> Iterator[Record]:
    """Yield the records in a file; an unfinished last line is left out, which is said.

    Raises:
        WorkflowFileError: there is no such file, or a line is no record.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise WorkflowFileError(f"cannot read {path}: {error.strerror}") from error
    with file:
        try:
            yield from read_records(file, path, partial(print, file=sys.stderr))
        except BadRecordLine as error:
            raise WorkflowFileError(str(error)) from error


def _recorded_run(path: Path) -> RecordedRun:
    from gspc_trio.reports.run import NoTasks, recorded_run

    try:
        with interruptible():
            return recorded_run(_records(path))
    except NoTasks as error:
        raise WorkflowFileError(f"{path}: {error}") from error


def write_trace_events(records: Path, output: Path) -> None:
    """Write the timeline of a recorded run in Trace Event format.

    Raises:
        WorkflowFileError: the records cannot be read, or tell of no task.
        CommandError: the file cannot be written.
    """
    from gspc_trio.reports.trace_event import trace_lines

    if records.suffix.lower() != RECORDS_SUFFIX:
        raise UsageError(f"{records}: a timeline is written of records ({RECORDS_SUFFIX}), see run --records")
    _write(output, trace_lines(_recorded_run(records)))


def write_report(records: Path, output: Path, store: Path | None = None) -> None:
    """Write a page of HTML about a recorded run.

    Args:
        records: the file of records.
        output: the page.
        store: directory of metrics that were kept meanwhile.

    Raises:
        WorkflowFileError: the records cannot be read, or tell of no task.
        CommandError: the file cannot be written.
    """
    from gspc_trio.reports.page import report_page

    if output.exists() and records.exists() and output.samefile(records):
        raise UsageError(f"{output} is the file of records itself")
    run = _recorded_run(records)
    io = None if store is None else _read_and_written(run, store)
    _write(output, [report_page(run, records.name.removesuffix(RECORDS_SUFFIX), _local_time, io)])


def _read_and_written(run: RecordedRun, store: Path) -> IoReport:
    from gspc_trio.components.monitor.frames import FRAME_S
    from gspc_trio.components.monitor.reports import GetIo
    from gspc_trio.components.monitor.shell.reports import TOLD_S, read_io
    from gspc_trio.components.monitor.shell.store import StoreError

    job = next(iter(run.jobs)) if len(run.jobs) == 1 else ""
    until_s = run.end_s + FRAME_S + TOLD_S  # the frame in which it ended, too
    try:
        return read_io(store, GetIo("job", job, int(run.end_s - run.begin_s) + 2 * FRAME_S), until_s)
    except StoreError as error:
        raise CommandError(str(error)) from error


def _write(output: Path, lines: Iterable[str]) -> None:
    try:
        with output.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}") from error


def _local_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M:%S")


def _size_bytes(path: str) -> int | None:
    with suppress(OSError):
        return Path(path).stat().st_size
    return None


def _iso_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


def draw(
    workflow: Path, output: Path | None = None, *, settings: Settings = None, reading: HowToRead = None
) -> int:
    """Draw the net of a workflow: places, transitions, subnets and the tokens at the beginning.

    Parameters
    ----------
    workflow
        A workflow file of any format.
    output
        A file that ends with .dot (Graphviz), .mmd (Mermaid) or .svg. By default, dot is printed.
    settings
        As run takes them.
    """
    suffix = ".dot" if output is None else output.suffix.lower()
    if suffix not in (".dot", ".mmd", ".svg"):
        raise UsageError(f"{output}: a picture ends with .dot, .mmd or .svg")
    net, foreign = read_net(workflow, settings or [], reading_of(reading))
    drawing = drawing_of(net) if foreign is None else drawing_of(net, foreign.groups, foreign.hidden)
    text = _svg(drawing) if suffix == ".svg" else (mermaid_of if suffix == ".mmd" else dot_of)(drawing)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8", errors="replace")
    return 0


def _svg(drawing: Drawing) -> str:
    """Return a picture as SVG: by Graphviz if it is installed, else by networkx."""
    program = shutil.which("dot")
    if program is not None:
        given = dot_of(drawing)
        try:
            with interruptible():
                done = subprocess.run(
                    [program, "-Tsvg"],
                    input=given,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=DOT_S,
                )
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                f"{program} takes more than {DOT_S} s for {len(drawing.nodes):,} places and transitions: "
                "write a .dot file, and draw it by another program of Graphviz, such as sfdp"
            ) from error
        if done.returncode == 0:
            return done.stdout
        raise CommandError(f"{program} cannot draw it: {done.stderr.strip()[:500]}")
    from gspc_trio.workflow.formats.svg import svg_of

    try:
        return svg_of(drawing)
    except ImportError as error:
        raise WorkflowFileError(
            f"{missing_extra('.svg', 'networkx', 'draw')}, or Graphviz (the program dot); "
            ".dot and .mmd need neither"
        ) from error
