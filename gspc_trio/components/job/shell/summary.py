"""What a job server tells its run-time system of a job that is over: enough to look into it afterwards."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from gspc_trio.components.job.machine import TaskFailure
from gspc_trio.components.job.result import JobResult
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.rts.messages import FailedTask, JobSummary, PortOutputs
from gspc_trio.core.messages import OutputLine
from gspc_trio.core.net import TransitionStatus
from gspc_trio.core.task import TaskState
from gspc_trio.protocol.json_values import json_text

FAILURES_MAX = 50
FAILURE_CHARACTERS_MAX = 8_000
FAILURES_CHARACTERS_MAX = 200_000
"""Failed tasks that are told; of the error, the traceback and each stream of one so many characters, the last
of them; and so many of all."""

LINES_MAX = 2_000
LINES_CHARACTERS_MAX = 200_000
"""Lines that tasks have printed, and all of them together: the last ones."""

PORTS_MAX = 100
VALUES_MAX = 1_000
VALUES_CHARACTERS_MAX = 200_000
"""Output ports, values of each, and all of them together as JSON: the first ones."""

TRANSITIONS_MAX = 1_000
"""Transitions whose tasks are counted."""

REPORT_CHARACTERS_MAX = 100_000
"""Of what a report prints the first so many characters are told."""


def summary_of(job: Job, result: JobResult) -> JobSummary:
    """Return what is kept of a job that has ended."""
    lines, left_out = _last_lines(job)
    return JobSummary(
        {
            transition.name: _states(transition)
            for transition in islice(job.machine.engine.describe().transitions, TRANSITIONS_MAX)
        },
        _failures(job, result.failures[:FAILURES_MAX]),
        lines,
        left_out,
        _outputs(result.outputs),
        job.report[:REPORT_CHARACTERS_MAX] if job.report is not None else None,
        job.report_error[:FAILURE_CHARACTERS_MAX],
    )


def _states(transition: TransitionStatus) -> dict[TaskState, int]:
    """Return state -> number of tasks of a transition; of an inline one, how often it has fired."""
    done = transition.fired if transition.inline else transition.done
    others = {state: number for state, number in transition.states.items() if number}
    return {TaskState.FINISHED: done} | others


def _failures(job: Job, failures: Iterable[TaskFailure]) -> tuple[FailedTask, ...]:
    room, told = FAILURES_CHARACTERS_MAX, []
    for failure in failures:
        failed = _failed(failure, job)
        room -= sum(map(len, (failed.error, failed.traceback, failed.stdout, failed.stderr)))
        if room < 0:
            break
        told.append(failed)
    return tuple(told)


def _failed(failure: TaskFailure, job: Job) -> FailedTask:
    outcome, error, most = failure.outcome, failure.outcome.error, FAILURE_CHARACTERS_MAX
    streams = job.printed.streams_of(failure.task_id)
    if not any(streams):  # it is no longer kept
        streams = outcome.stdout, outcome.stderr
    stdout, stderr = (stream.decode("utf-8", "replace")[-most:] for stream in streams)
    return FailedTask(
        failure.task_id,
        failure.name,
        outcome.attempt,
        failure.resource_id,
        job.host_of(failure.resource_id),
        (f"{error.kind}: " * bool(failure.task_id) + error.message)[:most] if error is not None else "",
        error.traceback[-most:] if error is not None else "",
        stdout,
        stderr,
    )


def _last_lines(job: Job) -> tuple[tuple[OutputLine, ...], int]:
    """Return the last lines that were printed, and how many there were before them."""
    lines, number, _ = job.printed.lines_since(job.printed.number - LINES_MAX, LINES_MAX)
    room, count = LINES_CHARACTERS_MAX, 0
    for line in reversed(lines):
        room -= len(line.text)
        if room < 0:
            break
        count += 1
    return tuple(lines[len(lines) - count :]), number - count


def _outputs(outputs: Mapping[str, Sequence[object]]) -> dict[str, PortOutputs]:
    """Return the first values of each port while there is room."""
    room, told = VALUES_CHARACTERS_MAX, {}
    for port, values in islice(outputs.items(), PORTS_MAX):
        texts = []
        for value in values[:VALUES_MAX]:
            text = _text(value, VALUES_CHARACTERS_MAX)
            room -= len(text)
            if room < 0:
                break
            texts.append(text)
        told[port] = PortOutputs(tuple(texts), len(values))
    return told


def _text(value: object, room: int) -> str:
    """Return a value as JSON; one that is too large only in brief, as a text."""
    try:
        return json_text(value, room)
    except Exception:  # it is too large, or its class has code of its own
        return json_text(brief(value))


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 1_000
_brief.maxlist = _brief.maxtuple = _brief.maxdict = 20


def brief(value: object) -> str:
    """Return the beginning of a value as text, whatever its own code does."""
    try:
        return _brief.repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose text cannot be had: {type(error).__name__}>"
