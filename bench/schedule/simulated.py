"""Recorded runs on simulated hosts: how long they take, and how many bytes are moved.

``plan.fifo_s_WORK_HOSTS``   makespan in today's order
``plan.fifo_mb_WORK_HOSTS``  what hosts fetch from each other in today's order
"""

from __future__ import annotations

from pathlib import Path

from figures import Figures

from schedule.replay import CLUSTERS, Replay, read_works


def measure(figures: Figures, small: bool, traces: Path) -> None:
    """Replay each recorded run on each of the clusters.

    Raises:
        Skipped: there are no recorded runs.
    """
    works = read_works(traces)
    for hosts in CLUSTERS[:1] if small else CLUSTERS:
        for work in works:
            run = Replay(work, hosts).run()
            figures.add(f"plan.fifo_s_{work.name}_{hosts.name}", run.makespan_s, "s")
            figures.add(f"plan.fifo_mb_{work.name}_{hosts.name}", run.moved_bytes / 1e6, "MB")
