"""Commands of ``gspc-jobserver`` about jobs that run or are over, on a run-time system that runs."""

from __future__ import annotations

import json as json_texts
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import Parameter

from gspc_trio.cli import completion
from gspc_trio.cli.arguments import FILE_NAMES, Flag, OneTask, Task
from gspc_trio.cli.common import CommandError, UsageError, print_json, running_connection
from gspc_trio.cli.pictures import RECORDS_SUFFIX, write_report
from gspc_trio.components.job.locations.lines import describe_location
from gspc_trio.components.job.messages import (
    GetJobStatus,
    GetOutput,
    GetTask,
    GetTaskOutput,
    JobStatus,
    StopJob,
    TaskDetails,
)
from gspc_trio.components.job.result import last_lines
from gspc_trio.components.job.shell.outliving import LOOK_INTERVAL_S
from gspc_trio.components.job.shell.output import print_lines
from gspc_trio.components.job.shell.settings import RESUME_GRACE_S
from gspc_trio.components.rts.messages import EndedJob, FailedTask, JobEntry
from gspc_trio.components.rts.shell.client import JobOver, RunTimeSystem, join_rts
from gspc_trio.core.ids import JobId
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.connection_file import find_live_connection
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import Peer, PeerGone
from gspc_trio.protocol.plain import to_plain

RunningFile = Annotated[
    Path | None,
    Parameter(
        name=FILE_NAMES, help="Connection file of the run-time system; by default that of the current user."
    ),
]
Json = Annotated[
    bool,
    Parameter(name="--json", negative=(), help="Print JSON on standard output, not text."),
]
ENDED = frozenset({TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED})
"""Of a task in one of these states it is told where it was."""
JobName = Annotated[
    str, Parameter(help="Id of the job, as gspc-jobserver list shows it.", completer=completion.jobs)
]


async def list_jobs(
    *, ended: Annotated[bool, Flag] = False, rts: RunningFile = None, json: Json = False
) -> None:
    """List the jobs on a running run-time system.

    Parameters
    ----------
    ended
        List the jobs that are over, the last one last.
    """
    async with join_rts(running_connection(rts)) as system:
        jobs: Sequence[JobEntry | EndedJob] = await (system.ended_jobs() if ended else system.jobs())
    if json:
        print_json([_plain_entry(entry) for entry in jobs])
    elif ended:
        print(f"{'JOB':<8}{'NAME':<24}{'STATE':<10}{'ENDED':<21}{'TOOK':>10}{'TASKS':>9}{'FAILED':>8}")
        for entry in jobs:
            print(row_of_ended(entry) if isinstance(entry, EndedJob) else entry)
    else:
        print(f"{'JOB':<8}{'NAME':<24}{'PROCESS':>8}  HOST")
        for entry in jobs:
            print(f"{entry.job:<8}{entry.name:<24}{entry.pid:>8}  {entry.host}")


def _plain_entry(entry: JobEntry | EndedJob) -> object:
    if isinstance(entry, EndedJob):
        plain = to_plain(entry)
        assert isinstance(plain, dict)
        del plain["summary"]  # a list has none
        return plain
    return {"job": entry.job, "name": entry.name, "pid": entry.pid, "host": entry.host}


def row_of_ended(job: EndedJob) -> str:
    """Return the line of a job in the list of those that are over."""
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.ended_s))
    number, failed = "-", "-"
    if job.tasks:
        number, failed = str(sum(job.tasks.values())), str(job.tasks.get(TaskState.FAILED, 0))
    return (
        f"{job.job:<8}{job.name:<24}{job.state:<10}{ended:<21}{job.elapsed_s:>8.1f} s{number:>9}{failed:>8}"
    )


def describe_job(job: JobStatus | EndedJob) -> str:
    """Return the state of a job as lines for people."""
    since = "for" if job.state == "running" else "after"
    tasks = "not known" if isinstance(job, EndedJob) and not job.tasks else _counts(job.tasks)
    lines = [f"{job.job} ({job.name}): {job.state} {since} {job.elapsed_s:.1f} s; tasks: {tasks}"]
    if job.detail:
        lines.append(job.detail)
    if isinstance(job, JobStatus):
        lines += (f"  {describe_location(at)}" for at in job.locations)
    return "\n".join(lines)


def _counts(tasks: Mapping[TaskState, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in tasks.items() if number) or "none"


def describe_end(job: EndedJob) -> Iterator[str]:
    """Yield what is known of a job that is over, as lines for people."""
    yield describe_job(job)
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.ended_s))
    yield f"ended {ended}; its job server was process {job.pid} on {job.host}"
    summary = job.summary
    for name, states in summary.transitions.items():
        yield f"  {name}: {_counts(states)}"
    if summary.report_error:
        yield summary.report_error
    for failure in summary.failures:
        yield from _describe_failure(failure)


