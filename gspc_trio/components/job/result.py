"""How a job ended, and what people are told of it and of tasks that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from gspc_trio.components.job.cache import CacheCounts
from gspc_trio.components.job.machine import TaskFailure
from gspc_trio.core.html import facts_table, short
from gspc_trio.workflow.tokens import Outputs

FAILURES_SHOWN_MAX = 3
"""Failures that a notebook shows; the result has more."""

SHOWN_LINES_MAX, SHOWN_CHARACTERS_MAX = 40, 4_000
"""How much of what a failed task printed is told with its failure; the result has all that was kept."""


class JobResult(Struct, frozen=True):
    """How a job ended.

    Attributes:
        state: ``finished``, ``failed`` or ``stopped``.
        outputs: output port -> list of its values, in the order in which they came.
        tasks: state -> number of tasks.
        elapsed_s: seconds from the begin of the job to its end.
        failures: the first tasks that failed, at most 100, with their errors and output.
        detail: why the job did not finish, or "".
        cache: what its cache was good for; None: it has none.
    """

    state: str
    outputs: Outputs
    tasks: Mapping[str, int]
    elapsed_s: float
    failures: tuple[TaskFailure, ...] = ()
    detail: str = ""
    cache: CacheCounts | None = None

    def _repr_html_(self) -> str:
        failures = [
            f"{failure.name}: {failure.outcome.error.message}" if failure.outcome.error else failure.name
            for failure in self.failures[:FAILURES_SHOWN_MAX]
        ]
        return facts_table(
            "Job",
            state=self.state,
            why=self.detail,
            tasks=", ".join(f"{number:,} {state}" for state, number in self.tasks.items() if number),
            time=f"{self.elapsed_s:.1f} s",
            failed="\n".join(failures),
            cache="" if self.cache is None else str(self.cache),
            **{f"output {port}": f"{len(found):,}: {short(found)}" for port, found in self.outputs.items()},
        )


class JobFailed(Exception):
    """The job did not finish; ``result`` says how far it came, the message why."""

    def __init__(self, result: JobResult, message: str) -> None:
        super().__init__(message)
        self.result = result


class RtsLost(JobFailed):
    """The job could not finish for its run-time system has gone."""


def describe_failures(failures: Iterable[TaskFailure], host_of: Callable[[str], str]) -> Iterator[str]:
    """Yield the story of each task that failed; of those that never began, the same one is told once."""
    told: dict[str, bool] = {}  # what was told of tasks that never began: whether of several
    for failure in failures:
        story = describe_failure(failure, host_of(failure.resource_id))
        why = failure.name + story.partition("\n")[2]
        if failure.resource_id or why not in told:
            yield story
        if not failure.resource_id:
            told[why] = why in told
    if any(told.values()):
        yield "other tasks failed in the same words before they began"


def describe_failure(failure: TaskFailure, host: str) -> str:
    """Return a failed task's story for people: who, where, traceback, what it printed."""
    error, outcome = failure.outcome.error, failure.outcome
    if not failure.task_id and error is not None:
        return error.message
    where = f" on {failure.resource_id}" if failure.resource_id else ""
    where += f" ({host})" if host else ""
    lines = [f"task {failure.task_id} ({failure.name}), attempt {outcome.attempt}{where}:"]
    if error is not None:
        lines.append((error.traceback or f"{error.kind}: {error.message}").rstrip())
        if error.traceback and error.message not in error.traceback:
            lines.append(error.message)
    for title, printed in (("standard output", outcome.stdout), ("standard error", outcome.stderr)):
        if printed:
            lines += [f"its {title} (the last of it):", *last_lines(printed.decode("utf-8", "replace"))]
    return "\n  ".join("\n".join(lines).split("\n"))


def last_lines(text: str) -> list[str]:
    """Return the end of a text, of a length that people read."""
    shown = text.rstrip()[-SHOWN_CHARACTERS_MAX:].splitlines()[-SHOWN_LINES_MAX:]
    return shown if len("\n".join(shown)) == len(text.rstrip()) else ["[...]", *shown]
