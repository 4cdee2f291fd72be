"""A progress bar on the terminal: one more fold of the job's records."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from gspc_trio.components.job.shell.handle import Job
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.nursery.scopes.scope import open_scope

REFRESH_INTERVAL_S = 0.1


def describe_troubles(counts: Mapping[TaskState, int]) -> str:
    """Return how many tasks failed or were cancelled, "" if none."""
    troubles = (TaskState.FAILED, TaskState.CANCELLED)
    return ", ".join(f"{counts[state]} {state.value}" for state in troubles if counts.get(state))


@asynccontextmanager
async def show_progress(job: Job) -> AsyncIterator[None]:
    """Show on standard error how far the job is, while the block runs."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[troubles]}", style="red", markup=False),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        auto_refresh=False,
    )
    row = bar.add_task(job.machine.name, total=None, troubles="")

    async def refresh() -> None:
        while True:
            update()
            await trio.sleep(REFRESH_INTERVAL_S)

    def update() -> None:
        counts = job.machine.counts()
        ended, total = sum(counts.get(state, 0) for state in FINAL_STATES), sum(counts.values())
        bar.update(row, completed=ended, total=total or None, troubles=describe_troubles(counts))
        bar.refresh()

    with bar:
        async with open_scope() as nursery:
            nursery.start_soon(refresh)
            yield
            nursery.cancel_scope.cancel()
