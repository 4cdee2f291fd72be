"""The state of a run-time system as plain data, for people and scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rts.machine import Rts
from gspc_trio.core.ids import JobId
from gspc_trio.version import VERSION


def describe(
    rts: Rts, rm: ResourceManager, addresses: Sequence[str], pid: int, uptime_s: float, now: float
) -> dict[str, Any]:
    """Return the state as ``gspc-rts status --json`` prints it.

    ``version``, ``pid``, ``addresses``, ``uptime_s``;
    ``rifs``: a list of ``rif_id``, ``host``, ``state`` (starting, up, quarantined, away, lost, failed,
    stopping),
    ``incarnation``, ``strategy``, ``options`` (of the strategy), ``address``, ``pid``, ``workers`` (their
    number), ``detail`` (why not up), ``retry_in_s`` (when a lost one is tried again, or None);
    ``hosts``: host -> list of resource ids;
    ``classes``: class -> ``total``, ``free``, ``held``, ``blocked`` (by a held relative);
    ``memories``: memory -> ``host``, ``total_bytes``, ``free_bytes`` (not given to tasks or memory servers);
    ``jobs``: a list of ``job``, ``name``, ``pid``, ``host``, ``address``, ``weight``, ``demand`` (grants it
    waits for), ``held`` (resources it holds), ``share`` (fraction of all that is held), ``waiting`` (shape ->
    number of grants) and ``holds`` (class -> number of resources).
    """
    counts = rm.status()
    per_job = counts["jobs"]
    return {
        "version": VERSION,
        "pid": pid,
        "addresses": list(addresses),
        "uptime_s": uptime_s,
        "rifs": [
            {
                "rif_id": rif.rif_id,
                "host": rif.host,
                "state": rif.shown[0],
                "incarnation": rif.incarnation,
                "strategy": rif.strategy,
                "options": dict(rif.options),
                "address": rif.address,
                "pid": rif.pid,
                "workers": len(rif.resources),
                "detail": rif.shown[1],
                "retry_in_s": rif.retry_in_s(now),
            }
            for rif in rts.rifs
        ],
        "hosts": {host: list(ids) for host, ids in rts.host_to_resource().items()},
        "classes": counts["classes"],
        "memories": counts["memories"],
        "jobs": [
            {
                "job": job.job,
                "name": job.name,
                "pid": job.pid,
                "host": job.host,
                "address": job.address,
                "weight": job.weight,
                **_figures(per_job.get(job.job, {})),
            }
            for job in rts.jobs
        ],
    }


def explained(rts: Rts, rm: ResourceManager, job: JobId, now: float) -> list[dict[str, Any]]:
    """Return what the RM explains of a job's requests, with what only the RTS knows of their hosts.

    ``waited_s``: how long it waits; ``patience_left_s``: how long it declines others still, or None;
    ``awaits``: hosts on their way that it waits for, each with ``rif_id``, ``host`` and ``retry_in_s`` (None:
    it is being started). The reason names these, and hosts that are not used for now.
    """
    entries = []
    for entry in rm.explain(job):
        until_s = entry["patient_until_s"]
        awaited = [rif for rif in rts.rifs if rif.rif_id in entry["awaits"]]
        unused = [rif for rif in rts.rifs if rif.quarantine is not None]
        named = [f"; {rif.host} is {': '.join(filter(None, rif.shown))}" for rif in (*awaited, *unused)]
        entries.append(
            {
                **entry,
                "reason": entry["reason"] + "".join(named),
                "awaits": [
                    {"rif_id": rif.rif_id, "host": rif.host, "retry_in_s": rif.retry_in_s(now)}
                    for rif in awaited
                ],
                "waited_s": now - entry["since_s"],
                "patience_left_s": None if until_s is None else max(0.0, until_s - now),
            }
        )
    return entries


def _figures(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the RM says of a job; it may not know it yet."""
    waiting, holds = counts.get("demand", {}), counts.get("held", {})
    return {
        "demand": sum(waiting.values()),
        "held": sum(holds.values()),
        "share": counts.get("share", 0.0),
        "waiting": waiting,
        "holds": holds,
    }