def _describe_failure(failure: FailedTask) -> Iterator[str]:
    if not failure.task_id:
        yield failure.error
        return
    where = f" on {failure.resource_id}" if failure.resource_id else ""
    where += f" ({failure.host})" if failure.host else ""
    yield f"task {failure.task_id} ({failure.name}), attempt {failure.attempt}{where}:"
    yield from (f"  {line}" for line in (failure.traceback or failure.error).rstrip().splitlines())
    for title, printed in (("standard output", failure.stdout), ("standard error", failure.stderr)):
        if printed:
            yield f"  its {title} (the last of it):"
            yield from (f"  {line}" for line in last_lines(printed))


async def status(job: JobName, *, rts: RunningFile = None, json: Json = False) -> None:
    """Show the state of a job; of one that is over also its failures."""
    told: JobStatus | EndedJob
    async with join_rts(running_connection(rts)) as system:
        try:
            async with system.connect_to_job(job) as peer:
                told = await peer.call(GetJobStatus())
        except JobOver as over:
            told = over.ended
    if json:
        print_json(to_plain(told))
    elif isinstance(told, EndedJob):
        print("\n".join(describe_end(told)))
    else:
        print(describe_job(told))


async def wait(job: JobName, *, rts: RunningFile = None, json: Json = False) -> int:
    """Wait for the end of a job; exit with the status that gspc-jobserver run would have had."""
    ended = await _wait_for_end(running_connection(rts), job)
    if json:
        print_json(to_plain(ended))
    else:
        print(describe_job(ended))
        if ended.summary.report_error:
            print(ended.summary.report_error)
    return exit_status(ended)


async def explain(job: JobName, task: OneTask, *, rts: RunningFile = None, json: Json = False) -> None:
    """Say where a task of a running job is, and why: what it waits for, its queue, its variant and its plan.

    Parameters
    ----------
    task
        Number of the task, as gspc-top shows it.
    """
    async with join_rts(running_connection(rts)) as system, system.connect_to_job(job) as peer:
        told = await peer.call(GetTask(task))
    if json:
        print_json(to_plain(told))
        return
    for line in describe_task(told):
        print(line)


def describe_task(task: TaskDetails) -> Iterator[str]:
    """Yield lines for people: where a task is and why, or how it has ended."""
    record = task.record
    if record is None or record.state not in ENDED:
        yield task.why
        return
    where = f" on {record.resource_id} ({task.host})" if record.resource_id else ""
    yield f"task {task.task_id} ({record.name}): {record.state}, attempt {record.attempt}{where}"
    if task.error:
        yield task.error


def exit_status(job: EndedJob) -> int:
    """Return with what a command ends that was asked for a job that is over: 0 if all of it went well."""
    return 0 if job.state == "finished" and not job.summary.report_error else 1


async def _wait_for_end(connection_file: Path, job: JobId) -> EndedJob:
    """Wait for the end of a job, also on a run-time system that was killed and is back in time.

    Raises:
        CommandError: it did not come back, or was stopped.
        RemoteError: there is no such job.
    """
    lost = False
    while True:
        try:
            async with join_rts(connection_file) as system:
                return await system.ended_job(job, wait=True)
        except (PeerGone, ConnectionProblem) as gone:
            if not lost and not isinstance(gone, PeerGone):
                raise  # it was never there
            if not lost:
                waiting = f"waiting {RESUME_GRACE_S:g} s for it to come back"
                print(f"gspc-jobserver: the run-time system has gone ({gone}): {waiting}", file=sys.stderr)
            lost = True
            if not await _is_back(connection_file):
                raise CommandError("the run-time system did not come back") from gone


async def _is_back(connection_file: Path) -> bool:
    """Wait a while for a run-time system; return whether there is one."""
    with trio.move_on_after(RESUME_GRACE_S):
        while True:
            await trio.sleep(LOOK_INTERVAL_S)
            if await find_live_connection(connection_file) is not None:
                return True
    return False


async def log(
    job: JobName, task: Task = None, *, follow: Annotated[bool, Flag] = False, rts: RunningFile = None
) -> None:
    """Print what the tasks of a job have printed.

    Of a job that is over, the last lines are kept, and the last output of tasks that have failed.

    Parameters
    ----------
    task
        Number of a task: print all that is kept of its output, as it was printed. Without it the last lines
        of all tasks are printed, each with its task.
    follow
        Go on with what comes until the task, or the job, ends.
    """
    async with join_rts(running_connection(rts)) as system:
        try:
            await _log_of_running(system, job, task, follow)
        except JobOver as over:
            print_log(over.ended, task)


async def _log_of_running(system: RunTimeSystem, job: str, task: int | None, follow: bool) -> None:
    async with system.connect_to_job(job) as peer:
        with suppress(PeerGone):  # the job has ended
            if task is None:
                await _print_lines(peer, follow)
            else:
                await _print_task(peer, job, task, follow)


