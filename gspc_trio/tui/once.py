"""One look at the model, for scripts and logs: as data, and as lines of text."""

from __future__ import annotations

from typing import Any

from gspc_trio.core.task import TaskState
from gspc_trio.protocol.plain import to_plain
from gspc_trio.tui.facts import JobFacts
from gspc_trio.tui.model import Model
from gspc_trio.tui.news import alerts
from gspc_trio.tui.text import count, duration, size

LONGEST_MAX = 10
"""Running tasks that are named of each job."""


def as_data(model: Model) -> dict[str, Any]:
    """Return the snapshot as ``gspc-top --once --json`` prints it.

    ``time_s`` (seconds since 1970); ``cores``: ``total``, ``in_use``; ``classes``: class -> ``total``,
    ``free``, ``held``, ``blocked``; ``hosts``: a list of ``host``, ``rif_id``, ``state``, ``detail``,
    ``resources``, and where known ``load``, ``cpu_share``, ``memory_used_bytes``, ``memory_total_bytes``;
    ``jobs``: a list of ``job``, ``name``, ``state``, ``detail``, ``tasks`` (state -> number),
    ``rate_per_s``, ``left_s``, ``elapsed_s``, ``held``, ``running`` (longest first: ``task_id``, ``name``,
    ``resource_id``, ``running_s``) and ``waiting`` (why requests wait); ``alerts``: a list of ``level`` and
    ``text``.
    """
    return {
        "time_s": model.now_s,
        "cores": {"total": model.hierarchy.leaf_total, "in_use": model.cores_in_use},
        "classes": to_plain(model.classes),
        "hosts": _hosts(model),
        "jobs": [_job(model, job) for job in model.jobs()],
        "alerts": [{"level": level.name.lower(), "text": text} for level, text in alerts(model)],
    }


def _hosts(model: Model) -> list[dict[str, Any]]:
    number: dict[str, int] = {}
    for resource in model.rts.resources.values():
        number[resource.host] = number.get(resource.host, 0) + 1
    hosts = []
    for rif in model.rts.rifs.values():
        load = model.rts.loads.get(rif.rif_id)
        entry: dict[str, Any] = {
            "host": rif.host,
            "rif_id": rif.rif_id,
            "state": rif.state,
            "detail": rif.detail,
            "resources": number.get(rif.host, 0),
        }
        if load is not None:
            entry |= {
                "load": load.load,
                "cpu_share": load.cpu_share,
                "memory_used_bytes": load.memory_used_bytes,
                "memory_total_bytes": load.memory_total_bytes,
            }
        hosts.append(entry)
    return hosts


def _job(model: Model, job: JobFacts) -> dict[str, Any]:
    running = [
        {
            "task_id": task.task_id,
            "name": task.name,
            "resource_id": task.resource_id,
            "running_s": max(0.0, model.now_s - model.wall_s(task)),
        }
        for task in model.longest_running(job.job, LONGEST_MAX)
    ]
    return {
        "job": job.job,
        "name": job.name,
        "state": job.state,
        "detail": job.detail,
        "tasks": {state.value: job.counts[state] for state in TaskState},
        "rate_per_s": job.rate_per_s,
        "left_s": job.left_s,
        "elapsed_s": job.elapsed_s,
        "held": job.held,
        "running": running,
        "waiting": to_plain(model.explanations.get(job.job, ())),
    }


def as_lines(model: Model) -> list[str]:
    """Return the snapshot as text, at most 80 columns where names allow."""
    data = as_data(model)
    cores = data["cores"]
    lines = [f"{cores['in_use']} of {cores['total']} cores in use"]
    if data["hosts"]:
        lines += ["", f"{'HOST':<24}{'STATE':<10}{'RESOURCES':>9}{'CPU':>6}{'LOAD':>7}{'MEMORY':>22}"]
        lines += map(_host_line, data["hosts"])
    if data["classes"]:
        lines += ["", f"{'CLASS':<12}{'TOTAL':>8}{'FREE':>8}{'HELD':>8}{'BLOCKED':>9}"]
        lines += [
            f"{name:<12}{it['total']:>8}{it['free']:>8}{it['held']:>8}{it['blocked']:>9}"
            for name, it in data["classes"].items()
        ]
    head = f"{'JOB':<6}{'NAME':<16}{'STATE':<10}{'READY':>7}{'RUNNING':>8}{'DONE':>7}{'FAILED':>7}"
    lines += ["", f"{head}{'PER S':>7}{'AGE':>8}"]
    for job in data["jobs"]:
        tasks = job["tasks"]
        lines.append(
            f"{job['job']:<6}{job['name'][:15]:<16}{job['state']:<10}{count(tasks['ready']):>7}"
            f"{count(tasks['running']):>8}{count(tasks['finished']):>7}{count(tasks['failed']):>7}"
            f"{count(job['rate_per_s']):>7}{duration(job['elapsed_s']):>8}"
        )
        lines += [f"      waits for {it['shape']}: {it['reason']}" for it in job["waiting"]]
    if data["alerts"]:
        lines += ["", *(f"{alert['level']}: {alert['text']}" for alert in data["alerts"])]
    return lines


def _host_line(host: dict[str, Any]) -> str:
    line = f"{host['host']:<24}{host['state']:<10}{host['resources']:>9}"
    if "load" in host:
        memory = f"{size(host['memory_used_bytes'])} of {size(host['memory_total_bytes'])}"
        line += f"{host['cpu_share']:>6.0%}{host['load']:>7.1f}{memory:>22}"
    return f"{line}  {host['detail']}".rstrip()
