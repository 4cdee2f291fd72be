"""The progress bar of a job, on the terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from gspc_trio.components.job.shell.handle import Job
from gspc_trio.executor.progress import REFRESH_INTERVAL_S, how_far, terminal_bar
from gspc_trio.nursery.scopes.scope import open_scope


@asynccontextmanager
async def show_progress(job: Job) -> AsyncIterator[None]:
    """Show on standard error how far the job is, while the block runs."""
    with terminal_bar(job.machine.name) as show:

        async def refresh() -> None:
            while True:
                show(how_far(job.machine.counts()))
                await trio.sleep(REFRESH_INTERVAL_S)

        async with open_scope() as nursery:
            nursery.start_soon(refresh)
            yield
            nursery.cancel_scope.cancel()
