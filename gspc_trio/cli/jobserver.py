"""``gspc-jobserver``: run a workflow, and talk to running job servers."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import App, Parameter
from msgspec.structs import replace

from gspc_trio.cli.arguments import (
    FILE_NAMES,
    AssignName,
    Detach,
    DetachedFrom,
    Directory,
    Flag,
    ImlFile,
    JobPlacement,
    LogJson,
    MaybeDirectory,
    Own,
    OwnSystem,
    PlanName,
    PlanTightness,
    PolicyName,
    Priority,
    ResultsFile,
    RunWeight,
    Settings,
    Size,
    Threads,
    Verbose,
)
from gspc_trio.cli.beside import (
    Interruption,
    place_for_connection_file,
    show_progress,
    show_top,
)
from gspc_trio.cli.calls import ask, begun_with_dump, call, close, dump_job, put, serve_functions
from gspc_trio.cli.common import (
    CommandError,
    RtsFiles,
    UsageError,
    home_of,
    interruptible,
    json_alone,
    print_json,
    rts_given,
    run_command,
    running_connection,
    set_up_logging,
    setting_error,
)
from gspc_trio.cli.detached import Detached, lasting_connection, printed_by, start_detached
from gspc_trio.cli.each.command import each
from gspc_trio.cli.foreign import HowToRead, check, check_layer, make_files, reading_of
from gspc_trio.cli.job_commands import explain, list_jobs, log, report, status, stop, wait
from gspc_trio.cli.journaled import RunOptions, are_back, list_reuse, new_journal, old_journal
from gspc_trio.cli.kept import CacheOptions, Caching, cache_app, cache_option, model_app, model_option
from gspc_trio.cli.pictures import convert, draw
from gspc_trio.cli.planning import plan as plan_command
from gspc_trio.cli.results import (
    check_records,
    check_results_file,
    is_written,
    where_results_are,
    write_results,
)
from gspc_trio.cli.waiting import tell_waiting
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.job.result import JobFailed, JobResult
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.journal import Journal
from gspc_trio.components.job.shell.outliving import outlive_rts
from gspc_trio.components.job.shell.output import (
    OutputMode,
    print_lines,
    treat_output,
)
from gspc_trio.components.job.shell.settings import JobSettings, OtelMissing, is_traced
from gspc_trio.components.job.shell.workflow_file import (
    LoadedWorkflow,
    Reading,
    WorkflowFileError,
    blame_file,
    load_workflow_file,
)
from gspc_trio.components.rts.shell.system import RtsOptions, RtsSettings
from gspc_trio.core.imports import missing_extra
from gspc_trio.iml.quota import parse_size
from gspc_trio.iml.shell.layer import published_layer
from gspc_trio.nursery.scopes.collector import tuned_collector
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.scheduling import DEFAULT
from gspc_trio.protocol.listening import BadSetting
from gspc_trio.protocol.plain import from_plain, to_plain
from gspc_trio.records.shell.records_file import part_of
from gspc_trio.version import VERSION
from gspc_trio.workflow.definition import SettingError, Workflow, terminate
from gspc_trio.workflow.formats.format import ForeignWorkflow

app: App = App(name="gspc-jobserver", help="Run a workflow, and control running jobs.", version=VERSION)

VALUES_SHOWN_MAX = 1000
"""Most values of an output port that are printed for people."""

VALUE_CHARACTERS_MAX = 2000
"""Of a longer value the beginning is printed for people."""

Files = Annotated[
    list[str] | None,
    Parameter(
        name=FILE_NAMES,
        help="Connection file of a running run-time system; by default, one is started for this run. "
        "NAME=FILE, repeated, runs the job on several; at=NAME in the workflow binds tasks to one.",
    ),
]
LargeValues = Annotated[
    Size, Parameter(help="Size from which a value is kept in the memory layer, e.g. 1MiB. By default 64KiB.")
]
FromDump = Annotated[
    Path | None,
    Parameter(
        help="Begin with the state in this file, which gspc-jobserver dump has written, in place of the "
        "values of workflow()."
    ),
]
Otel = Annotated[
    bool | None,
    Parameter(
        help="Send a span of each task attempt to a collector by OpenTelemetry. By default this is done if "
        "OTEL_EXPORTER_OTLP_ENDPOINT is set."
    ),
]
RecordsFile = Annotated[
    Path | None, Parameter(help="Write everything that happens to this file, as lines of JSON.")
]


@app.command
async def run(
    workflow: Path,
    *,
    settings: Settings = None,
    reading: HowToRead = None,
    json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    rts: Files = None,
    iml: ImlFile = None,
    large_values: LargeValues = "",
    own: Own = None,
    records: RecordsFile = None,
    journal: MaybeDirectory = None,
    from_dump: FromDump = None,
    caching: Caching = None,
    keep_going: Annotated[bool, Flag] = False,
    weight: RunWeight = 1.0,
    priority: Priority = 0,
    policy: PolicyName = DEFAULT,
    placement: JobPlacement = "",
    assign: AssignName = "",
    plan: PlanName = "",
    tightness: PlanTightness = 0.0,
    threads: Threads = False,
    otel: Otel = None,
    top: Annotated[bool, Flag] = False,
    task_output: OutputMode | None = None,
    output: ResultsFile = None,
    detach: Detach = False,
    detached_from: DetachedFrom = -1,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> int:
    """Run a workflow file.

    Parameters
    ----------
    workflow
        A Python file with a function workflow(), or a file of another format, such as net.pnml.
    settings
        name=value for a parameter of workflow(); in files of other formats PORT=VALUE, a token for an input
        port. Repeat it to set several.
    json
        Print one JSON object with outputs, tasks and elapsed_s, and no report.
    journal
        Write results to this directory, so that gspc-jobserver resume can continue after a crash.
    keep_going
        After a failure, run everything that does not depend on the failed task.
    top
        Show gspc-top in place of the progress bar.
    task_output
        Show what tasks print on standard error as it comes, keep it for gspc-jobserver log, or write it to
        files in the directory gspc-output. By default show; with --json and --top keep.
    """
    own, where = own or OwnSystem(), rts_given(rts)
    if detach and detached_from < 0:
        return await start_detached(where, json=json, top=top, cores=own.cores)
    detached = Detached(detached_from) if detach else None
    json, where = (False, lasting_connection(where)) if detach else (json, where)
    set_up_logging(verbose, log_json)
    large, how = parse_size(large_values) if large_values else None, reading_of(reading)
    given = keep_going, threads, weight, priority, policy, large, how, placement, assign, plan, tightness
    options = RunOptions(workflow.stem, *given)
    with json_alone(json) as out:
        to, loaded = out if json else None, _load(workflow, settings, from_dump, journal, how, iml)
        with new_journal(journal, workflow, settings or [], loaded, options.on(where)) as kept:
            job = _job_settings(options, loaded, caching, iml, otel)
            return await _run_loaded(
                loaded, job, kept, where, own, records, to, output, top, task_output, detached
            )


def _load(
    workflow: Path,
    settings: list[str] | None,
    dump: Path | None,
    journal: Path | None,
    reading: Reading,
    layer: Path | None,
) -> LoadedWorkflow:
    if dump is not None and journal is not None:
        raise UsageError("--from-dump begins in the middle, where --journal cannot: give only one of them")
    try:
        with interruptible():
            loaded = load_workflow_file(workflow, settings or [], reading)
    except SettingError as error:
        raise UsageError(f"--set: {error}") from error
    check_layer(loaded, layer)
    return loaded if dump is None else begun_with_dump(loaded, dump)


def _job_settings(
    options: RunOptions,
    loaded: LoadedWorkflow,
    caching: CacheOptions | None,
    iml: Path | None,
    otel: bool | None = None,
) -> JobSettings:
    if options.plan and options.assign:
        raise UsageError("--plan and --assign exclude each other: leave one of them out")
    if options.tightness and options.plan != "move":
        raise UsageError("--tightness is for --plan move: give both, or neither")
    try:
        if otel:
            is_traced(JobSettings(otel=True))
    except OtelMissing as error:
        raise UsageError(missing_extra("--otel", "opentelemetry-exporter-otlp-proto-http", "otel")) from error
    return JobSettings(
        name=options.name,
        keep_going=options.keep_going,
        threads=options.threads,
        weight=options.weight,
        priority=options.priority,
        policy=options.policy,
        placement=options.placement,
        assign=options.assign,
        plan=options.plan,
        tightness=options.tightness,
        large_bytes_min=options.large_bytes_min,
        modules=loaded.modules,
        cache=cache_option(caching),
        model=model_option(caching),
        data=None if iml is None else published_layer(iml),
        otel=otel,
    )


def _running(rts: RtsFiles, own: OwnSystem) -> RtsFiles:
    """Return the connection files of run-time systems that run already, None if one is to be started."""
    if rts is not None and own.cores:
        raise UsageError("--cores cannot be used with --rts: that run-time system has its cores already")
    if rts is not None and own.sites is not None:
        raise UsageError("--sites cannot be used with --rts: add them there with gspc-rts site add")
    if rts is not None and own.allow_files:
        raise UsageError("--allow-files cannot be used with --rts: give it to gspc-rts start")
    if isinstance(rts, dict):
        return {name: running_connection(file) for name, file in rts.items()}
    return running_connection(rts) if rts is not None else None


def _options(own: OwnSystem) -> RtsOptions:
    options = RtsOptions()
    try:
        if own.sites is not None:
            options["sites"] = RtsSettings(sites=own.sites).checked().sites
        if own.allow_files:
            options["allow_files"] = RtsSettings(allow_files=tuple(own.allow_files)).checked().allow_files
    except BadSetting as error:
        raise setting_error(error) from error
    return options


@app.command
async def resume(
    journal: Directory,
    *,
    changed: Annotated[bool, Flag] = False,
    dry_run: Annotated[bool, Flag] = False,
    settings: Settings = None,
    keep_going: Annotated[bool, Flag] = False,
    json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    rts: Files = None,
    iml: Path | None = None,
    records: Path | None = None,
    output: ResultsFile = None,
    caching: Caching = None,
    otel: Otel = None,
    own: Own = None,
    detach: Detach = False,
    detached_from: DetachedFrom = -1,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> int:
    """Resume a run that was started with --journal and was interrupted.

    Finished tasks are not run again; tasks that failed, were cancelled or were running are.

    Parameters
    ----------
    journal
        The directory that was given to --journal.
    changed
        Take the workflow file as it is now. Results stay of tasks whose code, arguments and input files are
        as they were; the other tasks run again. Which these are is listed first, by transition.
    dry_run
        With --changed: only list them, and change nothing.
    settings
        name=value of workflow(): with --changed others than then; always those that have credentials.
    keep_going
        After a failure, run everything that does not depend on the failed task, as with run --keep-going,
        though the run was not started so.
    json
        Print one JSON object with outputs, tasks and elapsed_s, and no report.
    iml
        Connection file of a running memory layer that keeps large values from now on.
    records
        Write everything that happens from now on to this file, as lines of JSON.
    """
    own, where = own or OwnSystem(), rts_given(rts)
    if detach and detached_from < 0:
        return await start_detached(where, json=json, top=False, cores=own.cores)
    detached = Detached(detached_from) if detach else None
    json, where = (False, lasting_connection(where)) if detach else (json, where)
    set_up_logging(verbose, log_json)
    if dry_run and not changed:
        raise UsageError("--dry-run goes with --changed: it lists which results would stay")
    with (
        json_alone(json) as out,
        old_journal(journal, settings or [], changed=changed) as (durable, loaded),
    ):
        to = out if json else None
        if changed:
            await list_reuse(durable, loaded.workflow, dry_run, to)
            if dry_run:
                return 0
        check_layer(loaded, iml)
        options = from_plain(durable.about.options, RunOptions)
        if keep_going:
            options = replace(options, keep_going=True)
        if where is None and options.locations and not own.is_given:
            where = {name: Path(file) for name, file in options.locations.items()}
        job = _job_settings(options, loaded, caching, iml, otel)
        return await _run_loaded(loaded, job, durable, where, own, records, to, output, detached=detached)


async def _run_loaded(
    loaded: LoadedWorkflow,
    settings: JobSettings,
    journal: Journal | None,
    rts: RtsFiles,
    own: OwnSystem,
    records: Path | None,
    json_file: TextIO | None,
    kept: Path | None,
    top: bool = False,
    output: OutputMode | None = None,
    detached: Detached | None = None,
) -> int:
    """Run a workflow and print what came of it: one object of JSON to a file, or a report."""
    if kept is not None:
        check_results_file(kept)
    _prepare(loaded, is_alone=rts is None and not top)
    rts_file = _running(rts, own)
    failure = None
    quiet = json_file is not None or detached is not None
    if output is None or (output == "show" and detached is not None):
        output = "keep" if quiet or top else "show"
    if records is not None:
        check_records(records)
    attempts = count(1)
    interruption = Interruption(journal)
    try:
        home = home_of(rts_file)
        with place_for_connection_file(home, top) as publish:
            watch = publish or home if top else None

            async def wait_for(job: Job) -> JobResult:
                if detached is None:
                    with interruption.of(job):
                        return await job.wait()
                return await detached.follow(job, partial(_conclude, loaded, kept))

            async def attempt() -> JobResult:
                part = None if records is None else part_of(records, next(attempts))
                where = rts_file, own, part, journal, publish, watch, output
                return await _run(loaded.workflow, settings, *where, wait_for, quiet=quiet)

            is_back = None if rts_file is None else partial(are_back, _files(rts_file))
            result = await interruption.told(outlive_rts(attempt, journal, is_back))
    except JobFailed as failed:
        result, failure = failed.result, failed
    told = summary(result, loaded.foreign)
    is_kept = kept is None or detached is not None or is_written(told, kept)
    if json_file is not None:
        print_json(told, json_file)
    if failure is not None:
        if settings.keep_going and json_file is None:
            _print_outputs(result, loaded.foreign)
        if result.cache is not None and json_file is None:
            print(f"gspc-jobserver: {result.cache}", file=sys.stderr)
        raise failure
    if json_file is None and detached is None:
        _report(loaded, result, kept if is_kept else None, journal)
    return 0 if is_kept else 1


def _files(rts: Path | dict[str, Path]) -> list[Path]:
    return [rts] if isinstance(rts, Path) else list(rts.values())


def _prepare(loaded: LoadedWorkflow, *, is_alone: bool) -> None:
    """Make the files that a workflow needs; say if nobody can put tokens where it waits for some."""
    make_files(loaded)
    ports = ", ".join(place.name for place in loaded.workflow.net.places.values() if place.is_open)
    if ports and is_alone:
        told = f"it waits for tokens at {ports}, and nobody can reach it"
        reach = "start a run-time system (gspc-rts start) and run it there (--rts) to put or close them"
        print(f"gspc-jobserver: {told}: {reach}", file=sys.stderr)


async def _run(
    workflow: Workflow,
    settings: JobSettings,
    rts_file: RtsFiles,
    own: OwnSystem,
    records: Path | None,
    journal: Journal | None,
    publish: Path | None,
    watch: Path | None,
    output: OutputMode,
    wait_for: Callable[[Job], Awaitable[JobResult]],
    *,
    quiet: bool,
) -> JobResult:
    async with AsyncExitStack() as stack:
        stack.enter_context(tuned_collector())
        rts = await stack.enter_async_context(
            open_rts(cores=own.cores, connection_file=rts_file, publish=publish, **_options(own))
        )
        job = await stack.enter_async_context(
            open_job(
                workflow.net,
                rts=rts,
                values=workflow.values if workflow.dump is None else None,
                dump=workflow.dump,
                transformations=(*workflow.transformations, terminate),
                settings=settings,
                records_path=records,
                journal=journal,
            )
        )
        serve_functions(job, workflow.functions)
        job.notation = workflow.notation
        if watch is not None:
            await stack.enter_async_context(show_top(job, watch))
        elif not quiet and sys.stderr.isatty():
            await stack.enter_async_context(show_progress(job))
        await stack.enter_async_context(treat_output(job, output, partial(print_lines, to=sys.stderr)))
        async with open_scope() as nursery:
            if watch is None:
                nursery.start_soon(tell_waiting, job, rts)
            result = await wait_for(job)
            nursery.cancel_scope.cancel()
        return result


def summary(result: JobResult, foreign: ForeignWorkflow | None = None) -> dict[str, object]:
    """Return what ``--json`` prints: outputs, tasks by state, elapsed_s, and cache if there is one."""
    outputs = result.outputs if foreign is None else foreign.plain_outputs(result.outputs)
    told: dict[str, object] = {"outputs": outputs, "tasks": result.tasks}
    told["elapsed_s"] = result.elapsed_s
    if result.cache is not None:
        told["cache"] = to_plain(result.cache)
    return told


def _print_outputs(result: JobResult, foreign: ForeignWorkflow | None) -> None:
    if foreign is not None:
        foreign.report(result.outputs)
        return
    for port, values in result.outputs.items():
        for value in values[:VALUES_SHOWN_MAX]:
            text = str(value)
            more = len(text) - VALUE_CHARACTERS_MAX
            print(f"{port}: {text if more <= 0 else f'{text[:-more]}... ({more} more characters)'}")
        if len(values) > VALUES_SHOWN_MAX:
            print(f"{port}: {len(values) - VALUES_SHOWN_MAX} more; --json prints all")


def _report(loaded: LoadedWorkflow, result: JobResult, kept: Path | None, journal: Journal | None) -> None:
    report = loaded.workflow.report
    if report is not None:
        try:
            with interruptible(), blame_file(loaded.path):
                report(result.outputs)
        except WorkflowFileError as error:
            if kept is None and journal is None:
                _print_outputs(result, loaded.foreign)
            where = where_results_are(kept, journal)
            raise CommandError(f"the report failed: {error.what}; {where}{error.stack}") from error
    else:
        _print_outputs(result, loaded.foreign)
    number = result.tasks["finished"]
    cache = "" if result.cache is None else f"; {result.cache}"
    print(f"{number} {'task' if number == 1 else 'tasks'} in {result.elapsed_s:.2f} s{cache}")


def _conclude(loaded: LoadedWorkflow, kept: Path | None, job: Job, result: JobResult) -> None:
    """Do at the end of a detached job what else is done after it; its run-time system keeps the report."""
    report = loaded.workflow.report
    errors: list[str] = []
    try:
        if kept is not None:
            write_results(summary(result, loaded.foreign), kept)
    except CommandError as error:
        errors.append(str(error))
    try:
        if report is not None and result.state == "finished":
            with blame_file(loaded.path):
                job.report = printed_by(lambda: report(result.outputs))
    except WorkflowFileError as error:
        errors.append(f"the report failed: {error}")
    job.report_error = "; ".join(errors)


app.command(list_jobs, name="list")
app.command(dump_job, name="dump")
app.command(plan_command, name="plan")
for _command in (each, check, convert, draw, status, explain, wait, log, report, call, put, ask, close, stop):
    app.command(_command)
app.command(cache_app)
app.command(model_app)


def main() -> None:
    """Run the command ``gspc-jobserver``."""
    run_command(app)


if __name__ == "__main__":
    main()
