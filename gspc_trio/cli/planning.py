"""``gspc-jobserver plan``: where the tasks of a recorded run would be planned; nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gspc_trio.cli.arguments import FILE_NAMES, PlanName
from gspc_trio.cli.common import CommandError, UsageError, interruptible, print_json, running_connection
from gspc_trio.cli.pictures import RECORDS_SUFFIX, trace_of
from gspc_trio.components.job.plan import (
    Links,
    PlanData,
    PlanError,
    PlanHost,
    PlannedPlace,
    PlanTask,
    rack_of,
    speed_of,
    uplink_of,
    why,
)
from gspc_trio.components.job.shell.workflow_file import (
    FROM_ITSELF,
    WorkflowFileError,
    format_of,
    read_foreign,
)
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.core.ids import host_name
from gspc_trio.core.similar import did_you_mean
from gspc_trio.iml.quota import parse_size

if TYPE_CHECKING:
    from gspc_trio.components.rts.messages import RtsStatus
    from gspc_trio.workflow.formats.wfformat.trace import Trace, TraceTask

HOST_KEYS = ("cores", "speed", "rack", "uplink", "memory", "features")
"""What ``--host`` says of a host besides its name."""


def plan_host(text: str) -> PlanHost:
    """Return the host that ``NAME[,KEY=VALUE...]`` describes.

    Raises:
        ValueError: it is badly written; one line for people.
    """
    name, *settings = text.split(",")
    if not name or "=" in name:
        raise ValueError(f"{text!r} has no name: write for example a,cores=8,speed=2,rack=west")
    said: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key not in HOST_KEYS:
            there = ", ".join(HOST_KEYS)
            raise ValueError(f"host {name} has no {key!r}{did_you_mean(key, HOST_KEYS)}; there are: {there}")
        if not equals or not value or key in said:
            raise ValueError(f"host {name}: {key} is said once, with a value, as in {key}=...")
        said[key] = value
    try:
        cores, speed = int(said.get("cores", "1")), float(said.get("speed", "1"))
        uplink = float(said.get("uplink", "0"))
    except ValueError as error:
        whole = f"host {name}: cores is a whole number, speed and uplink (bytes per second) are numbers"
        raise ValueError(f"{whole}: {error}") from error
    if cores < 1 or not all(isfinite(it) and it > 0 for it in (speed, uplink or 1.0)):
        raise ValueError(f"host {name}: it needs a core, and a speed and an uplink above 0")
    features = frozenset(said["features"].split("+")) if "features" in said else frozenset[str]()
    memory_bytes = parse_size(said.get("memory", "0"))
    return PlanHost(name, said.get("rack", ""), features, memory_bytes, cores, speed, uplink)


def _hosts(_: object, texts: list[str] | None) -> None:
    for text in texts or ():
        plan_host(text)


async def plan(
    file: Path,
    *,
    plan: PlanName = "move",
    tightness: float = 0.0,
    host: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            consume_multiple=False,
            validator=_hosts,
            help="A host to plan for, repeated: NAME[,cores=N][,speed=X][,rack=NAME][,uplink=BYTES_PER_S]"
            "[,memory=SIZE][,features=A+B]. By default those of a running run-time system.",
        ),
    ] = None,
    rts: Annotated[
        Path | None,
        Parameter(
            name=FILE_NAMES,
            help="Connection file of the run-time system for whose hosts is planned; by default that of the "
            "current user.",
        ),
    ] = None,
    inputs_on: str = "",
    json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Show on which hosts the tasks of a recorded run would be planned, and why. Nothing runs.

    Parameters
    ----------
    file
        A recorded run: WfFormat, or what run --records has written (.jsonl).
    tightness
        Weight of the mean distance to the other planned tasks, for move.
    inputs_on
        Host that has the files that no task makes. By default they are spread over all hosts, in turn.
    json
        Print one JSON object with plan, hosts, tasks (host, score_s, moved_bytes) and moved_bytes.
    """
    from gspc_trio.policies.plans.by_name import find_plan  # few commands plan

    trace = _trace(file)
    try:
        policy = find_plan(plan or "move", tightness)
    except PlanError as error:
        raise UsageError(str(error)) from error
    hosts = [plan_host(text) for text in host or ()] or await _running_hosts(rts)
    if len({one.name for one in hosts}) < len(hosts):
        raise UsageError("--host: two hosts have the same name")
    try:
        with interruptible():
            planner = policy.planner(hosts, Links())
            tasks = plan_tasks(trace, hosts, inputs_on)
            placed = planner.plan(tasks)
    except PlanError as error:
        raise CommandError(f"{file}: {error}") from error
    if json:
        print_json(plain_plan(policy.name, hosts, tasks, placed))
    else:
        print("\n".join(describe_plan(policy.name, hosts, tasks, placed)))


def _trace(path: Path) -> Trace:
    """Return the recorded run in a file.

    Raises:
        WorkflowError, WorkflowFileError: it has none.
    """
    from gspc_trio.workflow.formats.wfformat.running import TraceWorkflow

    if path.suffix.lower() == RECORDS_SUFFIX:
        return trace_of(path)
    chosen = format_of(path, "")
    if chosen is not None and chosen.name == "wfformat":
        with interruptible():
            foreign, _, _ = read_foreign(path, chosen, FROM_ITSELF)
        if isinstance(foreign, TraceWorkflow):
            return foreign.trace
    raise WorkflowFileError(
        f"{path}: the tasks of a net are known when it runs: run it with --records run.jsonl, "
        "and say gspc-jobserver plan run.jsonl"
    )


