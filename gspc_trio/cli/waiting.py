"""Why the requests of a job wait, as text for people."""

from __future__ import annotations

from typing import Any


def describe_waiting(job: str, waiting: list[dict[str, Any]]) -> list[str]:
    """Return what each request needs, who holds it, its place and what blocks it, as lines.

    Args:
        job: the job's id.
        waiting: what the resource manager explains of it.
    """
    lines = [] if waiting else [f"{job} waits for no resources"]
    for entry in waiting:
        lines.append(f"{job} waits for {entry['credit']} x {entry['shape']}: {entry['reason']}")
        lines.append(f"    for {entry['waited_s']:.1f} s, place {entry['place']}")
        if entry["patience_left_s"] is not None:
            lines.append(f"    takes any other in {entry['patience_left_s']:.1f} s")
        for name, need in entry["needs"].items():
            lines.append(f"    needs {need['needed']} {name}: {need['free']} of {need['total']} free")
        blocking = entry["blocking"]
        if blocking:
            relative = blocking["relative"]
            by = "" if relative == blocking["resource"] else f"blocked by {relative}, "
            lines.append(f"    {blocking['resource']}: {by}held by {blocking['job']}")
        lines += [f"    held by {held['job']}: {', '.join(held['resources'])}" for held in entry["held_by"]]
    return lines
