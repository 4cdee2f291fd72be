"""Trace Event format: a recorded run for Perfetto, ``chrome://tracing`` and Speedscope.

A host is a process and a worker a thread of it; stage-in and stage-out of overlapped tasks have threads of
their own beside it, as slices of one thread must not cross. Arrows go along tokens, counters tell how many
tasks wait and compute.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from gspc_trio.core.ids import ResourceId
from gspc_trio.core.task import TaskState
from gspc_trio.reports.run import RecordedAttempt, RecordedRun, TaskKey

MICROSECONDS = 1e6

PHASES = ("compute", "stage-in", "stage-out")

_COLOURS = {TaskState.FAILED: "terrible", TaskState.CANCELLED: "grey", TaskState.READY: "bad"}
"""Names of colours that the viewers know, by how an attempt ended."""

_Event = Mapping[str, object]


def trace_lines(run: RecordedRun) -> Iterator[str]:
    """Yield the lines of a JSON file in Trace Event format; times are microseconds since the run began."""
    yield '{"displayTimeUnit":"ms","traceEvents":['
    before = ""
    for event in _events(run):
        yield before + json.dumps(event, separators=(",", ":"))
        before = ","
    yield "]}"


def _events(run: RecordedRun) -> Iterator[_Event]:
    threads = _threads(run)
    yield from _names(run, threads)
    for number, attempt in enumerate(run.attempts):
        yield from _slices(run, threads, attempt, number)
    yield from _arrows(run, threads)
    yield from _counters(run)


def _threads(run: RecordedRun) -> dict[ResourceId, tuple[int, int]]:
    """Return for each worker the number of its process and of its first thread."""
    hosts: dict[str, int] = {}
    threads: dict[ResourceId, tuple[int, int]] = {}
    for resource_id in sorted({attempt.resource_id for attempt in run.attempts}):
        process = hosts.setdefault(run.host(resource_id), len(hosts) + 1)
        threads[resource_id] = process, len(threads) * len(PHASES) + 1
    return threads


def _names(run: RecordedRun, threads: Mapping[ResourceId, tuple[int, int]]) -> Iterator[_Event]:
    staged = {attempt.resource_id for attempt in run.attempts if attempt.in_s or attempt.out_s}
    named: set[int] = set()
    for resource_id, (process, first) in threads.items():
        if process not in named:
            named.add(process)
            yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": run.host(resource_id)}}
        for number, phase in enumerate(PHASES if resource_id in staged else PHASES[:1]):
            name = resource_id if number == 0 else f"{resource_id} {phase}"
            yield {
                "ph": "M", "name": "thread_name", "pid": process, "tid": first + number,
                "args": {"name": name},
            }  # fmt: skip


def _slices(
    run: RecordedRun,
    threads: Mapping[ResourceId, tuple[int, int]],
    attempt: RecordedAttempt,
    number: int,
) -> Iterator[_Event]:
    process, first = threads[attempt.resource_id]
    told: dict[str, object] = {"job": attempt.job, "task": attempt.task_id, "attempt": attempt.number}
    if attempt.ready_s:
        told["waited_s"] = round(attempt.waited_s, 6)
    if attempt.detail:
        told["detail"] = attempt.detail
    spans = [
        (0, attempt.begin_s, attempt.end_s),
        (1, attempt.in_s, attempt.in_end_s),
        (2, attempt.out_s, attempt.out_end_s),
    ]
    if not attempt.begin_s and attempt.sent_s:  # an attempt that was lost, or failed and was tried again
        spans[0] = 0, attempt.sent_s, attempt.over_s
    for phase, begin_s, end_s in spans:
        if not begin_s:
            continue
        event: dict[str, object] = {
            "ph": "X", "name": attempt.name or "task", "cat": PHASES[phase], "pid": process,
            "tid": first + phase, "ts": _at(run, begin_s), "dur": _micros(max(0.0, end_s - begin_s)),
            "id": number, "args": told | {"state": str(attempt.state)},
        }  # fmt: skip
        if attempt.state in _COLOURS:
            event["cname"] = _COLOURS[attempt.state]
        yield event


def _arrows(run: RecordedRun, threads: Mapping[ResourceId, tuple[int, int]]) -> Iterator[_Event]:
    """Yield an arrow from each task to each that takes its result."""
    made: dict[TaskKey, RecordedAttempt] = {
        (attempt.job, attempt.task_id): attempt
        for attempt in run.attempts
        if attempt.state is TaskState.FINISHED and attempt.begin_s
    }
    number = 0
    for key, flow in run.flows.items():
        child = made.get(key)
        for parent_id in flow.parents if child is not None else ():
            parent = made.get((flow.job, parent_id))
            if child is None or parent is None:
                continue
            number += 1
            inside_s = max(parent.begin_s, parent.end_s - 1 / MICROSECONDS)  # an arrow begins within a slice
            for phase, attempt, at_s in (("s", parent, inside_s), ("f", child, child.begin_s)):
                process, thread = threads[attempt.resource_id]
                end = {"bp": "e"} if phase == "f" else {}
                yield {
                    "ph": phase, "name": "token", "cat": "token", "id": number, "pid": process,
                    "tid": thread, "ts": _at(run, at_s), **end,
                }  # fmt: skip


def _counters(run: RecordedRun) -> Iterator[_Event]:
    """Yield how many tasks wait and compute, at each change."""
    for name, changes in (
        ("computing", _spans((it.begin_s, it.end_s) for it in run.attempts)),
        ("waiting", _spans((it.ready_s, it.in_s or it.begin_s or it.over_s) for it in run.attempts)),
    ):
        count = 0
        for at_s, change in changes:
            count += change
            yield {"ph": "C", "name": name, "pid": 0, "ts": _at(run, at_s), "args": {"tasks": count}}


def _spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, int]]:
    """Return by how much a count changes, and when, in order of time."""
    changes: dict[float, int] = {}
    for begin_s, end_s in spans:
        if begin_s:
            changes[begin_s] = changes.get(begin_s, 0) + 1
            changes[end_s] = changes.get(end_s, 0) - 1
    return sorted((at_s, change) for at_s, change in changes.items() if change)


def _at(run: RecordedRun, at_s: float) -> float:
    return _micros(at_s - run.begin_s)


def _micros(seconds: float) -> float:
    return round(seconds * MICROSECONDS, 1)
