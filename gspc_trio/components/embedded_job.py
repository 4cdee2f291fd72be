"""A job as a scoped object of an application's own trio main (APP-5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from gspc_trio.components.embed import process_key
from gspc_trio.components.job.engine_wrapper import FlowEngine
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.server import run_job
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.job.shell.streams import feeding
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.several import (
    RunTimeSystems,
    check_location,
)
from gspc_trio.compute.code import encode_entry
from gspc_trio.core.staging import FilePatterns
from gspc_trio.core.task import TaskState
from gspc_trio.policies.scheduling import DEFAULT, usual_policy
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import Transformation, terminate, transformed
from gspc_trio.workflow.net import Net, input_values
from gspc_trio.workflow.tokens import Plain, Values

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.journal import Journal
    from gspc_trio.workflow.engine import WorkflowEngine


@asynccontextmanager
async def open_job(
    net: Net,
    *,
    rts: RunTimeSystem | Mapping[str, RunTimeSystem],
    values: Mapping[str, Values] | None = None,
    settings: JobSettings | None = None,
    transformations: Sequence[Transformation] = (terminate,),
    records_path: Path | None = None,
    journal: Journal | None = None,
    dump: Mapping[str, Plain] | None = None,
) -> AsyncIterator[Job]:
    """Run a workflow on a run-time system (GSPC19 4.3.1).

    Functions that travel by value are taken as they are now, with the globals that they use. Leaving the
    block waits for the job to end, as a nursery would; an exception or a cancellation in it stops the job.

    Args:
        net: the workflow.
        rts: where to run it; several by name, of which a task says ``at="name"`` if it is for one of them.
        values: input port -> values of its initial tokens.
        settings: of the job.
        transformations: applied to the net in order before it runs.
        records_path: file for the records, or None.
        journal: makes results durable; the job goes on where it ends.
        dump: what ``Job.dump`` of a job of this workflow has returned: the job begins where that stood. It is
            in place of the values, and excludes a journal.

    Raises:
        BadCode: a function or source file cannot be sent to another process.
        JobFailed: the job failed or was stopped.
        JournalError: the journal cannot be written.
        JournalMismatch: the journal is of another workflow.
        LocationError: names cannot be used, two name the same run-time system, or a task says another.
        PolicyError: there is no such scheduling policy, or it cannot be used.
        WorkflowError: the net and the values, or the dump, do not fit, or it takes published data without a
            memory layer.
        UnknownName: published data that it takes is not there.
    """
    net = transformed(net, transformations)
    systems = _systems(rts, net)
    given = input_values(net, values or {}, complete=False)
    if dump is not None and (values is not None or journal is not None):
        raise WorkflowError("a dump is in place of values, and excludes a journal: give only the dump")
    if journal is not None and settings is not None:
        journal.files_are_below(settings.directory, settings.stage.files_max)
    journaled = await journal.recover(net, given) if journal is not None else None
    engine = journaled.engine if journaled is not None else _new_engine(net, given, dump)
    finished_before = 0 if dump is None else engine.counts()[TaskState.FINISHED]
    settings = _settings_of(engine, settings or JobSettings(name=net.name))
    engine.keep_going(settings.keep_going)

    # All now: what the functions refer to may change, and every host is to run the same.
    codes = [encode_entry(entry) for entry in engine.code_table]
    noted = None if records_path is None else FlowEngine(journaled or engine, engine)
    async with run_job(
        noted or journaled or engine,
        codes.__getitem__,
        engine.outputs,
        systems,
        settings,
        records_path=records_path,
        journal=journal,
        patterns=FilePatterns.of(one.stage for one in net.all_transitions),
        finished_before=finished_before,
    ) as job:
        job.ports = engine
        if noted is not None:
            job.records.more = noted.begin(job.job_id, trio.current_time)
        async with feeding(job, engine, net, given):
            yield job


def _settings_of(engine: WorkflowEngine, settings: JobSettings) -> JobSettings:
    """Return the settings of the job of an engine, with what they leave open."""
    usual = usual_policy(engine.code_table)
    policy = usual if settings.policy == DEFAULT else settings.policy
    return replace(settings, policy=policy, process_key=process_key())


def _systems(rts: RunTimeSystem | Mapping[str, RunTimeSystem], net: Net) -> RunTimeSystem:
    """Return where a net runs, as one handle.

    Raises:
        LocationError: names cannot be used, two name the same run-time system, or a transition says another.
    """
    systems = rts if isinstance(rts, RunTimeSystem) else RunTimeSystems(rts)
    for transition in net.all_transitions:
        check_location(transition.shape.at, systems)
    return systems


def _new_engine(
    net: Net, values: Mapping[str, Iterable[object]], dump: Mapping[str, Plain] | None
) -> WorkflowEngine:
    """Return the engine of a net that begins, with initial values or from a dump.

    Raises:
        WorkflowError: the net and the values, or the dump, do not fit.
    """
    if dump is not None:
        from gspc_trio.workflow.plain_dump import engine_from_dump

        return engine_from_dump(net, dump, dumps=dumps, loads=loads, join=join)
    from gspc_trio.workflow.activities import engine_of

    return engine_of(net, values, dumps=dumps, loads=loads, join=join)