async def _print_lines(peer: Peer, follow: bool) -> None:
    seen, over = 0, False
    while not over:
        told = await peer.call(GetOutput(seen, wait=follow))
        print_lines(told.lines, told.left_out if seen else 0, to=sys.stdout)
        over = told.over or (not follow and told.seen == seen)
        seen = told.seen


async def _print_task(peer: Peer, job: str, task: int, follow: bool) -> None:
    seen, over = (0, 0), False
    while not over:
        told = await peer.call(GetTaskOutput(task, seen, wait=follow))
        if not told.known:
            raise _no_output(job, task)
        for stream, content in ((sys.stdout, told.stdout), (sys.stderr, told.stderr)):
            stream.buffer.write(content)
            stream.flush()
        seen, over = told.seen, told.over or not follow


def _no_output(job: str, task: int) -> CommandError:
    return CommandError(f"{job} keeps no output of a task {task}: gspc-jobserver log {job} shows all")


def print_log(job: EndedJob, task: int | None) -> None:
    """Print what is kept of the output of a job that is over."""
    summary = job.summary
    if task is None:
        if summary.left_out:
            print(f"[... {summary.left_out} lines before these are no longer kept ...]")
        print_lines(summary.lines, 0, to=sys.stdout)
        return
    for failure in summary.failures:
        if failure.task_id == task:
            print(failure.stdout, end="")
            print(failure.stderr, end="", file=sys.stderr)
            return
    lines = [line for line in summary.lines if line.task_id == task]
    if not lines:
        raise _no_output(job.job, task)
    for line in lines:
        print(line.text, file=sys.stderr if line.stderr else sys.stdout)


async def report(
    job: Annotated[
        str,
        Parameter(
            help="Id of the job, as gspc-jobserver list shows it; with --output, a file of records.",
            completer=completion.jobs,
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        Parameter(alias="-o", help="Write a page of HTML about recorded runs, e.g. out.html."),
    ] = None,
    store: Annotated[
        Path | None,
        Parameter(help="With --output: directory of metrics (gspc-rts start --monitor DIR) of that time."),
    ] = None,
    rts: RunningFile = None,
    json: Json = False,
) -> int:
    """Print the results of a job that is over, or write a page about a recorded run.

    The results are what its report has printed, or its output values. The exit status is 1 if the job failed
    or was stopped, or if its report failed. Of many or large values the first are kept;
    gspc-jobserver run --output FILE writes all of them.

    The page (--output) needs no network: how busy the workers were, what each did and when, failures with
    their output, the slowest tasks and the critical path. Records are written by run --records FILE.
    """
    if output is not None:
        write_report(Path(job), output, store)
        return 0
    if store is not None:
        raise UsageError(f"--store {store}: a page shows it: add --output out.html")
    if job.endswith(RECORDS_SUFFIX):
        raise UsageError(f"{job}: of records a page is written: add --output out.html")
    async with join_rts(running_connection(rts)) as system:
        ended = await system.ended_job(job)
    if json:
        print_json(plain_results(ended))
    else:
        print_results(ended)
    return exit_status(ended)


def print_results(job: EndedJob) -> None:
    """Print the results of a job that is over, for people.

    Raises:
        CommandError: the report has failed.
    """
    summary = job.summary
    if summary.report is not None:
        print(summary.report, end="" if summary.report.endswith("\n") else "\n")
    else:
        for port, outputs in summary.outputs.items():
            for text in outputs.values:
                print(f"{port}: {json_texts.loads(text)}")
            more = outputs.count - len(outputs.values)
            if more:
                print(f"{port}: {more} more, which are not kept: gspc-jobserver run --output FILE keeps all")
    if job.state == "finished":
        number = job.tasks.get(TaskState.FINISHED, 0)
        print(f"{number} {'task' if number == 1 else 'tasks'} in {job.elapsed_s:.2f} s")
    else:
        print(describe_job(job))
    if summary.report_error:
        raise CommandError(summary.report_error)


def plain_results(job: EndedJob) -> dict[str, object]:
    """Return what ``run --json`` prints, as far as it is kept; ``left_out`` counts the other values."""
    outputs = job.summary.outputs
    left_out = {port: it.count - len(it.values) for port, it in outputs.items() if it.count > len(it.values)}
    plain: dict[str, object] = {
        "outputs": {port: [json_texts.loads(text) for text in it.values] for port, it in outputs.items()},
        "tasks": job.tasks,
        "elapsed_s": job.elapsed_s,
    }
    return plain | ({"left_out": left_out} if left_out else {})


async def stop(job: JobName, *, rts: RunningFile = None) -> None:
    """Stop a job: cancel running tasks, and start no more."""
    async with join_rts(running_connection(rts)) as system, system.connect_to_job(job) as peer:
        await peer.call(StopJob())
    print(f"{job} was told to stop")
