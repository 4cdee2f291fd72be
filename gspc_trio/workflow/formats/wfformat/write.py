"""Writer of WfFormat: the records of a run -> :class:`Trace` -> JSON."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define, field
from msgspec import Struct

from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import JobChanged, Record, ResourceChanged, StreamOpened, TaskChanged, TaskFlow
from gspc_trio.version import VERSION
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.formats.format import Surroundings
from gspc_trio.workflow.formats.wfformat.trace import VERSIONS, RecordedMachine, Trace, TraceTask

_NOT_IN_IDS = re.compile(r"[^0-9a-zA-Z_.#:/-]")
"""What WfFormat does not allow in ids."""


class Recorded(Struct, frozen=True):
    """What records tell of a run.

    Attributes:
        trace: the run.
        lost: what the format cannot say of it, a line each.
    """

    trace: Trace
    lost: tuple[str, ...]


@define
class _Run:
    """What was recorded so far."""

    iso_time: Callable[[float], str]
    flows: dict[TaskId, TaskFlow] = field(factory=dict)
    last: dict[TaskId, TaskChanged] = field(factory=dict)
    tried_again: set[TaskId] = field(factory=set)
    jobs: dict[JobId, str] = field(factory=dict)
    hosts: dict[str, str] = field(factory=dict)
    cores: dict[str, int] = field(factory=dict)
    wall_offset_s: float = 0.0

    def take(self, record: Record) -> None:
        """Take in one record."""
        match record:
            case StreamOpened():
                self.wall_offset_s = record.wall_offset_s
            case JobChanged():
                self.jobs[record.job] = record.name or self.jobs.get(record.job, "")
            case TaskFlow():
                self.flows[record.task_id] = record
            case TaskChanged():
                self.last[record.task_id] = record
                # What came back and had not begun is ready again with a detail, too, but as attempt 0.
                again = record.state is TaskState.READY and record.attempt > 0 and record.detail
                if record.state is TaskState.FAILED or again:
                    self.tried_again.add(record.task_id)
            case ResourceChanged(state="added"):
                self.hosts[record.resource_id] = record.host
                if record.resource_class == "core":
                    self.cores[record.host] = self.cores.get(record.host, 0) + 1
            case _:
                pass

    def host(self, resource_id: str) -> str:
        """Return the name of the host of a resource, as far as it is known."""
        return self.hosts.get(resource_id) or resource_id.partition(".")[0]


def trace_of_records(records: Iterable[Record], surroundings: Surroundings) -> Recorded:
    """Return the run that records tell of.

    The graph is that of the tokens: a task waits for those whose results are among its arguments.

    Args:
        records: of one job, in order, with the token flow (``--records`` of ``gspc-jobserver run``).
        surroundings: of whoever writes it.

    Raises:
        WorkflowError: they tell of no task, of several jobs, or nothing of the token flow.
    """
    run = _Run(surroundings.iso_time)
    for record in records:
        run.take(record)
    if len(run.jobs) > 1:
        raise WorkflowError(f"these are records of {len(run.jobs)} jobs: WfFormat has one")
    if not run.flows:
        told = "nothing of what tasks take" if run.last else "of no task"
        how = "gspc-jobserver run --records FILE, or Executor(records=FILE)"
        raise WorkflowError(f"these records tell {told}: write them with {how}")
    lost: list[str] = []
    ids = _ids(run.flows)
    tasks: dict[str, TraceTask] = {}
    prefix = _common_directory(path for flow in run.flows.values() for path in (*flow.inputs, *flow.outputs))
    for task_id, flow in run.flows.items():
        tasks[ids[task_id]] = _task(run, ids, flow, prefix, lost)
    files: dict[str, int] = {}
    for flow in run.flows.values():
        for path in (*flow.inputs, *flow.outputs):
            name = _file_id(path, prefix)
            if name not in files:
                size_bytes = surroundings.size_of(path)
                files[name] = size_bytes or 0
                if size_bytes is None:
                    lost.append(f"file {path!r}: its size, for it is not there any more")
    retried = len(run.tried_again & run.flows.keys())
    if retried:
        lost.append(f"attempts: {retried} {'task' if retried == 1 else 'tasks'} had several, or failed")
    return Recorded(_trace(run, tasks, files), tuple(lost))


def _trace(run: _Run, tasks: Mapping[str, TraceTask], files: Mapping[str, int]) -> Trace:
    ran = [change for change in run.last.values() if change.started_s]
    begin_s = min((change.started_s for change in ran), default=0.0)
    end_s = max((change.started_s + change.duration_s for change in ran), default=0.0)
    used = dict.fromkeys(name for task in tasks.values() for name in task.machines)
    machines = tuple(RecordedMachine(name, run.cores.get(name, 0)) for name in used)
    name = next(iter(run.jobs.values()), "") or "workflow"
    return Trace(name, tasks, files, machines, end_s - begin_s, run.iso_time(begin_s))


def _task(run: _Run, ids: Mapping[TaskId, str], flow: TaskFlow, prefix: str, lost: list[str]) -> TraceTask:
    task_id = ids[flow.task_id]
    last = run.last.get(flow.task_id)
    if last is None or last.state is not TaskState.FINISHED:
        state = "was not recorded to its end" if last is None else f"ended as {last.state}"
        lost.append(f"task {task_id!r}: how it ended: it {state}")
    parents = tuple(ids[parent] for parent in flow.parents if parent in ids)
    if len(parents) < len(flow.parents):
        lost.append(f"task {task_id!r}: some tasks that it waits for, which these records do not have")
    return TraceTask(
        task_id,
        flow.name or task_id,
        parents,
        tuple(_file_id(path, prefix) for path in flow.inputs),
        tuple(_file_id(path, prefix) for path in flow.outputs),
        last.duration_s if last is not None else 0.0,
        max(1, flow.cores),
        (),
        (run.host(last.resource_id),) if last is not None and last.resource_id else (),
        run.iso_time(last.started_s) if last is not None and last.started_s else "",
    )


def _ids(flows: Mapping[TaskId, TaskFlow]) -> dict[TaskId, str]:
    """Return an id for each task: the name of its transition; with its number where that has several."""
    named: dict[str, list[TaskId]] = {}
    for task_id, flow in flows.items():
        named.setdefault(_NOT_IN_IDS.sub("_", flow.name) or "task", []).append(task_id)
    ids: dict[TaskId, str] = {}
    taken = {name for name, tasks in named.items() if len(tasks) == 1}
    for name, tasks in named.items():
        for task_id in tasks:
            found = name
            while len(tasks) > 1 and (found == name or found in taken):
                found = f"{found}#{task_id}"
            taken.add(found)
            ids[task_id] = found
    return ids


def _common_directory(paths: Iterable[str]) -> str:
    """Return the directory in which all these files are, with a slash at its end, "" if there is none."""
    folders = {posixpath.dirname(path) for path in paths}
    try:
        common = posixpath.commonpath(folders) if folders else ""
    except ValueError:  # some are absolute, some are not
        return ""
    return f"{common}/" if common not in ("", "/") else ""


def _file_id(path: str, prefix: str) -> str:
    return _NOT_IN_IDS.sub("_", path.removeprefix(prefix))


def write_trace(trace: Trace) -> str:
    """Return a run as WfFormat, the newest version that is read."""
    children: dict[str, list[str]] = {task_id: [] for task_id in trace.tasks}
    for parent, child in trace.edges():
        children[parent].append(child)
    execution: dict[str, object] = {
        "makespanInSeconds": trace.makespan_s,
        "executedAt": trace.executed_at,
        "tasks": [_executed(task) for task in trace.tasks.values()],
    }
    if trace.machines:
        execution["machines"] = [_machine(machine) for machine in trace.machines]
    told = {
        "name": trace.name,
        "schemaVersion": VERSIONS[-1],
        "runtimeSystem": {"name": "gspc-trio", "version": VERSION},
        "workflow": {
            "specification": {
                "tasks": [_specified(task, children[task.task_id]) for task in trace.tasks.values()],
                "files": [{"id": name, "sizeInBytes": size} for name, size in trace.files.items()],
            },
            "execution": execution,
        },
    }
    return json.dumps(told, indent=1) + "\n"


def _specified(task: TraceTask, children: Sequence[str]) -> dict[str, object]:
    return {
        "name": task.name,
        "id": task.task_id,
        "parents": task.parents,
        "children": children,
        "inputFiles": task.inputs,
        "outputFiles": task.outputs,
    }


def _executed(task: TraceTask) -> dict[str, object]:
    told: dict[str, object] = {
        "id": task.task_id,
        "runtimeInSeconds": task.runtime_s,
        "coreCount": task.cores,
    }
    if task.executed_at:
        told["executedAt"] = task.executed_at
    if task.command:
        program, *arguments = task.command
        told["command"] = {"program": program, "arguments": arguments}
    if task.machines:
        told["machines"] = task.machines
    return told


def _machine(machine: RecordedMachine) -> dict[str, object]:
    told: dict[str, object] = {"nodeName": machine.name}
    return told | {"cpu": {"coreCount": machine.cores}} if machine.cores else told