async def _running_hosts(given: Path | None) -> list[PlanHost]:
    async with join_rts(running_connection(given)) as system:
        return hosts_of(await system.status())


def hosts_of(status: RtsStatus) -> list[PlanHost]:
    """Return the hosts of a run-time system, as plans see them, in their order."""
    features = {rif.rif_id: frozenset(rif.features) for rif in status.rifs}
    cores: dict[str, int] = {}
    for resource_id in chain.from_iterable(status.hosts.values()):
        name = host_name(resource_id)
        cores[name] = cores.get(name, 0) + (".core" in resource_id)
    hosts = []
    for name, count in cores.items():
        those = features.get(name, frozenset[str]())
        if count:
            rack, speed, uplink = rack_of(those), speed_of(those), uplink_of(those)
            hosts.append(PlanHost(name, rack, those, 0, count, speed, uplink))
    return hosts


def plan_tasks(trace: Trace, hosts: Sequence[PlanHost], inputs_on: str = "") -> list[PlanTask]:
    """Return the tasks of a recorded run, as plans see them.

    Args:
        trace: the run.
        hosts: where they may go.
        inputs_on: host that has the files that no task makes, "": they are spread over all hosts.

    Raises:
        PlanError: there is no such host, or none with enough cores.
    """
    names = [host.name for host in hosts]
    if inputs_on and inputs_on not in names:
        raise PlanError(f"there is no host {inputs_on!r}{did_you_mean(inputs_on, names)}; there are: "
                        f"{', '.join(names[:20])}")  # fmt: skip
    maker = {name: task.task_id for task in trace.tasks.values() for name in task.outputs}
    taken = dict.fromkeys(name for task in trace.tasks.values() for name in task.inputs)
    given = [name for name in taken if name not in maker]
    number = {task_id: position for position, task_id in enumerate(trace.tasks, 1)}
    places = {name: inputs_on or names[position % len(names)] for position, name in enumerate(given)}
    return [_task(trace, task, number, maker, places, hosts) for task in trace.tasks.values()]


def _task(
    trace: Trace,
    task: TraceTask,
    number: Mapping[str, int],
    maker: Mapping[str, str],
    places: Mapping[str, str],
    hosts: Iterable[PlanHost],
) -> PlanTask:
    avoid = frozenset(host.name for host in hosts if host.cores < task.cores)
    if all(host.name in avoid for host in hosts):
        most = max(host.cores for host in hosts)
        raise PlanError(f"task {task.task_id} wants {task.cores} cores of one host, the largest has {most}")
    makers = (maker[name] for name in task.inputs if name in maker)
    dependencies = dict.fromkeys(it for it in (*task.parents, *makers) if it != task.task_id)
    return PlanTask(
        number[task.task_id],
        tuple(number[it] for it in dependencies),
        tuple(PlanData(trace.files.get(it, 0), (places[it],), it) for it in task.inputs if it in places),
        sum(trace.files.get(it, 0) for it in task.outputs),
        run_s=task.runtime_s,
        name=task.task_id,
        avoid=avoid,
    )


def describe_plan(
    policy: str, hosts: Sequence[PlanHost], tasks: Sequence[PlanTask], placed: Mapping[int, PlannedPlace]
) -> list[str]:
    """Return a plan as lines for people: a line for each task, then one for each host."""
    width = max([len(task.name) for task in tasks] + [len("TASK")]) + 2
    across = max([len(host.name) for host in hosts] + [len("HOST")]) + 2
    score = "SCORE (S)" if policy == "move" else "ENDS (S)"
    lines = [f"{'TASK':<{width}}{'HOST':<{across}}{score:>12}{'BYTES':>18}"]
    for task in tasks:
        it = placed[task.task_id]
        lines.append(f"{task.name:<{width}}{it.host:<{across}}{it.score_s:>12.4g}{it.moved_bytes:>18,}")
    lines += ["", f"{'HOST':<{across}}{'TASKS':>8}{'BYTES':>18}"]
    lines += [
        f"{name:<{across}}{count:>8}{moved:>18,}" for name, (count, moved) in by_host(hosts, placed).items()
    ]
    moved = sum(it.moved_bytes for it in placed.values())
    return [*lines, "", f"{len(tasks)} tasks by {policy}: {moved:,} bytes are moved"]


def by_host(hosts: Iterable[PlanHost], placed: Mapping[int, PlannedPlace]) -> dict[str, tuple[int, int]]:
    """Return host -> how many tasks are planned there, and how many bytes it fetches for them."""
    found = {host.name: (0, 0) for host in hosts}
    for it in placed.values():
        count, moved = found[it.host]
        found[it.host] = count + 1, moved + it.moved_bytes
    return found


def plain_plan(
    policy: str, hosts: Sequence[PlanHost], tasks: Sequence[PlanTask], placed: Mapping[int, PlannedPlace]
) -> dict[str, object]:
    """Return a plan as JSON has it."""
    return {
        "plan": policy,
        "moved_bytes": sum(it.moved_bytes for it in placed.values()),
        "hosts": [
            {"host": name, "tasks": count, "moved_bytes": moved}
            for name, (count, moved) in by_host(hosts, placed).items()
        ],
        "tasks": [
            {
                "task": task.name,
                "host": placed[task.task_id].host,
                "score_s": placed[task.task_id].score_s,
                "moved_bytes": placed[task.task_id].moved_bytes,
                "why": why(policy, placed[task.task_id]),
            }
            for task in tasks
        ],
    }
