"""The state of a run-time system, for people."""

from __future__ import annotations

from gspc_trio.components.rts.messages import RtsStatus
from gspc_trio.tui.text import duration


def describe_status(status: RtsStatus) -> list[str]:
    """Return the state of a run-time system as lines for people."""
    lines = [f"{'RIF':<8}{'HOST':<24}{'STATE':<12}WORKERS"]
    for rif in status.rifs:
        lines.append(f"{rif.rif_id:<8}{rif.host:<24}{rif.state:<12}{rif.workers}")
        if rif.detail:
            lines.append(f"        {rif.detail}")
        if rif.memory_layer:
            size = f"{rif.memory_server_bytes} bytes"
            lines.append(f"        memory server of {size}, layer {rif.memory_layer}")
        if features := rif.options.get("features"):
            lines.append(f"        features {', '.join(features.split(','))}, and those of its processor")
        if rif.retry_in_s is not None:
            lines.append(f"        tried again in {rif.retry_in_s:.1f} s")
        if rif.ends_in_s is not None:
            lines.append(f"        ends in {duration(rif.ends_in_s)}")
    lines += ["", f"{'CLASS':<12}{'TOTAL':>8}{'FREE':>8}{'HELD':>8}{'BLOCKED':>9}"]
    lines += [
        f"{name:<12}{entry.total:>8}{entry.free:>8}{entry.held:>8}{entry.blocked:>9}"
        for name, entry in status.classes.items()
    ]
    lines += ["", f"{'MEMORY':<20}{'HOST':<24}{'BYTES':>16}{'FREE':>16}"]
    lines += [
        f"{name:<20}{entry.host:<24}{entry.total_bytes:>16}{entry.free_bytes:>16}"
        for name, entry in status.memories.items()
    ]
    lines += ["", f"{'JOB':<8}{'NAME':<24}{'PRIORITY':>10}{'WEIGHT':>8}{'DEMAND':>8}{'HELD':>8}{'SHARE':>8}"]
    lines += [
        f"{job.job:<8}{job.name:<24}{job.priority:>10}{job.weight:>8g}"
        f"{job.demand:>8}{job.held:>8}{job.share:>8.2f}"
        for job in status.jobs
    ]
    if status.managers:
        lines += ["", f"{'MANAGER':<10}{'PROCESS':>8}  {'STATE':<10}{'HOSTS':<24}JOBS"]
    for manager in status.managers:
        state = "up" if manager.up else "away"
        hosts, jobs = (", ".join(names) or "none" for names in (manager.hosts, manager.jobs))
        lines.append(f"{manager.number:<10}{manager.pid:>8}  {state:<10}{hosts:<24}{jobs}")
    return lines
