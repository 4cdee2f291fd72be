"""Status of the resource manager for people: how much there is, who has it, and why somebody waits."""

from __future__ import annotations

from itertools import islice
from typing import Any

from gspc_trio.components.rm.parts import ClassQueue, Job, Vertex, Want
from gspc_trio.components.rm.search import impossible, of_class_below, preferred
from gspc_trio.components.rm.state import ManagerState

HOLDERS_NAMED = 8
"""How many grants an explanation names."""

HOSTS_NAMED = 8
"""How many hosts that are on their way it names."""


def status(state: ManagerState) -> dict[str, Any]:
    """Return plain data: classes, memories, jobs (demand, held, share), what is coming, what is reserved."""
    held: dict[str, int] = {}
    of_job: dict[str, dict[str, int]] = {job: {} for job in state.jobs}
    for holding in state.grants.values():
        mine = of_job.setdefault(holding.owner, {})
        for vertex in holding.vertices:
            name = vertex.queue.name
            held[name] = held.get(name, 0) + 1
            mine[name] = mine.get(name, 0) + 1
    units = sum(holding.units for holding in state.grants.values())
    classes = {}
    for name, queue in state.pool.queues.items():
        holding_number = held.get(name, 0)
        classes[name] = {
            "total": queue.total,
            "free": queue.free,
            "held": holding_number,
            "blocked": queue.total - queue.free - holding_number,
        }
    jobs = {}
    for job in state.jobs.values():
        jobs[job.job] = {
            "weight": job.weight,
            "demand": _demand(job),
            "held": of_job[job.job],
            "share": job.units / units if units else 0.0,
        }
    reservation = state.reservation
    return {
        "classes": classes,
        "memories": {
            name: {"host": host.label, "total_bytes": memory.size_bytes, "free_bytes": memory.free_bytes}
            for host in state.pool.hosts.values()
            for name, memory in host.memories.items()
        },
        "jobs": jobs,
        "coming": state.coming.counts(),
        "revoking": [list(grant_id) for grant_id in state.lapsing],
        "leaving": [vertex.resource_id for vertex in state.pool.leaving],
        "reserved": None
        if reservation is None
        else {
            "job": reservation.want.owner.job,
            "shape": str(reservation.want.form.shape),
            "resources": [vertex.resource_id for vertex in reservation.targets],
        },
    }


def _demand(job: Job) -> dict[str, int]:
    """Return the unmet credit by shape as people read it: those that differ in their estimate are one."""
    demand: dict[str, int] = {}
    for want in job.wants.values():
        if want.unmet:
            text = str(want.form.shape)
            demand[text] = demand.get(text, 0) + want.unmet
    return demand


def explain(state: ManagerState, job: str) -> list[dict[str, Any]]:
    """Return one entry for each request of the job that waits, the oldest first."""
    wants = [want for want in state.job(job).wants.values() if want.unmet]
    return [_explain(state, want) for want in sorted(wants, key=lambda want: (want.since, want.number))]


def _explain(state: ManagerState, want: Want) -> dict[str, Any]:
    queues = list(want.form.counts)
    holders = []
    for holding in state.grants.values():
        if any(_concerns(vertex, queues) for vertex in holding.vertices):
            holders.append(holding)
            if len(holders) == HOLDERS_NAMED:
                break
    awaits: list[str] = []
    if state.coming and impossible(state.pool, want.form) is not None:
        awaits += islice(state.coming.waited_for(want.form), HOSTS_NAMED)
    blocking = None
    for queue in queues:
        if blocking is None and queue.free < want.form.counts[queue]:
            blocking = _blocking(state, want, queue)
    return {
        "shape": str(want.form.shape),
        "credit": want.unmet,
        "since_s": want.since,
        "needs": {
            queue.name: {"needed": count, "total": queue.total, "free": queue.free}
            for queue, count in want.form.counts.items()
        },
        "held_by": [
            {"job": holding.owner, "grant": list(holding.grant_id), "resources": list(holding.resources)}
            for holding in holders
        ],
        "place": _place(state, want),
        "patient_until_s": state.patience.ends_for(want),
        "blocking": blocking,
        "awaits": awaits,
        "reason": _reason(state, want, blocking, awaits),
    }


def _concerns(vertex: Vertex, queues: list[ClassQueue]) -> bool:
    """Whether holding the resource keeps any of these classes from being taken."""
    concerned = {vertex.queue, *vertex.kinds.queues, *(above.queue for above in vertex.place.ancestors)}
    return not concerned.isdisjoint(queues)


def _place(state: ManagerState, want: Want) -> int:
    """Return its place among those who wait for one of the same classes: 1 is served next."""
    mine = want.turn
    return 1 + sum(
        other.turn < mine
        for other in state.waiting
        if any(queue in other.form.counts for queue in want.form.counts)
    )


def _blocking(state: ManagerState, want: Want, queue: ClassQueue) -> dict[str, Any] | None:
    """Return a resource that would do, the relative (or itself) that is held, and by whom."""
    reservation = state.reservation
    tops: list[Vertex] = [vertex for need in want.form.needs for vertex in preferred(state.pool, need)]
    if reservation is not None and reservation.want is want:
        tops = reservation.targets
    if not tops:
        tops = [root for host in islice(state.pool.hosts.values(), 16) for root in host.roots]
    for top in tops:
        for vertex in islice(of_class_below(state.pool, top, queue), 64):
            for holding in state.pool.related_holdings(vertex, limit=1):
                relatives = {vertex, *vertex.place.ancestors}
                held = next((v for v in holding.vertices if v in relatives), None)
                if held is None:
                    held = next(v for v in holding.vertices if vertex in v.place.ancestors)
                return {
                    "resource": vertex.resource_id,
                    "relative": held.resource_id,
                    "job": holding.owner,
                    "grant": list(holding.grant_id),
                }
    return None


def _reason(state: ManagerState, want: Want, blocking: dict[str, Any] | None, awaits: list[str]) -> str:
    form = want.form
    missing = [queue for queue, count in form.counts.items() if queue.total < count]
    if missing:
        there = ", ".join(f"{queue.total} {queue.name}" for queue in missing)
        return f"not there yet: there is {there} now"
    if awaits:
        return "what is there now cannot meet it"
    reservation = state.reservation
    if reservation is not None and reservation.want is want:
        names = ", ".join(vertex.resource_id for vertex in reservation.targets[:HOLDERS_NAMED])
        return f"{names} put aside for it, and not all free yet"
    if want.patient:
        needs = [need for need in (want.strict or form).needs if need.hard or form.preferring]
        word = "needs" if form.preferring and needs[0].hard else "still waits for"
        choices = dict.fromkeys(", ".join(need.preferences[:HOLDERS_NAMED]) for need in needs)
        return f"{word} " + " and ".join(f"one of {names}" for names in choices)
    short = [queue for queue, count in form.counts.items() if queue.free < count]
    if short:
        text = f"{short[0].free} of {short[0].total} {short[0].name} free"
        if blocking is None:
            return text
        if blocking["relative"] != blocking["resource"]:
            text += f"; {blocking['resource']} is blocked by {blocking['relative']}"
        return f"{text}, held by {blocking['job']}"
    if reservation is not None:
        return f"what is free is put aside for {reservation.want.owner.job}"
    if form.sizes:
        return "no host has both the resources and the memory free"
    return "what is free does not fit together"
