"""A recorded run of a workflow, as WfFormat 1.5 and 1.6 describe it (https://github.com/wfcommons/WfFormat)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

VERSIONS = ("1.5", "1.6")
"""Versions that are read; the last one is written."""


class TraceTask(Struct, frozen=True):
    """One task of a recorded run.

    Attributes:
        task_id: unique.
        name: of its kind or program, for people.
        parents: ids of the tasks that it waits for, each once.
        inputs, outputs: ids of its files.
        runtime_s: of its compute.
        cores: of one host.
        command: the program and its arguments; empty if they are not recorded.
        machines: names of the hosts where it ran.
        executed_at: when it began (ISO 8601), "" if that is not recorded.
    """

    task_id: str
    name: str
    parents: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    runtime_s: float = 0.0
    cores: int = 1
    command: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    executed_at: str = ""


class RecordedMachine(Struct, frozen=True):
    """A host of a recorded run.

    Attributes:
        name: unique.
        cores: how many it has, 0 if that is not recorded.
    """

    name: str
    cores: int = 0


class Trace(Struct, frozen=True):
    """A recorded run.

    Attributes:
        name: of the workflow.
        tasks: id -> task.
        files: id -> size in bytes.
        machines: its hosts.
        makespan_s: from the first task to the end of the last.
        executed_at: when it began (ISO 8601), "" if that is not recorded.
    """

    name: str
    tasks: Mapping[str, TraceTask]
    files: Mapping[str, int]
    machines: tuple[RecordedMachine, ...] = ()
    makespan_s: float = 0.0
    executed_at: str = ""

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield parent and child of each dependency."""
        for task in self.tasks.values():
            for parent in task.parents:
                yield parent, task.task_id
